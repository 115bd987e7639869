"""Run one recipe in a fresh process through sphinx-gallery's executor; make its recording.

Run as a module, ``python -m recordings.run GALLERY NAME FOLDER``, this is that process.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from sphinx.util.console import nocolor
from sphinx_gallery import py_source_parser, scrapers

from recordings import environment, replay
from recordings.recipe import Recipe, load, sha256, to_json
from recordings.recording import Recording

LIMIT_S = 90
#: More output than this is a runaway loop or a log, not something to put on a page.
LIMIT_BYTES = 256 * 1024
REPORTED_LINES = 30
#: Where a recipe's page and figures lie below the documentation's source folder.
PAGES = "recipes"

#: The process groups of the runs that go on now.
_running: set[int] = set()


class RunFailedError(Exception):
    """A recipe did not run to its end; the message says how it ended and what it printed."""


class NeedsNotMetError(RunFailedError):
    """A recipe ended by its own guard: this machine lacks what it says."""


@dataclass(frozen=True)
class Run:
    """A finished run: its recording, and the figures' bytes by name."""

    recording: Recording
    figures: dict[str, bytes]


def run(recipe: Recipe, limit_s: float = LIMIT_S, limit_bytes: int = LIMIT_BYTES) -> Run:
    """Run `recipe` alone in a fresh process and make its recording; writes nothing to keep.

    Args:
        recipe: The recipe.
        limit_s: Seconds after which the process and all it started are killed.
        limit_bytes: How much it may print, and how much its outputs and facts may be.

    Raises:
        NeedsNotMetError: The recipe's guard ended it (exit status 2).
        RunFailedError: An exception, a signal, a limit, facts that are not JSON, or a change of
            the recipe or a companion while it ran.
    """
    gallery = recipe.path.parent.parent
    recipe = load(gallery, recipe.name)  # as it is now, not as it was when the command started
    code, companions = recipe.code_hash(), recipe.companion_hashes()
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    with tempfile.TemporaryDirectory(prefix="recipe-") as scratch:
        command = [sys.executable, "-m", __name__, str(gallery), recipe.name, scratch]
        printed = _supervise(command, recipe.name, limit_s, limit_bytes, Path(scratch))
        result = Path(scratch, "result.json")
        if not result.is_file():
            raise RunFailedError(_report(recipe.name, "ended early, with status 0", printed))
        if result.stat().st_size > limit_bytes:
            how = f"left outputs and facts of more than {limit_bytes // 1024} KiB"
            raise RunFailedError(_report(recipe.name, how, printed))
        data = json.loads(result.read_text(encoding="utf-8"))
        images = _image_folder(Path(scratch), recipe.name)
        figures = {path.name: path.read_bytes() for path in sorted(images.glob("*.*"))}
    after = load(gallery, recipe.name)
    if (after.code_hash(), after.companion_hashes()) != (code, companions):
        raise RunFailedError(
            f"{recipe.name} changed while it ran; the recording it had is untouched"
        )
    recording = Recording(
        recipe=recipe.name,
        code=code,
        companions=companions,
        environment=environment.describe(),
        date=date,
        figures={name: sha256(content) for name, content in figures.items()},
        **data,
    )
    return Run(recording, figures)


def stop_all() -> None:
    """Kill every run that goes on: each ends as one that failed."""
    for group in list(_running):
        _kill(group)


