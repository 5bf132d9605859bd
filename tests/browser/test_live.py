"""A session grows on the page while another process appends to it, and no record is missed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

import eventctx
from tests.browser.chromium import in_the_browser
from tests.browser.inspecting import Inspector, inspecting, path_of
from tests.browser.settling import settled, walk
from tests.browser.watching import Watch
from tests.browser.writing import Appended, Says, note_words, shown_at, writing

pytestmark = in_the_browser

MOST_MS: Final = 5_000.0
"""The goal is 250 ms; a machine that is busy with other tests gets twenty times that."""
_NUMBERS: Final = itertools.count(1)

_HELD: Final = """async () => {
  const { timeline } = await import('/page/main.js');
  const { head, messages, requests } = timeline.peek();
  return [head, messages.count, Array.from(messages.position), Array.from(requests.position)];
}"""

_ASKED: Final = """async (address) => {
  const { head, messages, requests } = await (await fetch(address)).json();
  return [head, messages.position.length, messages.position, requests.position];
}"""


class Live(NamedTuple):
    """A page that follows a session of its own, and who writes to the store that it shows."""

    page: Page
    append: Says
    store: Path
    watch: Watch
    session: str = "first"

    async def says(self, text: str) -> Appended:
        """The session's agent goes another round."""
        return await self.append(self.session, text)


@asynccontextmanager
async def shown(browser: Browser, inspector: Inspector) -> AsyncIterator[tuple[Page, Watch]]:
    """A watched page of a server, which must have been clean at the end."""
    watch = Watch(inspector.origin)
    context = await browser.new_context(base_url=inspector.origin)
    await watch.over(context)
    page = await context.new_page()
    await page.goto(inspector.invitation)
    yield page, watch
    await watch.clean(page)
    await context.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def served(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Live]:
    store = tmp_path_factory.mktemp("live") / "live.db"
    async with writing(store) as append:
        await append("first", "word-0")
        async with inspecting(store) as inspector, shown(browser, inspector) as (page, watch):
            yield Live(page, append, store, watch)


@pytest_asyncio.fixture(loop_scope="session")
async def live(served: Live) -> AsyncIterator[Live]:
    found = served._replace(session=f"live {next(_NUMBERS)}")
    for number in range(5):
        await found.says(f"word-{number}")
    await settled(await walk(found.page, path_of(found.session)))
    await note_words(found.page)
    yield found
    await found.watch.clean(found.page)
    found.watch.expected.clear()


async def test_what_is_appended_stands_on_the_page_at_once(
    live: Live, record_property: pytest.RecordProperty
) -> None:
    taken: list[float] = []
    for number in range(10, 20):
        appended = await live.says(f"word-{number}")
        taken.append(await shown_at(live.page, f"word-{number}") - appended.at)
    record_property("append to pixel, ms", [round(one) for one in sorted(taken)])
    assert sorted(taken)[len(taken) // 2] <= MOST_MS


async def test_scrubbing_stops_following_and_f_resumes(live: Live) -> None:
    await live.page.keyboard.press("ArrowLeft")
    address = live.page.url
    await live.says("word-30")
    await live.says("word-31")
    await expect(live.page.get_by_role("main")).to_contain_text("7 requests")
    assert live.page.url == address
    sent = live.page.get_by_role("region", name="Sent to the model")
    await expect(sent.get_by_text("word-31")).to_have_count(0)
    await expect(live.page.get_by_role("button", name="follow the end")).to_be_visible()
    await live.page.keyboard.press("f")
    await expect(live.page.get_by_text("word-31").first).to_be_visible()
    await live.says("word-32")
    await expect(live.page.get_by_text("word-32").first).to_be_visible()


async def test_a_server_that_comes_back_goes_on_without_a_gap(live: Live, browser: Browser) -> None:
    async with inspecting(live.store) as inspector, shown(browser, inspector) as (page, watch):
        await page.goto(path_of(live.session))
        await settled(page)
        await note_words(page)
        # The list of sessions may be on its way.
        lost = "ERR_CONNECTION_ ERR_INCOMPLETE_CHUNKED ERR_EMPTY ERR_CONTENT_LENGTH_MISMATCH 403"
        watch.expected += lost.split()
        inspector.process.kill()
        inspector.process.wait()
        for number in range(40, 45):
            await live.says(f"word-{number}")
        async with inspecting(live.store, "--port", inspector.port) as again:
            # A new run gives a new cookie; the page finds out by itself that it has one.
            other = await page.context.new_page()
            await other.goto(again.invitation)
            await shown_at(page, "word-44")
            await live.says("word-45")
            await shown_at(page, "word-45")
            held, asked = None, []
            # The end of a turn comes a moment after its words.
            async with asyncio.timeout(60):
                while held != asked:
                    held = await page.evaluate(_HELD)
                    asked = await page.evaluate(_ASKED, f"/api{path_of(live.session)}/timeline")


async def test_words_that_were_erased_and_then_the_deleted_session_leave_the_page_and_all_it_holds(
    live: Live,
) -> None:
    await live.page.get_by_text("word-3").first.click()
    await expect(live.page.get_by_text("word-3").first).to_be_visible()
    async with eventctx.open(live.store) as engine:
        said = [one.number for one in await engine.transcript(live.session)
                if one.message == {"role": "user", "content": "word-3"}]  # fmt: skip
        await engine.erase(live.session, said)
    await expect(live.page.locator("body")).not_to_contain_text("word-3")
    await settled(live.page)
    await expect(live.page.get_by_text("word-4").first).to_be_visible()
    await expect(live.page.get_by_text("Erased").first).to_be_visible()
    live.watch.expected += ["404"]
    async with eventctx.open(live.store) as engine:
        await engine.delete(live.session)
    await expect(live.page.locator("body")).not_to_contain_text("word-")
    await expect(live.page.get_by_text(f"no session '{live.session}'")).to_be_visible()
