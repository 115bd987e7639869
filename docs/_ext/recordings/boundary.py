"""Figures of the boundary between a program and its caller, drawn from recorded programs.

A program is what the recipe ``anywhere/inspect_pte`` records of one.  ``python -m
recordings.boundary`` draws the files in ``docs/_static/shapes``, which cards and thumbnails show.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from recordings import recording
from recordings.pages import FactError, depend, fact, not_recorded, statuses

RECIPE = "anywhere/inspect_pte"
#: The files below ``docs/_static/shapes``: the recorded shape, the title, and who calls it.
FILES = {
    "default": ("default", "Default", None),
    "planned": ("planned", "Planned output", None),
    "unplanned": ("unplanned", "Unplanned output", None),
    "input_only": ("input_only", "Input on the device", None),
    "output_only": ("output_only", "Output on the device", None),
    "refused": ("unplanned", "Unplanned output, called from Python", "python"),
    "planned_input": ("refused", "Planned input on the device", None),
    "no_memory": ("no_memory", "A result without memory", None),
    "host": ("host", "Host memory", None),
}
CALLERS = {"python": "Python", "cpp": "C++"}
#: The colors on a light ground. A page in the dark scheme sets the variables of these names.
COLORS = {
    "ground": "#ffffff",
    "host": "#eceff1",
    "device": "#dcf0e3",
    "ink": "#1f2a30",
    "caller": "#ffffff",
    "planned": "#f6c667",
    "delegate": "#17624a",
    "on-delegate": "#ffffff",
    "bad": "#b3261e",
}
WIDTH, HEIGHT = 400, 296
#: Of each side: the left end of its boxes, and their width.
LANES = {"host": (16, 142), "device": (190, 190)}
#: The top of the boxes: the input, what computes, the output.
ROWS = (54, 122, 190)
BOX = 46


# -- what there is to draw ----------------------------------------------------------------


def _side(tensor: dict[str, Any]) -> str:
    return "host" if tensor["device"] == "cpu" else "device"


def _owner(tensor: dict[str, Any]) -> str:
    if tensor["planned"]:
        return "the method's"
    return "no memory" if tensor["name"].startswith("value") else "the caller's"


def _reserved(method: dict[str, Any], side: str) -> int:
    return sum(arena["bytes"] for arena in method["arenas"] if _side(arena) == side)


def _ends(method: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The input and the output.

    Raises:
        ValueError: The method has more, or values that are no tensors.
    """
    tensors = [it for it in method["inputs"] + method["outputs"] if it["kind"] == "tensor"]
    if [it["name"] for it in tensors] != ["input 0", "output 0"]:
        raise ValueError(f"{method['name']} has not one tensor as input and one as output")
    return tensors[0], tensors[1]


def _copy(method: dict[str, Any], kind: str, end: str) -> dict[str, Any] | None:
    """The tensor at the device's end of the copy `kind` (``h2d`` or ``d2h``)."""
    inside = {tensor["name"]: tensor for tensor in method["inside"]}
    names = [copy[end] for copy in method["copies"] if copy["kind"] == kind]
    return inside.get(names[0]) if names else None


def describe(program: dict[str, Any], caller: str | None = None) -> str:
    """What :func:`draw` shows, in sentences.

    Raises:
        ValueError: As :func:`draw`.
    """
    (method,) = program["methods"]
    _ends(method)
    said = []
    for tensor in [*method["inputs"], *method["inside"], *method["outputs"]]:
        name = tensor["name"].removesuffix(" 0").capitalize()
        for copy in method["copies"]:
            if copy["to"] == tensor["name"] and copy["kind"] == "h2d":
                name = "Its copy"
            if copy["from"] == tensor["name"] and copy["kind"] == "d2h":
                name = "The delegate's result"
        said.append(f"{name}: on the {_side(tensor)}, {_owner(tensor)}.")
    ways = {"h2d": "the input from host to device", "d2h": "the output from device to host"}
    copies = [ways[copy["kind"]] for copy in method["copies"]]
    said.append(f"The program copies {' and '.join(copies) or 'nothing'}.")
    for delegate in method["delegates"]:
        device = f" for {delegate['device']}" if delegate["device"] else ""
        said.append(f"A delegate{device} computes.")
    for arena in method["arenas"]:
        said.append(f"The program reserves {arena['bytes']} bytes on the {_side(arena)}.")
    for name, title in CALLERS.items():
        answer = method["callers"][name]
        if caller in (None, name):
            said.append(f"{title} can{'' if answer['runs'] else 'not'} run it.")
            if caller and answer["reason"]:
                said.append(f"{answer['reason'].capitalize()}.")
    return " ".join(said)


# -- drawing ------------------------------------------------------------------------------


