"""Measure what is never asserted: build times, page weights, run times. `make bench` prints them.

Builds a copy of the site in a temporary folder, so that nothing here is touched.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from programs import sparse

ROOT = Path(__file__).resolve().parent.parent


def build(project: Path) -> float:
    """Seconds that one lenient build of `project` takes."""
    command = [sys.executable, "-m", "sphinx", "-q", "-c", ".", "docs", "build/html"]
    started = time.perf_counter()
    subprocess.run(command, cwd=project, check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started


#: Programs that read a program: they print seconds, the memory that took, and what it has in all.
READERS = {
    "inspector": """
import argparse, contextlib, io, json, math, mmap, resource, runpy, struct, sys, time, flatbuffers
sys.argv = ["gallery/anywhere/inspect_pte.py", sys.argv[1]]
before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    runpy.run_path(sys.argv[0], run_name="__main__")
""",
    "ExecuTorch API": """
import resource, sys, time
from executorch.exir._serialize._program import deserialize_pte_binary
before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
with open(sys.argv[1], "rb") as file:
    deserialize_pte_binary(file.read())
""",
}
MEASURED = """
taken, peak = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(taken, (peak - before) / 1024, peak / 1024)
"""


def read(how: str, program: Path) -> str:
    """Seconds, and MiB on Linux, that reading `program` takes after the imports."""
    command = [sys.executable, "-c", READERS[how] + MEASURED, str(program)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        return done.stderr.strip().splitlines()[-1][-60:]
    seconds, more, peak = map(float, done.stdout.splitlines()[-1].split())
    return f"{seconds:.3f} s, {more:.0f} MiB more, {peak:.0f} MiB in all"


def start(program: Path) -> str:
    """The median of seconds that the command takes as a whole, in a process of its own."""
    command = [sys.executable, "gallery/anywhere/inspect_pte.py", str(program)]
    times = []
    for _ in range(5):
        started = time.perf_counter()
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - started)
    return f"{sorted(times)[2]:.2f} s"


def inspector() -> None:
    """Print what reading a program takes. The API reads 4 GiB several times over: not tried."""
    if not find_spec("flatbuffers"):
        print("\nInspector: flatbuffers is not installed")
        return
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        small = sparse.grow(Path(folder, "small.pte"), 256 << 20)
        large = sparse.grow(Path(folder, "large.pte"), 4 << 30)
        rows = [("the whole command, a small program", start(sparse.SAMPLE))]
        rows += [(f"256 MiB, {how}", read(how, small)) for how in READERS]
        rows += [("4 GiB, inspector", read("inspector", large))]
        rows += [("4 GiB, ExecuTorch API", "not tried: it holds the blob several times")]
    table("Reading a program, after the imports", rows)


def table(title: str, rows: list[tuple[str, str]]) -> None:
    """Print two columns under a title."""
    print(f"\n{title}")
    for name, value in rows:
        print(f"  {name:44} {value:>12}")


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        project = Path(folder, "project")
        ignored = shutil.ignore_patterns(".venv", ".git", ".builder", "build", "recipes")
        shutil.copytree(ROOT, project, ignore=ignored)
        times = [("from nothing", build(project)), ("nothing to do", build(project))]
        page = project / "docs" / "index.md"
        page.write_text(page.read_text(encoding="utf-8") + "\nOne more line.\n", encoding="utf-8")
        times.append(("one page edited", build(project)))
        html = project / "build" / "html"
        pages = {
            path.relative_to(html).as_posix(): path.stat().st_size for path in html.rglob("*.html")
        }
    table("Build times, without set-up", [(name, f"{seconds:.1f} s") for name, seconds in times])
    heaviest = sorted(pages.items(), key=lambda item: -item[1])[:5]
    table("Heaviest pages, HTML", [(name, f"{size / 1024:.0f} KiB") for name, size in heaviest])
    inspector()
    runs = []
    for path in sorted((ROOT / "gallery" / "recordings").rglob("*.json")):
        recorded = json.loads(path.read_text(encoding="utf-8"))
        runs.append((recorded["recipe"], recorded["seconds"]))
    total = ("all of them", sum(seconds for _, seconds in runs))
    table("Run times, recorded", [(name, f"{seconds:.1f} s") for name, seconds in [*runs, total]])


if __name__ == "__main__":
    main()
