"""The workflows: what they may do, what they call, and what their longer steps decide."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import PATH, REPOSITORY
from recordings import environment

GITHUB = REPOSITORY / ".github"
TEXTS = {
    path.name: path.read_text(encoding="utf-8")
    for path in sorted((GITHUB / "workflows").glob("*.yml"))
}
WORKFLOWS: dict[str, dict[str, Any]] = {name: yaml.safe_load(text) for name, text in TEXTS.items()}
JOBS = {
    f"{name}:{job}": found
    for name, workflow in WORKFLOWS.items()
    for job, found in workflow["jobs"].items()
}
STEPS = {
    f"{job}:{number}": step
    for job, found in JOBS.items()
    for number, step in enumerate(found["steps"])
}
every_workflow = pytest.mark.parametrize("name", WORKFLOWS)
every_job = pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
#: PyYAML reads the key `on` as true.
ON: Any = True


# -- what every workflow keeps to -------------------------------------------------------


def test_there_is_a_workflow_for_each_purpose() -> None:
    assert list(WORKFLOWS) == ["docs.yml", "publish.yml", "record.yml", "upstream.yml"]


@every_workflow
def test_every_action_is_pinned_by_commit_and_says_its_version(name: str) -> None:
    uses = re.findall(r"uses: *(.*)", TEXTS[name])
    pinned = [
        use for use in uses if re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", use)
    ]
    assert uses
    assert pinned == uses


def test_an_action_has_one_version_in_all_workflows() -> None:
    uses = {use for text in TEXTS.values() for use in re.findall(r"uses: *(.*)", text)}
    actions = [use.partition("@")[0] for use in uses]
    assert sorted(actions) == sorted(set(actions))


@every_workflow
def test_a_workflow_may_do_nothing_that_a_job_does_not_ask_for(name: str) -> None:
    assert WORKFLOWS[name]["permissions"] == {}


@every_job
def test_a_job_says_what_it_may_do(job: dict[str, Any]) -> None:
    assert job["permissions"]
    assert set(job["permissions"].values()) <= {"read", "write"}


@every_job
def test_a_job_that_may_write_runs_nothing_of_the_repository(job: dict[str, Any]) -> None:
    if "write" in job["permissions"].values():
        scripts = "\n".join(step.get("run", "") for step in job["steps"])
        assert not re.search(r"\b(make|pip|python\d?|\.ci/run)\b", scripts)


@every_job
def test_a_job_ends_in_time(job: dict[str, Any]) -> None:
    assert 0 < job["timeout-minutes"] <= 120


@every_workflow
def test_a_workflow_does_not_run_beside_itself(name: str) -> None:
    assert WORKFLOWS[name]["concurrency"]["group"]


@every_workflow
def test_no_workflow_runs_a_stranger_s_code_with_rights(name: str) -> None:
    assert not {"pull_request_target", "workflow_run", "issue_comment"} & set(WORKFLOWS[name][ON])


def test_only_the_checks_run_for_a_pull_request() -> None:
    names = [name for name, workflow in WORKFLOWS.items() if "pull_request" in workflow[ON]]
    assert names == ["docs.yml"]


def test_what_is_scheduled_can_be_started_by_hand() -> None:
    names = [name for name, workflow in WORKFLOWS.items() if "schedule" in workflow[ON]]
    assert names == ["record.yml", "upstream.yml"]
    assert all("workflow_dispatch" in WORKFLOWS[name][ON] for name in names)


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_no_script_holds_an_expression(step: dict[str, Any]) -> None:
    assert "${{" not in step.get("run", "")


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_checkout_leaves_no_credentials(step: dict[str, Any]) -> None:
    if step.get("uses", "").startswith("actions/checkout@"):
        assert step["with"]["persist-credentials"] is False


# -- what they call ---------------------------------------------------------------------


@every_workflow
def test_every_target_of_make_is_in_the_makefile(name: str) -> None:
    rules = re.findall(r"^([\w-]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.M)
    scripts = [step.get("run", "") for key, step in STEPS.items() if key.startswith(f"{name}:")]
    calls = re.findall(r"^\s*(?:if |elif )?make (?:-C \S+ )?(.*)", "\n".join(scripts), re.M)
    words = [takewhile(re.compile(r"[\w./-]+").fullmatch, call.split()) for call in calls]
    targets = {word for call in words for word in call if not word.startswith(".venv/")}
    assert targets <= set(rules)


def test_a_pull_request_passes_what_ci_runs() -> None:
    scripts = [step.get("run") for step in JOBS["docs.yml:check"]["steps"]]
    assert ".ci/run" in scripts
    assert os.access(REPOSITORY / ".ci/run", os.X_OK)


def test_python_is_the_oldest_that_the_project_supports() -> None:
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    oldest = settings["tool"]["ruff"]["target-version"].replace("py3", "3.")
    named = {
        step["with"]["python-version"]
        for step in STEPS.values()
        if "python-version" in step.get("with", {})
    }
    assert named == {oldest}


def test_the_cuda_wheel_is_installed_as_the_readme_says() -> None:
    assert f"{environment.CUDA_WHEEL}\n" in TEXTS["record.yml"]


def test_recordings_are_made_on_a_runner_with_cuda() -> None:
    assert JOBS["record.yml:record"]["runs-on"] == ["self-hosted", "linux", "cuda"]


# -- tools ------------------------------------------------------------------------------

TOOLS = {
    "actionlint": ["jactionlint", *(f".github/workflows/{name}" for name in WORKFLOWS)],
    "zizmor": ["zizmor", "--offline", "--quiet", "--persona", "auditor", ".github"],
}


@pytest.mark.parametrize("command", TOOLS.values(), ids=TOOLS)
def test_the_workflows_pass(command: list[str]) -> None:
    tool = shutil.which(command[0], path=PATH)
    assert tool, f"{command[0]} is not installed; it is in the group `test`"
    done = subprocess.run([tool, *command[1:]], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("command", TOOLS.values(), ids=TOOLS)
def test_a_workflow_that_takes_a_title_for_a_script_does_not_pass(
    command: list[str], tmp_path: Path
) -> None:
    shutil.copytree(GITHUB, tmp_path / ".github")
    path = tmp_path / ".github/workflows/docs.yml"
    run = "run: echo ${{ github.event.pull_request.title }}"
    path.write_text(path.read_text(encoding="utf-8").replace("run: .ci/run", run), encoding="utf-8")
    tool = shutil.which(command[0], path=PATH)
    assert tool
    done = subprocess.run([tool, *command[1:]], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0
    assert "docs.yml" in done.stdout


# -- what the longer steps decide -------------------------------------------------------

#: Stands for a command: notes how it was called, and answers what the test says.
STUB = """#!/usr/bin/env python3
import json, os, sys
with open(os.environ["CALLS"], "a") as calls:
    calls.write(json.dumps([os.path.basename(sys.argv[0]), *sys.argv[1:]]) + "\\n")