def _color(kind: str, name: str) -> str:
    return f"{kind}:var(--boundary-{name},{COLORS[name]})"


def _text(x: float, y: float, words: str, ink: str = "ink", size: int = 15, more: str = "") -> str:
    style = f"{_color('fill', ink)};font-size:{size}px{more}"
    return f'<text x="{x:g}" y="{y:g}" text-anchor="middle" style="{style}">{escape(words)}</text>'


def _box(side: str, row: int, name: str, below: str, fill: str) -> str:
    """A box with its name, and whose memory it is."""
    left, width = LANES[side]
    dashed = fill == "bad"
    style = f"{_color('stroke', 'bad' if dashed else 'ink')};stroke-width:{2 if dashed else 1}"
    style += ";stroke-dasharray:6 4" if dashed else ""
    inside = _color("fill", "caller" if dashed else fill)
    ink = "on-delegate" if fill == "delegate" else "bad" if dashed else "ink"
    middle = left + width / 2
    return (
        f'<rect x="{left}" y="{ROWS[row]}" width="{width}" height="{BOX}" rx="5"'
        f' style="{inside};{style}"/>\n'
        + _text(middle, ROWS[row] + (20 if below else 28), name, ink)
        + ("\n" + _text(middle, ROWS[row] + 37, below, ink, 13) if below else "")
    )


def _arrow(path: str, head: tuple[float, float], points: str, bad: bool = False) -> str:
    """A line with a head at its end that points ``down``, ``left`` or ``right``."""
    color = "bad" if bad else "ink"
    x, y = head
    shapes = {
        "down": f"M{x - 5:g} {y - 9:g}h10L{x:g} {y:g}z",
        "left": f"M{x + 9:g} {y - 5:g}v10L{x:g} {y:g}z",
        "right": f"M{x - 9:g} {y - 5:g}v10L{x:g} {y:g}z",
    }
    dashes = ";stroke-dasharray:6 5" if bad else ""
    line = f'<path d="{path}" style="fill:none;stroke-width:2;{_color("stroke", color)}{dashes}"/>'
    return f'{line}\n<path d="{shapes[points]}" style="{_color("fill", color)}"/>'


def _cross(x: float, y: float) -> str:
    style = f"fill:none;stroke-width:4;{_color('stroke', 'bad')}"
    return f'<path d="M{x - 10:g} {y - 10:g}l20 20m0 -20l-20 20" style="{style}"/>'


def draw(program: dict[str, Any], title: str, caller: str | None = None) -> str:
    """A figure of where a program's input and output are, and whose memory they are in.

    Args:
        program: What the recipe recorded of a program with one method.
        title: What the figure is called, for readers that do not see it.
        caller: Draw what this one meets: the memory that it cannot supply is crossed out.

    Returns:
        An ``svg`` element. Its colors are variables, with the light scheme's as defaults.

    Raises:
        ValueError: The method has not one input and one output, both tensors.
    """
    (method,) = program["methods"]
    source, target = _ends(method)
    center = {side: left + width / 2 for side, (left, width) in LANES.items()}
    host_end, device_start = sum(LANES["host"]), LANES["device"][0]
    works = "device" if method["delegates"] else "host"
    sent, result = _copy(method, "h2d", "to"), _copy(method, "d2h", "from")
    refused = caller is not None and method["callers"][caller]["ends"].startswith("0x12")
    middle = [row + BOX / 2 for row in ROWS]

    def tensor(row: int, one: dict[str, Any], name: str) -> str:
        owner = _owner(one)
        fills = {"the method's": "planned", "the caller's": "caller", "no memory": "bad"}
        return _box(_side(one), row, name, owner, fills[owner])

    def down(row: int, side: str) -> str:
        x, end = center[side], ROWS[row + 1] - 1
        return _arrow(f"M{x:g} {ROWS[row] + BOX}V{end - 8}", (x, end), "down")

    parts = [tensor(0, source, "input")]
    if sent:
        parts += [tensor(0, sent, "copy of the input")]
        line = f"M{host_end} {middle[0]:g}H{device_start - 9}"
        parts += [_arrow(line, (device_start - 1, middle[0]), "right")]
    words = ("delegate", "") if method["delegates"] else ("program", "")
    parts += [down(0, works), _box(works, 1, *words, "delegate")]
    if refused:
        x = center[works]
        line = f"M{x:g} {ROWS[1] + BOX}V{middle[2]:g}H{host_end + 9}"
        parts += [_box("host", 2, "output", "from Python", "caller")]
        parts += [_arrow(line, (host_end + 1, middle[2]), "left", bad=True)]
        parts += [_cross((host_end + x) / 2, middle[2])]
    else:
        parts += [down(1, works), tensor(2, target, "output")]
        if result:
            line = f"M{device_start} {middle[2]:g}H{host_end + 9}"
            parts += [tensor(2, result, "result")]
            parts += [_arrow(line, (host_end + 1, middle[2]), "left", not result["planned"])]
    for side, x in center.items():
        parts.append(_text(x, 34, side, more=";font-weight:bold"))
        size = _reserved(method, side)
        parts.append(
            _text(x, 256, f"reserves {size} bytes" if size else "reserves nothing", size=13)
        )
    shown = [name for name in CALLERS if caller in (None, name)]
    for place, name in enumerate(shown, 1):
        runs = method["callers"][name]["runs"]
        words_of = f"{CALLERS[name]} can{'' if runs else 'not'} run it"
        x = WIDTH * place / (len(shown) + 1)
        parts.append(_text(x, 286, words_of, "ink" if runs else "bad", 13))
    edge = (host_end + device_start) / 2
    outline = f"M{edge:g} 4H{WIDTH - 14}a10 10 0 0 1 10 10V256a10 10 0 0 1 -10 10H{edge:g}z"
    grounds = (
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="10" style="{_color("fill", "ground")}"/>\n'
        f'<rect x="4" y="4" width="{WIDTH - 8}" height="262" rx="10"'
        f' style="{_color("fill", "host")}"/>\n'
        f'<path d="{outline}" style="{_color("fill", "device")}"/>'
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        ' class="boundary" font-family="sans-serif">'
    )
    said = f"<title>{escape(title)}</title>\n<desc>{escape(describe(program, caller))}</desc>"
    return "\n".join([head, said, grounds, *parts, "</svg>"]) + "\n"


