"""What depends on where the site is published: links to the repository, and other versions.

Both are off where nothing is configured: a copy on a laptop has no address.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ConfigError

from recordings.run import PAGES

BRANCH = "main"
#: The list of versions, as the theme's switcher reads it, relative to the site's root.
SWITCHER = "_static/switcher.json"


def source_of(app: Sphinx, page: str) -> str | None:
    """The file that `page` is made from, relative to the repository; None where there is none.

    A recipe's page is made from its script, an index page of the gallery from its header.
    """
    if page not in app.env.all_docs:
        return None
    root = Path(str(app.config.recordings_root))
    if page.startswith(f"{PAGES}/"):
        name = page.removeprefix(f"{PAGES}/")
        name = (
            f"{name.removesuffix('index')}GALLERY_HEADER.rst" if _is_index(name) else f"{name}.py"
        )
        path = root / app.config.recordings_gallery / name
    else:
        path = Path(app.env.doc2path(page))
    relative: str = path.resolve().relative_to(root.resolve()).as_posix()
    return relative


def _is_index(name: str) -> bool:
    return name == "index" or name.endswith("/index")


def page_links(repository: str, source: str, title: str) -> list[tuple[str, str]]:
    """The links of the page made from `source`: what each says, and where it leads.

    Args:
        repository: The address of a repository on GitHub.
        source: A file of it.
        title: The page's title.
    """
    repository = repository.rstrip("/").removesuffix(".git")  # as `git remote` shows it
    about = quote(f"{title} ({source})", safe="")
    return [
        ("Edit this page", f"{repository}/edit/{BRANCH}/{source}"),
        ("View its source", f"{repository}/blob/{BRANCH}/{source}"),
        ("Report a problem", f"{repository}/issues/new?title={about}"),
    ]


def add_links(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Hand the links of a page to the template ``page-links.html``."""
    repository = app.config.recordings_repository
    source = source_of(app, page) if repository else None
    context["page_links"] = (
        page_links(repository, source, app.env.titles[page].astext()) if source else []
    )


def check_addresses(app: Sphinx, config: Config) -> None:
    """Refuse what would make links that lead nowhere on every page.

    Raises:
        ConfigError: An address that is set is not one of the web, or has spaces.
    """
    given = {"SITE_URL": config.recordings_address, "REPOSITORY_URL": config.recordings_repository}
    for name, address in given.items():
        if address and not re.fullmatch(r"https?://[^\s/]\S*", address):
            raise ConfigError(
                f"{name} is {address!r}: write a whole address without spaces, such as"
                " https://example.org/docs"
            )


# -- versions -------------------------------------------------------------------------


def switcher(versions: list[str], address: str) -> list[dict[str, Any]]:
    """The list of versions for the theme, newest first; the newest is the preferred one.

    Args:
        versions: The versions, newest first. Each is published in a folder of that name.
        address: The address of the folder that holds them. Only its path is used: links to
            other versions stay on the origin that a reader is on.
    """
    base = urlsplit(address).path.rstrip("/")
    return [
        {"version": one, "name": one, "url": f"{base}/{one}/", "preferred": one == versions[0]}
        for one in versions
    ]


def offer_versions(app: Sphinx, config: Config) -> None:
    """Show the theme's switcher, and its banner on old versions, where there are several.

    Raises:
        ConfigError: The version that is built is none of them.
    """
    versions = config.recordings_versions
    if len(versions) < 2:
        return
    if config.release not in versions:
        raise ConfigError(
            f"this site is about version {config.release}, which is none of SITE_VERSIONS:"
            f" {' '.join(versions)}"
        )
    options = config.html_theme_options
    options |= {
        "switcher": {"json_url": SWITCHER, "version_match": config.release},
        "check_switcher": False,  # it is written at the end of the build
        "show_version_warning_banner": True,
        "navbar_end": ["version-switcher", *options.get("navbar_end", ["theme-switcher"])],
    }


def write_switcher(app: Sphinx, error: Exception | None) -> None:
    """Write the list of versions into the site."""
    versions = app.config.recordings_versions
    if error is None and app.builder.format == "html" and len(versions) > 1:
        text = json.dumps(switcher(versions, app.config.recordings_address), indent=1)
        Path(app.outdir, SWITCHER).write_text(text + "\n", encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx; before the theme reads its options."""
    app.add_config_value("recordings_repository", "", "html", [str])
    app.add_config_value("recordings_address", "", "html", [str])
    app.add_config_value("recordings_versions", [], "html", [list])
    app.connect("config-inited", check_addresses)
    app.connect("config-inited", offer_versions)
    app.connect("html-page-context", add_links)
    app.connect("build-finished", write_switcher)
    return {"parallel_read_safe": True}
