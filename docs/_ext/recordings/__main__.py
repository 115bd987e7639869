"""The command line: ``python -m recordings list|run|verify|doctor``.

Exit status: 0 all went well; 1 something failed or differs; 2 the command's words are wrong,
or nothing that was asked for can run on this machine.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

try:
    from recordings import compare, environment, recording
except ModuleNotFoundError as error:
    wanted = "pip install --group docs --group run"
    print(f"recordings: {error.name} is not installed: {wanted}", file=sys.stderr)
    raise SystemExit(2) from None
from recordings.recipe import NEEDS, Recipe, RecipeError, find, load
from recordings.recording import State, stamp_text
from recordings.run import LIMIT_S, NeedsNotMetError, RunFailedError, run, stop_all

#: A recipe waits for one compiler after the other, each with few threads.
JOBS = max(1, (os.cpu_count() or 1) // 2)


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line, do what it says, return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m recordings", description=__doc__)
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="the project's root folder")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="every recipe, its state and its stamp")
    recorder = commands.add_parser("run", help="run recipes and write their recordings")
    recorder.add_argument(
        "--local",
        action="store_true",
        help="into build/recordings, what is not current and can run here; for a local build",
    )
    checker = commands.add_parser("verify", help="run again, write nothing, report differences")
    for command in (recorder, checker):
        command.add_argument("recipes", nargs="*", metavar="CALLER/NAME", help="default: all")
        command.add_argument("--limit", type=float, default=LIMIT_S, metavar="SECONDS")
        command.add_argument(
            "--jobs", type=int, default=JOBS, help="how many run at a time (here: %(default)s)"
        )
    commands.add_parser("doctor", help="what this machine can run, and what is missing")
    options = parser.parse_args(arguments)
    try:
        project = Project(options.root.resolve())
        chosen = project.recipes(getattr(options, "recipes", []))
        if options.command == "list":
            return show(project, chosen)
        if options.command == "doctor":
            return doctor(chosen)
        if options.command == "verify":
            return verify(project, chosen, options.limit, options.jobs)
        return record(project, chosen, options.limit, options.jobs, options.local)
    except (RecipeError, ValueError) as error:
        print(f"recordings: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("recordings: stopped; what was not recorded yet is as it was", file=sys.stderr)
        return 130


class Project:
    """The folders of a project: where its recipes, recordings and pins are."""

    def __init__(self, root: Path) -> None:
        self.gallery = root / "gallery"
        self.committed = self.gallery / "recordings"
        self.local = root / "build" / "recordings"
        self.pins = environment.pins(root / "pyproject.toml")

    def recipes(self, names: list[str]) -> list[Recipe]:
        """The recipes called `names`, or all of them."""
        return [load(self.gallery, name) for name in names] or find(self.gallery)

    def status(self, recipe: Recipe, local: bool = False) -> recording.Status:
        """The state of `recipe` by its committed recording, or by a local one too."""
        folders = [self.committed, self.local] if local else [self.committed]
        return recording.best_status(recipe, folders, self.pins)

    def longest_first(self, recipes: list[Recipe]) -> list[Recipe]:
        """`recipes` by how long their committed runs took, so that none is left over at the end.

        Those that have no recording that can be read come first: nobody knows.
        """

        def seconds(recipe: Recipe) -> float:
            try:
                recorded = recording.read(self.committed, recipe.name)
            except recording.BrokenRecordingError:
                recorded = None
            return recorded.seconds if recorded else float("inf")

        return sorted(recipes, key=seconds, reverse=True)


def show(project: Project, recipes: list[Recipe]) -> int:
    """Print each recipe's state, and its stamp or what is wrong."""
    for recipe in recipes:
        status = project.status(recipe)
        said = (
            stamp_text(recipe, status.shown)
            if status.state is State.CURRENT and status.shown
            else ""
        )
        print(f"{recipe.name:30} {status.state.value:9} {said or '; '.join(status.reasons)}")
    return 0


def doctor(recipes: list[Recipe]) -> int:
    """Print which needs this machine meets, and which recipes it can run."""
    reasons = {need: environment.missing(need) for need in NEEDS}
    for need, reason in reasons.items():
        print(f"{'missing' if reason else 'ok':8} {need}: {reason or NEEDS[need]}")
    for recipe in recipes:
        lacking = [need for need in recipe.needs if reasons[need]]
        print(
            f"{'lacks' if lacking else 'can run':8} {recipe.name}{': ' * bool(lacking)}"
            f"{', '.join(lacking)}"
        )
    return 0


def record(project: Project, recipes: list[Recipe], limit_s: float, jobs: int, local: bool) -> int:
    """Run `recipes`, each in a process of its own, and write a recording of each that ends well."""
    if local:
        recipes = [
            one
            for one in recipes
            if project.status(one, local=True).state is not State.CURRENT
            and not environment.unmet(one.needs)
        ]
        if not recipes:
            return 0
    folder = project.local if local else project.committed

    def keep(recipe: Recipe) -> list[str]:
        done = run(recipe, limit_s)
        recording.write(done.recording, folder, done.figures)
        print(f"recorded {recipe.name}: {stamp_text(recipe, done.recording)}", flush=True)
        return []

    return _each(project.longest_first(recipes), keep, jobs)


def verify(project: Project, recipes: list[Recipe], limit_s: float, jobs: int) -> int:
    """Run `recipes` again, write nothing, and report how they differ from their recordings."""

    def check(recipe: Recipe) -> list[str]:
        status = project.status(recipe)
        if status.shown is None:
            return [f"it is {status.state.value}: {'; '.join(status.reasons)}"]
        found = compare.differences(status.shown, run(recipe, limit_s).recording)
        if not found:
            print(f"verified {recipe.name}: as recorded", flush=True)
        return found

    return _each(project.longest_first(recipes), check, jobs)


def _each(recipes: list[Recipe], do: Callable[[Recipe], list[str]], jobs: int) -> int:
    """Call `do` for each recipe that can run here; say what failed; return the exit status.

    Up to `jobs` recipes run at a time, in this order. Those that measure times come last, one by
    one.
    """
    able = []
    for recipe in recipes:
        if lacking := environment.unmet(recipe.needs):
            print(f"cannot run {recipe.name} here: {lacking[-1]}", file=sys.stderr, flush=True)
        else:
            able.append(recipe)

    def attempt(recipe: Recipe) -> bool:
        try:
            problems = do(recipe)
        except NeedsNotMetError as error:
            problems = [f"its own guard ended it: {error}"]
        except (RunFailedError, RecipeError, OSError) as error:
            problems = [str(error)]
        for problem in problems:
            print(f"FAILED {recipe.name}: {problem}", file=sys.stderr, flush=True)
        return not problems

    together = [recipe for recipe in able if not recipe.runs_alone]
    alone = [recipe for recipe in able if recipe.runs_alone]
    with ThreadPoolExecutor(jobs) as pool:
        try:
            done = [*pool.map(attempt, together), *map(attempt, alone)]
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            stop_all()
            raise
    failed = done.count(False)
    print(
        f"{len(done) - failed} of {len(recipes)} recipes done, {failed} failed,"
        f" {len(recipes) - len(able)} cannot run here",
        flush=True,
    )
    return 1 if failed else 2 if not able else 0


if __name__ == "__main__":
    # An interrupt ends the runs, in the background too, where a shell has it ignored; so does a
    # plain kill.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    sys.exit(main())
