"""Everything can be done with the keyboard alone, and one always sees where one is."""

from __future__ import annotations

import re
from typing import Final

import pytest
from playwright.async_api import Page, expect

from tests.browser.chromium import in_the_browser
from tests.browser.conftest import Visit
from tests.browser.inspecting import path_of
from tests.browser.settling import settled
from tests.browser.stores import DEMO
from tests.browser.test_accessibility import PLACES

pytestmark = in_the_browser

MOST_STOPS: Final = 150
"""More stops than this between the top of a page and its end are a trap, or might as well be."""

_FOCUSED: Final = """() => {
  const one = document.activeElement;
  if (one === null || one === document.body) return null;
  window.stops ??= [];
  if (!window.stops.includes(one)) window.stops.push(one);
  const style = getComputedStyle(one);
  const box = one.getBoundingClientRect();
  const words = (one.ariaLabel ?? one.textContent ?? '').trim().slice(0, 60);
  return {
    stop: window.stops.indexOf(one),
    what: `${one.tagName} ${one.getAttribute('role') ?? ''} ${words}`,
    seen: (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1)
      || style.boxShadow !== 'none',
    inside: box.width > 0 && box.height > 0 && box.bottom > 0 && box.top < innerHeight
      && box.right > 0 && box.left < innerWidth,
  };
}"""


@pytest.mark.parametrize("place", PLACES)
async def test_tab_goes_through_a_screen_and_out_and_is_always_seen(
    visit: Visit, place: str
) -> None:
    page = await settled(await visit(PLACES[place]))
    stops = 0
    for _ in range(MOST_STOPS):
        await page.keyboard.press("Tab")
        focused = await page.evaluate(_FOCUSED)
        if focused is None or focused["stop"] < stops:
            break
        assert focused["stop"] == stops, focused["what"]
        assert focused["seen"], f"{focused['what']} shows no focus"
        assert focused["inside"], f"{focused['what']} has the focus out of sight"
        stops += 1
    assert 0 < stops < MOST_STOPS


async def test_arrows_step_through_requests(visit: Visit) -> None:
    page = await settled(await visit(path_of(DEMO)))
    await page.keyboard.press("ArrowLeft")
    await expect(page).to_have_url(_at(623))
    await page.keyboard.press("ArrowLeft")
    await expect(page).not_to_have_url(_at(623))
    await page.keyboard.press("ArrowRight")
    await expect(page).to_have_url(_at(623))


async def test_shift_and_arrows_step_through_compactions(visit: Visit) -> None:
    page = await settled(await visit(path_of(DEMO)))
    await page.keyboard.press("Shift+ArrowLeft")
    await expect(page).to_have_url(_at(616))
    await page.keyboard.press("Shift+ArrowLeft")
    await expect(page).to_have_url(_at(543))
    await page.keyboard.press("Shift+ArrowRight")
    await expect(page).to_have_url(_at(616))


def _at(position: int) -> re.Pattern[str]:
    return re.compile(rf"/s/demo\?at={position}\b")


@pytest.mark.parametrize(
    ("key", "address"),
    {
        "l": "**/s/demo/lost*",
        "c": "**/s/demo/compare*",
        "i": "**/s/demo/integrity*",
        "/": "**/s/demo/search*",
        "s": "**/",
    }.items(),
)
async def test_a_key_leads_to_each_screen(visit: Visit, key: str, address: str) -> None:
    page = await settled(await visit(path_of(DEMO)))
    await page.keyboard.press(key)
    await page.wait_for_url(address)
    await settled(page)


async def test_a_place_is_gone_to_by_its_number(visit: Visit) -> None:
    page = await settled(await visit(path_of(DEMO)))
    for place, url in (("@336", "**at=336*"), ("#17", "**msg=17*")):
        await settled(page)
        await page.keyboard.press("g")
        await expect(page.get_by_role("textbox", name="Go to #message")).to_be_focused()
        await page.keyboard.type(place)
        await page.keyboard.press("Enter")
        await page.wait_for_url(url)


async def test_the_list_of_keys_opens_and_gives_the_focus_back(visit: Visit) -> None:
    page = await settled(await visit(path_of(DEMO)))
    await page.keyboard.press("Tab")
    before = await _focused(page)
    await page.keyboard.press("?")
    dialog = page.get_by_role("dialog")
    for words in ("out of view", "Search", "Compare", "Follow"):
        await expect(dialog).to_contain_text(words)
    await page.keyboard.press("Escape")
    await expect(dialog).to_be_hidden()
    assert await _focused(page) == before


async def _focused(page: Page) -> str:
    html: str = await page.evaluate("() => document.activeElement.outerHTML")
    return html