# -- on pages -----------------------------------------------------------------------------


class BoundaryDirective(SphinxDirective):
    """``{boundary} recipe:key`` draws a recorded program.

    A recorded list of dicts, each with a ``title`` and a ``program``, becomes a grid of figures
    with captions. ``:title:`` names a single one, ``:caller:`` draws what that one meets.
    """

    required_arguments = 1
    option_spec = {  # noqa: RUF012  # docutils declares it so
        "title": directives.unchanged_required,
        "caller": lambda text: directives.choice(text, tuple(CALLERS)),
    }

    def run(self) -> list[nodes.Node]:
        """The figure or the grid, or a warning and a mark that it is not recorded."""
        name, caller = self.arguments[0], self.options.get("caller")
        depend(self.env, name.partition(":")[0])
        try:
            found = fact(statuses(self.env), name)
            if not isinstance(found, list):
                title = self.options.get("title", name.rpartition(".")[2])
                return [_figure(found, title, caller)]
            grid = nodes.container(classes=["boundaries"])
            for one in found:
                drawn = _figure(one["program"], one["title"], caller)
                drawn += nodes.paragraph("", one["title"], classes=["caption"])
                grid += drawn
        except FactError as error:
            return not_recorded(error, self)
        except (KeyError, TypeError, ValueError) as error:
            reason = f"fact {name!r}: it is no program that can be drawn: {error}"
            return not_recorded(FactError(reason), self)
        return [grid]


def _figure(program: dict[str, Any], title: str, caller: str | None) -> nodes.container:
    figure = nodes.container(classes=["boundary-figure"])
    alt = f"{title}. {describe(program, caller)}"
    figure += nodes.raw("", draw(program, title, caller), format="html", alt=alt)
    return figure


# -- files --------------------------------------------------------------------------------


def drawings(shapes: dict[str, Any]) -> dict[str, str]:
    """The content of every file in ``docs/_static/shapes``, by its name."""
    return {
        f"{name}.svg": draw(shapes[shape], title, caller)
        for name, (shape, title, caller) in FILES.items()
    }


def redraw(root: Path) -> None:
    """Write the files in ``docs/_static/shapes`` of the project at `root` from its recording.

    Raises:
        BrokenRecordingError: The recording cannot be trusted.
        FileNotFoundError: There is none.
    """
    folder = root / "gallery" / "recordings"
    if (found := recording.read(folder, RECIPE)) is None:
        raise FileNotFoundError(f"{recording.path_of(folder, RECIPE)}: record it first")
    for name, svg in drawings(found.facts["shapes"]).items():
        path = root / "docs" / "_static" / "shapes" / name
        temporary = path.with_suffix(".tmp")
        temporary.write_text(svg, encoding="utf-8")
        temporary.replace(path)


def setup(app: Sphinx) -> None:
    """Connect to Sphinx."""
    app.add_directive("boundary", BoundaryDirective)


if __name__ == "__main__":
    redraw(Path(sys.argv[1] if sys.argv[1:] else "."))
