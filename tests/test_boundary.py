"""Figures of the boundary between a program and its caller."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from conftest import REPOSITORY, Build, Project, copied
from recordings import boundary, recording

FOUND = recording.read(REPOSITORY / "gallery" / "recordings", boundary.RECIPE)
assert FOUND is not None
SHAPES: dict[str, Any] = FOUND.facts["shapes"]
SETTINGS: list[dict[str, Any]] = FOUND.facts["settings"]
SHAPE_FILES = REPOSITORY / "docs" / "_static" / "shapes"
SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    """What a reader sees in a figure, in order."""
    return [it.text or "" for it in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def described(svg: str) -> str:
    found = ElementTree.fromstring(svg).findtext(f"{SVG}desc")
    assert found
    return found


# -- files --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", boundary.FILES)
def test_a_committed_drawing_is_what_the_recording_gives(name: str) -> None:
    drawn = boundary.drawings(SHAPES)[f"{name}.svg"]
    assert (SHAPE_FILES / f"{name}.svg").read_text(encoding="utf-8") == drawn


def test_every_committed_drawing_is_drawn() -> None:
    assert {it.name for it in SHAPE_FILES.iterdir()} == boundary.drawings(SHAPES).keys()


def test_a_project_can_be_redrawn(tmp_path: Path) -> None:
    recording.write(FOUND, tmp_path / "gallery" / "recordings", {})
    folder = tmp_path / "docs" / "_static" / "shapes"
    folder.mkdir(parents=True)
    (folder / "planned.svg").write_text("old")
    boundary.redraw(tmp_path)
    made = {it.name: it.read_text(encoding="utf-8") for it in folder.iterdir()}
    assert made == boundary.drawings(SHAPES)


def test_a_project_without_the_recording_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="record it first"):
        boundary.redraw(tmp_path)


# -- what a figure shows ------------------------------------------------------------------


def test_a_planned_output_is_the_methods() -> None:
    found = boundary.describe(SHAPES["planned"])
    assert "Input: on the device, the caller's. Output: on the device, the method's." in found
    assert "The program copies nothing." in found
    assert "Python can run it. C++ can run it." in found


def test_an_unplanned_output_is_the_callers() -> None:
    found = boundary.describe(SHAPES["unplanned"])
    assert "Output: on the device, the caller's." in found
    assert "Python cannot run it. C++ can run it." in found


def test_copies_are_told_and_drawn() -> None:
    svg = boundary.draw(SHAPES["default"], "Default")
    assert "copies the input from host to device and the output from device to host" in described(
        svg
    )
    assert {"copy of the input", "result"} <= set(texts(svg))


def test_arenas_are_told_and_drawn() -> None:
    svg = boundary.draw(SHAPES["default"], "Default")
    assert "reserves 1024 bytes on the host. The program reserves 2048 bytes on the device." in (
        described(svg)
    )
    assert {"reserves 1024 bytes", "reserves 2048 bytes"} <= set(texts(svg))


def test_a_tensor_without_memory_is_marked() -> None:
    svg = boundary.draw(SHAPES["no_memory"], "No memory")
    assert "no memory" in texts(svg)
    assert "The delegate's result: on the device, no memory." in described(svg)


def test_a_delegate_that_names_no_device_is_told_without_one() -> None:
    program = copy.deepcopy(SHAPES["planned"])
    program["methods"][0]["delegates"][0]["device"] = None
    assert "A delegate computes." in boundary.describe(program)


def test_a_caller_that_is_refused_is_told_why() -> None:
    found = boundary.describe(SHAPES["unplanned"], "python")
    assert "Python cannot run it. Output 0 is unplanned on cuda:0" in found
    assert "C++" not in found


def test_a_program_without_a_delegate_is_on_the_host() -> None:
    svg = boundary.draw(SHAPES["host"], "Host")
    assert {"program", "input", "output"} <= set(texts(svg))
    assert "device," not in described(svg)


@pytest.mark.parametrize("one", SETTINGS, ids=lambda it: it["title"])
def test_a_figure_has_a_name_and_a_text(one: dict[str, Any]) -> None:
    svg = ElementTree.fromstring(boundary.draw(one["program"], one["title"]))
    assert svg.get("role") == "img"
    assert svg.findtext(f"{SVG}title") == one["title"]
    assert len(svg.findtext(f"{SVG}desc") or "") > 80


def test_figures_of_different_programs_differ() -> None:
    drawn = [boundary.draw(one["program"], "Same title") for one in SETTINGS]
    assert len({re.sub("reserves.*?<", "<", it) for it in drawn}) > 12


def test_every_color_can_be_replaced_for_the_dark_scheme() -> None:
    style = (REPOSITORY / "docs" / "_static" / "site.css").read_text(encoding="utf-8")
    used = set(re.findall(r"var\(--boundary-([\w-]+),", boundary.draw(SHAPES["no_memory"], "It")))
    assert used <= boundary.COLORS.keys()
    assert used - set(re.findall(r"--boundary-([\w-]+):", style)) == {"on-delegate"}


def test_names_in_a_figure_are_escaped() -> None:
    svg = boundary.draw(SHAPES["planned"], "a < b & c")
    assert ElementTree.fromstring(svg).findtext(f"{SVG}title") == "a < b & c"


def test_a_program_with_two_inputs_is_not_drawn() -> None:
    program = copy.deepcopy(SHAPES["planned"])
    (method,) = program["methods"]
    method["inputs"].append(method["inputs"][0] | {"name": "input 1"})
    with pytest.raises(ValueError, match="forward has not one tensor as input"):
        boundary.draw(program, "Two")


# -- on pages -----------------------------------------------------------------------------

PAGE = """# Small

