"""Compare two runs of a recipe: what differs beyond times, addresses and rounding."""

from __future__ import annotations

import re
from typing import Any

from recordings.recording import Recording

_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
_TIME = re.compile(r"\d[\d.,]* ?(?:ns|us|µs|ms|s|seconds|GB/s|GiB/s)\b")
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.])")
#: Facts whose key ends so are times or rates: they differ from run to run.
_TIME_FACT = re.compile(r"_(?:ns|us|ms|s|gb_per_s|ratio)$")
RELATIVE = 1e-2
ABSOLUTE = 1e-3


def differences(then: Recording, now: Recording) -> list[str]:
    """How two runs of a recipe differ beyond times, addresses and rounding, one line each."""
    found = []
    for index, (before, after) in enumerate(zip(then.outputs, now.outputs, strict=False), 1):
        if not _same_text(before, after):
            found.append(f"output of code block {index}:\n{_both(before, after)}")
    if len(then.outputs) != len(now.outputs):
        found.append(f"{len(then.outputs)} outputs then, {len(now.outputs)} now")
    if then.figures.keys() != now.figures.keys():
        found.append(f"figures: {sorted(then.figures)} then, {sorted(now.figures)} now")
    found += _fact_differences("facts", then.facts, now.facts)
    return found


def _fact_differences(where: str, then: Any, now: Any) -> list[str]:
    if isinstance(then, dict) and isinstance(now, dict):
        if then.keys() != now.keys():
            return [f"{where}: keys {sorted(then)} then, {sorted(now)} now"]
        return [
            line
            for key in then
            if not _TIME_FACT.search(key)
            for line in _fact_differences(f"{where}.{key}", then[key], now[key])
        ]
    if isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        pairs = enumerate(zip(then, now, strict=True))
        return [line for i, pair in pairs for line in _fact_differences(f"{where}[{i}]", *pair)]
    if isinstance(then, str) and isinstance(now, str):
        same = _same_text(then, now)
    elif isinstance(then, float) and isinstance(now, float):
        same = _close(then, now)
    else:
        same = then == now and type(then) is type(now)
    return [] if same else [f"{where}: {then!r} then, {now!r} now"]


def _same_text(then: str, now: str) -> bool:
    then, now = (_TIME.sub("<time>", _ADDRESS.sub("<address>", text)) for text in (then, now))
    if _NUMBER.split(then) != _NUMBER.split(now):
        return False
    return all(map(_same_number, _NUMBER.findall(then), _NUMBER.findall(now)))


def _same_number(then: str, now: str) -> bool:
    """Counts must be equal, measured values close."""
    if then.lstrip("+-").isdigit() and now.lstrip("+-").isdigit():
        return then == now
    return _close(float(then), float(now))


def _close(then: float, now: float) -> bool:
    return abs(then - now) <= ABSOLUTE + RELATIVE * abs(then)


def _both(then: str, now: str) -> str:
    return "\n".join(
        f"  {sign} {line.strip()}"
        for sign, text in (("-", then), ("+", now))
        for line in text.splitlines()
        if line.strip()
    )
