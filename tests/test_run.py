"""Recipes that fail in every way, and runs that are killed: the old recording stays whole."""

from __future__ import annotations

import fcntl
import io
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from conftest import MACHINE, PACKAGE, Finished, Project, copied
from recordings import recording
from recordings.recipe import load, sha256
from recordings.recording import Recording

# -- recipes that fail ------------------------------------------------------------------

PRINTS = "print('before the end')\n"


@dataclass(frozen=True)
class Failure:
    """The code of a recipe that fails, and what is said about it."""

    code: str
    said: tuple[str, ...]
    limit: str = "60"


FAILURES = {
    "raises": Failure(
        PRINTS + "raise ValueError('the reason')",
        ("before the end", "ValueError: the reason", "small/sums.py", "status 1"),
    ),
    "has a bracket that stays open": Failure("total = (1", ("SyntaxError",)),
    "is ended by its guard": Failure(
        "import sys\nprint('It needs a moon.', file=sys.stderr)\nsys.exit(2)",
        ("its own guard ended it", "It needs a moon."),
    ),
    "exits with status 0 too early": Failure(
        PRINTS + "import sys\nsys.exit(0)", ("ended early, with status 0", "before the end")
    ),
    "hangs": Failure(
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        + PRINTS
        + "time.sleep(60)",
        ("took more than 5 s and was killed", "before the end"),
        limit="5",
    ),
    "segfaults": Failure(
        PRINTS + "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)",
        ("died of SIGSEGV", "before the end"),
    ),
    "crashes at the interpreter's exit": Failure(
        "import atexit, os\natexit.register(os.abort)", ("died of SIGABRT",)
    ),
    "prints megabytes": Failure(
        "for i in range(40_000):\n    print(i, 'x' * 100)", ("printed more than 256 KiB",)
    ),
    "prints megabytes past Python": Failure(
        "import os\nfor _ in range(40):\n    os.write(1, b'x' * 100_000)",
        ("printed more than 256 KiB",),
    ),
    "prints for ever": Failure(
        "while True:\n    print('again and again')",
        ("printed more than 256 KiB and was killed", "again and again"),
    ),
    "has NaN among its facts": Failure(
        "facts = {'loss': float('nan')}", ("its facts are not JSON values",)
    ),
    "has an object among its facts": Failure(
        "facts = {'device': object()}", ("its facts are not JSON values", "object")
    ),
    "has facts that are no dictionary": Failure("facts = 3", ("its facts are not",)),
    "draws by another library": Failure(
        "__import__('importlib').import_module('mat' + 'plotlib.pyplot').plot([1, 2])",
        ("figures would be lost",),
    ),
}


@dataclass(frozen=True)
class Failed:
    """What a failed run said, and the project's files before it and after it."""

    finished: Finished
    said: tuple[str, ...]
    before: dict[str, bytes]
    after: dict[str, bytes]


@pytest.fixture(scope="module", params=FAILURES)
def failed(
    request: pytest.FixtureRequest, recorded: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Failed]:
    failure = FAILURES[request.param]
    with copied(recorded, tmp_path_factory.mktemp("failed")) as project:
        project.recipe("small/sums", failure.code)
        before = project.files()
        finished = project.command("run", "small/sums", "--limit", failure.limit)
        yield Failed(finished, failure.said, before, project.files())


def test_a_failure_leaves_every_recording_as_it_was(failed: Failed) -> None:
    assert failed.after == failed.before


def test_a_failure_ends_with_status_1(failed: Failed) -> None:
    assert failed.finished.status == 1


def test_the_report_names_the_recipe_and_says_what_happened(failed: Failed) -> None:
    assert "FAILED small/sums: " in failed.finished.err
    for words in failed.said:
        assert words in failed.finished.err


def test_the_report_is_no_traceback_of_the_package(failed: Failed) -> None:
    assert "recordings/run.py" not in failed.finished.err
    assert "recordings/__main__.py" not in failed.finished.err


def test_the_report_is_short(failed: Failed) -> None:
    assert len(failed.finished.err) < 12_000


# -- more than one recipe ---------------------------------------------------------------


def test_a_good_recipe_is_recorded_beside_one_that_fails(project: Project) -> None:
    project.without("small/curve")
    project.recipe("small/a_bad_one", "total = (1")
    project.recording().unlink()
    done = project.command("run")
    assert (done.status, project.state()) == (1, "current")
    assert "1 of 2 recipes done, 1 failed" in done.out


