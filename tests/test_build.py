"""`make html` where nothing changed, and where anything did."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import sphinx.cmd.build
from conftest import Finished, Project
from recordings import build

ARGUMENTS = ["-q", "-c", ".", "docs", "build/html"]
PAGE = "build/html/index.html"
RECIPE = "gallery/small/sums.py"


class Sphinx:
    """Stands for Sphinx: counts its builds, makes a page, and warns or fails when told to."""

    def __init__(self) -> None:
        self.builds, self.warns, self.status = 0, "", 0
        self.everything = False
        self.meanwhile: Callable[[], object] = int

    def __call__(self, arguments: list[str]) -> int:
        self.builds += 1
        self.everything = {"-E", "-a"} <= {*arguments}
        Path(arguments[arguments.index("-w") + 1]).write_text(self.warns)
        for made in (PAGE, "docs/recipes/small/sums.rst", "docs/_ext/__pycache__/x.pyc"):
            write(made)
        self.meanwhile()
        return self.status


@pytest.fixture
def called(project: Project, monkeypatch: pytest.MonkeyPatch) -> Sphinx:
    """The stand-in, called once for the small project, which is the current folder."""
    stand_in = Sphinx()
    monkeypatch.setattr(sphinx.cmd.build, "main", stand_in)
    monkeypatch.chdir(project.root)
    assert build.main(ARGUMENTS) == 0
    return stand_in


def test_nothing_is_done_where_nothing_changed(called: Sphinx) -> None:
    assert [build.main(ARGUMENTS) for _ in range(2)] == [0, 0]
    assert called.builds == 1


def write(name: str) -> None:
    """Write a file in a folder that there may not be."""
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text("made")


def keep_the_date() -> None:
    """Write other content of the same length, with the date of the old, as an archive may."""
    at = os.stat(RECIPE)
    text = Path(RECIPE).read_text()
    Path(RECIPE).write_text(text.replace("1 + 2", "2 + 2"))
    os.utime(RECIPE, ns=(at.st_atime_ns, at.st_mtime_ns))


CHANGES: dict[str, Callable[[], object]] = {
    "a page": lambda: Path("docs/index.md").write_text("# Other\n"),
    "a new page": lambda: Path("docs/other.md").write_text("# Other\n"),
    "the configuration": lambda: Path("conf.py").touch(),
    "the pins": lambda: Path("pyproject.toml").touch(),
    "a recipe that keeps its date": keep_the_date,
    "a recipe that is gone": lambda: Path(RECIPE).unlink(),
    "a companion": lambda: Path("gallery/small/sums/data.txt").write_text("2 1\n"),
    "a recording that is gone": lambda: Path("gallery/recordings/small/sums.json").unlink(),
    "what was made is gone": lambda: Path(PAGE).unlink(),
    "what was made is another": lambda: Path(PAGE).write_text("edit"),
    "what sphinx-gallery made is gone": lambda: shutil.rmtree("docs/recipes"),
    "a run of this machine": lambda: write("build/recordings/small/sums.json"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_built(called: Sphinx, change: Callable[[], object]) -> None:
    change()
    assert build.main(ARGUMENTS) == 0
    assert called.builds == 2


@pytest.mark.parametrize("name", ["REPOSITORY_URL", "SITE_URL", "SITE_VERSIONS"])
def test_an_address_is_built(called: Sphinx, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "https://example.org")
    build.main(ARGUMENTS)
    assert called.builds == 2


def test_other_options_are_built(called: Sphinx) -> None:
    build.main(["-D", "recordings_run=1", *ARGUMENTS])
    assert called.builds == 2


def test_other_packages_are_built(
    called: Sphinx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    (tmp_path / "other").touch()
    assert build.main(ARGUMENTS) == 0
    assert called.builds == 1
    (tmp_path / "package-1.dist-info").mkdir()
    build.main(ARGUMENTS)
    assert (called.builds, called.everything) == (2, True)


@pytest.mark.parametrize(
    ("file", "everything"),
    [
        ("docs/_ext/recordings/pages.py", True),
        ("docs/_static/site.css", True),
        ("docs/_templates/layout.html", True),
        ("docs/index.md", False),
    ],
)
def test_every_page_is_built_again_when_what_makes_them_changed(
    called: Sphinx, file: str, everything: bool
) -> None:
    write(file)
    build.main(ARGUMENTS)
    assert (called.builds, called.everything) == (2, everything)


@pytest.mark.parametrize("known", [None, "", "[]", "{}", '{"made": {}}'])
def test_every_page_is_built_where_it_is_unknown_what_made_them(
    called: Sphinx, known: str | None
) -> None:
    done = Path("build/html.done")
    if known is None:
        done.unlink()
    else:
        done.write_text(known)
    build.main(ARGUMENTS)
    assert (called.builds, called.everything) == (2, True)


def test_a_build_that_warned_is_done_again(called: Sphinx) -> None:
    Path("docs/index.md").write_text("# One\n")
    called.warns = "a warning\n"
    assert [build.main(ARGUMENTS) for _ in range(2)] == [0, 0]
    assert (called.builds, called.everything) == (3, True)


def test_a_change_during_a_build_is_built_next(called: Sphinx) -> None:
    Path("docs/index.md").write_text("# One\n")
    called.meanwhile = lambda: Path("docs/index.md").write_text("# Two\n")
    build.main(ARGUMENTS)
    called.meanwhile = int
    assert [build.main(ARGUMENTS) for _ in range(2)] == [0, 0]
    assert called.builds == 3


def test_a_build_that_failed_is_done_again(called: Sphinx) -> None:
    Path("docs/index.md").write_text("# One\n")
    called.status = 2
    assert [build.main(ARGUMENTS) for _ in range(2)] == [2, 2]
    assert called.builds == 3


def test_odd_names_and_places_are_no_hindrance(called: Sphinx) -> None:
    folder = Path("docs/odd")
    folder.mkdir()
    (folder / os.fsdecode(b"not utf-8 \xff.txt")).touch()
    (folder / "nowhere").symlink_to("nothing")
    (folder / "itself").symlink_to("itself")
    assert [build.main(ARGUMENTS) for _ in range(2)] == [0, 0]
    assert called.builds == 2


def test_each_site_has_a_state_of_its_own(called: Sphinx) -> None:
    for name in ("build/1.5.1", "build/1.5.2"):
        Path(name).mkdir()
        build.main([*ARGUMENTS[:-1], name])
    assert {"1.5.1.done", "1.5.2.done", "html.done"} <= {it.name for it in Path("build").iterdir()}


def make_html(project: Project) -> Finished:
    """What `make html` calls, with the real Sphinx."""
    return project.python("-m", "recordings.build", *ARGUMENTS)


def test_what_is_not_current_is_said_each_time(project: Project) -> None:
    project.edit("gallery/small/sums.py", "1 + 2", "2 + 2")
    said = [make_html(project) for _ in range(2)]
    assert [one.status for one in said] == [0, 0]
    assert all("recipe small/sums is stale" in one.err for one in said)


def test_a_page_follows_a_source_with_an_old_date(project: Project) -> None:
    page = project.path("docs/index.md")
    text, at = page.read_text(), page.stat().st_mtime_ns - 10**12
    for said in ("In all it is", "The total is"):
        other = project.write("docs/other", text.replace("The total is", said))
        os.utime(other, ns=(at, at))
        other.rename(page)
        make_html(project)
        assert said in project.path(PAGE).read_text()


@pytest.mark.parametrize("made", [PAGE, "build/html/_images/sphx_glr_curve_001.png"])
def test_what_was_made_comes_back(project: Project, made: str) -> None:
    make_html(project)
    before = project.path(made).read_bytes()
    for damage in (Path.unlink, lambda path: path.write_text("other")):
        damage(project.path(made))
        make_html(project)
        assert project.path(made).read_bytes() == before


def test_a_warning_is_said_each_time(project: Project) -> None:
    page = project.path("docs/index.md")
    page.write_text(page.read_text() + "\n{fact}`small/sums:nothing`\n")
    said = [make_html(project).err for _ in range(2)]
    assert all("fact 'small/sums:nothing'" in one for one in said)


def test_a_page_is_as_its_source_after_every_build(project: Project) -> None:
    assert make_html(project) == Finished(0, "", "")
    made = project.path(PAGE).stat().st_mtime_ns
    assert make_html(project) == Finished(0, "", "")
    assert project.path(PAGE).stat().st_mtime_ns == made
    project.edit("docs/index.md", "The total is", "In all it is")
    assert make_html(project) == Finished(0, "", "")
    assert "In all it is" in project.path(PAGE).read_text()
