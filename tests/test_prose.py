"""The prose of this site: spelled right, in its own terms, without slips of markup."""

from __future__ import annotations

import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from conftest import REPOSITORY, Build, Project
from docutils import nodes
from markdown_it import MarkdownIt
from spellchecker import SpellChecker

#: Words that are right here and that no dictionary has, one a line.
WORDS = REPOSITORY / "tests" / "words.txt"

#: What this site does not call so, and what it does: see docs/reference/glossary.md.
TERMS = {
    r"(GPU|CUDA|video|graphics) memory": "device memory",
    r"(CPU|system|main) memory": "host memory",
    r"pre-?allocated output": "planned output",
    r"(golden|cached) (file|output)": "recording",
    r"back-end": "backend",
    r"run-time": "runtime or run time",
    r"look-up|lookup table": "table",
    r"(behavi|col|fav|neighb)our": "American spelling",
    r"(initial|optim|synchron|serial|normal|organ)is(e|ing|ation)": "American spelling",
    r"(labell|cancell|travell|modell)(ed|ing)": "American spelling",
    r"simply|obviously|of course|seamless|powerful|blazing|cutting-edge": "what happens instead",
}
#: How names are written.
NAMES = ["ExecuTorch", "PyTorch", "NumPy", "CuPy", "JAX", "CMake", "CUDA", "Python", "Sphinx"]


# -- what is prose ----------------------------------------------------------------------

#: Code, and what nobody wrote: what was recorded, and tags.
NO_PROSE = (nodes.literal, nodes.literal_block, nodes.raw, nodes.comment, nodes.math)
NO_PROSE_CLASSES = {"fact", "ran", "recording-stamp", "recordings-table", "sphx-glr-example-tags"}


def prose(page: nodes.document) -> str:
    """The text of a page that was written for it, with the texts of its figures."""
    texts = []
    for text in page.findall(nodes.Text):
        if not any(map(unwritten, ancestors(text))):
            texts.append(text.astext())
    texts += [image["alt"] for image in page.findall(nodes.image) if "alt" in image]
    return "\n".join(texts)


def unwritten(element: nodes.Element) -> bool:
    """Whether what is in an element is no prose."""
    return isinstance(element, NO_PROSE) or bool(NO_PROSE_CLASSES & {*element["classes"]})


def ancestors(node: nodes.Node) -> Iterator[nodes.Element]:
    """What a node is in, up to its page."""
    at = node.parent
    while at is not None:
        yield at
        at = at.parent


def markdown(text: str) -> str:
    """The prose of a Markdown file that is no page."""
    tokens = [child for it in MarkdownIt().parse(text) for child in it.children or ()]
    return "\n".join(it.content for it in tokens if it.type == "text")


def comments(path: Path) -> str:
    """The comments of a source file, without marks, directives and code."""
    if path.suffix == ".py":
        with path.open("rb") as file:
            tokens = [*tokenize.tokenize(file.readline)]
        found = [it.string.lstrip("# ") for it in tokens if it.type == tokenize.COMMENT]
    else:
        found = re.findall(r"(?://|#)\s(.*)", path.read_text(encoding="utf-8"))
    marks = re.compile(r"\[/?\w+\]|sphinx_gallery_|%%|type: |noqa|fmt: |\.\. |:[\w-]+: ")
    return "\n".join(
        re.sub(r"``?[^`]+``?|:\w+:`[^`]+`", "", it) for it in found if not marks.match(it)
    )


# -- spelling ---------------------------------------------------------------------------


def words(text: str) -> set[str]:
    """The words of a prose; names with digits, dots, underscores or capitals inside are none."""
    plain = text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    plain = re.sub(r"https?://\S+|\S*[\w)][./_=:<>\\]+\w\S*|\S*\d\S*", " ", plain)
    found = re.findall(r"[A-Za-z]+(?:'[a-z]+)?", plain)
    return {it.removesuffix("'s") for it in found if len(it) > 1 and not re.search(r".[A-Z]", it)}


def known_words() -> set[str]:
    """The words of the list."""
    return set(WORDS.read_text(encoding="utf-8").split())


def misspelled(text: str, known: Iterable[str]) -> list[str]:
    """The words of a prose that neither a dictionary nor the list has."""
    return sorted(DICTIONARY.unknown(words(text)) - {it.lower() for it in known})


