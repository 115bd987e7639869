"""The stamp on every card of the gallery's index pages, and tags that lead there."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from typing import Any

from docutils import nodes
from packaging.version import Version
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.config import Config

from recordings.pages import ALL, depend, is_committed, status_of, statuses
from recordings.recording import State, Status
from recordings.run import PAGES

#: What sphinx-gallery writes: a card's title, which ends it, the list of tags, a recipe's own tags.
CARD_TITLE = '<div class="sphx-glr-thumbnail-title">'
TAG_LIST = "id='sg-tag-list'"
OWN_TAGS = "sphx-glr-example-tags"


def card_text(status: Status, config: Config) -> str:
    """Device, version and date of what `status` shows; its state, where that is not current."""
    if status.shown is None:
        return status.state.value
    where = status.shown.environment
    parts = [where["gpu"] if "cuda" in status.recipe.needs else "CPU"]
    if where.get("executorch"):
        parts.append(f"ExecuTorch {Version(where['executorch']).base_version}")
    parts.append(status.shown.date)
    if status.state is not State.CURRENT:
        parts.append(status.state.value)
    if not is_committed(status, config):
        parts.append("this machine")
    return " · ".join(parts)


def add_stamps(app: Sphinx, doctree: nodes.document) -> None:
    """Put its stamp on every card of an index page of the gallery."""
    if not re.fullmatch(rf"{PAGES}/([\w-]+/)?index", app.env.docname):
        return
    depend(app.env, ALL)
    found = statuses(app.env)
    name = ""
    wanted = (addnodes.pending_xref, nodes.raw)
    tag_lists = 0
    for node in [*doctree.findall(lambda it: isinstance(it, wanted))]:
        if isinstance(node, addnodes.pending_xref):
            name = node["reftarget"].removeprefix(f"/{PAGES}/")
        elif CARD_TITLE in node.astext() and name in found:
            depend(app.env, name)
            status = found[name]
            stamp = (
                f'<div class="recording-card recording-{status.state.value}">'
                f"{escape(card_text(status, app.config))}</div>"
            )
            # sphinx-gallery writes a title as it is: that of a template would be a tag of HTML.
            text = f"{CARD_TITLE}{escape(status.recipe.title)}</div>\n{stamp}\n</div>"
            node.parent.replace(node, nodes.raw("", text, format="html"))
        elif TAG_LIST in node.astext():
            # Each section of the gallery brings one; a page has room for one of that id.
            tag_lists += 1
            if tag_lists > 1:
                node.parent.remove(node)


def link_tags(app: Sphinx, doctree: nodes.document) -> None:
    """Have the tags at the end of a recipe's page lead to the recipes that have them, too."""
    status = status_of(app.env, app.env.docname)
    if status is None:
        return
    for node in doctree.findall(nodes.paragraph):
        if OWN_TAGS in node["classes"]:
            text = f"Tags: {', '.join(_tag_links(status.recipe.tags))}"
            node.children = [nodes.raw("", text, format="html")]
            node.setup_child(node.children[0])


def _tag_links(tags: Iterable[str]) -> Iterable[str]:
    return (f'<a href="../index.html?sg-tags={escape(tag)}">{escape(tag)}</a>' for tag in tags)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx."""
    app.connect("doctree-read", add_stamps)
    app.connect("doctree-read", link_tags)
    return {"parallel_read_safe": True}
