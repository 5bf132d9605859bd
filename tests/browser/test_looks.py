"""The page fits every window, and does as the system's settings ask."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import pytest
from playwright.async_api import Page, ViewportSize, expect

from tests.browser.chromium import in_the_browser
from tests.browser.conftest import Visit
from tests.browser.inspecting import path_of
from tests.browser.settling import NOTE_FIRST_THEME, choose_dark, settled, width_of_page
from tests.browser.stores import DEMO
from tests.browser.test_accessibility import PLACES

pytestmark = in_the_browser

WINDOWS: Final[Mapping[str, ViewportSize]] = {
    "a phone": {"width": 390, "height": 800},
    "zoomed to 200 %": {"width": 640, "height": 450},
    "a wide screen": {"width": 1920, "height": 1080},
}
"""What zooming does to a page: the window has half as many of its pixels, each twice as large."""


@pytest.mark.parametrize("place", PLACES)
async def test_no_screen_scrolls_sideways(visit: Visit, place: str) -> None:
    page = await settled(await visit(PLACES[place]))
    for window, size in WINDOWS.items():
        await page.set_viewport_size(size)
        await settled(page)
        wide, there = await width_of_page(page)
        assert wide <= there, window


@pytest.mark.parametrize("tab", ["why", "compaction", "diff", "record", "raw"])
async def test_what_the_details_hold_scrolls_inside_of_them(visit: Visit, tab: str) -> None:
    page = await settled(await visit(path_of(DEMO, at=336, msg=23, tab=tab)))
    panel = page.locator("#drawer-panel")
    await expect(panel).to_contain_text(re.compile(r".{80}", re.DOTALL))
    low = await panel.evaluate("panel => panel.getBoundingClientRect().bottom - innerHeight")
    assert low <= 1, "the panel ends below the window"


async def test_nothing_moves_below_the_head_as_one_steps_through_requests(visit: Visit) -> None:
    page = await settled(await visit(path_of(DEMO)))
    tops = set()
    for _ in range(12):
        await page.keyboard.press("ArrowLeft")
        box = await page.get_by_role("grid").bounding_box()
        assert box is not None
        tops.add((round(box["y"]), round(box["height"])))
    assert len(tops) == 1


async def test_dark_is_dark_and_light_is_light(visit: Visit) -> None:
    page = await settled(await visit(path_of(DEMO), color_scheme="dark"))
    assert await _brightness(page) < 80
    await page.emulate_media(color_scheme="light")
    assert await _brightness(page) > 175


async def test_a_theme_that_was_chosen_is_there_before_anything_is_painted(load: Visit) -> None:
    page = await settled(await load(path_of(DEMO)))
    await choose_dark(page)
    await page.add_init_script(NOTE_FIRST_THEME)
    await settled(await _reloaded(page))
    assert await page.evaluate("firstTheme") == "dark"
    assert await _brightness(page) < 80
    await page.get_by_role("button", name="Theme: dark").click()
    await page.emulate_media(color_scheme="light")
    assert await _brightness(page) > 175
    await settled(await _reloaded(page))
    await expect(page.get_by_role("button", name="Theme: system")).to_be_visible()


async def _reloaded(page: Page) -> Page:
    await page.reload()
    return page


async def _brightness(page: Page) -> float:
    """Of the page's background, from 0 to 255."""
    color: str = await page.evaluate(
        "() => { const canvas = document.createElement('canvas');"
        " const draw = canvas.getContext('2d');"
        " draw.fillStyle = getComputedStyle(document.documentElement).backgroundColor;"
        " draw.fillRect(0, 0, 1, 1);"
        " return draw.getImageData(0, 0, 1, 1).data.slice(0, 3).join() }"
    )
    return sum(map(int, color.split(","))) / 3


async def test_with_reduced_motion_nothing_moves_by_itself(visit: Visit) -> None:
    page = await settled(await visit(path_of(DEMO), reduced_motion="reduce"))
    for key in ("ArrowLeft", "Shift+ArrowLeft", "w", "?"):
        await page.keyboard.press(key)
        lengths: list[float] = await page.evaluate(
            "() => document.getAnimations().map((one) => one.effect.getComputedTiming().duration)"
        )
        assert all(milliseconds <= 1 for milliseconds in lengths), (key, lengths)


async def test_with_reduced_motion_a_theme_is_there_at_once(visit: Visit) -> None:
    page = await settled(await visit(path_of(DEMO), reduced_motion="reduce"))
    await page.emulate_media(color_scheme="dark")
    moving = "() => document.getAnimations().filter((one) => one instanceof CSSTransition).length"
    assert await page.evaluate(moving) == 0


async def test_with_forced_colours_standings_are_words_and_focus_is_seen(visit: Visit) -> None:
    page = await settled(await visit(path_of(DEMO, msg=23, tab="why"), forced_colors="active"))
    await expect(page.get_by_text("dropped").first).to_be_visible()
    await page.keyboard.press("Tab")
    width: str = await page.evaluate("() => getComputedStyle(document.activeElement).outlineWidth")
    assert float(width.removesuffix("px")) >= 1
