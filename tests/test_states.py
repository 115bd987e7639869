"""Every state of a recipe, through real builds: what readers see, and what fails."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Build, Finished, Project, copied
from recordings import environment, recording

OUTPUT = "the sum is 3"
NEEDS_CUDA = '# sphinx_gallery_tags = ["cuda"]'
STAMP = "ExecuTorch 1.5.1 · torch 2.13.0"


def rewrite(project: Project, **changes: Any) -> None:
    """Change the recording of `small/sums` as a run would have: with a digest that matches."""
    folder = project.path("gallery/recordings")
    found = recording.read(folder, "small/sums")
    assert found is not None
    recording.write(replace(found, **changes), folder, {})


def tamper(project: Project, **changes: Any) -> None:
    """Change the recording of `small/sums` by hand."""
    data = json.loads(project.recording().read_text(encoding="utf-8"))
    project.recording().write_text(json.dumps(data | changes), encoding="utf-8")


def change_figure(project: Project) -> None:
    figure = project.figures("small/curve")[0]
    figure.write_bytes(figure.read_bytes() + b"\0")


@dataclass(frozen=True)
class Case:
    """How to get a recipe into a state, and the reason that is given for it."""

    provoke: Callable[[Project], object]
    reason: str
    recipe: str = "small/sums"


STALE = {
    "code changed": Case(
        lambda it: it.edit("gallery/small/sums.py", "1 + 2", "2 + 2"), "its code changed"
    ),
    "companion changed": Case(
        lambda it: it.write("gallery/small/sums/data.txt", "1 3\n"), "sums/data.txt changed"
    ),
    "companion added": Case(
        lambda it: it.write("gallery/small/sums/more.txt", ""), "sums/more.txt was added"
    ),
    "companion removed": Case(
        lambda it: it.path("gallery/small/sums/data.txt").unlink(), "sums/data.txt was removed"
    ),
}
OUTDATED = {
    "torch moved": Case(
        lambda it: it.edit("pyproject.toml", "torch==2.13.*", "torch==2.14.*"),
        "torch 2.13.0 was recorded, ==2.14.* is pinned",
    ),
    "executorch moved": Case(
        lambda it: it.edit("pyproject.toml", "==1.5.1", "==1.6.0"),
        "executorch 1.5.1 was recorded, ==1.6.0 is pinned",
    ),
}
MISSING = {
    "recording missing": Case(lambda it: it.recording().unlink(), "it has not been recorded"),
}
BROKEN = {
    "output edited": Case(
        lambda it: it.edit("gallery/recordings/small/sums.json", OUTPUT, "the sum is 4"),
        "its digest does not match",
    ),
    "fact edited": Case(
        lambda it: it.edit("gallery/recordings/small/sums.json", '"total": 3', '"total": 4'),
        "its digest does not match",
    ),
    "digest gone": Case(lambda it: tamper(it, digest=None), "its digest does not match"),
    "field unknown": Case(lambda it: tamper(it, author="me"), "fields are missing or unknown"),
    "number that JSON has not": Case(
        lambda it: tamper(it, seconds=float("nan")), "it is not readable JSON"
    ),
    "schema unknown": Case(lambda it: tamper(it, schema=99), "its schema is 99"),
    "schema gone": Case(lambda it: tamper(it, schema=None), "its schema is None"),
    "JSON cut short": Case(
        lambda it: it.recording().write_text('{"schema": 1,'), "it is not readable JSON"
    ),
    "JSON empty": Case(lambda it: it.recording().write_text(""), "it is not readable JSON"),
    "not UTF-8": Case(
        lambda it: it.recording().write_bytes(b"\xff\xfe\x00"), "it is not readable JSON"
    ),
    "not an object": Case(lambda it: it.recording().write_text("[]"), "it is not a JSON object"),
    "another recipe's": Case(
        lambda it: it.recording().write_bytes(it.recording("small/curve").read_bytes()),
        "it is the recording of small/curve",
    ),
    "figure gone": Case(lambda it: it.figures("small/curve")[1].unlink(), "is gone", "small/curve"),
    "figure changed": Case(change_figure, "was changed", "small/curve"),
}
STATES = {"stale": STALE, "outdated": OUTDATED, "missing": MISSING, "broken": BROKEN}
CASES = {name: (state, case) for state, cases in STATES.items() for name, case in cases.items()}


@dataclass(frozen=True)
class Provoked:
    """A recipe in one of the states, and both builds of its site."""

    state: str
    recipe: str
    reason: str
    lenient: Build
    strict: Build

    @property
    def page(self) -> str:
        return f"recipes/{self.recipe}"


@pytest.fixture(scope="module", params=CASES)
def provoked(
    request: pytest.FixtureRequest, recorded: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Provoked]:
    state, case = CASES[request.param]
    with copied(recorded, tmp_path_factory.mktemp("provoked")) as project:
        case.provoke(project)
        lenient, strict = project.build(), project.build(strict=True)
        yield Provoked(state, case.recipe, case.reason, lenient, strict)


# -- current ----------------------------------------------------------------------------


def test_current_recipes_pass_a_strict_build_without_a_word(project: Project) -> None:
    built = project.build(strict=True)
    assert (built.status, built.warnings) == (0, "")


def test_current_recipes_pass_a_parallel_build(project: Project) -> None:
    built = project.build("-j", "2", strict=True)
    assert (built.status, built.warnings) == (0, "")
    assert OUTPUT in built.text("recipes/small/sums")


def test_the_page_of_a_current_recipe_shows_outputs_and_stamp(project: Project) -> None:
    rewrite(project, date="2026-12-02", seconds=14.2)
    text = project.build().text("recipes/small/sums")
    assert OUTPUT in text
    assert "Ran on A CPU · ExecuTorch 1.5.1 · torch 2.13.0 · 2026-12-02 · 14 s" in text


def test_the_stamp_of_a_recipe_that_needs_cuda_names_the_gpu(project: Project) -> None:
    rewrite(project, date="2026-12-02", seconds=14.2)
    project.edit("gallery/small/sums.py", "# %%\n# First", f"{NEEDS_CUDA}\n\n# %%\n# First")
    text = project.build().text("recipes/small/sums")
    assert (
        "Ran on NVIDIA H200 · ExecuTorch 1.5.1 · torch 2.13.0 · CUDA 13.0 · 2026-12-02 · 14 s"
        in text
    )


def test_the_stamp_unfolds_to_the_whole_environment(project: Project) -> None:
    text = project.build().text("recipes/small/sums")
    for said in ("Driver: 580.159", "Triton: 3.7.0", "0123456789abcdef", "from the wheel"):
        assert said in text


def test_the_page_of_a_current_recipe_has_no_banner(project: Project) -> None:
    assert "recording-banner" not in project.build().html("recipes/small/sums")


# -- all the others ---------------------------------------------------------------------


def test_a_lenient_build_passes(provoked: Provoked) -> None:
    assert provoked.lenient.status == 0


def test_a_lenient_build_names_recipe_and_state_and_reason(provoked: Provoked) -> None:
    said = f"recipe {provoked.recipe} is {provoked.state}: "
    assert said in provoked.lenient.warnings
    assert provoked.reason in provoked.lenient.warnings.partition(said)[2]


def test_a_strict_build_fails(provoked: Provoked) -> None:
    assert provoked.strict.status == 1
    assert f"recipe {provoked.recipe} is {provoked.state}: " in provoked.strict.warnings


def test_a_banner_says_what_is_wrong(provoked: Provoked) -> None:
    assert f"recording-banner recording-{provoked.state}" in provoked.lenient.html(provoked.page)
    assert provoked.reason in provoked.lenient.text(provoked.page)


def test_the_code_is_shown_in_every_state(provoked: Provoked) -> None:
    text = provoked.lenient.text(provoked.page)
    assert "print(text.upper())" in text or "plt.plot([1, 2])" in text


def test_outputs_and_stamp_are_shown_only_of_a_run_of_this_code(provoked: Provoked) -> None:
    html = provoked.lenient.html(provoked.page)
    shown = [OUTPUT in html, "sphx-glr-script-out" in html, "<img" in html, STAMP in html]
    assert shown == ([True, True, False, True] if provoked.state == "outdated" else [False] * 4)


def test_the_page_of_the_other_recipe_is_as_ever(provoked: Provoked) -> None:
    other = {"small/sums": "small/curve", "small/curve": "small/sums"}[provoked.recipe]
    html = provoked.lenient.html(f"recipes/{other}")
    assert STAMP in html
    assert ("recording-banner" in html) == (provoked.state == "outdated")


def test_the_banner_of_an_outdated_recipe_names_both_versions(project: Project) -> None:
    project.edit("pyproject.toml", "==1.5.1", "==1.6.0")
    text = project.build().text("recipes/small/sums")
    assert "recorded with other versions" in text
    assert "executorch 1.5.1 was recorded, ==1.6.0 is pinned" in text


def test_a_warning_says_how_to_record_and_what_it_takes(project: Project) -> None:
    project.edit(
        "gallery/small/sums.py", "# %%\n# First", '# sphinx_gallery_tags = ["cpp"]\n\n# %%\n# First'
    )
    project.recording().unlink()
    assert "`make record RECIPE=small/sums` on a machine that has: cpp" in project.build().warnings


def test_a_broken_recording_is_an_error_even_in_a_lenient_build(project: Project) -> None:
    project.recording().write_text("")
    assert "ERROR: recipe small/sums is broken" in project.build().warnings


def test_an_old_thumbnail_goes_with_the_figures_it_was_made_of(project: Project) -> None:
    thumbnail = project.path("docs/recipes/small/images/thumb/sphx_glr_curve_thumb.png")
    project.build()
    drawn = thumbnail.read_bytes()
    project.edit("gallery/small/curve.py", "[2, 1]", "[2, 2]")
    project.build()
    assert thumbnail.read_bytes() != drawn


@pytest.mark.parametrize("code", ["total = = 1", "total = (1"])
def test_a_recipe_that_is_not_python_stops_a_build_by_its_name(project: Project, code: str) -> None:
    project.recipe("small/sums", code)
    built = project.build()
    assert built.status != 0
    assert "gallery/small/sums.py: " in built.warnings
    assert "SyntaxError" in built.warnings


# -- local recordings -------------------------------------------------------------------


def test_a_local_run_leaves_its_recording_below_build(project: Project) -> None:
    project.edit("gallery/small/sums.py", "1 + 2", "2 + 2")
    before = project.files()
    assert project.command("run", "--local").status == 0
    assert project.path("build/recordings/small/sums.json").is_file()
    assert project.files() == before


def test_a_local_run_passes_over_what_this_machine_cannot_run(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "missing", lambda need: f"no {need} here")
    project.recipe("small/device", "print(1)", tags='["cuda"]')
    assert project.command("run", "--local") == Finished(0, "", "")


def test_a_local_run_leaves_current_recipes_alone(project: Project) -> None:
    assert project.command("run", "--local").out == ""
    assert not project.path("build/recordings").exists()


def test_a_local_recording_is_shown_and_marked_in_a_lenient_build(project: Project) -> None:
    project.edit("gallery/small/sums.py", "1 + 2", "2 + 2")
    project.command("run", "--local")
    built = project.build()
    text = built.text("recipes/small/sums")
    assert built.status == 0
    assert "the sum is 4" in text
    assert "s · this machine, not recorded" in text


@pytest.mark.parametrize("state", ["stale", "broken"])
def test_a_local_recording_does_not_hide_that_the_committed_one_needs_attention(
    project: Project, state: str
) -> None:
    if state == "stale":
        project.edit("gallery/small/sums.py", "1 + 2", "2 + 2")
    else:
        project.edit("gallery/recordings/small/sums.json", '"total": 3', '"total": 4')
    project.command("run", "--local")
    built = project.build()
    assert "s · this machine, not recorded" in built.text("recipes/small/sums")
    assert f"recipe small/sums is {state}: " in built.warnings


def test_what_was_made_of_a_recipe_goes_with_it(project: Project) -> None:
    project.build()
    project.without("small/curve")
    built = project.build(strict=True)
    assert (built.status, built.warnings) == (0, "")
    assert not list(project.path("docs/recipes/small").glob("curve.*"))


def test_a_committed_recording_is_not_marked_as_local(project: Project) -> None:
    assert "this machine, not recorded" not in project.build().text("recipes/small/sums")


def test_a_strict_build_ignores_a_local_recording(project: Project) -> None:
    project.edit("gallery/small/sums.py", "1 + 2", "2 + 2")
    project.command("run", "--local")
    built = project.build(strict=True)
    assert built.status == 1
    assert "recipe small/sums is stale: its code changed" in built.warnings
    assert "the sum is 4" not in built.text("recipes/small/sums")


def test_a_local_recording_that_is_broken_is_not_shown(project: Project) -> None:
    project.edit("gallery/small/sums.py", "1 + 2", "2 + 2")
    project.command("run", "--local")
    project.path("build/recordings/small/sums.json").write_text("{}")
    built = project.build()
    assert "recipe small/sums is stale" in built.warnings
    assert "the sum is 4" not in built.text("recipes/small/sums")


def test_a_build_that_may_run_recipes_shows_what_was_not_current(project: Project) -> None:
    project.edit("gallery/small/sums.py", "1 + 2", "2 + 2")
    built = project.build("-D", "recordings_run=1")
    assert built.status == 0
    assert "the sum is 4" in built.text("recipes/small/sums")
    assert not project.path("build/recordings/small/curve.json").exists()


def test_a_build_goes_on_where_a_recipe_fails(
    project: Project, capfd: pytest.CaptureFixture[str]
) -> None:
    project.edit("gallery/small/sums.py", "1 + 2", "1 / 0")
    built = project.build("-D", "recordings_run=1")
    assert built.status == 0
    assert "recipe small/sums is stale" in built.warnings
    assert "FAILED small/sums" in capfd.readouterr().err


# -- builds after the first -------------------------------------------------------------


REBUILDS = {
    "stale by code": STALE["code changed"],
    "stale by companion": STALE["companion changed"],
    "companion added": STALE["companion added"],
    "companion removed": STALE["companion removed"],
    "outdated": OUTDATED["torch moved"],
    "missing": MISSING["recording missing"],
    "broken": BROKEN["fact edited"],
}


@dataclass(frozen=True)
class Rebuilt:
    """What a recipe's page and one that quotes it say after a change, and after its undoing."""

    state: str
    reason: str
    changed: dict[str, str]
    restored: dict[str, str]


