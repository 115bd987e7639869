"""A Chromium, and this site on a port of this machine."""

from __future__ import annotations

import contextlib
import functools
import http.server
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import matplotlib
import pytest
from conftest import Build, Project
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from browser import checks

#: Opens a Chromium.
Launch = Callable[[], AbstractContextManager[Browser]]

#: What a Chromium is called where systems install one.
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
INSTALL = "install one (on Debian: apt-get install chromium), or name one with CHROMIUM=..."

#: Names of other hosts do not resolve, and the updater of Chromium stays quiet.
ARGUMENTS = [
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--font-render-hinting=none",
]


def font_config(folder: Path) -> str:
    """A fontconfig file with the fonts of Matplotlib and no others: text is equally wide
    on every machine.  `folder` is for the cache.
    """
    generic = {
        "sans-serif": "DejaVu Sans",
        "serif": "DejaVu Serif",
        "monospace": "DejaVu Sans Mono",
    }
    aliases = "".join(
        f"<alias><family>{name}</family><prefer><family>{font}</family></prefer></alias>"
        for name, font in generic.items()
    )
    fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    return (
        '<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig>'
        f"<dir>{fonts}</dir><cachedir>{folder}</cachedir>{aliases}</fontconfig>"
    )


def find_chromium(named: str | None) -> str | None:
    """The Chromium of this machine, or the one that is `named`, which has to be there."""
    found = next(filter(None, map(shutil.which, [named] if named else NAMES)), None)
    if named and not found:
        pytest.fail(f"CHROMIUM={named} is not there: {INSTALL}", pytrace=False)
    return found


#: Without a browser nothing here is run, and one line says so.
collect_ignore_glob: list[str] = []
if not os.environ.get("CHROMIUM") and not find_chromium(None):
    collect_ignore_glob.append("test_*.py")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was left out."""
    if collect_ignore_glob:
        terminalreporter.write_line(
            f"NOT RUN tests/browser: the pages were not looked at, there is no Chromium: {INSTALL}",
            yellow=True,
        )


class Handler(http.server.SimpleHTTPRequestHandler):
    """Files of a folder, without a line on stderr for each."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server of a folder."""
    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="package")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    """How to open a Chromium; Playwright wants one for each thread."""
    path = find_chromium(os.environ.get("CHROMIUM"))
    fonts = tmp_path_factory.mktemp("fonts") / "fonts.conf"
    fonts.write_text(font_config(fonts.parent), encoding="utf-8")
    environ = os.environ | {"FONTCONFIG_FILE": str(fonts)}

    @contextlib.contextmanager
    def launched() -> Iterator[Browser]:
        with (
            sync_playwright() as playwright,
            playwright.chromium.launch(
                executable_path=path, args=ARGUMENTS, env=environ
            ) as browser,
        ):
            yield browser

    return launched


@pytest.fixture(scope="package")
def chromium(launch: Launch) -> Iterator[Browser]:
    """One Chromium for all tests of this folder."""
    with launch() as browser:
        yield browser


@pytest.fixture(scope="package")
def origin(chromium: Browser, site: tuple[Project, Build]) -> Iterator[str]:
    """The address of this site."""
    with served(site[1].pages) as address:
        yield address


@pytest.fixture(scope="package")
def names(site: tuple[Project, Build]) -> list[str]:
    """The addresses of all pages of this site, without the origin."""
    folder = site[1].pages
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*.html"))
    return sorted(name for name in found if not name.startswith("_"))


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    """A reader who has not been here before."""
    with chromium.new_context(**checks.READER) as made:
        made.set_default_timeout(10_000)
        yield made


@pytest.fixture
def page(context: BrowserContext) -> Page:
    """A page of the new reader."""
    return context.new_page()
