"""Run recipes on a machine that has what they need; render pages from what came out.

A *recipe* is a sphinx-gallery script.  A *recording* is what one run of it left: its
output per code block, its figures, its facts, what was run and where.  Each module has
one job and imports only from those above it in this list:

========================  =================================================================
:mod:`recordings.recipe`       what a recipe is, and the hashes that identify its code
:mod:`recordings.environment`  what this machine is, and which needs it meets
:mod:`recordings.recording`    the file format, its checks, and the state of a recipe
:mod:`recordings.replay`       the seam with sphinx-gallery: execute, or show what is recorded
:mod:`recordings.run`          run one recipe in a fresh process and make its recording
:mod:`recordings.compare`      how two runs of a recipe differ
:mod:`recordings.pages`        what readers see: stamps, banners, facts, tables
:mod:`recordings.boundary`     figures of recorded programs, on pages and as files
:mod:`recordings.cards`        the stamp on every card of the gallery
:mod:`recordings.downloads`    scripts that say what they need, with their companions
:mod:`recordings.summary`      every recipe at a glance: a matrix, a JSON file, a badge
:mod:`recordings.publish`      links to the repository, and to other versions of the site
:mod:`recordings.search`       what the search knows of pages that were not written again
:mod:`recordings.markdown`     a Markdown copy of every page, and ``llms.txt``
:mod:`recordings.build`        `make html`: Sphinx, where anything has changed
:mod:`recordings.__main__`     the command line: ``list``, ``run``, ``verify``, ``doctor``
========================  =================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, Any]:
    """Set up the Sphinx extension; Sphinx is imported only when it is the caller."""
    from recordings import boundary, cards, downloads, markdown, pages, publish, search, summary

    for module in (boundary, cards, downloads, summary, publish, search, markdown):
        module.setup(app)
    return pages.setup(app)