@pytest.fixture(scope="module", params=REBUILDS)
def rebuilt(
    request: pytest.FixtureRequest, recorded: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rebuilt]:
    case = REBUILDS[request.param]
    state = next(state for state, cases in STATES.items() if case in cases.values())
    with copied(recorded, tmp_path_factory.mktemp("rebuilt")) as project:
        before = project.files()
        project.build()
        case.provoke(project)
        built = project.build()
        changed = {page: built.html(page) for page in ("index", "recipes/small/sums")}
        project.restore(before)
        built = project.build()
        restored = {page: built.html(page) for page in ("index", "recipes/small/sums")}
        yield Rebuilt(state, case.reason, changed, restored)


def test_a_recipe_page_is_read_again_when_its_state_changes(rebuilt: Rebuilt) -> None:
    assert f"recording-banner recording-{rebuilt.state}" in rebuilt.changed["recipes/small/sums"]
    assert rebuilt.reason in rebuilt.changed["recipes/small/sums"]


def test_a_recipe_page_is_read_again_when_it_is_current_again(rebuilt: Rebuilt) -> None:
    assert "recording-banner" not in rebuilt.restored["recipes/small/sums"]
    assert STAMP in rebuilt.restored["recipes/small/sums"]


def test_a_page_that_quotes_is_read_again_when_the_state_changes(rebuilt: Rebuilt) -> None:
    quoted = ">3<" if rebuilt.state == "outdated" else ">(not recorded)<"
    assert quoted in rebuilt.changed["index"]
    assert "recording-current" not in rebuilt.changed["index"]


