"""Build the site with Sphinx, unless nothing has changed since that was done: `make html`.

``python -m recordings.build OPTIONS SOURCE SITE`` takes what ``python -m sphinx`` takes, in this
order. Sphinx needs seconds to load before it can say that there is nothing to do; this compares
what is on disk with what was there, and loads Sphinx only where that differs.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

#: What a site is made of, below the current folder; among it are what makes it, and what is made.
SOURCES = ("conf.py", "pyproject.toml", "docs", "gallery")
CODE, MADE = Path("docs", "_ext"), Path("docs", "recipes")
#: The variables that ``conf.py`` reads.
VARIABLES = ("REPOSITORY_URL", "SITE_URL", "SITE_VERSIONS")


def main(arguments: list[str]) -> int:
    """Build unless it is done; return Sphinx's exit status."""
    site = Path(arguments[-1])
    done, warnings = site.with_suffix(".done"), site.with_suffix(".warnings")
    code, sources = _code(), _sources(arguments)
    known = done.read_text("utf-8").splitlines() if done.is_file() else []
    if known == [code, sources, _made(site)]:
        return 0
    done.unlink(missing_ok=True)
    site.parent.mkdir(parents=True, exist_ok=True)
    # Sphinx sees which pages changed, not that what makes them did.
    everything = [] if known[:1] == [code] else ["-E", "-a"]

    from sphinx.cmd.build import main as sphinx_build

    status = sphinx_build(["-w", str(warnings), *everything, *arguments])
    if status == 0:
        # A build that warned is done again: what is not current is never passed over in silence.
        made = "warned" if warnings.stat().st_size else _made(site)
        temporary = done.with_suffix(".new")
        temporary.write_text("\n".join([code, sources, made]), "utf-8")
        temporary.replace(done)
    return status


def _code() -> str:
    """What makes pages: this package, and the others that are installed."""
    packages = [Path(entry) for entry in sys.path[1:]]  # the first is the current folder
    return _hash([sys.version, *_states([*packages, *_files([CODE])])])


def _sources(arguments: list[str]) -> str:
    """What pages are made of, and what was asked for."""
    asked = [*arguments, *(os.environ.get(name, "") for name in VARIABLES)]
    return _hash([*asked, *_states(_files(map(Path, SOURCES), leaving_out={CODE, MADE}))])


def _made(site: Path) -> str:
    """What a build has made: pages, and recordings of this machine."""
    return _hash(_states(_files([site, site.with_name("recordings"), MADE])))


def _files(paths: Iterable[Path], leaving_out: Collection[Path] = ()) -> Iterator[Path]:
    """The files at or below `paths`, without compiled Python."""
    for path in paths:
        if path.is_dir():
            if path not in leaving_out and path.name != "__pycache__":
                yield from _files(sorted(path.iterdir()), leaving_out)
        elif os.path.lexists(path):
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
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
