"""Sphinx configuration: `sphinx-build -c . docs build/html`, or `make html`."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "docs" / "_ext"))

from recordings import environment  # noqa: E402
from sphinx_gallery.sorting import ExplicitOrder  # noqa: E402

# -- Project --------------------------------------------------------------------------

project = "ExecuTorch device I/O"
author = "The ExecuTorch device I/O authors"
copyright = f"2026, {author}"
language = "en"
recordings_summary = (
    "How to keep an ExecuTorch CUDA model's inputs and outputs on the GPU, from Python and from"
    " C++. Every recipe was run, and its page says where and when."
)
#: The version of ExecuTorch that the site is about, as pyproject.toml pins it.
release = str(environment.pins(ROOT / "pyproject.toml")["executorch"]).removeprefix("==")
version = release

# -- Where it is published --------------------------------------------------------------
# Unknown here: each of these is off while its variable is not set.

#: The site's address, for social cards. With versions: of the folder that holds them all.
SITE_URL = os.environ.get("SITE_URL", "")
#: The repository's address on GitHub, for links to edit, to the source, and to report.
recordings_repository = os.environ.get("REPOSITORY_URL", "")
#: The versions that are published side by side, newest first, such as "1.6.0 1.5.1".
recordings_versions = os.environ.get("SITE_VERSIONS", "").split()
recordings_address = SITE_URL

# -- Extensions -----------------------------------------------------------------------

extensions = [
    "myst_parser",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinx.ext.extlinks",
    "recordings",
    "sphinx_gallery.gen_gallery",
]
myst_enable_extensions = ["colon_fence", "deflist", "smartquotes", "substitution"]
myst_substitutions = {"release": release}
myst_heading_anchors = 3
extlinks = {"issue": ("https://github.com/pytorch/executorch/issues/%s", "#%s")}
exclude_patterns = ["_ext", "_templates", "recipes/**/*.ipynb"]
templates_path = ["docs/_templates"]

# -- Recipes ----------------------------------------------------------------------------

#: As a reader meets them; a recipe that is not listed comes last.
READING_ORDER = [
    # python
    "planned_output.py",
    "default_copies.py",
    "copy_cost.py",
    "buffer_lifetime.py",
    "pipeline.py",
    "interop.py",
    "streams.py",
    "dynamic_shapes.py",
    "per_method.py",
    "input_only.py",
    "output_only.py",
    "shared_tensors.py",
    "host_tensor_refused.py",
    "planned_input_refused.py",
    "unplanned_from_python.py",
    "configuration_matrix.py",
    # cpp; its planned_output is beside that of python
    "unplanned_output.py",
    "ring_of_outputs.py",
    "caller_stream.py",
    "cuda_graph.py",
    "refused.py",
    # anywhere
    "inspect_pte.py",
    "emitted_program.py",
    "host_rehearsal.py",
    "*",
]

# Recipes are run by `python -m recordings run`; pages show what was recorded.
sphinx_gallery_conf = {
    "examples_dirs": "../gallery",
    "gallery_dirs": "recipes",
    "plot_gallery": False,
    "subsection_order": ["../gallery/python", "../gallery/cpp", "../gallery/anywhere"],
    "within_subsection_order": ExplicitOrder(READING_ORDER),
    "copyfile_regex": "",
    "default_thumb_file": str(ROOT / "docs" / "_static" / "shapes" / "default.svg"),
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

# -- External links: `make linkcheck` ---------------------------------------------------

linkcheck_timeout = 20  # seconds
linkcheck_retries = 3
linkcheck_workers = 4
linkcheck_rate_limit_timeout = 120  # seconds; GitHub answers 429 to many at once
linkcheck_anchors_ignore_for_url = [
    r"https://github\.com/",  # draws its anchors with a script
]

# -- HTML -----------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = project
html_logo = html_favicon = "docs/_static/logo.svg"
html_static_path = ["docs/_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_use_index = False  # words are found by the search
html_show_sourcelink = False
html_copy_source = False
html_context = {"default_mode": "light"}  # without JavaScript; else as the reader's system is
html_theme_options = {
    "logo": {"text": project, "alt_text": ""},
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc", "page-links"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
copybutton_exclude = ".linenos, .gp, .go"
copybutton_selector = "div:not(.sphx-glr-script-out):not(.recorded) > div.highlight > pre"

# -- Social cards: a title, a text and one picture for links to a page ----------------------

if SITE_URL:
    extensions.append("sphinxext.opengraph")
    html_baseurl = f"{SITE_URL.rstrip('/')}/"
    if len(recordings_versions) > 1:
        html_baseurl += f"{release}/"
    ogp_site_url = html_baseurl
    ogp_image = "_static/card.png"
    ogp_image_alt = f"{project}: keep inputs and outputs on the GPU"
    ogp_enable_meta_description = True
    ogp_social_cards = {"enable": False}  # drawing one for every page takes Matplotlib
