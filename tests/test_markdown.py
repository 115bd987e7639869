"""The Markdown beside the HTML: a copy of every page, and what lists them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from conftest import Build, Project, copied
from markdown_it import MarkdownIt

#: What of a page's source must not be left in its Markdown.
SOURCE = re.compile(r"\{[a-z-]+\}`|^\s*:::|^\s*`{3}\{|^\.\. |</?(div|span|details)\b", re.M)
PAGE = """
# Shapes

The total is {fact}`small/sums:total`, see {doc}`recipes/small/sums` and {ref}`there <there>`.

| what | value |
| --- | --- |
| total | {fact}`small/sums:total` |

:::::{tab-set}
::::{tab-item} Python
Says `a`.
::::
::::{tab-item} C++
```{literalinclude} ../gallery/small/sums.py
:language: python
:start-at: total =
:end-at: total =
```
::::
:::::

::::{grid}
:::{grid-item-card} First
:link: index
:link-type: doc
One.
:::
:::{grid-item-card} Second
:link: index
:link-type: doc
Two.
:::
::::

```{matrix} small/sums:rows
n: how many
in.ms|.1f: how long
```

```{recorded} small/sums:error
```

(there)=
## There

:::{note}
Mind this.
:::
"""


@pytest.fixture(scope="module")
def rich(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> Build:
    """The small site with a page that has a bit of everything, built strictly; only to look at."""
    with copied(recorded, tmp_path_factory.mktemp("rich")) as project:
        enable = 'myst_enable_extensions = ["colon_fence"]\nrecordings_summary = "How."'
        project.edit("conf.py", '["myst_parser", ', '["myst_parser", "sphinx_design", ')
        project.edit("conf.py", 'project = "small"', f'project = "small"\n{enable}')
        project.edit("docs/index.md", "recipes/index\n", "recipes/index\nshapes\n")
        project.write("docs/shapes.md", PAGE)
        return project.build(strict=True)


def markdown(built: Build, page: str) -> str:
    """The Markdown of a page."""
    return (built.pages / f"{page}.md").read_text(encoding="utf-8")


def prose(text: str) -> str:
    """Markdown without its code."""
    return re.sub(r"^(`{3,}).*?^\1$|(`+)(?!`).+?(?<!`)\2(?!`)", "", text, flags=re.M | re.S)


def stamps(folder: Path) -> dict[Path, int]:
    """When each Markdown and text file below a folder was written, exactly."""
    files = [*folder.rglob("*.md"), *folder.glob("*.txt")]
    return {path: path.stat().st_mtime_ns for path in files}


# -- this site --------------------------------------------------------------------------


def test_every_page_has_its_markdown(site: tuple[Project, Build]) -> None:
    _, built = site
    pages = {path.relative_to(built.pages).with_suffix("") for path in built.pages.rglob("*.html")}
    pages = {page for page in pages if page.parts[0] not in ("_static", "search", "genindex")}
    copies = {path.relative_to(built.pages).with_suffix("") for path in built.pages.rglob("*.md")}
    assert pages
    assert copies == pages


def test_no_source_is_left_in_any_markdown(site: tuple[Project, Build]) -> None:
    _, built = site
    texts = {path: prose(path.read_text(encoding="utf-8")) for path in built.pages.rglob("*.md")}
    found = {path.name: hit.group() for path, text in texts.items() if (hit := SOURCE.search(text))}
    assert found == {}


def test_every_link_between_copies_leads_to_a_file(site: tuple[Project, Build]) -> None:
    _, built = site
    dead = set()
    for path in [*built.pages.rglob("*.md"), built.pages / "llms.txt"]:
        for token in MarkdownIt().parse(path.read_text(encoding="utf-8")):
            for child in token.children or []:
                target = str(child.attrs.get("href") or child.attrs.get("src") or "#")
                file = target.partition("#")[0]
                if file and "://" not in file and not (path.parent / file).is_file():
                    dead.add((path.name, target))
    assert dead == set()


def test_every_link_of_a_copy_has_a_target(site: tuple[Project, Build]) -> None:
    _, built = site
    texts = {
        path.name: prose(path.read_text(encoding="utf-8")) for path in built.pages.rglob("*.md")
    }
    assert [name for name, text in texts.items() if "]()" in text] == []


def test_the_index_lists_every_page_once_with_a_description(site: tuple[Project, Build]) -> None:
    _, built = site
    lines = (built.pages / "llms.txt").read_text(encoding="utf-8").splitlines()
    entries = [re.fullmatch(r"- \[[^]]+\]\(([^)]+)\.md\): .+[.?]", line) for line in lines]
    listed = [entry.group(1) for entry in entries if entry]
    pages = [path.relative_to(built.pages).with_suffix("") for path in built.pages.rglob("*.md")]
    assert sorted(listed) == sorted(page.as_posix() for page in pages)


# -- a page -----------------------------------------------------------------------------


def test_a_page_has_values_where_its_source_has_roles(rich: Build) -> None:
    text = markdown(rich, "shapes")
    assert "The total is 3, see [Sums](recipes/small/sums.md) and [there](#there)." in text


@pytest.mark.parametrize(
    "row", [["total", "3"], ["1", "2.5"], ["8", "20.0"]], ids=["written", "recorded", "rounded"]
)
def test_tables_are_tables(rich: Build, row: list[str]) -> None:
    lines = markdown(rich, "shapes").splitlines()
    assert row in [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_included_code_is_a_block_of_its_language(rich: Build) -> None:
    assert "```python\ntotal = 1 + 2  # three\n```" in markdown(rich, "shapes")


def test_recorded_text_is_a_block(rich: Build) -> None:
    assert "```none\nit\nfailed\n```" in markdown(rich, "shapes")


def test_tabs_are_named_one_after_the_other(rich: Build) -> None:
    blocks = markdown(rich, "shapes").split("\n\n")
    first = blocks.index("**Python**")
    assert blocks[first : first + 3] == ["**Python**", "Says `a`.", "**C++**"]


def test_cards_keep_their_links_apart(rich: Build) -> None:
    blocks = markdown(rich, "shapes").split("\n\n")
    first = blocks.index("First")
    link = "[Small](index.md)"
    assert blocks[first : first + 6] == ["First", "One.", link, "Second", "Two.", link]


def test_notes_are_quoted(rich: Build) -> None:
    assert "\n\n> **Note**\n> \n> Mind this.\n" in markdown(rich, "shapes")


def test_code_with_backticks_has_longer_fences(project: Project) -> None:
    project.write("docs/index.md", "# Code\n\nSay `` a`b ``.\n\n````text\n```\n````\n")
    text = markdown(project.build(), "index")
    assert "Say `` a`b ``." in text
    assert "````text\n```\n````" in text


def test_bars_in_a_cell_are_escaped(project: Project) -> None:
    project.write("docs/index.md", "# Bars\n\n| a |\n| --- |\n| `x \\| y` |\n")
    assert "| a |\n| --- |\n| `x \\| y` |\n" in markdown(project.build(), "index")


def test_a_page_links_to_its_markdown(project: Project) -> None:
    project.write("templates/page.html", "<html>{{ metatags }}{{ body }}</html>")
    built = project.build()
    link = '<link rel="alternate" type="text/markdown" href="sums.md" />'
    assert link in built.html("recipes/small/sums")


def test_a_page_is_described_by_its_first_sentence(project: Project) -> None:
    project.write("templates/page.html", "<html>{{ metatags }}{{ body }}</html>")
    built = project.build(
        "-D", "extensions=myst_parser,recordings,sphinx_gallery.gen_gallery,sphinxext.opengraph"
    )
    page = built.html("recipes/small/sums")
    found = re.findall(r'<meta (?:name|property)="(?:og:)?description" content="([^"]*)"', page)
    assert found == ["Adds two numbers."] * 2


# -- a recipe ---------------------------------------------------------------------------


def test_a_recipe_begins_with_its_state_and_stamp(project: Project) -> None:
    title, state, stamp = markdown(project.build(), "recipes/small/sums").split("\n\n")[:3]
    assert (title, state) == ("# Sums", "**State: current.**")
    assert stamp.startswith("*Ran on A CPU · ExecuTorch 1.5.1 · torch 2.13.0 · ")


def test_a_recipe_has_code_and_output(project: Project) -> None:
    text = markdown(project.build(), "recipes/small/sums")
    assert '```python\ntotal = 1 + 2  # three\nprint("the sum is", total)\n```' in text
    assert "```none\nthe sum is 3\n```" in text


def test_figures_of_a_recipe_are_there(project: Project) -> None:
    built = project.build()
    (first, second) = re.findall(r"!\[\w+\]\(([^)]+)\)", markdown(built, "recipes/small/curve"))
    assert first != second
    assert (built.pages / "recipes/small" / first).is_file()


def test_a_stale_recipe_says_so_and_has_no_output(project: Project) -> None:
    project.build()
    project.edit("gallery/small/sums.py", "1 + 2", "2 + 2")
    text = markdown(project.build(), "recipes/small/sums")
    assert text.startswith("# Sums\n\n**State: stale.**\n\n> **Warning**")
    assert "its code changed" in text
    assert "total = 2 + 2" in text
    assert "```none" not in text
    assert "Ran on" not in text


def test_the_index_has_the_state_of_a_recipe(project: Project) -> None:
    project.edit("gallery/small/sums.py", "1 + 2", "2 + 2")
    text = (project.build().pages / "llms.txt").read_text(encoding="utf-8")
    assert "- [Sums](recipes/small/sums.md): Adds two numbers. State: stale." in text
    assert "- [Curve](recipes/small/curve.md): Draws two curves. State: current." in text


# -- the lists --------------------------------------------------------------------------


def test_the_index_follows_the_reader_through_the_site(rich: Build) -> None:
    lines = (rich.pages / "llms.txt").read_text(encoding="utf-8").splitlines()
    heads = [line for line in lines if line.startswith(("#", ">"))]
    assert heads == ["# small", "> How.", "## Small", "## Recipes", "## Shapes", "## Optional"]


def test_a_page_that_nothing_leads_to_is_optional(project: Project) -> None:
    project.write("docs/alone.md", "---\norphan: true\n---\n# Alone\n\nFar away. So far.\n")
    text = (project.build().pages / "llms.txt").read_text(encoding="utf-8")
    assert "- [Alone](alone.md): Far away.\n" in text.partition("## Optional")[2]


def test_the_whole_has_every_page_with_its_address(rich: Build) -> None:
    whole = (rich.pages / "llms-full.txt").read_text(encoding="utf-8")
    for path in rich.pages.rglob("*.md"):
        page = path.relative_to(rich.pages).as_posix()
        assert f"<!-- {page}: " in whole
        assert path.read_text(encoding="utf-8") in whole


# -- builds after the first -------------------------------------------------------------


def test_a_build_with_nothing_to_do_writes_nothing(project: Project) -> None:
    built = project.build()
    before = stamps(built.pages)
    project.build()
    assert before
    assert stamps(built.pages) == before


def test_a_page_that_is_the_same_is_not_written_again(project: Project) -> None:
    built = project.build()
    before = stamps(built.pages)
    project.build("-E", "-a")
    assert stamps(built.pages) == before


def test_an_edited_page_is_written_alone(project: Project) -> None:
    built = project.build()
    before = stamps(built.pages)
    project.edit("docs/index.md", "The total", "Its total")
    project.build()
    changed = {path.name for path, when in stamps(built.pages).items() if before[path] != when}
    assert changed == {"index.md", "llms.txt", "llms-full.txt"}


def test_a_copy_that_is_gone_comes_back(project: Project) -> None:
    built = project.build()
    os.unlink(built.pages / "recipes/small/sums.md")
    assert "**State: current.**" in markdown(project.build(), "recipes/small/sums")


def test_a_parallel_build_writes_the_same(project: Project) -> None:
    built = project.build()
    texts = {path: path.read_text(encoding="utf-8") for path in stamps(built.pages)}
    for path in texts:
        path.unlink()
    assert project.build("-E", "-a", "-j", "2").status == 0
    assert {path: path.read_text(encoding="utf-8") for path in texts} == texts


def test_a_strict_build_has_nothing_to_say(rich: Build) -> None:
    assert (rich.status, rich.warnings) == (0, "")


def test_other_builders_write_no_markdown(project: Project) -> None:
    built = project.build("-b", "dummy")
    assert stamps(built.pages) == {}
