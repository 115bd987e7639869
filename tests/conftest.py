"""A small project of its own for every test: two recipes that need nothing, and one page."""

from __future__ import annotations

import contextlib
import html
import io
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from docutils import nodes
from recordings import environment
from recordings.__main__ import main
from sphinx.cmd.build import main as sphinx_build
from sphinx_gallery import gen_rst

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = REPOSITORY / "docs" / "_ext"
#: What the interpreter that runs the tests brought along, CMake for one, comes first.
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

#: What is made, and what a tool keeps: no part of the project.
MADE = ("build", "recipes", "__pycache__", ".git", ".venv", ".builder", ".*_cache")

#: Where every recording of a test says that it was made.
MACHINE = {
    "gpu": "NVIDIA H200",
    "compute_capability": "9.0",
    "driver": "580.159",
    "cuda": "13.0",
    "nvcc": "13.0",
    "torch": "2.13.0+cu130",
    "triton": "3.7.0",
    "numpy": None,
    "matplotlib": None,
    "cupy": None,
    "jax": None,
    "flatbuffers": None,
    "executorch": "1.5.1+cu130",
    "executorch_revision": "0123456789abcdef",
    "delegate": {"from": "wheel", "library_sha256": "sha256:0"},
    "python": "3.11.7",
    "os": "Linux",
    "cpu": "A CPU",
}

FILES = {
    "conf.py": f"""
import sys

sys.path.insert(0, {str(PACKAGE)!r})
project = "small"
extensions = ["myst_parser", "recordings", "sphinx_gallery.gen_gallery"]
html_theme = "basic"
html_use_index = html_copy_source = False
templates_path = ["templates"]
exclude_patterns = ["recipes/**/*.ipynb"]
sphinx_gallery_conf = {{
    "examples_dirs": "../gallery",
    "gallery_dirs": "recipes",
    "plot_gallery": False,
    "copyfile_regex": "",
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_signature": False,
    "write_computation_times": False,
}}
""",
    "pyproject.toml": """
[dependency-groups]
run = ["torch==2.13.*", "executorch==1.5.1", "numpy>=2"]
""",
    # Sphinx's own templates take half the time of a small build.
    "templates/page.html": "<html>{{ body }}</html>",
    "templates/search.html": "",
    "docs/index.md": """
# Small

The total is {fact}`small/sums:total`.

```{toctree}
recipes/index
```
""",
    "gallery/GALLERY_HEADER.rst": "Recipes\n=======\n",
    "gallery/small/GALLERY_HEADER.rst": "Small\n=====\n",
    "gallery/small/sums.py": '''"""
Sums
====

Adds two numbers.
"""

# %%
# First the sum.

total = 1 + 2  # three
print("the sum is", total)

# %%
# Then a longer text.

text = """one

two"""
print(text.upper())

facts = {
    "total": total,
    "half": total / 2,
    "nested": {"list": [10, 20]},
    "rows": [{"n": 1, "in": {"ms": 2.5}}, {"n": 8, "in": {"ms": 20}}],
    "error": "it\\nfailed",
}
''',
    "gallery/small/sums/data.txt": "1 2\n",
    "gallery/small/curve.py": '''"""
Curve
=====

Draws two curves.
"""

import matplotlib.pyplot as plt

plt.plot([1, 2])
plt.show()

# %%
# The other one.

plt.plot([2, 1])
plt.show()
''',
}


@dataclass(frozen=True)
class Finished:
    """How a command ended: its exit status, and what it printed."""

    status: int
    out: str
    err: str


@dataclass(frozen=True)
class Build:
    """How a build ended: its exit status, its warnings, and the folder of its pages."""

    status: int
    warnings: str
    pages: Path

    def html(self, page: str) -> str:
        """A page without what a theme adds to it."""
        return (self.pages / f"{page}.html").read_text(encoding="utf-8")

    def doctrees(self) -> dict[str, nodes.document]:
        """The pages before they became HTML, by their names."""
        folder = self.pages / ".doctrees"
        return {
            path.relative_to(folder).with_suffix("").as_posix(): pickle.loads(path.read_bytes())
            for path in sorted(folder.rglob("*.doctree"))
        }

    def text(self, page: str) -> str:
        """What a reader sees of a page, on one line."""
        return " ".join(html.unescape(re.sub(r"<[^>]+>", "", self.html(page))).split())


