"""What pages quote from recordings, and what happens where there is nothing to quote."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from conftest import Project

QUOTED = {
    "number": ("small/sums:total", "3"),
    "text": ("small/sums:error", "it\nfailed"),
    "format": ("small/sums:half|.3f", "1.500"),
    "format with a width": ("small/sums:total|03d", "003"),
    "key in a key": ("small/sums:nested.list", "[10, 20]"),
    "index": ("small/sums:nested.list.1", "20"),
    "index with a format": ("small/sums:nested.list.0|,.1f", "10.0"),
}
WRONG = {
    "unknown recipe": ("small/none:total", "there is no recipe 'small/none'"),
    "no key": ("small/sums", "write recipe:key"),
    "empty key": ("small/sums:", "the recording has no ''"),
    "nothing": (":", "there is no recipe ''"),
    "unknown key": ("small/sums:none", "the recording has no 'none'"),
    "key in a number": ("small/sums:total.none", "the recording has no 'none'"),
    "index too large": ("small/sums:nested.list.2", "the recording has no '2'"),
    "negative index": ("small/sums:nested.list.-1", "the recording has no '-1'"),
    "index that is no number": ("small/sums:nested.list.first", "the recording has no 'first'"),
}
WRONG_FORMATS = {
    "unknown format": "small/sums:total|q",
    "format of a number for a text": "small/sums:error|.1f",
    "format of a number for a list": "small/sums:nested.list|.1f",
}
NOT_SHOWN: dict[str, Callable[[Project], object]] = {
    "stale": lambda it: it.edit("gallery/small/sums.py", "1 + 2", "2 + 2"),
    "missing": lambda it: it.recording().unlink(),
    "broken": lambda it: it.recording().write_text("{}"),
}


def quote(project: Project, text: str) -> None:
    project.edit("docs/index.md", "{fact}`small/sums:total`", text)


def rows(html: str, table: str = "recordings-table") -> list[list[str]]:
    """The cells of a table, its head included."""
    text = html.partition(table)[2].partition("</table>")[0]
    return [
        [
            re.sub(r"<[^>]+>", "", cell).strip()
            for cell in re.findall(r"<t[hd][ >].*?</t[hd]>", row, re.DOTALL)
        ]
        for row in re.findall(r"<tr.*?</tr>", text, re.DOTALL)
    ]


def fact(text: str) -> str:
    return f"{{fact}}`{text}`"


def recorded_block(text: str) -> str:
    return f"\n\n```{{recorded}} {text}\n```\n"


@pytest.mark.parametrize(("text", "shown"), QUOTED.values(), ids=QUOTED)
def test_a_fact_shows_what_was_recorded(project: Project, text: str, shown: str) -> None:
    quote(project, fact(text))
    built = project.build(strict=True)
    assert (built.status, built.warnings) == (0, "")
    assert f'<span class="fact recording-current">{shown}</span>' in built.html("index")


def test_a_recorded_text_is_shown_as_a_block(project: Project) -> None:
    quote(project, recorded_block("small/sums:error"))
    built = project.build(strict=True)
    assert (built.status, built.warnings) == (0, "")
    block = re.search(r'<div class="recorded [^>]*>.*?</div>', built.html("index"), re.DOTALL)
    assert block
    assert "it\nfailed" in block[0]


@pytest.mark.parametrize("form", [fact, recorded_block])
@pytest.mark.parametrize(("text", "reason"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_quoted_fails_a_strict_build(
    project: Project, form: Callable[[str], str], text: str, reason: str
) -> None:
    quote(project, form(text))
    built = project.build(strict=True)
    assert built.status == 1
    assert re.search(rf"index.md:\d+: WARNING: fact '{re.escape(text)}': ", built.warnings)
    assert reason in built.warnings
    assert "(not recorded)" in built.text("index")


@pytest.mark.parametrize("text", WRONG_FORMATS.values(), ids=WRONG_FORMATS)
def test_a_format_that_does_not_fit_fails_a_strict_build(project: Project, text: str) -> None:
    quote(project, fact(text))
    built = project.build(strict=True)
    assert built.status == 1
    assert f"fact '{text}'" in built.warnings
    assert "(not recorded)" in built.text("index")


@pytest.mark.parametrize("form", [fact, recorded_block])
@pytest.mark.parametrize("state", NOT_SHOWN)
def test_a_recipe_without_a_trusted_run_is_not_quoted(
    project: Project, form: Callable[[str], str], state: str
) -> None:
    quote(project, form("small/sums:total"))
    NOT_SHOWN[state](project)
    built = project.build(strict=True)
    assert built.status == 1
    assert f"WARNING: fact 'small/sums:total': the recipe is {state}" in built.warnings
    assert "(not recorded)" in built.text("index")


def test_a_lenient_build_passes_without_the_fact(project: Project) -> None:
    quote(project, fact("small/sums:none"))
    built = project.build()
    assert built.status == 0
    assert "WARNING: fact 'small/sums:none'" in built.warnings
    assert "(not recorded)" in built.text("index")


def test_an_outdated_fact_is_shown_and_marked(project: Project) -> None:
    project.edit("pyproject.toml", "torch==2.13.*", "torch==2.14.*")
    html = project.build().html("index")
    assert '<span class="fact recording-outdated">3</span>' in html


# -- tables of facts --------------------------------------------------------------------


def matrix(text: str, *columns: str) -> str:
    lines = "\n".join(columns)
    return f"\n\n```{{matrix}} {text}\n{lines}\n```\n"


def test_a_recorded_list_is_drawn_as_a_table(project: Project) -> None:
    quote(project, matrix("small/sums:rows", "n: Number", "", "in.ms: Time, ms"))
    built = project.build(strict=True)
    assert (built.status, built.warnings) == (0, "")
    assert rows(built.html("index"), "recordings-matrix") == [
        ["Number", "Time, ms"],
        ["1", "2.5"],
        ["8", "20"],
    ]


@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        ("small/none:rows", "n: N", "there is no recipe 'small/none'"),
        ("small/sums:none", "n: N", "the recording has no 'none'"),
        ("small/sums:total", "n: N", "it is not a list"),
        ("small/sums:rows", "none: N", "the recording has no 'none'"),
    ],
)
def test_a_table_that_cannot_be_drawn_fails_a_strict_build(
    project: Project, text: str, column: str, reason: str
) -> None:
    quote(project, matrix(text, column))
    built = project.build(strict=True)
    assert built.status == 1
    assert re.search(rf"index.md:\d+: WARNING: fact '{text}", built.warnings)
    assert reason in built.warnings
    assert "(not recorded)" in built.text("index")


@pytest.mark.parametrize("state", NOT_SHOWN)
def test_a_table_of_a_recipe_without_a_trusted_run_is_not_drawn(
    project: Project, state: str
) -> None:
    quote(project, matrix("small/sums:rows", "n: N"))
    NOT_SHOWN[state](project)
    built = project.build(strict=True)
    assert f"the recipe is {state}" in built.warnings
    assert "(not recorded)" in built.text("index")


# -- new recordings ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "old", "new"),
    [
        (fact("small/sums:nested.list.1"), "20", "21"),
        (recorded_block("small/sums:nested.list"), "20", "21"),
        (matrix("small/sums:nested.rows", "n: N"), "22", "23"),
    ],
    ids=["fact", "recorded", "matrix"],
)
def test_what_a_page_quotes_follows_a_new_recording(
    project: Project, form: str, old: str, new: str
) -> None:
    source = "gallery/small/sums.py"
    project.edit(source, "[10, 20]", '[10, 20], "rows": [{"n": 22}]')
    project.record("small/sums")
    quote(project, form)
    assert old in project.build(strict=True).text("index")
    project.edit(source, '20], "rows": [{"n": 22}]', '21], "rows": [{"n": 23}]')
    project.record("small/sums")
    assert new in project.build(strict=True).text("index")


# -- where numbers are from -------------------------------------------------------------


def test_numbers_say_where_and_when_they_were_recorded(project: Project) -> None:
    project.edit("docs/index.md", "The total is", "{ran}`small/sums`. The total is")
    stamp = (
        r"Ran on A CPU · ExecuTorch 1\.5\.1 · torch 2\.13\.0 · 20\d\d-\d\d-\d\d\. The total is 3"
    )
    assert re.search(stamp, project.build(strict=True).text("index"))


@pytest.mark.parametrize("name", ["small/sums", "small/none"])
def test_numbers_of_no_run_fail_a_strict_build(project: Project, name: str) -> None:
    project.edit("docs/index.md", "The total is", f"{{ran}}`{name}`. The total is")
    project.edit("gallery/small/sums.py", "1 + 2", "2 + 2")
    built = project.build(strict=True)
    assert built.status == 1
    assert f"ran '{name}'" in built.warnings
    assert "(not recorded)" in built.text("index")


# -- the table of recipes ---------------------------------------------------------------

TAGS = '# sphinx_gallery_tags = ["other", "cpp", "executorch"]'
TABLE = "\n\n```{recipes}\n```\n"


def test_the_table_has_every_recipe_its_needs_state_and_stamp(project: Project) -> None:
    quote(project, TABLE)
    project.edit("gallery/small/sums.py", "# %%\n# First", f"{TAGS}\n\n# %%\n# First")
    _, curve, sums = rows(project.build(strict=True).html("index"))
    assert curve[:3] == ["Curve", "", "current"]
    assert sums[:3] == ["Sums", "executorch, cpp", "current"]
    assert sums[3].startswith("A CPU · ExecuTorch 1.5.1 · torch 2.13.0 · 20")


@pytest.mark.parametrize("state", NOT_SHOWN)
def test_the_table_says_why_a_recipe_is_not_current(project: Project, state: str) -> None:
    quote(project, TABLE)
    NOT_SHOWN[state](project)
    sums = rows(project.build().html("index"))[2]
    assert sums[2] == state
    assert "A CPU" not in sums[3]
    assert sums[3]


def test_the_table_follows_a_new_title_and_new_needs(project: Project) -> None:
    quote(project, TABLE)
    project.build()
    project.edit("gallery/small/sums.py", "Sums\n====", "Two sums\n========")
    project.edit("gallery/small/sums.py", "# %%\n# First", f"{TAGS}\n\n# %%\n# First")
    assert rows(project.build().html("index"))[2][:2] == ["Two sums", "executorch, cpp"]


def test_the_table_marks_a_local_run(project: Project) -> None:
    quote(project, TABLE)
    project.edit("gallery/small/sums.py", "1 + 2", "2 + 2")
    project.command("run", "--local")
    assert "this machine, not recorded" in rows(project.build().html("index"))[2][3]


def test_the_table_links_to_the_recipes(project: Project) -> None:
    quote(project, TABLE)
    assert 'href="recipes/small/sums.html"' in project.build().html("index")