line = " ".join([os.path.basename(sys.argv[0]), *sys.argv[1:]])
for said, (status, answer) in json.loads(os.environ["ANSWERS"]).items():
    if said in line:
        print(answer)
        sys.exit(status)
"""


@dataclass
class Ran:
    """How a step ended: its exit status, what it called, and its part of the job's summary."""

    status: int
    calls: list[list[str]]
    summary: str
    out: str

    def called(self, *words: str) -> list[list[str]]:
        """The calls that begin with `words`."""
        return [call for call in self.calls if call[: len(words)] == list(words)]


class Runner:
    """Runs a step of a workflow as GitHub's runner does, with stubs for what reaches out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "checkout"
        self.stubs = folder / "stubs"
        self.folder.mkdir()
        self.stubs.mkdir()

    def stub(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(STUB.replace("/usr/bin/env python3", sys.executable), encoding="utf-8")
        path.chmod(0o755)

    def run(self, job: str, step: str, answers: dict[str, tuple[int, str]], **environ: str) -> Ran:
        (script,) = [it["run"] for it in JOBS[job]["steps"] if it.get("name") == step]
        calls, summary = self.folder.parent / "calls", self.folder.parent / "summary"
        calls.write_text("")
        summary.write_text("")
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=self.folder,
            env={
                "PATH": f"{self.stubs}{os.pathsep}{os.environ['PATH']}",
                "HOME": str(self.folder.parent),
                "CALLS": str(calls),
                "ANSWERS": json.dumps(answers),
                "GITHUB_STEP_SUMMARY": str(summary),
                "GITHUB_SERVER_URL": "https://github.com",
                "GITHUB_REPOSITORY": "someone/docs",
                "GITHUB_RUN_ID": "7",
            }
            | environ,
            capture_output=True,
            text=True,
            timeout=60,
        )
        made = [json.loads(line) for line in calls.read_text().splitlines()]
        return Ran(done.returncode, made, summary.read_text(), done.stdout + done.stderr)


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


# upstream.yml

PINNED = "executorch==1.5.1+cpu\ntorch==2.13.0+cpu"
NIGHTLY = "executorch==1.7.0.dev20261130+cpu\ntorch==2.15.0.dev20261129+cpu"
RELEASED = "executorch==1.6.0+cpu\ntorch==2.14.0+cpu"


def check_upstream(
    runner: Runner,
    newest: str = PINNED,
    tests: int = 0,
    install: int = 0,
    channel: str = "release",
    failures: str = "3 failed",
) -> Ran:
    """Run the step that tries the newest; pip's list changes where an installation went well."""
    runner.stub(runner.stubs / "make")
    python = runner.folder / ".venv/bin/python"
    runner.stub(python)
    listing = (
        f'case "$*" in *list*) if [ -f new ]; then echo "{newest}"; else echo "{PINNED}"; fi;;'
    )
    installing = (
        f"*install*) echo pip said this; [ {install} = 0 ] && touch new; exit {install};; esac"
    )
    python.write_text(f"#!/bin/bash\n{listing} {installing}\n")
    answers = {"make pytest": (tests, failures if tests else "3 passed")}
    return runner.run(
        "upstream.yml:check", "Check the newest", answers, CHANNEL=channel, OPTIONS=""
    )