DICTIONARY = SpellChecker(language="en")


def wrong_terms(text: str) -> list[str]:
    """What a prose calls otherwise than this site does."""
    one_line = " ".join(text.split())
    found = [
        f"{hit.group()}: write {right}"
        for wrong, right in TERMS.items()
        for hit in re.finditer(rf"\b({wrong})", one_line, re.I)
    ]
    for name in NAMES:
        hits = re.findall(rf"(?<![\w.:/-]){name}(?![\w./-]|:\S)", one_line, re.I)
        found += [f"{hit}: write {name}" for hit in hits if hit != name]
    return found


# -- this site --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def proses(site: tuple[Project, Build]) -> dict[str, str]:
    """The prose of every page, of the README, and of the files of the recipes."""
    found = {name: prose(page) for name, page in site[1].doctrees().items()}
    found["README.md"] = markdown((REPOSITORY / "README.md").read_text(encoding="utf-8"))
    for path in sorted((REPOSITORY / "gallery").rglob("*")):
        if path.stem.endswith("_generated"):
            continue  # by a compiler
        if path.suffix in (".py", ".cpp") or path.name == "CMakeLists.txt":
            found[path.relative_to(REPOSITORY).as_posix()] = comments(path)
    return found


def test_every_word_is_spelled_right(proses: dict[str, str]) -> None:
    known = known_words()
    found = {name: wrong for name, text in proses.items() if (wrong := misspelled(text, known))}
    hint = f"if it is right, add it to {WORDS.relative_to(REPOSITORY)}"
    assert not found, "\n".join([f"{name}: {', '.join(it)}" for name, it in found.items()] + [hint])


def test_every_term_is_the_one_of_this_site(proses: dict[str, str]) -> None:
    assert {name: wrong for name, text in proses.items() if (wrong := wrong_terms(text))} == {}


def test_the_list_of_words_holds_what_is_needed_in_order(proses: dict[str, str]) -> None:
    lines = WORDS.read_text(encoding="utf-8").splitlines()
    assert lines == sorted(set(lines), key=str.lower)
    used = {it.lower() for text in proses.values() for it in words(text)}
    assert [it for it in lines if it.lower() not in used] == []
    assert sorted(DICTIONARY.known(lines)) == []


# -- the checks -------------------------------------------------------------------------


def test_a_misspelled_word_is_found_in_a_page(project: Project) -> None:
    text = "# Small\n\nA mispelled word, `notaword`, {fact}`small/sums:error`.\n"
    table = "\n| Colunm |\n| --- |\n| x |\n"
    project.write("docs/index.md", text + table + "\n```python\nvarable = 1\n```\n")
    page = project.build().doctrees()["index"]
    assert misspelled(prose(page), []) == ["colunm", "mispelled"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.py", "x = 1  # a mispelled word\n# [mark]\nname = 'anothr'\n"),
        ("x.cpp", "int x;  // a mispelled word, `notaword`\n// [mark]\n"),
        ("CMakeLists.txt", "# a mispelled word\nproject(anothr)\n"),
    ],
)
def test_a_misspelled_word_is_found_in_a_comment(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert misspelled(comments(tmp_path / name), []) == ["mispelled"]


def test_a_misspelled_word_is_found_in_the_readme() -> None:
    assert misspelled(markdown("# A mispelled word\n\nIn `cood`.\n"), []) == ["mispelled"]


def test_names_and_numbers_are_no_words() -> None:
    text = "see foo.bar, set_output, https://exmaple.org/pth, 12ms, HtoD, CudaBackend and libfoo.so"
    assert misspelled(text, []) == []


def test_a_word_of_the_list_is_known() -> None:
    assert misspelled("the quxes", ["Quxes"]) == []


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("It stays in GPU\nmemory.", "device memory"),
        ("The behaviour", "American spelling"),
        ("You simply call it", "what happens"),
        ("with Pytorch", "PyTorch"),
        ("a cuda device", "CUDA"),
    ],
)
def test_a_wrong_term_is_found(text: str, right: str) -> None:
    (found,) = wrong_terms(text)
    assert right in found


def test_the_right_terms_are_left_alone() -> None:
    text = "ExecuTorch and PyTorch copy to device memory on cuda:0, see pytorch.org and CUDA's"
    assert wrong_terms(text) == []
