"""Tables drawn from a recorded list."""

from __future__ import annotations

import re

import pytest
from conftest import Project

CELLS = """
facts |= {
    "rows": [{"name": "first", "cell": {"text": "1"}}, {"name": "second", "cell": {"text": 2}}],
}
"""
MATRIX = "\n\n```{{matrix}} {}\nname: Name\n\n{}: The text\n```\n"
WRONG = {
    "unknown recipe": ("small/none:rows", "cell.text", "there is no recipe 'small/none'"),
    "unknown list": ("small/sums:none", "cell.text", "the recording has no 'none'"),
    "not a list": ("small/sums:nested", "cell.text", "it is not a list"),
    "unknown column": ("small/sums:rows", "cell.none", "the recording has no 'none'"),
}


@pytest.fixture
def rows(project: Project) -> Project:
    sums = project.path("gallery/small/sums.py").read_text()
    project.write("gallery/small/sums.py", sums + CELLS)
    project.record("small/sums")
    return project


def draw(project: Project, key: str, column: str) -> None:
    project.edit("docs/index.md", "{fact}`small/sums:total`", MATRIX.format(key, column))


def test_a_recorded_list_is_drawn_as_a_table(rows: Project) -> None:
    draw(rows, "small/sums:rows", "cell.text")
    built = rows.build(strict=True)
    assert (built.status, built.warnings) == (0, "")
    table = built.html("index").partition("recordings-matrix")[2].partition("</table>")[0]
    cells = [re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<p>.*?</p>", table)]
    assert cells == ["Name", "The text", "first", "1", "second", "2"]


@pytest.mark.parametrize(("key", "column", "reason"), WRONG.values(), ids=WRONG)
def test_a_table_that_cannot_be_drawn_fails_a_strict_build(
    rows: Project, key: str, column: str, reason: str
) -> None:
    draw(rows, key, column)
    built = rows.build(strict=True)
    assert built.status == 1
    assert re.search(r"index.md:\d+: WARNING: fact '", built.warnings)
    assert reason in built.warnings
    assert "(not recorded)" in built.text("index")
