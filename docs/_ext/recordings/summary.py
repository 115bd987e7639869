"""Every recipe at a glance: tables, ``recordings.json`` and ``badge.svg`` at the site's root."""

from __future__ import annotations

import json
from collections import Counter
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from packaging.version import Version
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from recordings.pages import ALL, depend, is_committed, ran_text, statuses, table
from recordings.recording import State, Status
from recordings.run import PAGES

#: The version of the form of ``recordings.json``.
FORM = 1
#: The badge: its height, how wide a character is, and the room beside a text, in pixels.
HEIGHT, CHARACTER, ROOM = 20, 6.2, 12
COLORS = {True: "#1f7a5c", False: "#9a5b00"}


def place(status: Status) -> dict[str, str | None]:
    """Where what is shown of a recipe was run: a device, and the versions on it."""
    assert status.shown
    where = status.shown.environment
    found: dict[str, str | None] = {
        "device": where["gpu"] if "cuda" in status.recipe.needs else where["cpu"]
    }
    for package in ("executorch", "torch"):
        version = where.get(package)
        found[package] = Version(version).base_version if version else None
    return found


# -- tables ---------------------------------------------------------------------------


def _link(directive: SphinxDirective, name: str, title: str) -> nodes.Node:
    return addnodes.pending_xref(
        "",
        nodes.inline("", title),
        refdomain="std",
        reftype="doc",
        reftarget=f"/{PAGES}/{name}",
        refdoc=directive.env.docname,
        refexplicit=True,
        refwarn=True,
    )


class RecipesDirective(SphinxDirective):
    """``{recipes}`` draws the table of all recipes: title, needs, state, where and when run."""

    def run(self) -> list[nodes.Node]:
        """The table."""
        depend(self.env, ALL)
        rows: list[list[nodes.Node]] = []
        for name, status in sorted(statuses(self.env).items()):
            depend(self.env, name)
            words = [
                ", ".join(status.recipe.needs),
                status.state.value,
                ran_text(status, self.config).removeprefix("Ran on "),
            ]
            rows.append([_link(self, name, status.recipe.title), *map(nodes.Text, words)])
        return [table(["Recipe", "Needs", "State", "Ran on"], rows)]


class EnvironmentsDirective(SphinxDirective):
    """``{environments}`` draws what was run where: a row for a recipe, a column for a place.

    The place with most recipes comes first.

    A cell has the state, the date and the seconds of the run.
    """

    def run(self) -> list[nodes.Node]:
        """The table."""
        depend(self.env, ALL)
        found = statuses(self.env)
        counts: Counter[str] = Counter()
        cells: dict[str, tuple[str, str]] = {}
        for name, status in sorted(found.items()):
            depend(self.env, name)
            column, text = "no outputs", status.state.value
            if one := status.shown:
                where = place(status)
                versions = [f"{key} {where[key]}" for key in ("executorch", "torch") if where[key]]
                column = ", ".join([str(where["device"]), *versions])
                text = f"{status.state.value}, {one.date}, {one.seconds:.0f} s"
            cells[name] = (column, text)
            counts[column] += 1
        columns = [column for column, _ in counts.most_common()]
        rows: list[list[nodes.Node]] = []
        for name, (column, text) in cells.items():
            words = [text if one == column else "" for one in columns]
            rows.append([_link(self, name, found[name].recipe.title), *map(nodes.Text, words)])
        drawn = table(["Recipe", *columns], rows)
        drawn["classes"].append("recordings-environments")
        return [drawn]


# -- files ----------------------------------------------------------------------------


def as_data(app: Sphinx) -> dict[str, Any]:
    """What ``recordings.json`` holds."""
    recipes = []
    for name, status in sorted(statuses(app.env).items()):
        entry: dict[str, Any] = {
            "name": name,
            "title": status.recipe.title,
            "page": app.builder.get_target_uri(f"{PAGES}/{name}"),
            "needs": list(status.recipe.needs),
            "tags": list(status.recipe.tags),
            "state": status.state.value,
            "reasons": list(status.reasons),
            "run": None,
        }
        if one := status.shown:
            entry["run"] = place(status) | {
                "date": one.date,
                "seconds": one.seconds,
                "committed": is_committed(status, app.config),
                "environment": one.environment,
            }
        recipes.append(entry)
    return {"form": FORM, "recipes": recipes}


def badge_text(app: Sphinx) -> tuple[str, bool]:
    """What the badge says, and whether all recipes that it counts are current.

    It counts the recipes that need a GPU; where there are none, all of them. The date is that of
    the oldest run.
    """
    found = list(statuses(app.env).values())
    counted = [it for it in found if "cuda" in it.recipe.needs] or found
    current = [it for it in counted if it.state is State.CURRENT and is_committed(it, app.config)]
    number = str(len(current)) + (f" of {len(counted)}" if len(current) < len(counted) else "")
    runs = [it.shown for it in current if it.shown]
    if not runs:
        return f"{number} recipes current", False
    devices = {(it.environment["gpu"] or "CPU").removeprefix("NVIDIA ") for it in runs}
    text = f"{number} recipes current on {', '.join(sorted(devices))}"
    return f"{text}, {min(it.date for it in runs)}", len(current) == len(counted)


def badge(label: str, text: str, good: bool) -> str:
    """A small SVG: `label` on gray, `text` on a color that says whether all is well."""
    widths = [round(len(it) * CHARACTER) + ROOM for it in (label, text)]
    left, whole = widths[0], sum(widths)
    words = "".join(
        f'<text x="{x + ROOM / 2:g}" y="14" textLength="{width - ROOM}">{escape(it)}</text>'
        for it, x, width in ((label, 0, left), (text, left, widths[1]))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="{HEIGHT}" role="img">'
        f"<title>{escape(f'{label}: {text}')}</title>"
        f'<clipPath id="b"><rect width="{whole}" height="{HEIGHT}" rx="3"/></clipPath>'
        f'<g clip-path="url(#b)"><rect width="{left}" height="{HEIGHT}" fill="#454d54"/>'
        f'<rect x="{left}" width="{widths[1]}" height="{HEIGHT}" fill="{COLORS[good]}"/></g>'
        f'<g fill="#fff" font-family="Verdana, DejaVu Sans, sans-serif" font-size="11">{words}</g>'
        "</svg>\n"
    )


def write_files(app: Sphinx, error: Exception | None) -> None:
    """Write ``recordings.json`` and ``badge.svg``."""
    if error is not None or app.builder.format != "html":
        return
    text = json.dumps(as_data(app), indent=1, ensure_ascii=False) + "\n"
    Path(app.outdir, "recordings.json").write_text(text, encoding="utf-8")
    drawn = badge("recordings", *badge_text(app))
    Path(app.outdir, "badge.svg").write_text(drawn, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx."""
    app.add_directive("recipes", RecipesDirective)
    app.add_directive("environments", EnvironmentsDirective)
    app.connect("build-finished", write_files)
    return {"parallel_read_safe": True}
