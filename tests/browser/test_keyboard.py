"""Everything can be done with the keyboard alone, also in a list of 100,000 rows."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

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


async def test_arrows_step_through_requests_and_a_number_leads_to_its_place(visit: Visit) -> None:
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


ROWS: Final = 100_000

_MAKE: Final = """async (count) => {
  const list = document.createElement('ctx-virtual-list');
  list.id = 'long';
  list.setAttribute('aria-label', 'Long');
  list.style.setProperty('flex', 'none');
  list.style.setProperty('height', '600px');
  document.querySelector('main').replaceChildren(list);
  const render = (at) => {
    const row = document.createElement('p');
    // Every row turns out otherwise than estimated.
    row.style.setProperty('height', `${20 + (at * 37) % 90}px`);
    row.textContent = `row ${at}`;
    return row;
  };
  list.rows = { count, key: (at) => at, height: () => 40, render };
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
}"""

_SEEN: Final = """() => {
  const list = document.getElementById('long');
  const top = list.getBoundingClientRect().top;
  const rows = [...list.querySelectorAll('.list-row')].map((row) => {
    const box = row.getBoundingClientRect();
    return [row.getAttribute('aria-posinset') - 1, box.top - top, box.bottom - top];
  });
  return {
    all: rows.length,
    rows: rows.filter(([, start, end]) => end > 0.01 && start < 599.99),
    focus: document.activeElement.getAttribute('aria-posinset') - 1,
    setsize: Number(list.querySelector('.list-row').getAttribute('aria-setsize')),
  };
}"""


@pytest_asyncio.fixture(loop_scope="session")
async def listing(visit: Visit) -> Page:
    page = await visit("/")
    await page.get_by_role("table").wait_for()
    await page.evaluate(_MAKE, ROWS)
    return page


async def seen(page: Page, change: str = "") -> Any:
    """What is in sight, after ``change`` was done to the list and painted."""
    await page.evaluate(
        "async (change) => { const list = document.getElementById('long');"
        "const acts = {"
        " up: () => { list.scrollTop -= 70; }, end: () => list.reveal(99999),"
        " middle: () => list.reveal(50000, 'start'), back: () => list.reveal(49990),"
        " more: () => { list.rows.count += 10; list.update(); } };"
        "acts[change]?.();"
        "for (let n = 0; n < 3; n++) await new Promise((done) => requestAnimationFrame(done)); }",
        change,
    )
    found = await page.evaluate(_SEEN)
    for (_, _, before), (row, start, _) in itertools.pairwise(found["rows"]):
        assert abs(start - before) <= 0.5, f"row {row} stands behind the one before"
    assert found["rows"][0][1] <= 0.5, "no gap above"
    assert found["rows"][-1][2] >= 599.5, "no gap below"
    return found


async def test_only_what_is_in_sight_is_in_the_page_and_rows_are_revealed(listing: Page) -> None:
    found = await seen(listing)
    assert [row for row, *_ in found["rows"]][:3] == [0, 1, 2]
    assert found["all"] < 60 and found["setsize"] == ROWS
    before = await seen(listing, "middle")
    assert before["rows"][0][0] == 50_000 and abs(before["rows"][0][1]) < 0.5
    after = await seen(listing, "more")
    assert after["rows"] == before["rows"], "rows that are added move nothing"
    assert after["setsize"] == ROWS + 10
    assert (await seen(listing, "back"))["rows"][0][0] == 49_990
    found = await seen(listing, "end")
    assert found["rows"][-1][0] == ROWS - 1 and abs(found["rows"][-1][2] - 600) < 0.5


async def test_scrolling_up_over_rows_never_seen_moves_just_so_far(listing: Page) -> None:
    before = await seen(listing, "middle")
    for _ in range(25):
        now = await seen(listing, "up")
        starts = {row: start for row, start, _ in now["rows"]}
        shared = [(row, start) for row, start, _ in before["rows"] if row in starts]
        assert shared, "it jumped out of sight"
        for row, start in shared:
            assert abs(starts[row] - start - 70) < 1.01, f"row {row}"
        before = now


async def test_keys_move_the_focus_and_the_list_with_it(listing: Page) -> None:
    await listing.locator("#long .list-row").first.focus()
    keys = ("j", "ArrowDown", "k", "ArrowUp", "End", "k", "Home")
    rows = (1, 2, 1, 0, ROWS - 1, ROWS - 2, 0)
    for key, row in zip(keys, rows, strict=True):
        await listing.keyboard.press(key)
        found = await seen(listing)
        assert found["focus"] == row, key
        assert row in [one for one, *_ in found["rows"]], key
    for _ in range(30):
        await listing.keyboard.press("PageDown")
    found = await seen(listing)
    assert 150 < found["focus"] in [one for one, *_ in found["rows"]]