def test_the_sum_of_a_run_counts_what_cannot_run_here(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recordings.environment.unmet", lambda needs: ["no moon"] * len(needs))
    project.without("small/curve")
    project.recipe("small/moon", "print(1)", tags='["cpp"]')
    done = project.command("run")
    assert done.status == 0
    assert "cannot run small/moon here: no moon" in done.err
    assert "1 of 2 recipes done, 0 failed, 1 cannot run here" in done.out


def test_a_run_where_nothing_can_run_ends_with_status_2(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recordings.environment.unmet", lambda needs: ["no moon"] * len(needs))
    project.recipe("small/sums", "print(1)", tags='["cpp"]')
    before = project.files()
    done = project.command("run", "small/sums")
    assert done.status == 2
    assert "cannot run small/sums here: no moon" in done.err
    assert project.files() == before


@pytest.mark.parametrize("name", ["small/none", "sums", "../small/sums", "small/sums.py"])
def test_a_name_that_is_no_recipe_ends_with_status_2(project: Project, name: str) -> None:
    done = project.command("run", name)
    assert done.status == 2
    assert f"there is no recipe {name!r}" in done.err


def test_a_folder_that_is_no_project_ends_with_status_2(project: Project, tmp_path: Path) -> None:
    project.root = tmp_path
    done = project.process("list")
    assert done.status == 2
    assert "Traceback" not in done.err
    assert "pyproject.toml" in done.err


WAITS = """
import pathlib, time
folder = pathlib.Path({folder!r})
(folder / {mine!r}).touch()


def wait():
    deadline = time.monotonic() + {seconds}
    while not (folder / {other!r}).exists():
        assert time.monotonic() < deadline, "it is alone"
        time.sleep(0.02)
"""


def test_recipes_run_beside_each_other(project: Project, tmp_path: Path) -> None:
    for mine, other in (("sums", "curve"), ("curve", "sums")):
        code = WAITS.format(folder=str(tmp_path), mine=mine, other=other, seconds=20)
        project.recipe(f"small/{mine}", f"{code}\nwait()")
    done = project.command("run", "--jobs", "2")
    assert done.status == 0, done.err


def test_a_figure_that_a_companion_draws_is_recorded(project: Project) -> None:
    code = "import sys\nsys.path.insert(0, sys.argv[0][:-3])\nimport drawing\ndrawing.draw()"
    project.recipe("small/draws", code + "\n\n# %%\n# Then.\n\ndrawing.finish()")
    text = "import matplotlib.pyplot as plt\n\n\ndef draw():\n    plt.plot([1, 2])\n"
    finish = "\n\ndef finish():\n    plt.close('all')\n"
    project.write("gallery/small/draws/drawing.py", text + finish)
    project.record("small/draws")
    assert len(project.figures("small/draws")) == 1


def test_what_took_longest_runs_first(project: Project) -> None:
    folder = project.path("gallery/recordings")
    recorded = recording.read(folder, "small/sums")
    assert recorded is not None
    for name, seconds in {"short": 1, "long": 60, "longer": 80}.items():
        project.recipe(f"small/{name}", "print(1)")
        recording.write(replace(recorded, recipe=f"small/{name}", seconds=seconds), folder, {})
    project.without("small/sums", "small/curve")
    project.recipe("small/new", "print(1)")
    done = project.command("run", "--jobs", "1")
    order = re.findall(r"^recorded small/(\w+)", done.out, re.MULTILINE)
    assert order == ["new", "longer", "long", "short"]


def test_a_recipe_that_measures_times_runs_alone(project: Project, tmp_path: Path) -> None:
    for mine, other, tags in (("sums", "never", "[]"), ("curve", "sums", '["cost"]')):
        code = WAITS.format(folder=str(tmp_path), mine=mine, other=other, seconds=1)
        ending = f"finally:\n    (folder / {mine!r}).unlink()"
        project.recipe(f"small/{mine}", f"{code}\ntry:\n    wait()\n{ending}", tags)
    done = project.command("run", "--jobs", "2")
    assert "0 of 2 recipes done, 2 failed" in done.out


@pytest.mark.parametrize(
    ("tags", "alone"), [("[]", False), ('["cpp"]', False), ('["cost"]', True), ('["alone"]', True)]
)
def test_a_tag_says_that_a_recipe_runs_alone(project: Project, tags: str, alone: bool) -> None:
    project.recipe("small/sums", "", tags)
    assert load(project.path("gallery"), "small/sums").runs_alone == alone


# -- what a run leaves behind -----------------------------------------------------------

CHILD = """
import fcntl, subprocess, sys
child = '''
import fcntl, time
lock = open({lock!r}, "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print("locked", flush=True)
time.sleep(60)
'''
process = subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE)
process.stdout.readline()
"""


@pytest.mark.parametrize(
    ("ending", "status"),
    [("", 0), ("raise ValueError", 1), ("process.wait()", 1)],
    ids=["success", "exception", "limit"],
)
def test_a_child_left_behind_is_gone_after_the_run(
    project: Project, tmp_path: Path, ending: str, status: int
) -> None:
    lock = tmp_path / "lock"
    project.recipe("small/sums", CHILD.format(lock=str(lock)) + ending)
    done = project.command("run", "small/sums", "--limit", "5")
    assert done.status == status
    with lock.open() as stream:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises while the child holds it


def test_an_interrupt_ends_all_runs_and_leaves_the_recordings(
    project: Project, tmp_path: Path
) -> None:
    for name in ("sums", "curve"):
        code = f"from pathlib import Path\nPath({str(tmp_path / name)!r}).touch()\nimport time\n"
        project.recipe(f"small/{name}", code + "time.sleep(60)")
    before = project.files()
    command = [sys.executable, "-m", "recordings", "--root", str(project.root), "run"]
    environ = os.environ | {"PYTHONPATH": str(PACKAGE)}
    with subprocess.Popen(
        [*command, "--jobs", "2"], env=environ, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        while not all((tmp_path / name).exists() for name in ("sums", "curve")):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
        assert "stopped" in process.stderr.read()
    assert project.files() == before


def test_a_run_records_what_came_out_and_where(project: Project) -> None:
    project.recipe("small/sums", "print('new')\nfacts = {'new': [1, 2.5, None, True]}")
    done = project.process("run", "small/sums")
    assert done.status == 0, done.err
    found = recording.read(project.path("gallery/recordings"), "small/sums")
    assert found is not None
    assert "new" in found.outputs[0]
    assert found.facts == {"new": [1, 2.5, None, True]}
    assert found.environment["python"] == ".".join(map(str, sys.version_info[:3]))


@pytest.mark.parametrize("changed", ["gallery/small/sums.py", "gallery/small/sums/data.txt"])
def test_a_recipe_that_changes_while_it_runs_is_not_recorded(
    project: Project, changed: str
) -> None:
    path = project.path(changed)
    code = f"from pathlib import Path\nfile = Path({str(path)!r})\n"
    code += "file.write_text(file.read_text() + '\\ntotal = 4\\n')"
    project.recipe("small/sums", code)
    before = project.recording().read_bytes()
    done = project.command("run", "small/sums")
    assert (done.status, project.recording().read_bytes()) == (1, before)
    assert "small/sums changed while it ran" in done.err


@pytest.mark.parametrize(
    "name", ["./small/sums", "small//sums", "../gallery/small/sums", "small/nothing"]
)
def test_a_name_is_written_as_the_list_shows_it(project: Project, name: str) -> None:
    before = project.files()
    done = project.command("run", name)
    assert (done.status, project.files()) == (2, before)
    assert f"there is no recipe {name!r}" in done.err


def test_every_run_compiles_in_a_folder_of_its_own(project: Project) -> None:
    names = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
    found = set()
    for one in ("sums", "curve"):
        project.recipe(f"small/{one}", f"import os\nfacts = {{n: os.environ[n] for n in {names}}}")
        project.record(f"small/{one}")
        recorded = recording.read(project.path("gallery/recordings"), f"small/{one}")
        assert recorded is not None
        found |= {*recorded.facts.values()}
    assert len(found) == 4


def test_a_run_touches_no_other_recording(project: Project) -> None:
    before = project.recording("small/curve").read_bytes(), project.figures("small/curve")
    project.record("small/sums")
    assert (project.recording("small/curve").read_bytes(), project.figures("small/curve")) == before


def test_running_again_changes_nothing_but_times(project: Project) -> None:
    folder = project.path("gallery/recordings")
    before = recording.read(folder, "small/curve")
    project.record("small/curve")
    after = recording.read(folder, "small/curve")
    assert before is not None
    assert after is not None
    assert (after.code, after.outputs, after.figures) == (
        before.code,
        before.outputs,
        before.figures,
    )


def test_old_figures_go_with_the_run_that_draws_others(project: Project) -> None:
    before = project.figures("small/curve")
    project.edit("gallery/small/curve.py", "[2, 1]", "[3, 1]")
    project.record("small/curve")
    after = project.figures("small/curve")
    assert (len(before), len(after)) == (2, 2)
    assert before[0] == after[0]
    assert before[1] not in after


# -- writing ----------------------------------------------------------------------------

OLD = {"_001.png": b"old 1", "_002.png": b"old 2", "_003.png": b"the same"}
NEW = {"_001.png": b"new 1", "_003.png": b"the same"}


def made(
    name: str, figures: dict[str, bytes], **changes: Any
) -> tuple[Recording, dict[str, bytes]]:
    """A recording without a run, and its figures."""
    stem = name.rpartition("/")[2]
    content = {f"sphx_glr_{stem}{end}": data for end, data in figures.items()}
    hashes = {figure: sha256(data) for figure, data in content.items()}
    fields: dict[str, Any] = {"code": "", "companions": {}, "environment": MACHINE}
    fields |= {"date": "2026-12-02", "seconds": 1.0, "outputs": [], "facts": {"it": "old"}}
    return Recording(recipe=name, figures=hashes, **fields | changes), content


def write(folder: Path, name: str, figures: dict[str, bytes], **changes: Any) -> Recording:
    one, content = made(name, figures, **changes)
    recording.write(one, folder, content)
    return one


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("other", ["small/a_b", "small/a_001", "small/a1", "small/b", "large/a"])
def test_the_figures_of_other_recipes_stay(tmp_path: Path, other: str) -> None:
    write(tmp_path, "small/a", OLD)
    kept = write(tmp_path, other, OLD)
    write(tmp_path, "small/a", {})
    assert recording.read(tmp_path, other) == kept


def test_only_what_the_new_recording_names_is_left(tmp_path: Path) -> None:
    write(tmp_path, "small/a", OLD)
    new = write(tmp_path, "small/a", NEW)
    figures = {new.figure_path(tmp_path, name).name for name in new.figures}
    assert names(tmp_path) == {"a.json", *figures}


def dies(work: Callable[[], object], at: int) -> bool:
    """Do `work` in a child that kills itself at its `at`-th step; whether it came to that.

    A step is a call into the operating system or a file, before it and after it.
    """
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    steps = 0

    def count(frame: FrameType, event: str, called: Any) -> None:
        nonlocal steps
        of_file = isinstance(getattr(called, "__self__", None), io.IOBase)
        if event.startswith("c_") and (of_file or called.__module__ in ("posix", "_io")):
            steps += 1
            if steps == at:
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        sys.setprofile(count)
        work()
    finally:
        os._exit(0)


def test_a_writer_that_is_killed_at_any_step_leaves_a_whole_recording(tmp_path: Path) -> None:
    seen = []
    for at in itertools.count(1):
        folder = tmp_path / str(at)
        old = write(folder, "small/a", OLD)
        new, content = made("small/a", NEW, facts={"it": "new"})
        died = dies(partial(recording.write, new, folder, content), at)
        found = recording.read(folder, "small/a")
        assert found in ([old, new] if died else [new])
        if not died:
            break
        seen.append(found == new)
    assert len(seen) > 20, "so few steps: does the test still see what the writer does?"
    assert seen == sorted(seen), "a new recording was followed by the old one"
    assert set(seen) == {False, True}


def test_the_next_run_clears_away_what_a_killed_one_left(tmp_path: Path) -> None:
    write(tmp_path, "small/a", OLD)
    new, content = made("small/a", NEW)
    for at in itertools.count(1):
        if not dies(partial(recording.write, new, tmp_path, content), at):
            break
    write(tmp_path, "small/a", {})
    assert names(tmp_path) == {"a.json"}


KILLED = {
    "at the first figure": ("os.rename", ".png", "stale"),
    "at the JSON": ("os.rename", ".json", "stale"),
    "at the first old figure": ("os.remove", ".png", "current"),
}
DRIVER = """
import os, signal, sys
from recordings import environment
from recordings.__main__ import main

environment.describe = lambda: {{"cpu": "A CPU"}}

def hook(event, arguments):
    if event == {event!r}:
        path = str(arguments[{event!r} == "os.rename"])
        if "gallery/recordings" in path and path.endswith({end!r}):
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(hook)
sys.exit(main())
"""


@pytest.mark.parametrize(("event", "end", "state"), KILLED.values(), ids=KILLED)
def test_a_run_that_is_killed_while_it_writes_leaves_a_whole_recording(
    project: Project, event: str, end: str, state: str
) -> None:
    project.edit("gallery/small/curve.py", "[1, 2]", "[1, 3]")
    project.edit("gallery/small/curve.py", "[2, 1]", "[3, 1]")
    driver = project.write("build/driver.py", DRIVER.format(event=event, end=end))
    done = project.process("run", "small/curve", script=driver)
    assert done.status == -signal.SIGKILL
    assert project.state("small/curve") == state
