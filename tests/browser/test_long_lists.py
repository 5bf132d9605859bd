"""A list of 100,000 rows of unlike heights scrolls, grows and takes keys without a jump."""

from __future__ import annotations

import itertools
from typing import Any, Final

import pytest_asyncio
from playwright.async_api import Page

from tests.browser.chromium import in_the_browser
from tests.browser.conftest import Visit

pytestmark = in_the_browser

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


async def test_only_what_is_in_sight_is_in_the_page_and_a_row_is_revealed_where_it_is_asked_for(
    listing: Page,
) -> None:
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
