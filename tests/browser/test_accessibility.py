"""Every screen breaks no rule of axe, fits every window, and does as the system's settings ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, ViewportSize, expect

from tests.browser import stores
from tests.browser.chromium import in_the_browser
from tests.browser.conftest import Visit
from tests.browser.inspecting import path_of
from tests.browser.settling import NOTE_FIRST_THEME, choose_dark, fits, settled
from tests.browser.stores import DEMO

pytestmark = [*in_the_browser, pytest.mark.check]

PLACES: Final = {
    "sessions": "/",
    "search in all sessions": "/search?q=record digest",
    "a session": path_of(DEMO),
    "why a message is out of view": path_of(DEMO, msg=23, tab="why"),
    "a compaction": path_of(DEMO, at=340, tab="compaction"),
    "a difference": path_of(DEMO, at=340, tab="diff"),
    "a record": path_of(DEMO, at=340, tab="record"),
    "raw JSON": path_of(DEMO, at=340, tab="raw"),
    "lost": path_of(DEMO, "lost"),
    "compare": path_of(DEMO, "compare", at=340, cmp=300),
    "search": path_of(DEMO, "search", q="record digest"),
    "filtered messages": path_of(DEMO, "search", tab="errors"),
    "compare sessions": path_of(DEMO, "compare", tab="sessions", q=stores.FORK),
    "compare policies": path_of(DEMO, "compare", tab="policies"),
    "integrity": path_of(DEMO, "integrity"),
}

DRAWER: Final = {"why a message is out of view", "a difference", "a record", "raw JSON"}
"""Places of a session in which all but the drawer is as in two others; axe looks at that alone."""

COLOURS: Final = ("color-contrast", "link-in-text-block")
"""The rules of axe that a scheme of colours can break."""


_RUN: Final = """async ([where, options]) => (await axe.run(where, options)).violations.map(
  (rule) => `${rule.id} (${rule.help}): ` +
    rule.nodes.map((node) => node.html.slice(0, 200)).join('; '))"""


async def broken_rules(page: Page, *, only: Sequence[str] = (), where: str = "html") -> list[str]:
    """What axe finds, by all rules or by some: the rule, and the elements that break it."""
    # Loading style sheets again, for a rule on turning phones, breaks the page's own policy. To
    # list the elements that pass takes longer than to look at all of them.
    options = {"preload": False, "resultTypes": ["violations"]}
    if only:
        options["runOnly"] = list(only)
    if not await page.evaluate("() => 'axe' in window"):
        await page.evaluate(Axe().axe_script)
    found: list[str] = await page.evaluate(_RUN, [where, options])
    return found


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


WINDOWS: Final[Mapping[str, ViewportSize]] = {
    "a phone": {"width": 390, "height": 800},
    "zoomed to 200 %": {"width": 640, "height": 450},
    "a wide screen": {"width": 1920, "height": 1080},
}
"""What zooming does to a page: the window has half as many of its pixels, each twice as large."""


@pytest.mark.parametrize("place", PLACES)
async def test_a_screen_breaks_no_rule_fits_and_is_gone_through(visit: Visit, place: str) -> None:
    page = await settled(await visit(PLACES[place], color_scheme="light"))
    where = "ctx-drawer" if place in DRAWER else "html"
    assert await broken_rules(page, where=where) == []
    await page.emulate_media(color_scheme="dark")
    assert await broken_rules(page, only=COLOURS, where=where) == []
    await go_through_with_tab(page)
    for window, size in WINDOWS.items():
        await page.set_viewport_size(size)
        await settled(page)
        assert await fits(page), window


async def go_through_with_tab(page: Page) -> None:
    """Tab reaches each stop once, then leaves; one sees where one is."""
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


@pytest.mark.parametrize("path", ["/", path_of(DEMO)], ids=["sessions", "a session"])
async def test_axe_finds_nothing_on_a_phone_and_in_the_keys(visit: Visit, path: str) -> None:
    page = await settled(await visit(path, viewport=WINDOWS["a phone"]))
    assert await broken_rules(page) == []
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog")).to_be_visible()
    assert await broken_rules(page) == []


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
