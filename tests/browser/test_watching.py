"""What no test of the page may cause is noticed: each of them once, on a page made for it."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Page, Route

from tests.browser.chromium import in_the_browser
from tests.browser.settling import unsafe_characters
from tests.browser.watching import Watch

pytestmark = in_the_browser

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


async def test_a_page_without_a_fault_is_clean_and_a_character_that_controls_it_is_found(
    browser: Browser,
) -> None:
    watch = Watch(ORIGIN)
    text = "<p title='a\u202eb'>one\u200btwo</p>"
    page = await opened(browser, watch, "console.log('fine')", text)
    await watch.clean(page)
    found = await unsafe_characters(page)
    assert [one.partition(" in ")[0] for one in found] == ["P title: U+202e", "text of P: U+200b"]
    await page.context.close()
