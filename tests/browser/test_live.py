"""A session grows on the page while another process appends to it, and no record is missed."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

import eventctx
from tests.browser.chromium import in_the_browser
from tests.browser.inspecting import PATIENCE, inspecting, path_of
from tests.browser.settling import settled, walk
from tests.browser.watching import Watch, shown
from tests.children import started

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


_PROGRAM: Final = Path(__file__).resolve().parents[1] / "programs" / "appending.py"

_NOTE_WORDS: Final = """() => {
  window.seen = {};
  const look = () => {
    for (const [word] of document.body.textContent.matchAll(/word-\\d+/g)) {
      window.seen[word] ??= performance.timeOrigin + performance.now();
    }
  };
  new MutationObserver(look).observe(document.body,
    { subtree: true, childList: true, characterData: true });
  look();
}"""


class Appended(NamedTuple):
    """When an append was acknowledged, in ms since 1970, and how many ms it took."""

    at: float
    took: float


Says = Callable[[str, str], Awaitable[Appended]]
"""Appends a round of an agent to a session: a person's message, a request, and an answer."""


@asynccontextmanager
async def writing(store: Path) -> AsyncIterator[Says]:
    """A writer to sessions of a store until the end of the block."""
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with started([sys.executable, _PROGRAM, store], **pipes) as process:
        assert process.stdin is not None and process.stdout is not None

        def append(session: str, text: str) -> Appended:
            process.stdin.write(f"{session}\t{text}\n")
            process.stdin.flush()
            at, took = process.stdout.readline().split()
            return Appended(float(at), float(took))

        async def says(session: str, text: str) -> Appended:
            return await asyncio.wait_for(asyncio.to_thread(append, session, text), PATIENCE)

        yield says


async def note_words(page: Page) -> None:
    """From now on the page notes when each word of the form ``word-7`` first stands on it."""
    await page.evaluate(_NOTE_WORDS)


async def shown_at(page: Page, word: str) -> float:
    """When a word first stood on the page, in ms since 1970; waits for it."""
    await page.wait_for_function("(word) => word in window.seen", arg=word, polling=5)
    at: float = await page.evaluate("(word) => window.seen[word]", word)
    return at


class Live(NamedTuple):
    """A page that follows a session of its own, and who writes to the store that it shows."""

    page: Page
    append: Says
    store: Path
    watch: Watch
    session: str = "first"

    async def says(self, text: str) -> Appended:
        return await self.append(self.session, text)


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


async def test_an_append_is_on_the_page(live: Live, record_property: pytest.RecordProperty) -> None:
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


async def test_erased_words_and_a_deleted_session_leave_the_page_and_its_memory(live: Live) -> None:
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
