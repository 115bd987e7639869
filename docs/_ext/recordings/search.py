"""The search knows the index entries of every page, whatever pages a build wrote again.

Sphinx keeps words and titles of the other pages from the build before, and forgets what their
``{index}`` entries are, which lead a search for an error code to its page.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder
from sphinx.util.index_entries import split_index_msg


def complete_entries(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Give the search the entries of pages that were not written; make no page."""
    if isinstance(app.builder, StandaloneHTMLBuilder) and app.builder.indexer:
        known = app.builder.indexer._index_entries
        for page, entries in app.env.domaindata["index"]["entries"].items():
            if page not in known:
                known[page] = sorted(
                    {
                        (words, target or "", main)
                        for kind, value, target, main, _ in entries
                        for words in split_index_msg(kind, value)
                    }
                )
    yield from ()


def setup(app: Sphinx) -> None:
    """Connect to Sphinx: once pages are written, before the search's index is."""
    app.connect("html-collect-pages", complete_entries)
