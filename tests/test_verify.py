"""Running recipes again: what counts as the same, and what is reported."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import MACHINE, Project, copied
from recordings import compare
from recordings.recording import Recording

# -- the command ------------------------------------------------------------------------

#: One code, and what it says is decided by the test.
SAYS = "import os\n\nexec(os.environ['SAYS'])"
THEN = "print('0 copies of shape (4, 64) in 1.5 ms at 0x7f0012345678')\nfacts = {'copies': 0}"

DIFFERS = {
    "count in a text": (THEN.replace("0 copies", "1 copies"), "output of code block 1"),
    "text": (THEN.replace("copies of", "moves of"), "output of code block 1"),
    "count in a fact": (THEN.replace("'copies': 0", "'copies': 1"), "facts.copies: 0 then, 1 now"),
}


@pytest.fixture(scope="module")
def said(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project with one recorded recipe, for :func:`says`."""
    with (
        copied(recorded, tmp_path_factory.mktemp("said")) as project,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("SAYS", THEN)
        project.without("small/curve")
        project.recipe("small/sums", SAYS)
        project.record()
        yield project.root


@pytest.fixture
def says(said: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """A project with one recorded recipe that says what is in `SAYS`."""
    monkeypatch.setenv("SAYS", THEN)
    with copied(said, tmp_path / "project") as project:
        yield project


def test_a_run_that_says_the_same_is_verified(says: Project) -> None:
    done = says.command("verify")
    assert (done.status, done.err) == (0, "")
    assert "verified small/sums: as recorded" in done.out


def test_times_and_addresses_may_differ(says: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAYS", THEN.replace("1.5 ms at 0x7f00", "12 us at 0x7e11"))
    assert says.command("verify").status == 0


@pytest.mark.parametrize(("now", "reported"), DIFFERS.values(), ids=DIFFERS)
def test_a_difference_is_reported(
    says: Project, monkeypatch: pytest.MonkeyPatch, now: str, reported: str
) -> None:
    monkeypatch.setenv("SAYS", now)
    done = says.command("verify")
    assert done.status == 1
    assert f"FAILED small/sums: {reported}" in done.err


def test_a_report_shows_both_runs(says: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAYS", THEN.replace("0 copies", "1 copies"))
    err = says.command("verify").err
    assert "- 0 copies of shape" in err
    assert "+ 1 copies of shape" in err


def test_a_run_that_fails_is_reported(says: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAYS", "raise ValueError('not today')")
    done = says.command("verify")
    assert done.status == 1
    assert "FAILED small/sums: " in done.err
    assert "ValueError: not today" in done.err


@pytest.mark.parametrize("now", [THEN, DIFFERS["text"][0]], ids=["same", "different"])
def test_verify_writes_nothing(says: Project, monkeypatch: pytest.MonkeyPatch, now: str) -> None:
    monkeypatch.setenv("SAYS", now)
    before = says.files()
    says.command("verify")
    assert says.files() == before
    assert not says.path("build").exists()


def test_a_recipe_without_a_recording_of_its_code_is_not_verified(says: Project) -> None:
    says.edit("gallery/small/sums.py", "import os", "import os, sys")
    done = says.command("verify")
    assert done.status == 1
    assert "FAILED small/sums: it is stale: its code changed" in done.err


def test_where_nothing_can_run_nothing_is_verified(
    says: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recordings.environment.unmet", lambda needs: ["there is no moon"])
    done = says.command("verify")
    assert done.status == 2
    assert "cannot run small/sums here: there is no moon" in done.err


# -- the comparison ---------------------------------------------------------------------

RUN = Recording(
    recipe="small/run",
    code="",
    companions={},
    environment=MACHINE,
    date="2026-12-02",
    seconds=1.0,
    outputs=["", "text"],
    figures={"sphx_glr_run_001.png": "sha256:0"},
    facts={"count": 0, "list": [1, 2]},
)

SAME_TEXTS = {
    "nothing": ("", ""),
    "time": ("took 1.5 ms", "took 12.25 ms"),
    "unit of a time": ("took 1 s", "took 900 ms"),
    "rate": ("53.1 GB/s", "15 GB/s"),
    "address": ("at 0x7f0012345678", "at 0x7e0012345679"),
    "rounding": ("error 0.12345", "error 0.12346"),
    "small error": ("error 1e-7", "error 2.5e-8"),
    "measured value": ("ratio 10.01", "ratio 10.05"),
    "negative value": ("at -3.001", "at -3.0"),
}
OTHER_TEXTS = {
    "count": ("0 HtoD", "1 HtoD"),
    "count at the end": ("copies: 0", "copies: 1"),
    "count at the end of a sentence": ("There are 0.", "There are 1."),
    "large count": ("1000000 elements", "1000001 elements"),
    "sign": ("1", "-1"),
    "shape": ("torch.Size([4, 64])", "torch.Size([4, 65])"),
    "number of dimensions": ("(4, 64)", "(4, 64, 1)"),
    "error code": ("error 0x12", "error 0x10"),
    "version": ("1.5.1", "1.5.2"),
    "name with a number": ("cuda:0", "cuda:1"),
    "type with a number": ("float32", "float64"),
    "word": ("planned: True", "planned: False"),
    "measured value": ("ratio 10.0", "ratio 10.5"),
    "value that grew": ("error 0.001", "error 0.1"),
    "count before a time": ("0 copies in 1 ms", "1 copies in 1 ms"),
    "count on the line before a word like a unit": ("copies 0\ns", "copies 1\ns"),
    "line more": ("one", "one\ntwo"),
    "text gone": ("one", ""),
    "signal": ("died of SIGSEGV", "died of SIGABRT"),
    "null address": ("at 0x0", "at 0x7f0012345678"),
}
SAME_FACTS: dict[str, tuple[Any, Any]] = {
    "equal": ({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}),
    "rounding": ({"a": 0.12345}, {"a": 0.12346}),
    "time": (
        {"load_ms": 1.5, "run_s": 2, "copy_us": 3},
        {"load_ms": 9.5, "run_s": 1, "copy_us": 9},
    ),
    "rate": ({"up_gb_per_s": 53.1}, {"up_gb_per_s": 15.2}),
    "times in a table": ({"sizes": [{"default_ms": 1.0}]}, {"sizes": [{"default_ms": 2.0}]}),
    "address in a text": ({"error": "at 0x7f0012345678"}, {"error": "at 0x7e0012345678"}),
}
OTHER_FACTS: dict[str, tuple[Any, Any]] = {
    "count": ({"htod": 0}, {"htod": 1}),
    "count in a table": ({"sizes": [{"htod": 0}]}, {"sizes": [{"htod": 1}]}),
    "value": ({"a": 1.0}, {"a": 1.5}),
    "text": ({"error": "0x12"}, {"error": "0x10"}),
    "truth": ({"planned": True}, {"planned": False}),
    "number for a truth": ({"planned": True}, {"planned": 1}),
    "text for a number": ({"a": 1}, {"a": "1"}),
    "nothing for a number": ({"a": 0}, {"a": None}),
    "key gone": ({"a": 1, "b": 2}, {"a": 1}),
    "key new": ({"a": 1}, {"a": 1, "b": 2}),
    "time gone": ({"load_ms": 1.0}, {}),
    "shape": ({"shape": [4, 64]}, {"shape": [4, 65]}),
    "shape with more dimensions": ({"shape": [4, 64]}, {"shape": [4, 64, 1]}),
    "order": ({"order": ["a", "b"]}, {"order": ["b", "a"]}),
}


@pytest.mark.parametrize(("then", "now"), SAME_TEXTS.values(), ids=SAME_TEXTS)
def test_these_outputs_are_the_same(then: str, now: str) -> None:
    runs = (replace(RUN, outputs=["", text]) for text in (then, now))
    assert compare.differences(*runs) == []


@pytest.mark.parametrize(("then", "now"), OTHER_TEXTS.values(), ids=OTHER_TEXTS)
def test_these_outputs_differ(then: str, now: str) -> None:
    runs = (replace(RUN, outputs=["", text]) for text in (then, now))
    (line,) = compare.differences(*runs)
    assert line.startswith("output of code block 2:")


@pytest.mark.parametrize(("then", "now"), SAME_FACTS.values(), ids=SAME_FACTS)
def test_these_facts_are_the_same(then: Any, now: Any) -> None:
    assert compare.differences(replace(RUN, facts=then), replace(RUN, facts=now)) == []


@pytest.mark.parametrize(("then", "now"), OTHER_FACTS.values(), ids=OTHER_FACTS)
def test_these_facts_differ(then: Any, now: Any) -> None:
    found = compare.differences(replace(RUN, facts=then), replace(RUN, facts=now))
    assert found
    assert all(line.startswith("facts") for line in found)


def test_a_figure_that_is_missing_is_reported() -> None:
    (line,) = compare.differences(RUN, replace(RUN, figures={}))
    assert line == "figures: ['sphx_glr_run_001.png'] then, [] now"


def test_a_figure_that_is_drawn_otherwise_is_not_reported() -> None:
    drawn = replace(RUN, figures={"sphx_glr_run_001.png": "sha256:1"})
    assert compare.differences(RUN, drawn) == []


def test_an_output_that_is_missing_is_reported() -> None:
    assert "2 outputs then, 1 now" in compare.differences(RUN, replace(RUN, outputs=[""]))


def test_where_and_when_it_ran_is_not_compared() -> None:
    elsewhere = replace(RUN, environment=MACHINE | {"gpu": None}, date="2027-01-01", seconds=9.0)
    assert compare.differences(RUN, elsewhere) == []


def test_every_difference_is_reported() -> None:
    now = replace(RUN, outputs=["a", "b"], facts={"count": 1, "list": [2, 3]}, figures={})
    assert len(compare.differences(RUN, now)) == 6
