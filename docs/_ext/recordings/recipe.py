"""What a recipe is: its title, needs, code blocks and companions, and their hashes."""

from __future__ import annotations

import ast
import functools
import hashlib
import io
import json
import re
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sphinx_gallery import gen_rst, py_source_parser

#: The needs a recipe can declare among its tags, and what each one means.
NEEDS = {
    "executorch": "ExecuTorch, exporter and runtime",
    "cuda": "a CUDA device, ExecuTorch's CUDA delegate and nvcc",
    "cpp": "a C++ compiler and CMake 3.28 or newer",
}

#: A tag: sphinx-gallery writes it into HTML and into an address as it is, and divides by commas.
TAG = re.compile(r"[\w.-]+", re.ASCII)

#: What Python, its tools and systems leave in folders: no companions.
LEFTOVERS = {"__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".DS_Store"}


class RecipeError(Exception):
    """A recipe cannot be read; the message says which, why and what to do."""


@dataclass(frozen=True)
class Recipe:
    """One sphinx-gallery script and the files it uses.

    Attributes:
        name: ``<caller>/<name>``, the path below the gallery without its suffix.
        path: The script.
        title: The first heading of its docstring.
        tags: Its ``sphinx_gallery_tags``, in order.
        blocks: sphinx-gallery's blocks, text and code, in order.
        companions: The other files it uses, by their path relative to the script's folder.
    """

    name: str
    path: Path
    title: str
    tags: tuple[str, ...]
    blocks: tuple[py_source_parser.Block, ...]
    companions: dict[str, Path]

    @property
    def needs(self) -> tuple[str, ...]:
        """The tags that are needs, in the order of :data:`NEEDS`."""
        return tuple(need for need in NEEDS if need in self.tags)

    @property
    def runs_alone(self) -> bool:
        """Whether no other recipe may run beside it.

        The tag ``cost`` says that it measures times, ``alone`` that it fills the machine.
        """
        return "cost" in self.tags or "alone" in self.tags

    @property
    def code_blocks(self) -> list[int]:
        """Where among :attr:`blocks` the ones with code are; comments alone are none."""
        return list(self._codes)

    def python_texts(self) -> list[str]:
        """The Python that a run executes: every code block, every companion that is a script."""
        scripts = [path for path in self.companions.values() if path.suffix == ".py"]
        code = [block.content for block in self.blocks if block.type == "code"]
        return code + [path.read_text(encoding="utf-8", errors="replace") for path in scripts]

    def code_hash(self) -> str:
        """Hash of the code blocks in order, blind to prose and comments."""
        return sha256(json.dumps([*self._codes.values()]).encode())

    def companion_hashes(self) -> dict[str, str]:
        """Hash of every companion file, by its relative path."""
        return {name: sha256(path.read_bytes()) for name, path in self.companions.items()}

    @functools.cached_property
    def _codes(self) -> dict[int, str]:
        """The code of every block that has any, by its index; a build asks for it often."""
        blocks = [(index, it) for index, it in enumerate(self.blocks) if it.type == "code"]
        try:
            codes = {index: code_only(block.content) for index, block in blocks}
        except ValueError as error:
            raise RecipeError(f"{self.path}: {error}") from error
        return {index: code for index, code in codes.items() if code}


def sha256(data: bytes) -> str:
    """``sha256:`` and the hexadecimal digest of `data`."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def code_only(source: str) -> str:
    """`source` without its comments, and without the lines that this leaves empty.

    Only comment positions are taken from the tokenizer: token texts differ between Python
    versions, and a recording made by one Python is checked by another.

    Raises:
        ValueError: `source` is not Python.
    """
    # As the tokenizer does: form feeds and the like end no line.
    lines = source.removesuffix("\n").split("\n")
    outside_strings = set()
    try:
        ast.parse(source)
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            row, column = token.start
            if token.type == tokenize.COMMENT:
                lines[row - 1] = lines[row - 1][:column].rstrip()
            elif token.type == tokenize.NL:
                outside_strings.add(row - 1)
    except SyntaxError as error:
        raise ValueError(f"a code block is not Python: SyntaxError: {error}") from error
    kept = [line for row, line in enumerate(lines) if line.strip() or row not in outside_strings]
    return "\n".join(kept)


def load(gallery: Path, name: str) -> Recipe:
    """Read the recipe `name` (``<caller>/<name>``) below `gallery`.

    Raises:
        RecipeError: There is no such recipe, or it is not a sphinx-gallery script.
    """
    path = gallery / f"{name}.py"
    plain = re.fullmatch(r"[\w-]+/[\w-]+", name) and path.is_file()
    if not plain or not (path.parent / "GALLERY_HEADER.rst").is_file():
        raise RecipeError(f"there is no recipe {name!r}: write caller/name, as `list` shows it")
    try:
        config, blocks = py_source_parser.split_code_and_text_blocks(path)
        _, title = gen_rst.extract_intro_and_title(path, blocks[0].content)
    except Exception as error:  # sphinx-gallery raises its own and the parser's errors
        raise RecipeError(f"{path}: not a sphinx-gallery script: {error}") from error
    if any(re.search(py_source_parser.START_IGNORE_FLAG, it.content, re.M) for it in blocks):
        raise RecipeError(f"{path}: sphinx_gallery_start_ignore would hide code that runs")
    declared = {key: config.get(key, []) for key in ("tags", "companions")}
    for key, value in declared.items():
        if not isinstance(value, list) or not all(isinstance(it, str) for it in value):
            raise RecipeError(f"{path}: sphinx_gallery_{key} is {value!r}, not a list of texts")
    for tag in declared["tags"]:
        if not TAG.fullmatch(tag):
            raise RecipeError(f"{path}: the tag {tag!r} is no word of letters, digits, _, . and -")
    for folder in declared["companions"]:
        if Path(folder).is_absolute() or not (path.parent / folder).is_dir():
            raise RecipeError(f"{path}: no folder {folder!r} beside it, for its companions")
    companions = dict(_files(path.parent, [path.stem, *declared["companions"]]))
    return Recipe(name, path, title, tuple(declared["tags"]), tuple(blocks), companions)


def find(gallery: Path) -> list[Recipe]:
    """Every recipe below `gallery`, by name.

    A recipe lies in a caller's folder, one that has a gallery header.

    Raises:
        RecipeError: One of them cannot be read.
    """
    headers = sorted(gallery.glob("*/GALLERY_HEADER.rst"))
    scripts = [script for header in headers for script in sorted(header.parent.glob("*.py"))]
    return [load(gallery, f"{script.parent.name}/{script.stem}") for script in scripts]


def _files(base: Path, folders: list[str]) -> list[tuple[str, Path]]:
    """The files in `folders` below `base`, without what Python and systems leave there."""
    found: list[tuple[str, Path]] = []
    for folder in folders:
        for path in sorted((base / folder).rglob("*")):
            relative = path.relative_to(base)
            if path.is_symlink() and path.is_dir():
                raise RecipeError(f"{path}: a link to a folder; companions are files and folders")
            if path.is_file() and not LEFTOVERS & set(relative.parts):
                found.append((relative.as_posix(), path))
    return found


def to_json(value: Any) -> str:
    """`value` as JSON that reads well and never changes for equal values.

    Raises:
        TypeError, ValueError: `value` holds something JSON cannot, NaN and infinity included.
    """
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
