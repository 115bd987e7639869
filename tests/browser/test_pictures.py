"""Pictures of key pages, beside those that were accepted.

`make accept` accepts what the pages look like now. A comparison that fails leaves the new picture,
and one with the differences in red, in build/pictures.

All pictures are drawn with the same fonts (see `font_config`), so they depend on the version of
Chromium only. Edges of letters differ between versions: a picture is compared in blocks, and a few
of them may differ.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conftest import REPOSITORY
from PIL import Image, ImageChops, ImageFilter, PngImagePlugin
from playwright.sync_api import Browser, Page

from browser import checks

ACCEPTED = Path(__file__).parent / "accepted"
MADE = REPOSITORY / "build" / "pictures"
PAGES = [
    "index",
    "shapes/planned",
    "shapes/unplanned",
    "guides/index",
    "recipes/index",
    "recipes/python/planned_output",
]
#: How high a picture is, in pixels: what a reader sees first, and two screens more.
HEIGHT = 2400

#: A block of so many pixels each way is one that a reader sees as one...
BLOCK = 8
#: ...and differs when its mean color does by so much of 255 in some channel...
DIFFERENT = 24
#: ...and so small a part of all blocks may.
SHARE = 0.002


def difference(accepted: Image.Image, made: Image.Image) -> tuple[float, Image.Image]:
    """The share of blocks that differ, and `made` with these blocks in red."""
    accepted, made = accepted.convert("RGB"), made.convert("RGB")
    if accepted.size != made.size:
        return 1.0, made
    # A letter that moved by a pixel is the same letter.
    blurred = (it.filter(ImageFilter.GaussianBlur(2)).reduce(BLOCK) for it in (accepted, made))
    channels = ImageChops.difference(*blurred).split()
    largest = ImageChops.lighter(ImageChops.lighter(*channels[:2]), channels[2])
    mask = largest.point(lambda it: 255 * (it > DIFFERENT), mode="L")
    share = mask.histogram()[255] / (mask.width * mask.height)
    large = mask.resize((mask.width * BLOCK, mask.height * BLOCK)).crop((0, 0, *made.size))
    red = Image.blend(made, Image.new("RGB", made.size, "red"), 0.5)
    return share, Image.composite(red, made, large)


def small(picture: Image.Image) -> Image.Image:
    """A picture in few colors: a third of the bytes."""
    return picture.convert("RGB").quantize(64, dither=Image.Dither.NONE)


def compare(made: Image.Image, accepted: Path, folder: Path) -> None:
    """Fail where `made` does not look as accepted, and leave both in `folder`."""
    if not accepted.is_file():
        pytest.fail(f"{accepted.name} was never accepted: run make accept", pytrace=False)
    with Image.open(accepted) as before:
        share, marked = difference(before, made)
        drawn_by = before.info.get("Software", "an unknown browser")
    if share > SHARE:
        folder.mkdir(parents=True, exist_ok=True)
        made.save(folder / accepted.name)
        marked.save(folder / f"{accepted.stem}.differences.png")
        pytest.fail(
            f"{share:.1%} of {accepted.stem} does not look as accepted (by {drawn_by}): look at "
            f"{accepted.stem}.differences.png in {folder}, and if it is right run make accept",
            pytrace=False,
        )


def picture(page: Page, address: str, scheme: str, folder: Path) -> Image.Image:
    """The top of a page."""
    page.set_viewport_size({"width": 1280, "height": HEIGHT})
    page.goto(address)
    checks.in_scheme(page, scheme)
    path = folder / "picture.png"
    page.screenshot(path=path, animations="disabled")
    with Image.open(path) as made:
        return small(made)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_looks_as_accepted(
    chromium: Browser, page: Page, origin: str, tmp_path: Path, name: str, scheme: str
) -> None:
    made = picture(page, f"{origin}/{name}.html", scheme, tmp_path)
    path = ACCEPTED / f"{name.replace('/', '.')}.{scheme}.png"
    if os.environ.get("ACCEPT"):
        path.parent.mkdir(exist_ok=True)
        info = PngImagePlugin.PngInfo()
        info.add_text("Software", f"Chromium {chromium.version}")
        made.save(path, optimize=True, pnginfo=info)
    compare(made, path, MADE)


def test_accepted_pictures_are_small_and_wanted() -> None:
    wanted = {f"{name.replace('/', '.')}.{it}.png" for name in PAGES for it in ("light", "dark")}
    sizes = {path.name: path.stat().st_size for path in ACCEPTED.iterdir()}
    assert sizes.keys() == wanted
    assert max(sizes.values()) < 150 * 1024
    assert sum(sizes.values()) < 1536 * 1024


# -- the comparison ---------------------------------------------------------------------


@pytest.fixture
def drawn(page: Page, tmp_path: Path) -> Image.Image:
    """A picture of a page of text."""
    page.set_content(f"<body style='background: #fff'>{'<p>Some text of a page.</p>' * 30}</body>")
    page.screenshot(path=tmp_path / "drawn.png")
    with Image.open(tmp_path / "drawn.png") as made:
        return made.convert("RGB")


def test_few_colors_and_smooth_edges_make_no_difference(drawn: Image.Image) -> None:
    assert difference(small(drawn), drawn)[0] <= SHARE
    assert difference(drawn.filter(ImageFilter.GaussianBlur(0.5)), drawn)[0] <= SHARE


def test_a_paragraph_more_makes_a_difference(drawn: Image.Image) -> None:
    moved = ImageChops.offset(drawn, 0, 17)
    assert difference(drawn, moved)[0] > SHARE


def test_another_color_makes_a_difference(drawn: Image.Image) -> None:
    assert difference(drawn, drawn.point(lambda it: it * 7 // 8))[0] > SHARE


def test_a_missing_word_makes_a_difference(drawn: Image.Image) -> None:
    without = drawn.copy()
    without.paste("white", (0, 0, 120, 200))
    assert difference(drawn, without)[0] > SHARE


def test_another_size_makes_a_difference(drawn: Image.Image) -> None:
    assert difference(drawn, drawn.crop((0, 0, 100, 100)))[0] == 1


def test_a_difference_is_said_and_shown(drawn: Image.Image, tmp_path: Path) -> None:
    accepted = tmp_path / "page.light.png"
    small(drawn).save(accepted)
    compare(drawn, accepted, tmp_path / "build")
    assert not (tmp_path / "build").exists()
    with pytest.raises(pytest.fail.Exception, match=r"does not look as accepted.*make accept"):
        compare(ImageChops.invert(drawn), accepted, tmp_path / "build")
    left = sorted(path.name for path in (tmp_path / "build").iterdir())
    assert left == ["page.light.differences.png", "page.light.png"]


def test_a_picture_that_was_never_accepted_is_named(drawn: Image.Image, tmp_path: Path) -> None:
    with pytest.raises(
        pytest.fail.Exception, match=r"page.png was never accepted: run make accept"
    ):
        compare(drawn, tmp_path / "page.png", tmp_path)