def moved(runner: Runner) -> dict[str, str]:
    """The files from which issues are opened."""
    return {
        path.name: path.read_text() for path in sorted((runner.folder / "build/moved").iterdir())
    }


def test_nothing_is_reported_when_nothing_moved(runner: Runner) -> None:
    ran = check_upstream(runner)
    assert (ran.status, ran.summary) == (0, "Nothing moved.\n")
    assert moved(runner) == {}


def test_a_new_release_is_reported_though_the_checks_pass(runner: Runner) -> None:
    assert check_upstream(runner, RELEASED).status == 0
    title = "Upstream release: executorch 1.6.0, torch 2.14.0 pass the CPU checks\n"
    assert moved(runner)["release.title"] == title
    assert PINNED in moved(runner)["release.md"]
    assert RELEASED in moved(runner)["release.md"]


def test_checks_that_fail_are_reported_with_the_end_of_the_log(runner: Runner) -> None:
    assert check_upstream(runner, RELEASED, tests=1).status == 0
    assert moved(runner)["release.title"].endswith(" fail the CPU checks\n")
    assert "3 failed" in moved(runner)["release.md"]
    assert "https://github.com/someone/docs/actions/runs/7" in moved(runner)["release.md"]


def test_a_report_fits_into_an_issue(runner: Runner) -> None:
    check_upstream(runner, RELEASED, tests=1, failures="\n".join(["x" * 1900] * 62))
    assert 10_000 < len(moved(runner)["release.md"]) < 65_536


def test_checks_that_fail_with_what_is_pinned_are_reported(runner: Runner) -> None:
    check_upstream(runner, tests=1)
    title = "Upstream release: executorch 1.5.1, torch 2.13.0 fail the CPU checks\n"
    assert moved(runner)["release.title"] == title


def test_a_release_that_cannot_be_installed_is_reported(runner: Runner) -> None:
    assert check_upstream(runner, RELEASED, install=1).status == 0
    assert moved(runner)["release.title"].endswith(" cannot be installed\n")
    assert "pip said this" in moved(runner)["release.md"]


def test_nightlies_of_two_days_have_one_title(runner: Runner) -> None:
    check_upstream(runner, NIGHTLY, channel="pre-release")
    title = "Upstream pre-release: executorch 1.7.0.dev, torch 2.15.0.dev pass the CPU checks\n"
    assert moved(runner)["pre-release.title"] == title


def report(runner: Runner, known: str, *titles: str) -> Ran:
    """Run the step that opens issues, where `known` are the titles of those there are."""
    runner.stub(runner.stubs / "gh")
    (runner.folder / "moved").mkdir()
    for number, title in enumerate(titles):
        (runner.folder / f"moved/{number}.title").write_text(f"{title}\n")
        (runner.folder / f"moved/{number}.md").write_text("Body.\n")
    name = "Open an issue for what no issue is about"
    return runner.run("upstream.yml:report", name, {"issue list": (0, known)})


