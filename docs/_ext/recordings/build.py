"""Build the site with Sphinx, unless nothing has changed since that was done: `make html`.

``python -m recordings.build OPTIONS SOURCE SITE`` takes what ``python -m sphinx`` takes, in this
order. Sphinx needs seconds to load before it can say that there is nothing to do; this compares
what is on disk with what was there, and loads Sphinx only where that differs. Where Sphinx would
not see what changed, it has Sphinx build everything.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

#: What pages are made of, below the current folder.
SOURCES = ("conf.py", "pyproject.toml", "docs", "gallery")
#: What is in every page. Sphinx sees which pages changed, not that what makes them did.
CODE = (Path("docs", "_ext"), Path("docs", "_static"), Path("docs", "_templates"))
#: What sphinx-gallery makes among the sources.
MADE = Path("docs", "recipes")
#: The variables that ``conf.py`` reads.
VARIABLES = ("REPOSITORY_URL", "SITE_URL", "SITE_VERSIONS")

#: What is known of a build.
KEYS = {"asked", "code", "sources", "began", "made", "warned"}
#: Of a file: its size, when its content changed, and when that or its entry did.
State = list[int]


def main(arguments: list[str]) -> int:
    """Build unless it is done; return Sphinx's exit status."""
    site = Path(arguments[-1])
    done, warnings = (site.with_name(f"{site.name}.{name}") for name in ("done", "warnings"))
    outputs = site, site.with_name("recordings"), MADE
    now: dict[str, Any] = {
        "asked": [*arguments, *(os.environ.get(name, "") for name in VARIABLES)],
        "code": [sys.version, _packages(), _states(CODE)],
        "sources": _states(map(Path, SOURCES), leaving_out={*CODE, MADE}),
        "began": time.time_ns(),
    }
    then = _read(done)
    everything = (
        then is None
        or then["code"] != now["code"]
        or then["made"] != _states(outputs)
        or then["warned"]  # what is not right yet is said each time
        or _dated_back(then, now["sources"])
    )
    if then and not everything and all(then[key] == now[key] for key in ("asked", "sources")):
        return 0
    done.unlink(missing_ok=True)
    site.parent.mkdir(parents=True, exist_ok=True)

    from sphinx.cmd.build import main as sphinx_build

    options = ["-w", str(warnings), *(["-E", "-a"] if everything else [])]
    status = sphinx_build([*options, *arguments])
    if status == 0:
        now["made"] = _states(outputs)
        now["warned"] = bool(warnings.stat().st_size)
        temporary = done.with_name(f"{done.name}.new")
        temporary.write_text(json.dumps(now), "utf-8")
        temporary.replace(done)
    return status


def _read(done: Path) -> dict[str, Any] | None:
    """What was so when the last build ended well; None where that is unknown."""
    try:
        found: dict[str, Any] = json.loads(done.read_text("utf-8"))
        return found if found.keys() >= KEYS else None
    except (OSError, ValueError, AttributeError):
        return None


def _dated_back(then: dict[str, Any], sources: dict[str, State]) -> bool:
    """Whether a source is another one and has an old date, which is all that Sphinx looks at."""
    return any(
        state != then["sources"].get(name) and state[1] <= then["began"]
        for name, state in sources.items()
    )


def _packages() -> list[str]:
    """The packages that are installed where Python looks, each with when that was done."""
    found = []
    for folder in sys.path[1:]:  # the first is the current folder
        for entry in sorted(Path(folder).glob("*.dist-info")):
            found.append(f"{entry} {entry.stat().st_mtime_ns}")
    return found


def _states(paths: Iterable[Path], leaving_out: Iterable[Path] = ()) -> dict[str, State]:
    """The state of every file at or below `paths`, by its path."""
    found = {}
    for path in _files(paths, set(leaving_out)):
        try:
            at = path.stat()
            state = [at.st_size, at.st_mtime_ns, at.st_ctime_ns]
        except OSError:  # such as a link that leads nowhere
            state = [0, 0, 0]
        found[str(path)] = state
    return found


def _files(paths: Iterable[Path], leaving_out: set[Path]) -> Iterator[Path]:
    """The files at or below `paths`, without compiled Python."""
    for path in paths:
        if not path.is_dir():
            if os.path.lexists(path):
                yield path
        elif path not in leaving_out and path.name != "__pycache__":
            try:
                yield from _files(sorted(path.iterdir()), leaving_out)
            except OSError:  # a folder that may not be read
                yield path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
