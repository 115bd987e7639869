"""A recording: what one run of a recipe left.  Its schema, its checks, and its state.

A recording is one JSON file, ``<folder>/<caller>/<name>.json``, and the figures beside it.
It is never edited by hand: a digest covers all of it.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from recordings.environment import moved_pins
from recordings.recipe import Recipe, sha256, to_json

SCHEMA = 1


class BrokenRecordingError(Exception):
    """A recording cannot be trusted; the message says why."""


@dataclass(frozen=True)
class Recording:
    """What one run of a recipe left.

    Attributes:
        recipe: Its name.
        code: :meth:`Recipe.code_hash` of what was run.
        companions: :meth:`Recipe.companion_hashes` of what was run.
        environment: :func:`recordings.environment.describe`, where it was run.
        date: The day of the run, ``YYYY-MM-DD``, in UTC.
        seconds: How long it took.
        outputs: What sphinx-gallery made of the output of each of the recipe's code blocks,
            in order: reStructuredText, with the figures in place.
        figures: The hash of every figure, by the name sphinx-gallery gave it.
        facts: The recipe's ``facts``: JSON values that pages quote.
    """

    recipe: str
    code: str
    companions: dict[str, str]
    environment: dict[str, Any]
    date: str
    seconds: float
    outputs: list[str]
    figures: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def digest(self) -> str:
        """The hash over everything in it; figures are in it by their own hashes."""
        return self._digest

    @functools.cached_property
    def _digest(self) -> str:
        return sha256(to_json(asdict(self)).encode())

    def to_text(self) -> str:
        """The content of its file.

        Raises:
            TypeError, ValueError: It holds what JSON cannot.
        """
        return to_json(asdict(self) | {"schema": SCHEMA, "digest": self.digest()})

    def figure_path(self, folder: Path, name: str) -> Path:
        """Where the figure `name` of this recording lies in the recordings folder `folder`.

        The file's name holds its hash, so that writing a recording never overwrites a
        figure of the one before it.
        """
        file = Path(name)
        mark = self.figures[name].removeprefix("sha256:")[:12]
        return (folder / self.recipe).parent / f"{file.stem}.{mark}{file.suffix}"


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON value")


def path_of(folder: Path, name: str) -> Path:
    """Where the recording of the recipe `name` lies in the recordings folder `folder`."""
    return folder / f"{name}.json"


def read(folder: Path, name: str) -> Recording | None:
    """Read and check the recording of the recipe `name`; None where there is none.

    Raises:
        BrokenRecordingError: It is unreadable, of an unknown schema, was changed after it was
            written, or a figure is gone or changed.
    """
    path = path_of(folder, name)
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text, parse_constant=_refuse)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise BrokenRecordingError(f"it is not readable JSON: {error}") from error
    if not isinstance(data, dict):
        raise BrokenRecordingError("it is not a JSON object")
    schema, digest = data.pop("schema", None), data.pop("digest", None)
    if schema != SCHEMA:
        raise BrokenRecordingError(f"its schema is {schema!r}, this version reads {SCHEMA}")
    expected = {entry.name for entry in fields(Recording)}
    if set(data) != expected:
        names = ", ".join(sorted(set(data) ^ expected))
        raise BrokenRecordingError(f"fields are missing or unknown: {names}")
    recording = Recording(**data)
    try:
        unchanged = digest == recording.digest() and text == recording.to_text()
    except (TypeError, ValueError) as error:
        raise BrokenRecordingError(f"it holds what no recording can: {error}") from error
    if not unchanged:
        raise BrokenRecordingError("its digest does not match: it was changed after it was written")
    if recording.recipe != name:
        raise BrokenRecordingError(f"it is the recording of {recording.recipe}")
    for figure in recording.figures:
        file = recording.figure_path(folder, figure)
        if not file.is_file():
            raise BrokenRecordingError(f"its figure {file.name} is gone")
        if sha256(file.read_bytes()) != recording.figures[figure]:
            raise BrokenRecordingError(f"its figure {file.name} was changed")
    return recording


def write(recording: Recording, folder: Path, figures: Mapping[str, bytes]) -> Path:
    """Write `recording` and its figures below `folder`; return the JSON's path.

    At every moment the folder holds the recording before this one, whole, or this one,
    whole: figures come first under names of their own, the JSON is renamed into place, and
    only then do the figures go that nothing names any more.
    """
    path = path_of(folder, recording.recipe)
    path.parent.mkdir(parents=True, exist_ok=True)
    for name, content in figures.items():
        _replace(recording.figure_path(folder, name), content)
    _replace(path, recording.to_text().encode())
    kept = {recording.figure_path(folder, name) for name in recording.figures}
    stem = re.escape(path.stem)
    figure = rf"sphx_glr_{stem}_\d{{3}}\.[0-9a-f]{{12}}\.\w+"
    ours = re.compile(rf"{figure}|\.({figure}|{stem}\.json)\.tmp")
    for file in path.parent.iterdir():
        if ours.fullmatch(file.name) and file not in kept:
            file.unlink()
    return path


def _replace(path: Path, content: bytes) -> None:
    """Write `content` to a temporary file beside `path`, then rename it into place."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