def test_an_issue_is_opened_for_what_moved(runner: Runner) -> None:
    ran = report(runner, "Another issue", "It moved", "So did this")
    first, second = ran.called("gh", "issue", "create")
    assert first[3:] == ["--title", "It moved", "--body-file", "moved/0.md"]
    assert second[4] == "So did this"


def test_an_issue_is_not_opened_twice(runner: Runner) -> None:
    ran = report(runner, "Another issue\nIt moved", "It moved")
    assert ran.status == 0
    assert ran.called("gh", "issue", "create") == []


def test_a_title_that_is_part_of_another_is_not_known(runner: Runner) -> None:
    ran = report(runner, "It moved again", "It moved")
    assert len(ran.called("gh", "issue", "create")) == 1


def test_closed_issues_are_known_too(runner: Runner) -> None:
    (call,) = report(runner, "", "It moved").called("gh", "issue", "list")
    assert call[call.index("--state") + 1] == "all"


def test_no_issue_is_opened_where_nothing_moved(runner: Runner) -> None:
    ran = report(runner, "")
    assert ran.status == 0
    assert ran.called("gh", "issue", "create") == []


# record.yml


def git(folder: Path, *words: str) -> str:
    """Call git, and return what it prints."""
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def propose(runner: Runner, change: dict[str, str | None], pulls: int = 0) -> Ran:
    """Run the step that proposes recordings, in a clone where `change` was downloaded."""
    origin = runner.folder.parent / "origin"
    if not origin.exists():
        git(runner.folder.parent, "init", "--quiet", "--bare", "--initial-branch=main", str(origin))
        folder = runner.folder / "gallery/recordings"
        folder.mkdir(parents=True)
        for name in ("one.json", "old.png"):
            (folder / name).write_text("1")
        git(runner.folder, "init", "--quiet", "--initial-branch=main")
        git(runner.folder, "add", ".")
        git(runner.folder, "commit", "--quiet", "--message", "First")
        git(runner.folder, "remote", "add", "origin", str(origin))
        git(runner.folder, "push", "--quiet", "origin", "main")
    for name, text in change.items():
        path = runner.folder / "gallery/recordings" / name
        path.unlink() if text is None else path.write_text(text)
    runner.stub(runner.stubs / "gh")
    answers = {"pr list": (0, str(pulls))}
    return runner.run("record.yml:propose", "Propose what changed", answers, BASE="main")


def test_new_recordings_are_proposed(runner: Runner) -> None:
    ran = propose(runner, {"one.json": "2", "new.png": "2", "old.png": None})
    assert ran.status == 0, ran.out
    (call,) = ran.called("gh", "pr", "create")
    assert call[call.index("--base") + 1] == "main"
    assert call[call.index("--head") + 1] == "recordings/new"
    assert "actions/runs/7" in call[call.index("--body") + 1]
    origin = runner.folder.parent / "origin"
    changed = git(origin, "diff", "--name-status", "main", "recordings/new").split()
    names = ("new.png", "old.png", "one.json")
    assert changed[1::2] == [f"gallery/recordings/{name}" for name in names]
    assert changed[::2] == ["A", "D", "M"]


def test_the_checks_are_started_for_what_is_proposed(runner: Runner) -> None:
    ran = propose(runner, {"one.json": "2"})
    assert ran.calls[-1] == ["gh", "workflow", "run", "docs.yml", "--ref", "recordings/new"]
    assert "workflow_dispatch" in WORKFLOWS["docs.yml"][ON]


def test_nothing_is_proposed_where_no_recording_changed(runner: Runner) -> None:
    ran = propose(runner, {})
    assert (ran.status, ran.summary, ran.calls) == (0, "No recording changed.\n", [])


def test_a_pull_request_that_is_open_gets_the_newer_recordings(runner: Runner) -> None:
    propose(runner, {"one.json": "2"})
    git(runner.folder, "switch", "--quiet", "main")
    git(runner.folder, "branch", "--quiet", "-D", "recordings/new")
    ran = propose(runner, {"one.json": "3"}, pulls=1)
    assert ran.status == 0, ran.out
    assert ran.called("gh", "pr", "create") == []
    origin = runner.folder.parent / "origin"
    assert git(origin, "show", "recordings/new:gallery/recordings/one.json") == "3"


