"""The HTML of this site: valid, every link leads somewhere, every figure can be read out."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit
from xml.etree.ElementTree import Element

import html5lib
import pytest
from conftest import Build, Project
from html5lib.constants import E as MESSAGES

HEADINGS = {f"h{level}" for level in range(1, 7)}
#: Elements that take text and what flows in text, and nothing that is a block of its own.
PHRASING = {"b", "button", "code", "em", "i", "label", "p", "pre", "small", "span", "strong"}
PHRASING |= {"sub", "summary", "sup", *HEADINGS}
BLOCKS = {"address", "article", "aside", "blockquote", "details", "div", "dl", "figure", "footer"}
BLOCKS |= {"form", "header", "hr", "main", "nav", "ol", "p", "pre", "section", "table", "ul"}
#: A heading is a block, but a summary may have one.
NOT_IN = {**dict.fromkeys(PHRASING, BLOCKS | HEADINGS), "summary": BLOCKS}
INTERACTIVE = {"a", "button", "details", "embed", "iframe", "label", "select", "textarea"}
OBSOLETE = {"acronym", "big", "center", "font", "frame", "frameset", "marquee", "strike", "tt"}
#: The only children that a list may have.
CHILDREN = {
    "ul": {"li", "script", "template"},
    "ol": {"li", "script", "template"},
    "dl": {"dt", "dd", "div", "script", "template"},
}


@functools.cache
def parsed(text: str) -> tuple[Element, list[str]]:
    """A page as a browser reads it, and where it had to guess."""
    parser = html5lib.HTMLParser(namespaceHTMLElements=False)
    root = parser.parse(text)
    found = [f"line {at[0]}: {MESSAGES[code] % values}" for at, code, values in parser.errors]
    return root, found


def below(
    element: Element, inside: tuple[str, ...] = ()
) -> Iterator[tuple[Element, tuple[str, ...]]]:
    """Every element, and the names of those that it is in; comments are none."""
    for child in element:
        if isinstance(child.tag, str):
            yield child, inside
            yield from below(child, (*inside, child.tag))


def invalid(text: str) -> list[str]:
    """What of a page the HTML standard does not allow."""
    root, guesses = parsed(text)
    problems = [*guesses]
    ids: Counter[str] = Counter()
    for element, inside in below(root):
        name = element.tag
        ids[element.get("id", "")] += 1
        if name in OBSOLETE:
            problems.append(f"<{name}> is obsolete")
        parent = inside[-1] if inside else ""
        if name in NOT_IN.get(parent, ()) or name not in CHILDREN.get(parent, {name}):
            problems.append(f"<{name}> in <{parent}>")
        if name in INTERACTIVE and {"a", "button"} & set(inside):
            problems.append(f"<{name}> in a link or a button")
    problems += [
        f"{count} elements have the id {it}" for it, count in ids.items() if it and count > 1
    ]
    return problems


def without_text(text: str) -> list[str]:
    """The figures of a page that a screen reader cannot read out."""
    problems = []
    for element, inside in below(parsed(text)[0]):
        hidden = element.get("aria-hidden") == "true"
        if element.tag == "img" and not element.get("alt", "").strip():
            # A picture beside the text that says the same may have an empty one.
            if "alt" not in element.attrib or not decorative(element):
                problems.append(f"no text: {element.get('src')}")
        elif element.tag.endswith("svg") and not hidden and "button" not in inside:
            titled = any(it.tag.endswith("title") and (it.text or "").strip() for it in element)
            if element.get("role") != "img" or not (titled or element.get("aria-label")):
                problems.append(f"no role and title: {element.get('class')}")
    return problems


def decorative(image: Element) -> bool:
    """Whether a picture is a card's or a logo, with its name beside it."""
    return bool(re.search(r"_thumb\d*\.|logo", image.get("src", "")))


def tables_as_text(text: str) -> list[str]:
    """The paragraphs of a page that should have been tables: a bar too many makes text of one."""
    paragraphs = ["".join(it.itertext()) for it, _ in below(parsed(text)[0]) if it.tag == "p"]
    return [it for it in paragraphs if it.lstrip().startswith("|")]


# -- links ------------------------------------------------------------------------------

ADDRESSES = {"a": "href", "link": "href", "img": "src", "script": "src", "source": "src"}


def addresses(root: Element) -> Iterator[tuple[str, str]]:
    """The elements of a page that have an address, and the address."""
    for element, _ in below(root):
        if address := element.get(ADDRESSES.get(element.tag, "src")):
            yield element.tag, address


def dead_links(folder: Path) -> list[str]:
    """Addresses that lead to no file of a built site, or to no part of a page."""
    pages = {path: parsed(path.read_text("utf-8"))[0] for path in html_files(folder)}
    parts = {
        path.resolve(): {it.get("id") for it, _ in below(root)} for path, root in pages.items()
    }
    problems = []
    for path, root in pages.items():
        for tag, address in addresses(root):
            url = urlsplit(address)
            if url.scheme or url.netloc:
                if tag != "a" and url.scheme != "data":
                    problems.append(f"{path.relative_to(folder)}: <{tag}> loads {address}")
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path.resolve()
            if not target.is_file() or (
                url.fragment and unquote(url.fragment) not in parts.get(target, set())
            ):
                problems.append(f"{path.relative_to(folder)}: there is no {address}")
    return problems


