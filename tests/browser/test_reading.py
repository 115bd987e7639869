"""What a reader does on this site: search, choose a tab, copy code, go dark, filter."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from conftest import REPOSITORY
from playwright.sync_api import Browser, Page, expect
from recordings import recipe, recording
from recordings.pages import without_marks
from sphinx_gallery import py_source_parser

from browser import checks

GALLERY = REPOSITORY / "gallery"
#: One page of each kind, with tabs, code, cards and a form among them.
KINDS = [
    "index.html",
    "shapes/planned.html",
    "guides/keep-a-result.html",
    "reference/errors.html",
    "recipes/index.html",
    "recipes/python/planned_output.html",
    "search.html",
]


# -- search -----------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", ["0x12", "set_output", "skip_d2h"])
def test_search_leads_to_a_page_that_has_what_was_searched(
    page: Page, origin: str, wanted: str
) -> None:
    page.goto(f"{origin}/search.html?q={wanted}")
    results = page.locator("#search-results ul.search li a")
    results.first.wait_for()
    for address in [it.get_attribute("href") for it in results.all()][:3]:
        assert address
        page.goto(f"{origin}/{address}")
        expect(page.locator("article")).to_contain_text(wanted)


FOUND = recording.read(GALLERY / "recordings", "python/configuration_matrix")
MESSAGES = {one["message"] for one in FOUND.facts["errors"].values()} if FOUND else set()


@pytest.mark.parametrize("message", sorted(MESSAGES))
@pytest.mark.parametrize(
    "where", ["[file.cpp:123] ", "E 00:00:00.000405 executorch:file.cpp:123] "], ids=["py", "cpp"]
)
def test_a_pasted_line_of_a_log_is_found(page: Page, origin: str, where: str, message: str) -> None:
    line = where + message.replace("0x...", "0x7f3a5c000000")
    page.goto(f"{origin}/search.html?q={quote(line)}")
    links = page.locator("#search-results ul.search li a")
    links.first.wait_for()
    found = [links.nth(index).get_attribute("href") or "" for index in range(links.count())]
    assert any(one.startswith("reference/errors.html") for one in found[:2]), found


def test_a_word_in_brackets_is_searched(page: Page, origin: str) -> None:
    asked = "[skip_d2h] set_output"
    page.goto(f"{origin}/search.html?q={quote(asked)}")
    page.locator("#search-results ul.search li a").first.wait_for()
    assert parse_qs(urlsplit(page.url).query) == {"q": [asked]}


def test_search_says_that_it_found_nothing(page: Page, origin: str) -> None:
    page.goto(f"{origin}/search.html?q=xyzzyplugh")
    expect(page.locator("#search-results")).to_contain_text("did not match any documents")


# -- tabs -------------------------------------------------------------------------------


def test_tabs_go_together_and_are_remembered(page: Page, origin: str) -> None:
    page.goto(f"{origin}/shapes/planned.html")
    sets = page.locator(".sd-tab-set:has([data-sync-id=python]):has([data-sync-id=cpp])")
    assert sets.count() > 1
    sets.first.locator("label", has_text="C++").click()
    for one in sets.all():
        expect(one.locator("label:has-text('C++') + .sd-tab-content")).to_be_visible()
        expect(one.locator("label:has-text('Python') + .sd-tab-content")).to_be_hidden()
    page.goto(f"{origin}/guides/keep-a-result.html")
    expect(page.locator("label:has-text('C++') + .sd-tab-content").first).to_be_visible()


# -- the copy button --------------------------------------------------------------------


def copied(page: Page) -> list[str]:
    """What each copy button of a page copies."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    texts = []
    for tab in page.locator(".sd-tab-label").all():
        tab.click()
        texts += copied_now(page)
    return texts or copied_now(page)


def copied_now(page: Page) -> list[str]:
    """What each copy button that can be seen copies."""
    texts = []
    for button in page.locator("button.copybtn:visible").all():
        page.evaluate("navigator.clipboard.writeText('')")
        button.click(force=True)
        page.wait_for_function("navigator.clipboard.readText().then(it => it !== '')")
        texts.append(page.evaluate("navigator.clipboard.readText()"))
    return texts


def test_the_copy_button_copies_the_code_of_a_recipe(page: Page, origin: str) -> None:
    one = recipe.load(GALLERY, "python/planned_output")
    blocks = [one.blocks[index].content for index in one.code_blocks]
    code = [without_marks(py_source_parser.remove_config_comments(text)) for text in blocks]
    page.goto(f"{origin}/recipes/{one.name}.html")
    page.get_by_text("Imports, and what this recipe needs").click()  # it unfolds
    assert [text.strip("\n") for text in copied(page)][: len(code)] == code


def test_the_copy_button_copies_lines_of_a_file_that_is_run(page: Page, origin: str) -> None:
    files = [
        path.read_text("utf-8") for path in GALLERY.rglob("*") if path.suffix in (".py", ".cpp")
    ]
    unindented = [re.sub(r"^ +", "", without_marks(text), flags=re.M) for text in files]
    page.goto(f"{origin}/shapes/planned.html")
    texts = copied(page)
    assert texts
    for text in texts:
        assert any(re.sub(r"^ +", "", text, flags=re.M) in file for file in unindented), text