def _supervise(
    command: list[str], name: str, limit_s: float, limit_bytes: int, scratch: Path
) -> str:
    """Run `command` to its end within the limits; return what it printed.

    The compilers' caches are in `scratch`: recipes that compile the same model at the same time
    would trip over each other's files, and one would show what another compiled.

    Raises:
        RunFailedError: It did not end with status 0.
    """
    package = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ
        | {
            "PYTHONPATH": path,
            "PYTHONUNBUFFERED": "1",
            "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"),
            "TRITON_CACHE_DIR": str(scratch / "triton"),
        },
        start_new_session=True,
    )
    assert process.stdout is not None
    _running.add(process.pid)
    printed = bytearray()
    reader = threading.Thread(
        target=_read, args=(process.stdout, printed, limit_bytes, process.pid), daemon=True
    )
    reader.start()
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        _kill(process.pid)
        process.wait()
        raise RunFailedError(
            _report(name, f"took more than {limit_s:g} s and was killed", _text(printed))
        ) from None
    finally:
        _kill(process.pid)  # what it started and left behind goes with it
        _running.discard(process.pid)
        reader.join(5)
    text = _text(printed)
    if len(printed) > limit_bytes:
        how = f"printed more than {limit_bytes // 1024} KiB and was killed"
    elif process.returncode == 2:
        raise NeedsNotMetError(text.strip())
    elif process.returncode < 0:
        how = f"died of {_signal_name(-process.returncode)}"
    elif process.returncode:
        how = f"failed with status {process.returncode}"
    else:
        return text
    raise RunFailedError(_report(name, how, text))


def _read(stream: IO[bytes], printed: bytearray, limit: int, group: int) -> None:
    """Collect what a process group prints; kill it once that is more than `limit`."""
    while chunk := os.read(stream.fileno(), 1 << 16):
        printed += chunk
        if len(printed) > limit:
            _kill(group)
            return


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _text(printed: bytearray) -> str:
    return printed.decode("utf-8", "replace")


def _report(name: str, how: str, printed: str) -> str:
    lines = printed.rstrip().splitlines()
    shown = "\n".join(f"  | {line[:300]}" for line in lines[-REPORTED_LINES:])
    return f"{name} {how}; the recording it had is untouched. Last lines it printed:\n{shown}"


def _image_folder(source: Path, name: str) -> Path:
    return (source / PAGES / name).parent / "images"


def _execute(gallery: Path, name: str, folder: Path) -> None:
    """Execute the recipe with sphinx-gallery and leave ``result.json`` in `folder`."""
    recipe = load(gallery, name)
    images = _image_folder(folder, name)
    images.mkdir(parents=True)
    draws = any("matplotlib" in text for text in recipe.python_texts())
    config = replay.executor_config(folder, draws=draws)
    template = images / f"sphx_glr_{recipe.path.stem}_{{0:03}}.png"
    variables: dict[str, Any] = {
        "execute_script": True,
        "image_path_iterator": scrapers.ImagePathIterator(template),
        "src_file": str(recipe.path),
        "target_file": str(images.parent / recipe.path.name),
    }
    Path(variables["target_file"]).write_bytes(recipe.path.read_bytes())
    _echo_output()
    file_config, blocks = py_source_parser.split_code_and_text_blocks(recipe.path)
    started = time.perf_counter()
    try:
        outputs = replay.execute(blocks, variables, config, file_config)
    except Exception as error:  # sphinx-gallery has printed the recipe's own traceback
        raise SystemExit(f"{type(error).__name__}: {error}") from None
    seconds = time.perf_counter() - started
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot and not draws and pyplot.get_fignums():
        raise SystemExit(f"{name}: it draws, but does not import matplotlib: figures would be lost")
    facts = variables["example_globals"].get("facts", {})
    if not isinstance(facts, dict):
        raise SystemExit(f"{name}: its facts are not a dictionary: {facts!r:.80}")
    result = {
        "seconds": round(seconds, 1),
        "outputs": [outputs[index] for index in recipe.code_blocks],
        "facts": facts,
    }
    try:
        text = to_json(result)
    except (TypeError, ValueError) as error:
        raise SystemExit(f"{name}: its facts are not JSON values: {error}") from error
    (folder / "result.json").write_text(text, encoding="utf-8")


def _echo_output() -> None:
    """Print what a recipe prints while it runs: sphinx-gallery captures and logs it.

    The parent counts what comes, so that a recipe that never stops printing is stopped.
    """
    nocolor()
    logger = logging.getLogger("sphinx.sphinx-gallery")
    logger.setLevel(logging.DEBUG)
    # A recipe's imports may add handlers that write to the captured stream: not for this logger.
    logger.propagate = False
    logger.addHandler(logging.StreamHandler(sys.__stdout__))


if __name__ == "__main__":
    _execute(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
