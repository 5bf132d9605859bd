"""No rule of axe is broken on any screen, in light and in dark, and with what opens over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, expect

from tests.browser import stores
from tests.browser.chromium import in_the_browser
from tests.browser.conftest import Visit
from tests.browser.inspecting import path_of
from tests.browser.settling import settled

pytestmark = in_the_browser

DEMO: Final = stores.DEMO

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


COLOURS: Final = ("color-contrast", "link-in-text-block")
"""The rules of axe that a scheme of colours can break."""


async def broken_rules(page: Page, *, only: Sequence[str] = ()) -> list[str]:
    """What axe finds, by all rules or by some: the rule, and the elements that break it."""
    # Loading style sheets again, for a rule on turning phones, breaks the page's own policy. To
    # list the elements that pass takes longer than to look at all of them.
    options = {"preload": False, "resultTypes": ["violations"]}
    if only:
        options["runOnly"] = list(only)
    found = await Axe().run(page, options=options)
    return [
        f"{rule['id']} ({rule['help']}): " + "; ".join(node["html"][:200] for node in rule["nodes"])
        for rule in found.response["violations"]
    ]


@pytest.mark.parametrize("place", PLACES)
async def test_axe_finds_nothing_in_light_and_in_dark(visit: Visit, place: str) -> None:
    page = await settled(await visit(PLACES[place], color_scheme="light"))
    assert await broken_rules(page) == []
    await page.emulate_media(color_scheme="dark")
    assert await broken_rules(page, only=COLOURS) == []


async def test_axe_finds_nothing_in_the_list_of_keys(visit: Visit) -> None:
    page = await settled(await visit(path_of(DEMO)))
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog")).to_be_visible()
    assert await broken_rules(page) == []


@pytest.mark.parametrize("path", ["/", path_of(DEMO)], ids=["sessions", "a session"])
async def test_axe_finds_nothing_on_a_narrow_screen(visit: Visit, path: str) -> None:
    page = await settled(await visit(path, viewport={"width": 390, "height": 800}))
    assert await broken_rules(page) == []


async def test_a_row_of_the_list_has_a_few_lines_on_a_narrow_screen(visit: Visit) -> None:
    page = await settled(await visit("/", viewport={"width": 390, "height": 800}))
    demo = page.get_by_role("row").filter(has_text=DEMO).first
    await expect(demo).to_be_visible()
    box = await demo.bounding_box()
    assert box is not None
    assert (box["width"], box["height"] < 110) == (390, True)
