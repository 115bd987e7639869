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
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def build(project: Path) -> float:
    """Seconds that one lenient build of `project` takes."""
    command = [sys.executable, "-m", "sphinx", "-q", "-c", ".", "docs", "build/html"]
    started = time.perf_counter()
    subprocess.run(command, cwd=project, check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started


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
    runs = []
    for path in sorted((ROOT / "gallery" / "recordings").rglob("*.json")):
        recorded = json.loads(path.read_text(encoding="utf-8"))
        runs.append((recorded["recipe"], recorded["seconds"]))
    total = ("all of them", sum(seconds for _, seconds in runs))
    table("Run times, recorded", [(name, f"{seconds:.1f} s") for name, seconds in [*runs, total]])


if __name__ == "__main__":
    main()
