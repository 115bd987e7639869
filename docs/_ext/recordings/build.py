"""Build the site with Sphinx, unless nothing has changed since that was done: `make html`.

``python -m recordings.build OPTIONS SOURCE SITE`` takes what ``python -m sphinx`` takes, in this
order. Sphinx needs seconds to load before it can say that there is nothing to do; this compares
what is on disk with what was there, and loads Sphinx only where that differs.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

#: What a site is made of, below the current folder, and what a build makes among it.
SOURCES = ("conf.py", "pyproject.toml", "docs", "gallery")
MADE = {Path("docs", "recipes")}
#: The variables that ``conf.py`` reads.
VARIABLES = ("REPOSITORY_URL", "SITE_URL", "SITE_VERSIONS")


def main(arguments: list[str]) -> int:
    """Build unless it is done; return Sphinx's exit status."""
    site = Path(arguments[-1])
    # A build that warned is done again: what is not current is never passed over in silence.
    done, warnings = site.with_suffix(".done"), site.with_suffix(".warnings")
    before = _before(arguments)
    if done.is_file() and done.read_text("utf-8") == before + _after(site):
        return 0
    done.unlink(missing_ok=True)
    site.parent.mkdir(parents=True, exist_ok=True)

    from sphinx.cmd.build import main as sphinx_build

    status = sphinx_build(["-w", str(warnings), *arguments])
    if status == 0 and not warnings.stat().st_size:
        temporary = done.with_suffix(".new")
        temporary.write_text(before + _after(site), "utf-8")
        temporary.replace(done)
    return status


def _before(arguments: list[str]) -> str:
    """What a build depends on: how it is called, the packages that are installed, the sources."""
    packages = [Path(entry) for entry in sys.path[1:]]  # the first is the current folder
    called = [sys.version, *arguments, *(os.environ.get(name, "") for name in VARIABLES)]
    return _hash([*called, *_states(packages), *_states(_files(map(Path, SOURCES)))])


def _after(site: Path) -> str:
    """What a build has made: pages, and recordings of this machine."""
    return _hash(_states(_files([site, site.with_name("recordings"), *MADE], leaving_out=set())))


def _files(paths: Iterable[Path], leaving_out: set[Path] = MADE) -> Iterator[Path]:
    """The files at or below `paths`, without compiled Python."""
    for path in paths:
        if path.is_dir():
            if path not in leaving_out and path.name != "__pycache__":
                yield from _files(sorted(path.iterdir()), leaving_out)
        else:
            yield path


def _states(paths: Iterable[Path]) -> Iterator[str]:
    """Where each of `paths` is, its size, and when its content or its entry changed."""
    for path in paths:
        try:
            at = path.stat()
        except OSError:
            yield f"{path}"
        else:
            yield f"{path} {at.st_size} {at.st_mtime_ns} {at.st_ctime_ns}"


def _hash(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest() + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
