"""Setting up: what is said where the machine cannot, and that it is done once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REPOSITORY

OLD_PYTHON = f"""#!{sys.executable}
import sys
sys.version_info = (3, 9, 18)
exec(sys.argv[2])
"""
#: What a make that runs the tests, or a user's shell, would pass on.
INHERITED = ("MAKE", "MFLAGS", "PIP_", "PYTHON", "VIRTUAL_ENV")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project that has not been set up: what setting up reads, and nothing else."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, tmp_path)
    return tmp_path


def make(project: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environ = {key: value for key, value in os.environ.items() if not key.startswith(INHERITED)}
    return subprocess.run(
        ["make", *arguments],
        cwd=project,
        env=environ | {"PIP_CONFIG_FILE": os.devnull} | variables,
        capture_output=True,
        text=True,
        timeout=120,
    )


def said(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What make's commands said on stderr, without what make adds."""
    return [line for line in done.stderr.splitlines() if not line.startswith("make: ***")]


def set_up(project: Path) -> None:
    """Have the project look as if it had been set up."""
    (project / ".venv/bin").mkdir(parents=True)
    for stamp in ("created", "docs.done", "test.done"):
        (project / ".venv" / stamp).touch()


@pytest.mark.parametrize("target", ["html", "test", "check"])
def test_too_old_a_python_is_named(project: Path, target: str) -> None:
    python = project / "python3.9"
    python.write_text(OLD_PYTHON)
    python.chmod(0o755)
    done = make(project, target, f"BASE_PYTHON={python}")
    assert done.returncode != 0
    (line,) = said(done)
    assert "Python 3.9 is too old: this needs Python 3.11 or newer" in line
    assert not (project / ".venv").exists()


def test_a_python_that_is_missing_is_named(project: Path) -> None:
    done = make(project, "html", "BASE_PYTHON=python3.99")
    assert done.returncode != 0
    (line,) = said(done)
    assert "There is no python3.99: install Python 3.11 or newer" in line


def test_too_old_a_make_is_named(project: Path) -> None:
    done = make(project, "html", "MAKE_VERSION=3.81")
    assert done.returncode != 0
    (line,) = done.stderr.splitlines()
    assert "GNU Make 3.81 is too old: this needs GNU Make 4.0 or newer" in line


@pytest.mark.parametrize("version", ["4.0", "4.4.1", "5.0"])
def test_a_make_that_is_new_enough_will_do(project: Path, version: str) -> None:
    assert make(project, "-n", "clean", f"MAKE_VERSION={version}").returncode == 0


def test_an_index_that_cannot_be_reached_is_named(project: Path) -> None:
    index = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0"}
    done = make(project, "html", f"BASE_PYTHON={sys.executable}", **index)
    assert done.returncode != 0
    assert said(done)[-1].startswith("Setting up .venv failed")
    assert "package index: check the network" in said(done)[-1]
    assert "Traceback" not in done.stderr


def test_a_set_up_that_failed_is_tried_again(project: Path) -> None:
    (project / ".venv/bin").mkdir(parents=True)
    (project / ".venv/bin/python").write_text("#!/bin/sh\nexit 1\n")
    (project / ".venv/bin/python").chmod(0o755)
    (project / ".venv/created").touch()
    for _ in range(2):
        done = make(project, "html")
        assert done.returncode != 0
        assert "Setting up .venv failed" in done.stderr


@pytest.mark.parametrize("target", ["html", "check", "test"])
def test_a_project_that_is_set_up_installs_nothing(project: Path, target: str) -> None:
    set_up(project)
    done = make(project, "-n", target)
    assert done.returncode == 0, done.stderr
    assert "pip" not in done.stdout
    assert "venv .venv" not in done.stdout


def test_new_requirements_are_installed(project: Path) -> None:
    set_up(project)
    stamp = (project / ".venv/docs.done").stat().st_mtime
    os.utime(project / "pyproject.toml", (stamp + 10, stamp + 10))
    assert "pip install" in make(project, "-n", "html").stdout


def test_the_documentation_is_set_up_without_what_recipes_run_on(project: Path) -> None:
    commands = make(project, "-n", "html").stdout
    assert "--group docs" in commands
    assert "--group test" not in commands


@pytest.mark.parametrize("target", ["html", "record", "verify", "list", "check", "pytest"])
def test_nothing_is_installed_into_a_python_that_is_given(project: Path, target: str) -> None:
    done = make(project, "-n", target, "PYTHON=python3")
    assert done.returncode == 0, done.stderr
    assert "pip" not in done.stdout


def test_html_is_lenient_and_check_is_strict(project: Path) -> None:
    set_up(project)
    lenient, strict = (make(project, "-n", target).stdout for target in ("html", "check"))
    assert " -W" not in lenient
    for option in ("-W", "--keep-going", "-n", "-D recordings_local="):
        assert option in strict


def test_record_runs_the_recipe_that_is_named(project: Path) -> None:
    commands = make(project, "-n", "record", "RECIPE=python/planned_output", "PYTHON=python3")
    assert "-m recordings run python/planned_output" in commands.stdout


def test_clean_leaves_the_environment(project: Path) -> None:
    set_up(project)
    for name in ("build/html", "docs/recipes", "gallery/recordings"):
        (project / name).mkdir(parents=True)
    assert make(project, "clean").returncode == 0
    left = sorted(path.name for path in project.iterdir())
    assert left == [".venv", "Makefile", "docs", "gallery", "pyproject.toml"]
    assert not (project / "docs/recipes").exists()


def test_only_html_runs_recipes_that_are_not_current(project: Path) -> None:
    set_up(project)
    html, check = (make(project, "-n", target).stdout for target in ("html", "check"))
    assert "-D recordings_run=1" in html
    assert "recordings_run" not in check