class State(Enum):
    """How a recipe and its recording stand to each other."""

    CURRENT = "current"
    OUTDATED = "outdated"
    STALE = "stale"
    MISSING = "missing"
    BROKEN = "broken"


@dataclass(frozen=True)
class Status:
    """The state of one recipe.

    Attributes:
        recipe: The recipe.
        state: Its state.
        reasons: What changed or is wrong, one phrase each; empty where current.
        recording: Its recording, where it can be read.
        folder: The recordings folder that the recording lies in.
    """

    recipe: Recipe
    state: State
    reasons: tuple[str, ...] = ()
    recording: Recording | None = None
    folder: Path | None = None

    @property
    def shown(self) -> Recording | None:
        """The recording whose outputs and facts a page may show, or None."""
        return self.recording if self.state in (State.CURRENT, State.OUTDATED) else None


def status(recipe: Recipe, folder: Path, pinned: Mapping[str, SpecifierSet]) -> Status:
    """The state of `recipe` by its recording in `folder` and the pinned versions."""
    try:
        recording = read(folder, recipe.name)
    except BrokenRecordingError as error:
        return Status(recipe, State.BROKEN, (str(error),))
    if recording is None:
        return Status(recipe, State.MISSING, ("it has not been recorded",))
    if changes := _changes(recipe, recording):
        return Status(recipe, State.STALE, changes, recording, folder)
    if moved := moved_pins(recording.environment, dict(pinned)):
        reasons = tuple(f"{name} {was} was recorded, {now} is pinned" for name, was, now in moved)
        return Status(recipe, State.OUTDATED, reasons, recording, folder)
    return Status(recipe, State.CURRENT, (), recording, folder)


def best_status(
    recipe: Recipe, folders: Sequence[Path], pinned: Mapping[str, SpecifierSet]
) -> Status:
    """The state of `recipe` by the first folder that has a current recording.

    Where none has, the first folder decides: it holds the committed recordings.
    """
    first = status(recipe, folders[0], pinned)
    if first.state is State.CURRENT:
        return first
    others = (status(recipe, folder, pinned) for folder in folders[1:])
    return next((one for one in others if one.state is State.CURRENT), first)


def _changes(recipe: Recipe, recording: Recording) -> tuple[str, ...]:
    """What changed in `recipe` since `recording` was made, one phrase each."""
    changes = []
    if recipe.code_hash() != recording.code:
        changes.append("its code changed")
    now, then = recipe.companion_hashes(), recording.companions
    for name in sorted(now.keys() | then.keys()):
        if name not in then:
            changes.append(f"{name} was added")
        elif name not in now:
            changes.append(f"{name} was removed")
        elif now[name] != then[name]:
            changes.append(f"{name} changed")
    return tuple(changes)


def stamp_text(of: Recipe, one: Recording, *, seconds: bool = True) -> str:
    """Where, with what and when the recording `one` of the recipe `of` was made, in one line.

    And how long the run took, in seconds.
    """
    where = one.environment
    on_device = "cuda" in of.needs
    parts = [f"Ran on {where['gpu'] if on_device else where['cpu']}"]
    for label, key in (("ExecuTorch", "executorch"), ("torch", "torch")):
        if where.get(key):
            parts.append(f"{label} {Version(where[key]).base_version}")
    if on_device:
        parts.append(f"CUDA {where['cuda']}")
        if (where.get("delegate") or {}).get("from") == "source":
            parts.append("delegate from source")
    parts.append(one.date)
    if seconds:
        parts.append(f"{one.seconds:.0f} s")
    return " · ".join(parts)