def test_a_page_that_quotes_is_read_again_when_the_fact_is_back(rebuilt: Rebuilt) -> None:
    assert '<span class="fact recording-current">3</span>' in rebuilt.restored["index"]


def test_pages_are_read_again_when_a_new_recording_says_something_else(project: Project) -> None:
    project.build()
    rewrite(project, facts={"total": 42}, date="2020-02-02")
    built = project.build()
    assert "The total is 42" in built.text("index")
    assert "2020-02-02" in built.text("recipes/small/sums")


def test_pages_are_read_again_when_the_recording_becomes_a_local_one(project: Project) -> None:
    project.edit("gallery/small/sums.py", "1 + 2", "2 + 2")
    project.build()
    project.command("run", "--local")
    built = project.build()
    assert "The total is 4" in built.text("index")
    assert "this machine, not recorded" in built.text("recipes/small/sums")


def test_a_stamp_is_made_again_when_a_recipe_turns_out_to_need_cuda(project: Project) -> None:
    project.build()
    project.edit("gallery/small/sums.py", "# %%\n# First", f"{NEEDS_CUDA}\n\n# %%\n# First")
    assert "Ran on NVIDIA H200" in project.build().text("recipes/small/sums")


def test_nothing_is_written_again_when_nothing_changed(project: Project) -> None:
    pages = [project.path(f"build/html/{name}.html") for name in ("index", "recipes/small/sums")]
    project.build()
    before = [page.stat().st_mtime_ns for page in pages]
    project.build()
    assert [page.stat().st_mtime_ns for page in pages] == before


# -- what a build leaves alone ----------------------------------------------------------


@pytest.mark.parametrize("strict", [False, True], ids=["lenient", "strict"])
def test_a_build_changes_no_file_of_the_project(project: Project, strict: bool) -> None:
    project.edit("gallery/small/sums.py", "1 + 2", "2 + 2")
    before = project.files()
    project.build(strict=strict)
    assert project.files() == before