class Project:
    """A temporary project with the package of this repository."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, name: str) -> Path:
        """A file of the project."""
        return self.root / name

    def write(self, name: str, text: str) -> Path:
        """Write a file of the project."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a text that occurs once in a file of the project."""
        text = self.path(name).read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{name} holds {old!r} {text.count(old)} times"
        self.write(name, text.replace(old, new))

    def recipe(self, name: str, code: str, tags: str = "[]") -> None:
        """Write a recipe with one code block."""
        title = name.rpartition("/")[2]
        head = f'"""\n{title}\n{"=" * len(title)}\n\nText.\n"""\n\n'
        self.write(f"gallery/{name}.py", f"{head}# sphinx_gallery_tags = {tags}\n\n{code}\n")

    def without(self, *recipes: str) -> None:
        """Take recipes and their recordings away."""
        for name in recipes:
            self.path(f"gallery/{name}.py").unlink()
            self.recording(name).unlink()

    def recording(self, name: str = "small/sums") -> Path:
        """The recording of a recipe."""
        return self.path(f"gallery/recordings/{name}.json")

    def figures(self, name: str) -> list[Path]:
        """The recorded figures of a recipe, in order."""
        path = self.recording(name)
        return sorted(path.parent.glob(f"sphx_glr_{path.stem}_*"))

    def files(self) -> dict[str, bytes]:
        """Every file that is not under build/ or docs/recipes/, and its content."""
        made = (self.root / "build", self.root / "docs" / "recipes")
        return {
            path.relative_to(self.root).as_posix(): path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and not any(path.is_relative_to(folder) for folder in made)
        }

    def restore(self, files: dict[str, bytes]) -> None:
        """Bring back the files that changed or went since :meth:`files`; the others go."""
        now = self.files()
        for name in now.keys() - files.keys():
            self.path(name).unlink()
        for name in files:
            if now.get(name) != files[name]:
                self.path(name).write_bytes(files[name])

    def command(self, *arguments: str) -> Finished:
        """Call the command line, as `python -m recordings` does."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(["--root", str(self.root), *arguments])
        return Finished(status, out.getvalue(), err.getvalue())

    def state(self, name: str = "small/sums") -> str:
        """The state of a recipe by `python -m recordings list`."""
        lines = [line.split() for line in self.command("list").out.splitlines()]
        return next(words[1] for words in lines if words[0] == name)

    def process(self, *arguments: str, script: Path | None = None) -> Finished:
        """Call the command line in a process of its own, or a script in its place."""
        called = [str(script)] if script else ["-m", "recordings"]
        return self.python(*called, "--root", str(self.root), *arguments)

    def python(self, *words: str) -> Finished:
        """Call Python in the project's folder, with the package of this repository."""
        done = subprocess.run(
            [sys.executable, *words],
            cwd=self.root,
            env=os.environ | {"PYTHONPATH": str(PACKAGE), "PATH": PATH},
            capture_output=True,
            text=True,
            timeout=120,
        )
        return Finished(done.returncode, done.stdout, done.stderr)

    def record(self, *names: str) -> None:
        """Run recipes and write their recordings."""
        done = self.command("run", *names)
        assert done.status == 0, done.err

    def build(self, *options: str, strict: bool = False) -> Build:
        """Build the site as `make html` does, or as `make check` does."""
        pages = self.root / "build" / ("check" if strict else "html")
        if strict:
            options = (*options, "-W", "--keep-going", "-n", "-D", "recordings_local=")
        err = io.StringIO()
        folders = ["-c", str(self.root), str(self.root / "docs"), str(pages)]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
            status = sphinx_build(["-q", "--no-color", *options, *folders])
        return Build(status, err.getvalue(), pages)


@contextlib.contextmanager
def copied(template: Path, folder: Path) -> Iterator[Project]:
    """A copy of a project, and an interpreter that forgets what its builds changed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(environment, "describe", lambda: MACHINE)
        for name in ("execute_script", "identify_names"):
            patch.setattr(gen_rst, name, getattr(gen_rst, name))
        patch.setattr(sys, "path", [*sys.path])
        yield Project(shutil.copytree(template, folder, dirs_exist_ok=True))


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small project with its recordings; look, but leave it as it is."""
    with copied(tmp_path_factory.mktemp("empty"), tmp_path_factory.mktemp("recorded")) as made:
        for name, text in FILES.items():
            made.write(name, text)
        made.record()
        return made.root


@pytest.fixture
def project(recorded: Path, tmp_path: Path) -> Iterator[Project]:
    """The small project, recorded on `MACHINE`, as are its recordings to come."""
    with copied(recorded, tmp_path / "project") as made:
        yield made


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Build]:
    """This site, built strictly from a copy of what it is made of; look, but leave it as it is."""
    source = tmp_path_factory.mktemp("site")
    for name in ("docs", "gallery"):
        shutil.copytree(REPOSITORY / name, source / name, ignore=shutil.ignore_patterns(*MADE))
    for name in ("conf.py", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, source)
    with copied(source, tmp_path_factory.mktemp("copy")) as project:
        return project, project.build(strict=True)
