"""Everything can be done with the keyboard alone, and one always sees where one is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.async_api import expect

from tests.browser.chromium import in_the_browser
from tests.browser.conftest import Visit
from tests.browser.inspecting import SCREENS, path_of
from tests.browser.settling import settled
from tests.browser.stores import DEMO

pytestmark = in_the_browser


@pytest.mark.parametrize(
    ("key", "address"),
    [
        ("l", "**/s/demo/lost*"),
        ("c", "**/s/demo/compare*"),
        ("i", "**/s/demo/integrity*"),
        ("/", "**/s/demo/search*"),
        ("s", "**/"),
    ],
)
async def test_a_key_leads_to_each_screen(visit: Visit, key: str, address: str) -> None:
    page = await settled(await visit(path_of(DEMO)))
    await page.keyboard.press(key)
    await page.wait_for_url(address)
    await settled(page)


async def test_arrows_step_through_requests_and_a_place_is_gone_to_by_its_number(
    visit: Visit,
) -> None:
    page = await settled(await visit(path_of(DEMO)))
    before_the_last = re.compile(r"/s/demo\?at=623\b")
    await page.keyboard.press("ArrowLeft")
    await expect(page).to_have_url(before_the_last)
    await page.keyboard.press("ArrowLeft")
    await expect(page).not_to_have_url(before_the_last)
    await page.keyboard.press("ArrowRight")
    await expect(page).to_have_url(before_the_last)
    for place, url in (("@336", "**at=336*"), ("#17", "**msg=17*")):
        await settled(page)
        await page.keyboard.press("g")
        await expect(page.get_by_role("textbox", name="Go to #message")).to_be_focused()
        await page.keyboard.type(place)
        await page.keyboard.press("Enter")
        await page.wait_for_url(url)


_FOCUSED: Final = "() => document.activeElement.outerHTML"


async def test_the_list_of_keys_opens_and_gives_the_focus_back(visit: Visit) -> None:
    page = await settled(await visit(path_of(DEMO)))
    await page.keyboard.press("Tab")
    before: str = await page.evaluate(_FOCUSED)
    await page.keyboard.press("?")
    dialog = page.get_by_role("dialog")
    for words in ("out of view", "Search", "Compare", "Follow"):
        await expect(dialog).to_contain_text(words)
    await page.keyboard.press("Escape")
    await expect(dialog).to_be_hidden()
    assert await page.evaluate(_FOCUSED) == before


PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference" / "inspect.md"
_LISTED: Final = """() => [...document.querySelectorAll('dialog[open] section')].map((part) => [
  part.querySelector('h3').textContent,
  [...part.querySelectorAll('dl > div')].map((row) => [
    [...row.querySelectorAll('kbd')].map((key) => key.textContent),
    row.querySelector('dd').textContent,
  ]),
])"""


async def test_the_reference_lists_every_key_of_the_page(visit: Visit) -> None:
    places: dict[str, list[str]] = {}
    for keys, where, what in await _rows(visit):
        places.setdefault(where, []).append(f"{keys} {what}")
    listed = "".join(f"- {where}: {'; '.join(keys)}\n" for where, keys in places.items())
    assert f"## Keys\n\n{listed}" in PAGE.read_text(), f"the page lists:\n\n{listed}"


async def _rows(visit: Visit) -> list[tuple[str, str, str]]:
    """Keys, where they act, and what they do, in the order in which the page lists them."""
    where: dict[tuple[str, str], list[str]] = {}
    for screen in SCREENS:
        page = await settled(await visit(path_of(DEMO, screen)))
        # By the button: on the screen of searches the field takes all keys.
        await page.get_by_role("button", name="Keys").click()
        await expect(page.get_by_role("dialog")).to_be_visible()
        listed: list[Any] = await page.evaluate(_LISTED)
        for title, rows in listed:
            shared = {"Everywhere": "everywhere", "In a list": "a list"}
            place = shared.get(title, screen or "session")
            for keys, what in rows:
                found = where.setdefault((" ".join(f"`{key}`" for key in keys), what), [])
                if place not in found:
                    found.append(place)
    ranks = {"everywhere": 0, "session": 1, "a list": 3}
    ranked = sorted(where.items(), key=lambda one: ranks.get(one[1][0], 2))
    return [(keys, ", ".join(places), what) for (keys, what), places in ranked]
