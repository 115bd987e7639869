"""Every page of this site: quiet, private, accessible, narrow, and usable by keyboard."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from playwright.sync_api import BrowserContext

from browser import checks
from browser.conftest import Launch


@dataclass(frozen=True)
class Visit:
    """What a visit of one page found."""

    errors: list[str]
    foreign: list[str]
    light: list[str]
    dark: list[str]
    unreachable: list[str]
    overflowing: list[str]


def visit(context: BrowserContext, origin: str, name: str) -> Visit:
    """Look at one page in all ways: loading it takes longer than looking."""
    with context.new_page() as page, checks.watched(page, origin) as seen:
        page.goto(f"{origin}/{name}", wait_until="load")
        wide = checks.overflowing(page)
        reach = checks.unreachable(page)
        light = checks.inaccessible(page)
        checks.in_scheme(page, "dark")
        # Only colors differ between the two.
        dark = checks.inaccessible(page, "color-contrast", "link-in-text-block")
    return Visit(seen.errors, seen.foreign, light, dark, reach, wide)


@pytest.fixture(scope="module")
def visits(launch: Launch, origin: str, names: list[str]) -> dict[str, Visit]:
    """A visit of every page, by two readers at a time."""

    def read(some: list[str]) -> dict[str, Visit]:
        with launch() as browser, browser.new_context(**checks.READER) as context:
            return {name: visit(context, origin, name) for name in some}

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(read, (names[::2], names[1::2]))
    return one | other


def no(what: str, visits: dict[str, Visit]) -> None:
    """Fail with what a check found, and where: what one page has wrong, others have, too."""
    places: dict[str, list[str]] = {}
    for name, one in visits.items():
        for problem in getattr(one, what):
            places.setdefault(problem, []).append(name)
    lines = [f"{problem} (on {len(on)}: {on[0]})" for problem, on in places.items()]
    assert not lines, "\n".join(lines)


def test_no_page_logs_an_error(visits: dict[str, Visit]) -> None:
    no("errors", visits)


def test_no_page_asks_another_origin(visits: dict[str, Visit]) -> None:
    no("foreign", visits)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_on_any_page(visits: dict[str, Visit], scheme: str) -> None:
    no(scheme, visits)


def test_the_keyboard_reaches_everything_on_every_page(visits: dict[str, Visit]) -> None:
    no("unreachable", visits)


def test_no_page_scrolls_sideways_in_a_narrow_window(visits: dict[str, Visit]) -> None:
    no("overflowing", visits)
