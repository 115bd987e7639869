"""Each check can fail: a small page that has something wrong, and one that has not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page

from browser import checks
from browser.conftest import find_chromium, served

GOOD = "<p>Text, and <a href='#end'>a link</a>.</p><p id='end'>The end.</p>"


@pytest.fixture
def show(page: Page, tmp_path: Path) -> Callable[[str], Page]:
    """Show a page with a body that is given."""

    def shown(body: str) -> Page:
        page.set_content(
            "<!doctype html><html lang='en' data-theme='light'><head><title>Page</title></head>"
            f"<body><main><h1>Page</h1>{body}</main></body></html>"
        )
        return page

    return shown


# -- errors and other origins -----------------------------------------------------------


def watch(context: BrowserContext, folder: Path, body: str) -> checks.Watched:
    """What is noted of a page that is served."""
    (folder / "page.html").write_text(f"<!doctype html><title>Page</title>{body}")
    with served(folder) as origin, context.new_page() as page:
        with checks.watched(page, origin) as seen:
            page.goto(f"{origin}/page.html")
        return seen


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("<script>console.error('of the page')</script>", "of the page"),
        ("<script>undefinedFunction()</script>", "undefinedFunction is not defined"),
        ("<img src='none.png' alt='none'>", "404: "),
    ],
    ids=["console", "exception", "missing file"],
)
def test_an_error_is_noted(context: BrowserContext, tmp_path: Path, body: str, error: str) -> None:
    (found,) = watch(context, tmp_path, body).errors
    assert error in found


@pytest.mark.parametrize(
    "body",
    [
        "<script src='https://cdn.example/x.js'></script>",
        "<link rel='stylesheet' href='https://cdn.example/x.css'>",
        "<style>@import url(https://cdn.example/x.css);</style>",
        "<script>fetch('https://cdn.example/x').catch(() => 0)</script>",
        "<img src='http://127.0.0.1:9/pixel' alt=''>",
    ],
    ids=["script", "style", "import", "fetch", "another port"],
)
def test_a_request_to_another_origin_is_noted(
    context: BrowserContext, tmp_path: Path, body: str
) -> None:
    assert len(watch(context, tmp_path, body).foreign) == 1


def test_a_page_that_stays_at_home_is_left_alone(context: BrowserContext, tmp_path: Path) -> None:
    body = GOOD + "<link rel='icon' href='data:,'><img alt='' src='data:image/gif;base64,R0lGODlh'>"
    assert watch(context, tmp_path, body) == checks.Watched()


# -- accessibility ----------------------------------------------------------------------

INACCESSIBLE = {
    "color-contrast": "<p style='color: #bbb'>Light gray on white.</p>",
    "image-alt": "<img src='data:,'>",
    "link-name": "<a href='#x'></a>",
    "button-name": "<button></button>",
}


@pytest.mark.parametrize(("rule", "body"), INACCESSIBLE.items(), ids=INACCESSIBLE)
def test_axe_finds(show: Callable[[str], Page], rule: str, body: str) -> None:
    (found,) = checks.inaccessible(show(GOOD + body))
    assert found.startswith(f"{rule}: ")


def test_axe_finds_a_faint_color_in_highlighted_code(show: Callable[[str], Page]) -> None:
    part = "<span class='k'>import</span> <span class='c' style='color: #eee'>faint</span> "
    body = f"<div class='python'><div class='highlight'><pre>{part * 3}</pre></div></div>"
    (found,) = checks.inaccessible(show(body), "color-contrast")
    assert 'class="c"' in found


def test_axe_finds_nothing(show: Callable[[str], Page]) -> None:
    assert checks.inaccessible(show(GOOD)) == []


def test_the_dark_scheme_is_looked_at(show: Callable[[str], Page]) -> None:
    page = show(
        "<p>Text.</p>"
        "<style>[data-theme=dark] p {color: #222; background: #111; transition: color 9s}</style>"
        + "<script>matchMedia('(prefers-color-scheme: dark)').onchange = it => {"
        + "document.documentElement.dataset.theme = it.matches ? 'dark' : 'light'}</script>"
    )
    assert checks.inaccessible(page, "color-contrast") == []
    checks.in_scheme(page, "dark")
    assert len(checks.inaccessible(page, "color-contrast")) == 1


# -- a narrow window --------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    ["<div id='wide' style='width: 400px'>Wide</div>", f"<p id='wide'>{'x' * 90}</p>"],
    ids=["box", "word"],
)
def test_what_sticks_out_is_named(show: Callable[[str], Page], body: str) -> None:
    found = checks.overflowing(show(GOOD + body))
    assert found
    assert 'id="wide"' in found[-1]


def test_what_scrolls_by_itself_may_be_wide(show: Callable[[str], Page]) -> None:
    table = "<div style='overflow-x: auto'><div style='width: 999px'>Wide</div></div>"
    assert checks.overflowing(show(table)) == []


# -- the keyboard -----------------------------------------------------------------------

UNREACHABLE = {
    "no focus": "<div style='cursor: pointer'>Click me</div>",
    "taken out": "<a href='#x' tabindex='-1'>A link</a>",
    "not marked": "<button style='outline: none'>A button</button>",
    "transparent": "<button style='opacity: 0'>A button</button>",
    "in a fold-out": "<details><summary>More</summary><b style='cursor: pointer'>x</b></details>",
}


@pytest.mark.parametrize("body", UNREACHABLE.values(), ids=UNREACHABLE)
def test_what_the_keyboard_does_not_reach_is_named(show: Callable[[str], Page], body: str) -> None:
    assert len(checks.unreachable(show(GOOD + body))) == 1


REACHABLE = {
    "link": GOOD,
    "in a link": "<a href='#x'><b>A link</b></a>",
    "label": "<input type='radio' id='r' name='r' style='opacity: 0'>"
    "<label for='r' style='cursor: pointer'>Choose</label>"
    "<style>:focus + label {outline: 2px solid}</style>",
    "cannot be seen": "<button style='visibility: hidden'>A button</button>",
}


@pytest.mark.parametrize("body", REACHABLE.values(), ids=REACHABLE)
def test_what_the_keyboard_reaches_is_left_alone(show: Callable[[str], Page], body: str) -> None:
    assert checks.unreachable(show(body)) == []


def test_the_walk_ends_at_the_end(show: Callable[[str], Page]) -> None:
    assert checks.not_walked(show(GOOD * 3)) == []


def test_the_walk_misses_what_is_not_on_its_way(show: Callable[[str], Page]) -> None:
    (found,) = checks.not_walked(show(GOOD + "<a href='#x' tabindex='-1'>Aside</a>"))
    assert "Aside" in found


def test_the_walk_does_not_go_round_for_ever(show: Callable[[str], Page]) -> None:
    trap = "<button onkeydown='event.preventDefault()'>Stay</button>"
    (found,) = checks.not_walked(show(trap + GOOD), limit=9)
    assert found == "the end is not reached after 9 steps"


# -- the browser ------------------------------------------------------------------------


def test_a_chromium_that_is_named_has_to_be_there() -> None:
    with pytest.raises(pytest.fail.Exception, match="apt-get install chromium"):
        find_chromium("/nowhere/chromium")


def test_a_chromium_that_is_not_named_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert find_chromium(None) is None
