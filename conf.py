"""Sphinx configuration: `sphinx-build -c . docs build/html`, or `make html`."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "docs" / "_ext"))

# -- Project --------------------------------------------------------------------------

project = "ExecuTorch device I/O"
author = "The ExecuTorch device I/O authors"
copyright = f"2026, {author}"
language = "en"
recordings_summary = (
    "How to keep an ExecuTorch CUDA model's inputs and outputs on the GPU, from Python and from"
    " C++. Every recipe was run, and its page says where and when."
)

# -- Extensions -----------------------------------------------------------------------

extensions = [
    "myst_parser",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinx.ext.extlinks",
    "recordings",
    "sphinx_gallery.gen_gallery",
]
myst_enable_extensions = ["colon_fence", "deflist", "smartquotes"]
myst_heading_anchors = 3
extlinks = {"issue": ("https://github.com/pytorch/executorch/issues/%s", "#%s")}
exclude_patterns = ["_ext", "recipes/**/*.ipynb"]

# Recipes are run by `python -m recordings run`; pages show what was recorded.
sphinx_gallery_conf = {
    "examples_dirs": "../gallery",
    "gallery_dirs": "recipes",
    "plot_gallery": False,
    "subsection_order": ["../gallery/python", "../gallery/cpp", "../gallery/anywhere"],
    "within_subsection_order": "FileNameSortKey",
    "copyfile_regex": "",
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_signature": False,
    "write_computation_times": False,
}

# -- Strictness -----------------------------------------------------------------------

nitpicky = True
#: References that have no target, and why each one may.
nitpick_ignore: list[tuple[str, str]] = []
suppress_warnings = [
    # Callers have recipes of the same name on purpose: python/planned_output and
    # cpp/planned_output.  Labels and pages hold the folder, so no link breaks.
    "sphinx_gallery.duplicate_filename",
]

# -- HTML -----------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = project
html_static_path = ["docs/_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
copybutton_exclude = ".linenos, .gp, .go"
copybutton_selector = "div:not(.sphx-glr-script-out):not(.recorded) > div.highlight > pre"