def html_files(folder: Path) -> list[Path]:
    """The pages of a built site."""
    found = sorted(folder.rglob("*.html"))
    return [path for path in found if not path.relative_to(folder).parts[0].startswith("_")]


# -- this site --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pages(site: tuple[Project, Build]) -> dict[str, str]:
    """The text of every page."""
    folder = site[1].pages
    return {it.relative_to(folder).as_posix(): it.read_text("utf-8") for it in html_files(folder)}


def test_every_page_is_valid(pages: dict[str, str]) -> None:
    assert {name: found for name, text in pages.items() if (found := invalid(text))} == {}


def test_every_figure_has_a_text(pages: dict[str, str]) -> None:
    assert {name: found for name, text in pages.items() if (found := without_text(text))} == {}


def test_every_table_is_one(pages: dict[str, str]) -> None:
    assert {name: found for name, text in pages.items() if (found := tables_as_text(text))} == {}


def test_every_link_leads_somewhere(site: tuple[Project, Build]) -> None:
    assert dead_links(site[1].pages) == []


# -- the checks -------------------------------------------------------------------------

HEAD = "<!doctype html><html lang='en'><head><title>Page</title></head><body>"


@pytest.mark.parametrize(
    ("body", "problem"),
    {
        "<p><div>x</div></p>": "Unexpected end tag (p). Ignored.",
        "<p id=a id=b>x</p>": "duplicate",
        "<section><p>x": "end of file",
        "<table><div>x</div></table>": "table context",
        "<summary><p>x</p></summary>": "<p> in <summary>",
        "<span><div>x</div></span>": "<div> in <span>",
        "<ul><p>x</p></ul>": "<p> in <ul>",
        "<a href='#'><button>x</button></a>": "<button> in a link",
        "<p id='x'>1</p><p id='x'>2</p>": "2 elements have the id x",
        "<center>x</center>": "<center> is obsolete",
    }.items(),
)
def test_what_is_invalid_is_found(body: str, problem: str) -> None:
    assert problem.lower() in " ".join(invalid(HEAD + body)).lower()


def test_what_is_valid_is_left_alone() -> None:
    body = "<p>x <em>y</em></p><ul><li><p>z</p></li></ul><details><summary>s</summary></details>"
    assert invalid(f"{HEAD}{body}</body></html>") == []


@pytest.mark.parametrize(
    ("figure", "problem"),
    {
        "<img src='x.png'>": "no text: x.png",
        "<img src='x.png' alt=' '>": "no text: x.png",
        "<img src='sphx_thumb.png'>": "no text: sphx_thumb.png",
        "<svg class='chart'><path/></svg>": "no role and title: chart",
        "<svg class='chart' role='img'><title> </title></svg>": "no role and title: chart",
    }.items(),
)
def test_a_figure_without_text_is_found(figure: str, problem: str) -> None:
    assert without_text(HEAD + figure) == [problem]


def test_a_table_that_became_text_is_found() -> None:
    found = tables_as_text(f"{HEAD}<p>| <b>a</b> | b |</p><p>a | b</p>")
    assert found == ["| a | b |"]


@pytest.mark.parametrize(
    "figure",
    [
        "<img src='x.png' alt='A curve'>",
        "<img src='sphx_thumb.png' alt=''>",
        "<svg role='img'><title>A curve</title></svg>",
        "<svg aria-hidden='true'></svg>",
    ],
)
def test_a_figure_with_a_text_is_left_alone(figure: str) -> None:
    assert without_text(HEAD + figure) == []


@pytest.mark.parametrize(
    "dead",
    [
        "<a href='none.html'>x</a>",
        "<a href='#none'>x</a>",
        "<a href='other.html#none'>x</a>",
        "<img src='none.png' alt='x'>",
        "<a href='folder/'>x</a>",
        "<script src='https://cdn.example/x.js'></script>",
        "<link rel='preconnect' href='https://cdn.example'>",
    ],
)
def test_a_dead_link_is_found(tmp_path: Path, dead: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "other.html").write_text(f"{HEAD}<p id='part'>x</p>")
    (tmp_path / "index.html").write_text(HEAD + dead)
    (found,) = dead_links(tmp_path)
    assert found.startswith("index.html: ")


def test_a_live_link_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "other.html").write_text(f"{HEAD}<a href='index.html'>x</a><p id='part'>x</p>")
    links = "<a href='other.html#part'>x</a><a href='https://example.org'>x</a><a href='#'>x</a>"
    (tmp_path / "index.html").write_text(HEAD + links)
    assert dead_links(tmp_path) == []
