"""The page does as the system's settings ask."""

from __future__ import annotations

from typing import Final

from playwright.async_api import Page, expect

from tests.browser.chromium import in_the_browser
from tests.browser.conftest import Visit
from tests.browser.inspecting import path_of
from tests.browser.settling import NOTE_FIRST_THEME, choose_dark, settled
from tests.browser.stores import DEMO

pytestmark = in_the_browser


async def test_a_theme_that_was_chosen_is_there_before_anything_is_painted(load: Visit) -> None:
    page = await settled(await load(path_of(DEMO)))
    await choose_dark(page)
    await page.add_init_script(NOTE_FIRST_THEME)
    await page.reload()
    await settled(page)
    assert await page.evaluate("firstTheme") == "dark"
    assert await _brightness(page) < 80
    await page.get_by_role("button", name="Theme: dark").click()
    await page.emulate_media(color_scheme="light")
    assert await _brightness(page) > 175
    await page.reload()
    await expect(page.get_by_role("button", name="Theme: system")).to_be_visible()


_COLOUR: Final = """() => {
  const draw = document.createElement('canvas').getContext('2d');
  draw.fillStyle = getComputedStyle(document.documentElement).backgroundColor;
  draw.fillRect(0, 0, 1, 1);
  return [...draw.getImageData(0, 0, 1, 1).data.slice(0, 3)];
}"""


async def _brightness(page: Page) -> float:
    """Of the page's background, from 0 to 255."""
    colour: list[int] = await page.evaluate(_COLOUR)
    return sum(colour) / 3


async def test_with_reduced_motion_nothing_moves_by_itself(visit: Visit) -> None:
    page = await settled(await visit(path_of(DEMO), reduced_motion="reduce"))
    for key in ("ArrowLeft", "Shift+ArrowLeft", "w", "?"):
        await page.keyboard.press(key)
        lengths: list[float] = await page.evaluate(
            "() => document.getAnimations().map((one) => one.effect.getComputedTiming().duration)"
        )
        assert all(milliseconds <= 1 for milliseconds in lengths), (key, lengths)


async def test_with_forced_colours_standings_are_words_and_focus_is_seen(visit: Visit) -> None:
    page = await settled(await visit(path_of(DEMO, msg=23, tab="why"), forced_colors="active"))
    await expect(page.get_by_text("dropped").first).to_be_visible()
    await page.keyboard.press("Tab")
    width: str = await page.evaluate("() => getComputedStyle(document.activeElement).outlineWidth")
    assert float(width.removesuffix("px")) >= 1
