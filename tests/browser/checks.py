"""What is checked of a page in a browser: each check says in words what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import axe_playwright_python
from playwright.sync_api import Page

#: A wide window, and no animation that a check would have to wait for.
READER: dict[str, Any] = {
    "viewport": {"width": 1280, "height": 900},
    "reduced_motion": "reduce",
    "color_scheme": "light",
}
NARROW = {"width": 360, "height": 740}

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")


@dataclass
class Watched:
    """What a page did on its own since it was opened."""

    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)


@contextmanager
def watched(page: Page, origin: str) -> Iterator[Watched]:
    """Note a page's errors, and its requests to other origins."""
    seen = Watched()

    def request(one: Any) -> None:
        parts = urlsplit(one.url)
        if parts.scheme not in ("data", "blob") and f"{parts.scheme}://{parts.netloc}" != origin:
            seen.foreign.append(one.url)

    def response(one: Any) -> None:
        if one.status >= 400:
            seen.errors.append(f"{one.status}: {one.url}")

    def console(one: Any) -> None:
        # Of a file that is missing it does not say the name.
        if one.type == "error" and not one.text.startswith("Failed to load resource"):
            seen.errors.append(one.text)

    def error(one: Any) -> None:
        seen.errors.append(str(one))

    listeners = {
        "request": request,
        "response": response,
        "console": console,
        "pageerror": error,
    }
    for event, listener in listeners.items():
        page.on(event, listener)  # type: ignore[call-overload]
    yield seen
    for event, listener in listeners.items():
        page.remove_listener(event, listener)


# -- accessibility ----------------------------------------------------------------------

#: Highlighted code has thousands of parts in a few colors. One of each will do: axe-core takes
#: a second for a thousand.
UNWRAP = """() => {
  const seen = new Set();
  for (const it of document.querySelectorAll('.highlight span')) {
    const block = it.closest('.highlight');
    let looks = block.parentElement.className;
    for (let at = it; at !== block; at = at.parentElement) looks += '>' + at.className;
    if (seen.has(looks)) it.replaceWith(...it.childNodes);
    seen.add(looks);
  }
}"""


def in_scheme(page: Page, scheme: str) -> None:
    """Show the page as to a reader whose system is light, or dark."""
    page.emulate_media(color_scheme=scheme)
    page.wait_for_function("it => document.documentElement.dataset.theme === it", arg=scheme)
    page.evaluate("document.getAnimations().forEach(it => it.finish())")


def inaccessible(page: Page, *rules: str) -> list[str]:
    """What axe-core finds serious or critical by all its rules, or by some."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE)
    page.evaluate(UNWRAP)
    options = {"resultTypes": ["violations"], "preload": False}
    if rules:
        options["runOnly"] = [*rules]
    found = page.evaluate("options => axe.run(document, options)", options)
    return [
        f"{rule['id']}: {node['html'][:160]} {' '.join(node['failureSummary'].split())[:240]}"
        for rule in found["violations"]
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]


# -- a narrow window --------------------------------------------------------------------

OVERFLOWING = """() => {
  const root = document.documentElement;
  const width = root.clientWidth;
  if (Math.max(root.scrollWidth, document.body.scrollWidth) <= width) return [];
  const scrolls = element => {
    for (let it = element.parentElement; it && it !== document.body; it = it.parentElement)
      if (getComputedStyle(it).overflowX !== 'visible') return true;
    return false;
  };
  const wide = [...document.body.querySelectorAll('*')].filter(it =>
    !scrolls(it) && (it.getBoundingClientRect().right > width + 1 || it.scrollWidth > width
      && getComputedStyle(it).overflowX === 'visible'));
  return [`the page is ${root.scrollWidth} px wide`,
          ...wide.slice(-3).map(it => it.cloneNode().outerHTML.slice(0, 160))];
}"""


def overflowing(page: Page) -> list[str]:
    """Whether the page scrolls sideways in a narrow window, and what sticks out."""
    before = page.viewport_size
    page.set_viewport_size(NARROW)
    found: list[str] = page.evaluate(OVERFLOWING)
    if before:
        page.set_viewport_size(before)
    return found


# -- the keyboard -----------------------------------------------------------------------

#: What can be used: by what it is, by what it says it is, and by how the pointer looks.
USABLE = """
const pointer = it => getComputedStyle(it).cursor === 'pointer';
const CONTROLS = 'a[href], button, summary, input, select, textarea, [role=button], [role=tab]';
const controlOf = it => it.closest(CONTROLS) || (it.closest('label') || {}).control;
const seen = it => it.checkVisibility({visibilityProperty: true});
function usable() {
  document.querySelectorAll('details').forEach(it => { it.open = true; });
  return [...document.body.querySelectorAll('*')].filter(it =>
    seen(it) && !it.disabled && (it.matches(CONTROLS) || (pointer(it) && !controlOf(it)
      && !(it.parentElement && pointer(it.parentElement)))));
}
const show = it => it.outerHTML.replace(/\\s+/g, ' ').slice(0, 120);
"""

UNREACHABLE = (
    "() => {"
    + USABLE
    + """
  const LOOKS = ['outlineStyle', 'outlineWidth', 'boxShadow', 'backgroundColor', 'borderColor',
                 'borderWidth', 'textDecorationLine', 'textDecorationThickness'];
  const marked = it => [it, ...it.querySelectorAll('*'), ...(it.labels || [])].flatMap(
    one => ['', '::after'].map(part => {
      const style = getComputedStyle(one, part);
      return LOOKS.map(name => style[name]).join('|');
    })).join('|');
  const faint = it => {
    const one = it.labels && it.labels.length ? it.labels[0] : it;
    for (let at = one; at; at = at.parentElement)
      if (Number(getComputedStyle(at).opacity) < 0.1) return true;
    return false;
  };
  const problems = [];
  for (const it of usable()) {
    document.activeElement.blur();
    const before = marked(it);
    it.focus({preventScroll: true});
    it.getAnimations().forEach(one => one.finish());
    if (document.activeElement !== it || it.tabIndex < 0)
      problems.push('no focus: ' + show(it));
    else if (marked(it) === before || faint(it))
      problems.push('focus cannot be seen: ' + show(it));
  }
  document.activeElement.blur();
  return problems;
}"""
)


def unreachable(page: Page) -> list[str]:
    """What the pointer can use and the keyboard cannot, or where its focus cannot be seen."""
    # The focus is shown to readers who use the keyboard.
    page.keyboard.press("Tab")
    found: list[str] = page.evaluate(UNREACHABLE)
    return found


MARK = "() => {" + USABLE + "usable().forEach((it, index) => { it.dataset.walk = index; }); }"
LEFT = """() => [...document.querySelectorAll('[data-walk]')].filter(it =>
    // The keyboard's way between radio buttons of one group is the arrows.
    !(it.type === 'radio' && !it.checked)).map(it => it.outerHTML.slice(0, 160))"""
STEP = """() => {
  const it = document.activeElement;
  if (!it || it === document.body) return false;
  delete it.dataset.walk;
  return true;
}"""


def not_walked(page: Page, limit: int = 600) -> list[str]:
    """What pressing Tab from the top of the page to its end does not come by."""
    page.evaluate(MARK)
    page.keyboard.press("Tab")
    for _ in range(limit):
        if not page.evaluate(STEP):
            break
        page.keyboard.press("Tab")
    else:
        return [f"the end is not reached after {limit} steps"]
    left: list[str] = page.evaluate(LEFT)
    return left