def test_the_copy_button_copies_commands_without_the_prompt(page: Page, origin: str) -> None:
    page.goto(f"{origin}/project/contributing.html")
    texts = copied(page)
    assert texts
    assert [text for text in texts if not text.startswith("make ")] == []


# -- light and dark ---------------------------------------------------------------------


def test_dark_is_chosen_and_remembered(page: Page, origin: str) -> None:
    page.goto(f"{origin}/index.html")
    theme = "document.documentElement.dataset.theme"
    background = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(theme) == "light"
    before = page.evaluate(background)
    page.get_by_role("button", name="Color mode").click()
    page.get_by_role("button", name="Dark").click()
    assert page.evaluate(theme) == "dark"
    page.goto(f"{origin}/reference/errors.html")
    assert page.evaluate(theme) == "dark"
    assert page.evaluate(background) != before


# -- the filter by tag ------------------------------------------------------------------


def test_the_filter_leaves_the_recipes_that_have_the_tag(page: Page, origin: str) -> None:
    page.goto(f"{origin}/recipes/index.html")
    cards = page.locator("[data-sgtags]")
    shown = page.locator("[data-sgtags]:visible")
    total = cards.count()
    page.locator(".sphx-glr-tag", has_text=re.compile("^cpp$")).click()
    expect(shown).to_have_count(page.locator("[data-sgtags*='\"cpp\"']").count())
    assert 0 < shown.count() < total
    page.locator("#sphx-glr-tag-clear").click()
    expect(shown).to_have_count(total)


# -- the keyboard -----------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_pressing_tab_comes_by_everything(page: Page, origin: str, name: str) -> None:
    page.goto(f"{origin}/{name}")
    assert checks.not_walked(page) == []


def test_the_first_link_skips_the_navigation(page: Page, origin: str) -> None:
    page.goto(f"{origin}/reference/errors.html")
    page.keyboard.press("Tab")
    focus = page.locator(":focus")
    expect(focus).to_be_in_viewport()
    expect(focus).to_have_attribute("href", re.compile("^#"))
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("!!document.activeElement.closest('main')")


def test_tabs_are_chosen_with_the_arrows(page: Page, origin: str) -> None:
    page.goto(f"{origin}/shapes/planned.html")
    tabs = page.locator(".sd-tab-set").first
    tabs.locator("input").first.focus()
    page.keyboard.press("ArrowRight")
    expect(tabs.locator(".sd-tab-content").nth(1)).to_be_visible()


def test_a_narrow_window_has_the_navigation_behind_a_button(page: Page, origin: str) -> None:
    page.set_viewport_size(checks.NARROW)
    page.goto(f"{origin}/shapes/planned.html")
    page.locator("button.primary-toggle:visible").press("Enter")
    expect(page.locator("dialog[open] a[href*='guides/']").first).to_be_visible()


# -- without scripts --------------------------------------------------------------------

#: The parts of an article that cannot be seen, tabs that are not chosen among them.
HIDDEN = """() => [...document.querySelectorAll('article :is(p, h1, h2, li, td, pre, img)')]
  .filter(it => !it.checkVisibility()).map(it => it.textContent)"""


@pytest.fixture
def plain(chromium: Browser) -> Page:
    """A page of a reader who runs no scripts."""
    with chromium.new_context(**checks.READER, java_script_enabled=False) as context:
        yield context.new_page()


@pytest.mark.parametrize("name", [name for name in KINDS if name != "search.html"])
def test_an_article_is_the_same_without_scripts(
    page: Page, plain: Page, origin: str, name: str
) -> None:
    for one in (page, plain):
        one.goto(f"{origin}/{name}")
    expect(plain.locator("article h1")).to_be_visible()
    assert plain.evaluate(HIDDEN) == page.evaluate(HIDDEN)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colors_are_there_without_scripts(chromium: Browser, origin: str, scheme: str) -> None:
    reader = checks.READER | {"color_scheme": scheme, "java_script_enabled": False}
    with chromium.new_context(**reader) as context:
        page = context.new_page()
        page.goto(f"{origin}/index.html")
        colors = page.evaluate(
            "['text-base', 'background', 'link'].map(name =>"
            " getComputedStyle(document.documentElement).getPropertyValue(`--pst-color-${name}`))"
        )
        assert all(colors), colors


def test_links_lead_on_without_scripts(plain: Page, origin: str) -> None:
    plain.goto(f"{origin}/index.html")
    plain.locator("article a[href='shapes/choosing.html']").first.click()
    expect(plain).to_have_url(re.compile("/shapes/choosing.html"))


def test_tabs_work_without_scripts(plain: Page, origin: str) -> None:
    plain.goto(f"{origin}/shapes/planned.html")
    contents = plain.locator(".sd-tab-set").first.locator("> .sd-tab-content")
    expect(contents.nth(0)).to_be_visible()
    plain.locator(".sd-tab-set").first.locator("> label").nth(1).click()
    expect(contents.nth(0)).to_be_hidden()
    expect(contents.nth(1)).to_be_visible()


def test_the_stamp_opens_without_scripts(plain: Page, origin: str) -> None:
    plain.goto(f"{origin}/recipes/python/planned_output.html")
    stamp = plain.locator("article details").first
    assert stamp.get_attribute("open") is None
    stamp.locator("summary").click()
    expect(stamp.locator("dd").first).to_be_visible()
