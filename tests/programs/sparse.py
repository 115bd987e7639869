"""Large programs that take no room on the disk."""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SAMPLE = ROOT / "tests" / "programs" / "1.4.1" / "default.pte"
sys.path.append(str(ROOT / "gallery" / "anywhere" / "inspect_pte"))


def grow(path: Path, size: int) -> Path:
    """Write a program at `path` whose delegate's blob has `size` bytes, all of them zero."""
    import program_generated as pte  # type: ignore[import-not-found]

    data = bytearray(SAMPLE.read_bytes())
    program = pte.Program.GetRootAs(data)
    last = program.Segments(program.SegmentsLength() - 1)
    struct.pack_into("<Q", data, last._tab.Pos + last._tab.Offset(6), size)
    (segments_at,) = struct.unpack_from("<Q", data, 24)
    path.write_bytes(data)
    os.truncate(path, segments_at + last.Offset() + size)
    return path