```{toctree}
recipes/index
```

```{boundary} small/programs:one
:title: An unplanned one
```

```{boundary} small/programs:one
:title: From Python
:caller: python
```

```{boundary} small/programs:all
```
"""
WRONG = {
    "small/none:one": "there is no recipe",
    "small/programs:none": "the recording has no 'none'",
    "small/programs:text": "it is no program that can be drawn",
}


@pytest.fixture(scope="module")
def drawn(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """The small project with a recipe that has recorded programs."""
    facts = {"one": SHAPES["unplanned"], "all": SETTINGS[:2], "text": "none"}
    with copied(recorded, tmp_path_factory.mktemp("drawn")) as project:
        project.recipe("small/programs", f"facts = {facts!r}")
        project.record("small/programs")
        yield project


@pytest.fixture(scope="module")
def page(drawn: Project) -> Build:
    """A page with figures, built strictly."""
    drawn.write("docs/index.md", PAGE)
    built = drawn.build(strict=True)
    assert (built.status, built.warnings) == (0, "")
    return built


@pytest.fixture(scope="module")
def wrong(drawn: Project, page: Build) -> Build:
    """The same page with figures that cannot be drawn."""
    blocks = [f"```{{boundary}} {key}\n```\n" for key in WRONG]
    drawn.write("docs/index.md", "\n".join(["# Small\n", *blocks]))
    return drawn.build(strict=True)


def test_a_page_shows_a_figure(page: Build) -> None:
    assert boundary.draw(SHAPES["unplanned"], "An unplanned one") in page.html("index")


def test_a_page_shows_what_a_caller_meets(page: Build) -> None:
    assert boundary.draw(SHAPES["unplanned"], "From Python", "python") in page.html("index")


def test_a_page_shows_a_grid_with_captions(page: Build) -> None:
    grid = page.html("index").partition('class="boundaries')[2]
    assert grid.count('class="boundary-figure') == 2
    assert re.findall(r'class="caption">(.*?)</p>', grid) == [it["title"] for it in SETTINGS[:2]]


def test_a_page_in_markdown_has_the_text_of_a_figure(page: Build) -> None:
    text = (page.pages / "index.md").read_text(encoding="utf-8")
    assert f"Figure: An unplanned one. {boundary.describe(SHAPES['unplanned'])}" in text


@pytest.mark.parametrize("reason", WRONG.values(), ids=WRONG)
def test_what_cannot_be_drawn_fails_a_strict_build(wrong: Build, reason: str) -> None:
    assert wrong.status == 1
    assert reason in wrong.warnings


def test_what_cannot_be_drawn_is_marked(wrong: Build) -> None:
    assert wrong.text("index").count("(not recorded)") == len(WRONG)
