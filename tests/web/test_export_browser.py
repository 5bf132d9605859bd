"""An exported file in a real browser, opened from the disk and offline."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from eventctx.web.export.file import Contents
from tests.browser.chromium import in_the_browser
from tests.browser.conftest import browser as browser
from tests.browser.conftest import chromium_path as chromium_path
from tests.browser.watching import Watch
from tests.web.exported import WHOLE, Exported, exported
from tests.web.test_export_file import HOSTILE, session_of

pytestmark = in_the_browser

SESSION = "<img src=x onerror=ran=1>"

_PAINTED_AND_READ = """() => [
  performance.getEntriesByName('first-contentful-paint')[0].startTime,
  performance.getEntriesByType('navigation')[0].domInteractive,
]"""


class File(NamedTuple):
    """A written file, and what is in it."""

    path: Path
    read: Exported


Written = Callable[..., Awaitable[File]]
Opened = Callable[..., AbstractAsyncContextManager[Page]]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def written(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Written]:
    """A file of the hostile session, of each kind written once for all tests."""
    folder = tmp_path_factory.mktemp("exported")
    files: dict[Contents, File] = {}
    async with session_of(list(HOSTILE.values()), name=SESSION) as engine:

        async def wrote(contents: Contents = WHOLE) -> File:
            if contents not in files:
                path = folder / f"{len(files)}.html"
                files[contents] = File(path, await exported(engine, SESSION, path, contents))
            return files[contents]

        yield wrote


@pytest.fixture
def opened(browser: Browser) -> Opened:
    """A file in a browser without a network; at the end nothing may have gone wrong."""

    @asynccontextmanager
    async def shown(file: Path, place: str = "") -> AsyncIterator[Page]:
        context = await browser.new_context(offline=True)
        watch = Watch("file://")
        await watch.over(context)
        asked: list[str] = []
        context.on("request", lambda request: asked.append(request.url))
        page = await context.new_page()
        await page.goto(file.as_uri() + place)
        yield page
        assert await page.evaluate("window.ran") is None
        assert {url.partition("#")[0] for url in asked} == {file.as_uri()}
        await watch.clean(page)
        await context.close()

    return shown


async def test_a_file_opens_at_its_session_and_shows_what_was_sent(written, opened):
    path, file = await written()
    async with opened(path) as page:
        await expect(page).to_have_url(re.compile("#/s/"))
        requests = len(file.timeline["requests"]["position"])
        await expect(page.get_by_text(f"{requests} requests").first).to_be_visible()
        await expect(page.locator("ctx-sent")).to_contain_text("onmouseover=ran=1")
        await expect(page.locator("ctx-head")).to_contain_text("verified")
        await expect(page.locator("footer")).to_contain_text(f"@{file.timeline['head']}:")


async def test_hostile_words_are_words_on_the_page(written, opened):
    path, _ = await written(Contents(reveal=True))
    async with opened(path) as page:
        last = page.locator("ctx-sent").get_by_text("onmouseover=ran=1").first
        await expect(last).to_be_visible()


async def test_every_screen_of_a_file_can_be_opened(written, opened):
    path, file = await written()
    first = file.timeline["requests"]["position"][3]
    async with opened(path) as page:
        for screen in ("lost", "compare", "search", "integrity"):
            place = f"#/s/%3Cimg%20src%3Dx%20onerror%3Dran%3D1%3E/{screen}?at={first}"
            await page.goto(path.as_uri() + place)
            await expect(page.locator(f"ctx-{screen}")).to_be_visible()


async def test_the_search_of_a_file_finds_words_in_it(written, opened):
    path, _ = await written()
    place = "#/s/%3Cimg%20src%3Dx%20onerror%3Dran%3D1%3E/search?q=FINISHED+ansi"
    place = place.replace("ansi", "onmouseover")
    async with opened(path, place) as page:
        await expect(page.locator("ctx-search")).to_contain_text("Finished with")


async def test_a_structure_shows_sizes_in_place_of_texts(written, opened):
    path, _ = await written(Contents(structure=True))
    async with opened(path) as page:
        await expect(page.locator("ctx-sent")).to_contain_text("left out of this file")
        await expect(page.locator("footer")).to_contain_text("All texts are left out")
        assert "Finished" not in await page.locator("body").inner_text()


async def test_a_cut_shows_its_turns_alone(written, opened):
    path, file = await written(Contents(turns=(2, 3)))
    assert set(file.timeline["requests"]["turn"]) == {2, 3}
    async with opened(path) as page:
        await expect(page.locator("ctx-head")).to_contain_text("turn 3")
        await expect(page.locator("ctx-head")).to_contain_text("verified")
        await page.keyboard.press("ArrowLeft")
        await expect(page.locator("ctx-sent")).to_contain_text("Reading")


async def test_a_file_of_megabytes_is_painted_before_it_is_read_to_its_end(tmp_path, opened):
    words = [f"{number:x}" for number in range(9_973)]
    async with session_of(["word"] * 3) as engine:
        ctx = await engine.session("private name")
        for number in range(1_000):
            text = " ".join([words[number * place % 9_973] for place in range(2_000)])
            await ctx.add_message({"role": "user", "content": text})
        await ctx.get_messages_for_request()
        await exported(engine, "private name", tmp_path / "s.html")
    async with opened(tmp_path / "s.html") as page:
        await expect(page.locator("ctx-sent")).to_contain_text("#")
        painted, read = await page.evaluate(_PAINTED_AND_READ)
        assert painted < read