def test_recordings_are_made_only_where_every_recipe_can_run(runner: Runner) -> None:
    runner.stub(runner.stubs / "make")
    answers = {"make doctor": (0, "ok       cpp\ncan run  a/b\nlacks    c/d: cuda")}
    step = "Record every recipe, then run it again and compare"
    temp = str(runner.folder)
    ran = runner.run("record.yml:record", step, answers, RUNNER_TEMP=temp)
    assert ran.status == 1
    assert "::error::this runner cannot run every recipe" in ran.out
    assert [call[:2] for call in ran.calls] == [["make", "doctor"]]


def test_recordings_are_made_and_verified(runner: Runner) -> None:
    runner.stub(runner.stubs / "make")
    answers = {"make doctor": (0, "ok       cuda\ncan run  a/b")}
    step = "Record every recipe, then run it again and compare"
    ran = runner.run("record.yml:record", step, answers, RUNNER_TEMP=str(runner.folder))
    assert ran.status == 0, ran.out
    assert ran.calls[-1] == ["make", "record", "verify", "PYTHON=python"]


# docs.yml


def summary(before: Path, after: Path) -> str:
    """What the script says of two sites."""
    text: str = runpy.run_path(str(GITHUB / "changed_pages.py"))["summary"](before, after)
    return text


@pytest.fixture
def sites(tmp_path: Path) -> tuple[Path, Path]:
    """A built site before a change and after it; the same."""
    for site in ("before", "after"):
        for name in ("index.html", "index.md", "a/page.html", "a/page.md", "_images/plot.png"):
            path = tmp_path / site / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("one\ntwo\n")
    return tmp_path / "before", tmp_path / "after"


def test_sites_that_are_the_same_have_no_changed_page(sites: tuple[Path, Path]) -> None:
    assert summary(*sites) == "### 0 of 2 pages changed\n\n"


def test_a_changed_page_is_listed_with_its_lines(sites: tuple[Path, Path]) -> None:
    (sites[1] / "a/page.md").write_text("one\nthree\nfour\n")
    assert summary(*sites) == "### 1 of 2 pages changed\n\n- `a/page.md`: +2 -1 lines\n"


def test_new_and_removed_pages_are_listed(sites: tuple[Path, Path]) -> None:
    (sites[1] / "a/page.md").rename(sites[1] / "a/other.md")
    assert summary(*sites).splitlines()[2:] == ["- `a/other.md`: new", "- `a/page.md`: removed"]


def test_a_changed_figure_is_listed(sites: tuple[Path, Path]) -> None:
    (sites[1] / "_images/plot.png").write_text("another")
    assert summary(*sites).splitlines()[2:] == ["- figure `plot.png`"]


def test_pages_that_only_look_different_are_counted(sites: tuple[Path, Path]) -> None:
    (sites[1] / "a/page.md").write_text("one\n")
    for name in ("a/page.html", "index.html"):
        (sites[1] / name).write_text("<p>")
    assert summary(*sites).splitlines()[-1] == "1 more look different, and say the same."


def test_a_site_that_was_not_built_before_is_said(sites: tuple[Path, Path]) -> None:
    shutil.rmtree(sites[0])
    lines = summary(*sites).splitlines()
    assert lines[0] == "### 2 of 2 pages changed"
    assert "The site before could not be built: every page counts as new." in lines


def test_a_site_that_was_not_built_is_said(sites: tuple[Path, Path]) -> None:
    shutil.rmtree(sites[1])
    assert summary(*sites) == "There is no built site to compare.\n"


# publish.yml


def ask_for_the_address(runner: Runner, status: int) -> tuple[Ran, str]:
    """Run the step, and what it leaves in the environment of the next."""
    runner.stub(runner.stubs / "gh")
    left = runner.folder.parent / "env"
    asked = "gh api repos/someone/docs/pages --jq .html_url"
    answers = {asked: (status, "https://docs.example.org/")}
    step = "Ask for the address of the site"
    ran = runner.run("publish.yml:build", step, answers, GITHUB_ENV=str(left))
    return ran, left.read_text() if left.exists() else ""


def test_the_site_is_built_for_the_address_it_has(runner: Runner) -> None:
    ran, left = ask_for_the_address(runner, 0)
    assert ran.status == 0, ran.out
    assert left == "SITE_URL=https://docs.example.org/\n"


def test_a_site_without_an_address_is_not_built(runner: Runner) -> None:
    ran, left = ask_for_the_address(runner, 1)
    assert ran.status == 1
    assert left == ""
