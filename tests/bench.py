"""Measure what is never asserted: build times, page weights, run times. `make bench` prints them.

Builds copies of the site in a temporary folder, so that nothing here is touched.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from programs import sparse

ROOT = Path(__file__).resolve().parent.parent
#: Builds of this site and of the plain one take turns, and the best of each counts.
REPEATS = 3

#: What makes the same site without our package, appended to its configuration. A page shows a word
#: where it quotes a recording, and recipes' pages have code and no outputs.
# It does without matplotlib, as our package has it: the documentation's own environment has none.
PLAIN = """
extensions.remove("recordings")
sys.modules["matplotlib"] = None


def setup(app):
    from docutils import nodes
    from docutils.parsers.rst import Directive

    class Word(Directive):
        optional_arguments = 1
        final_argument_whitespace = True
        has_content = True

        def run(self):
            return [nodes.paragraph("", "word")]

    for name in ("fact", "ran"):
        app.add_role(name, lambda *arguments, **options: ([nodes.inline("", "word")], []))
    for name in ("recorded", "matrix", "recipes", "environments", "boundary"):
        app.add_directive(name, Word, override=True)
"""


def table(title: str, rows: list[tuple[str, ...]]) -> None:
    """Print columns under a title; the first one is wide."""
    print(f"\n{title}")
    for name, *values in rows:
        print(f"  {name:44}{''.join(f' {value:>12}' for value in values)}")


# -- building -------------------------------------------------------------------------


def copy_site(folder: Path, conf: str = "") -> Path:
    """Copy what the site is made of to `folder`, and append `conf` to its configuration."""
    ignored = shutil.ignore_patterns(".venv", ".git", ".builder", "build", "recipes")
    shutil.copytree(ROOT, folder, ignore=ignored)
    with (folder / "conf.py").open("a", encoding="utf-8") as file:
        file.write(conf)
    return folder


def build(project: Path, module: str) -> float:
    """Seconds that `make html` takes for `project`, without set-up, by `module` or by Sphinx."""
    options = ["-q", "-j", "auto", "-D", "recordings_run=1", "-c", "."]
    command = [sys.executable, "-m", module, *options, "docs", "build/html"]
    started = time.perf_counter()
    subprocess.run(command, cwd=project, check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started


def builds(project: Path, module: str) -> dict[str, float]:
    """Seconds of each kind of build of `project`, in the order in which an author meets them."""
    for made in ("build", "docs/recipes"):
        shutil.rmtree(project / made, ignore_errors=True)
    times = {"from nothing": build(project, module)}
    with (project / "docs" / "index.md").open("a", encoding="utf-8") as page:
        page.write("\nAnother line.\n")
    for kind in ("one page edited", "nothing to do"):
        times[kind] = build(project, module)
    return times


def print_builds(folder: Path) -> Path:
    """Print build times of this site and of the plain one; return the pages of this one."""
    ours, plain = copy_site(folder / "ours"), copy_site(folder / "plain", PLAIN)
    measured = [(builds(ours, "recordings.build"), builds(plain, "sphinx")) for _ in range(REPEATS)]
    rows = [("", "this site", "plain", "ratio")]
    for kind in measured[0][0]:
        here, there = (min(one[kind] for one in times) for times in zip(*measured, strict=True))
        rows.append((kind, f"{here:.1f} s", f"{there:.1f} s", f"{here / there:.2f}"))
    table(f"Build times, without set-up, best of {REPEATS}", rows)
    print(
        "  plain: the same pages by sphinx-gallery without the recordings package: no outputs, a\n"
        "  word for a fact or a figure, none of the files beside the pages. It looks for names to\n"
        "  link in all code, and loads Sphinx to see whether there is anything to do"
    )
    return ours / "build" / "html"


# -- pages ----------------------------------------------------------------------------


def transfer(html: Path) -> dict[str, int]:
    """Bytes that each page of a site takes to load, compressed, without its figures.

    With its style sheets, what these import, its scripts, and the font of the icons.
    """
    sizes: dict[Path, int] = {}

    def size(path: Path) -> int:
        if path not in sizes:
            content = path.read_bytes() if path.is_file() else b""
            sizes[path] = len(content if path.suffix == ".woff2" else gzip.compress(content))
        return sizes[path]

    always = {html / "_static" / "basic.css", *html.rglob("fa-solid-*.woff2")}
    found = {}
    for page in sorted(html.rglob("*.html")):
        if "_static" in page.parts:
            continue
        links = re.findall(r'(?:href|src)="([^"?#:]+\.(?:css|js))["?]', page.read_text("utf-8"))
        files = {Path(os.path.normpath(page.parent / link)) for link in links}
        found[page.relative_to(html).as_posix()] = sum(map(size, {page, *files, *always}))
    return found


def print_pages(html: Path) -> None:
    """Print the pages of a site that are heaviest to load, and the largest by themselves."""
    weights = sorted(transfer(html).items(), key=lambda item: -item[1])
    rows = [(name, f"{weight / 1024:.0f} KiB") for name, weight in weights[:5]]
    table("Heaviest pages, compressed, with styles, scripts and font; limit 300 KiB", [*rows])
    pages = sorted(html.rglob("*.html"), key=lambda path: -path.stat().st_size)[:5]
    sizes = [f"{page.stat().st_size / 1024:.0f} KiB" for page in pages]
    names = [page.relative_to(html).as_posix() for page in pages]
    table("Largest pages, HTML alone, not compressed", [*zip(names, sizes, strict=True)])


# -- the inspector -------------------------------------------------------------------

#: Programs that read a program: they print seconds, the memory that took, and what it has in all.
READERS = {
    "inspector": """
import argparse, contextlib, io, json, math, mmap, resource, runpy, struct, sys, time, flatbuffers
sys.argv = ["gallery/anywhere/inspect_pte.py", sys.argv[1]]
before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())):
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


# -- runs -----------------------------------------------------------------------------


def print_runs() -> None:
    """Print how long each recipe took when it was recorded."""
    runs = []
    for path in sorted((ROOT / "gallery" / "recordings").rglob("*.json")):
        recorded = json.loads(path.read_text(encoding="utf-8"))
        runs.append((recorded["recipe"], recorded["seconds"]))
    total = ("all of them", sum(seconds for _, seconds in runs))
    table("Run times, recorded", [(name, f"{seconds:.1f} s") for name, seconds in [*runs, total]])


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        print_pages(print_builds(Path(folder)))
    inspector()
    print_runs()


if __name__ == "__main__":
    main()
