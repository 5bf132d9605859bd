"""The reference lists the keys that the page itself lists with ``?``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from playwright.async_api import expect

from tests.browser.chromium import in_the_browser
from tests.browser.conftest import Visit
from tests.browser.inspecting import SCREENS, path_of
from tests.browser.settling import settled
from tests.browser.stores import DEMO

pytestmark = in_the_browser

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
            place = {"Everywhere": "everywhere", "In a list": "a list"}.get(
                title, screen or "session"
            )
            for keys, what in rows:
                found = where.setdefault((" ".join(f"`{key}`" for key in keys), what), [])
                if place not in found:
                    found.append(place)
    ranked = sorted(where.items(), key=lambda one: _rank(one[1]))
    return [(keys, ", ".join(places), what) for (keys, what), places in ranked]


def _rank(places: list[str]) -> int:
    """Keys of everywhere first, of lists last."""
    ranks = {"everywhere": 0, "session": 1, "a list": 3}
    return ranks.get(places[0], 2)
