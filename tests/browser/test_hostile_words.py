"""Whatever a message says is shown as text, escaped where it deceives, and none runs unnoticed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from playwright.async_api import Browser, Page, Route, expect

import eventctx
from tests.browser import hostile
from tests.browser.chromium import in_the_browser
from tests.browser.conftest import Visit
from tests.browser.inspecting import SCREENS, inspecting, path_of
from tests.browser.settling import fits, settled, unsafe_characters
from tests.browser.watching import Watch, shown
from tests.how_much import some

pytestmark = in_the_browser

MOST_SHOWN: Final = 3_000_000
"""Characters of a page that holds a huge result."""

_FOREIGN: Final = (
    "script:not([src]), style, iframe, object, embed, base, svg animate, meta[http-equiv], "
    "[onload], [onclick], [onerror], [onfocus], [onmouseover], [srcdoc], form[action], "
    "[href^='javascript' i], [href^='data' i], [href^='http' i], [src^='http' i]"
)
"""Elements and attributes that only a message can have brought."""


async def harmless(page: Page) -> None:
    """Nothing of a message ran, became an element, hides what it is, or makes the page too wide."""
    await settled(page)
    assert await page.evaluate("() => 'ran' in window") is False
    assert await page.locator(_FOREIGN).count() == 0
    assert await unsafe_characters(page) == []
    assert await fits(page)


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("session", [hostile.SESSION, hostile.LONG_NAME], ids=["attack", "long"])
async def test_a_screen_shows_words_and_runs_none(visit: Visit, session: str, screen: str) -> None:
    query = {"q": "ran=1"} if screen == "search" else {}
    page = await visit(path_of(session, screen, **query))
    await harmless(page)


async def test_walking_through_a_hostile_session_runs_nothing(load: Visit) -> None:
    page = await settled(await load(path_of(hostile.SESSION)))
    for key in ["ArrowLeft"] * 8 + ["1", "2", "3", "4", "5"] + ["k", "w"] * 6 + ["d", "c"]:
        await page.keyboard.press(key)
        await harmless(page)


async def test_markup_stands_there_as_written_also_beside_half_a_pair(visit: Visit) -> None:
    page = await visit()
    await harmless(page)
    await expect(page.get_by_role("link", name=hostile.SESSION)).to_be_visible()
    for place in (path_of(hostile.SESSION, at=4), path_of(hostile.HALVES)):
        page = await visit(place)
        await harmless(page)
        await expect(page.get_by_text(hostile.MARKUP["a script"]).first).to_be_visible()


async def test_with_a_result_of_megabytes_a_page_answers(browser: Browser, tmp_path: Path) -> None:
    store = tmp_path / "huge.db"
    async with eventctx.open(store, durability="normal") as engine:
        # More than the 16 MB of texts that a page keeps; all of it is 50 MB.
        await hostile.write_huge(engine, some(600_000, 1_700_000))
    async with inspecting(store) as inspector, shown(browser, inspector) as (page, _):
        await page.goto(path_of(hostile.HUGE, msg=2))
        await expect(page.get_by_text("Read the whole log.").first).to_be_visible()
        await harmless(page)
        for key in ("4", "4", "ArrowLeft", "ArrowRight"):
            await page.keyboard.press(key)
        cursor = page.get_by_role("group", name="The request at the cursor")
        await expect(cursor).to_contain_text("2 of 2")
        await harmless(page)
        assert await page.evaluate("() => document.body.textContent.length") < MOST_SHOWN


ORIGIN = "http://page.invalid"
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; img-src *; require-trusted-types-for 'script'"
)

FAULTS = {
    "console.error('it failed')": "console error: it failed",
    "console.warn('it may fail')": "console warning: it may fail",
    "throw new Error('nobody caught it')": "exception: nobody caught it",
    "alert('hello')": "dialog: hello",
    "new Image().src = 'http://elsewhere.invalid/i.png'": "a request off the origin: http://else",
    "try { document.body.innerHTML = '<b>' } catch {}": "content security policy: require-trusted",
    "fetch('/x').catch(() => 0)": "content security policy: connect-src",
}


async def opened(browser: Browser, watch: Watch, script: str, body: str = "") -> Page:
    """A page with this script, served from nowhere."""
    context = await browser.new_context()
    await watch.over(context)

    async def answer(route: Route) -> None:
        here = route.request.url.startswith(ORIGIN) and route.request.resource_type == "document"
        if not here:
            await route.abort()
            return
        await route.fulfill(
            body=f"<!doctype html><title>t</title><body>{body}<script>{script}</script>",
            content_type="text/html; charset=utf-8",
            headers={"content-security-policy": POLICY},
        )

    await context.route("**/*", answer)
    page = await context.new_page()
    await page.goto(ORIGIN)
    return page


@pytest.mark.parametrize(("script", "noticed"), FAULTS.items(), ids=list(FAULTS.values()))
async def test_a_fault_of_a_page_is_noticed(browser: Browser, script: str, noticed: str) -> None:
    watch = Watch(ORIGIN)
    page = await opened(browser, watch, script)
    with pytest.raises(AssertionError) as raised:
        await watch.clean(page)
    assert noticed in str(raised.value)
    await page.context.close()


async def test_a_page_without_a_fault_is_clean_and_controls_are_found(browser: Browser) -> None:
    watch = Watch(ORIGIN)
    text = "<p title='a\u202eb'>one\u200btwo</p>"
    page = await opened(browser, watch, "console.log('fine')", text)
    await watch.clean(page)
    found = await unsafe_characters(page)
    assert [one.partition(" in ")[0] for one in found] == ["P title: U+202e", "text of P: U+200b"]
    await page.context.close()
