"""An exported file in a real browser, opened from the disk and offline."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from eventctx.web.export.file import Contents
from tests.browser import chromium
from tests.browser.watching import Watch
from tests.web.exported import WHOLE, Exported, exported
from tests.web.test_export_file import HOSTILE, session_of

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

SESSION = "<img src=x onerror=ran=1>"


@asynccontextmanager
async def opened(file: Path, place: str = "") -> AsyncIterator[Page]:
    """The file in a browser without a network; at the end nothing may have gone wrong."""
    async with chromium.started(chromium.executable()) as browser:
        context = await browser.new_context(offline=True)
        watch = Watch("file://")
        await watch.over(context)
        asked: list[str] = []
        context.on("request", lambda request: asked.append(request.url))
        page = await context.new_page()
        await page.goto(file.as_uri() + place)
        yield page
        assert await page.evaluate("window.ran") is None
        assert [url.partition("#")[0] for url in asked] == [file.as_uri()]
        await watch.clean(page)


async def written(path: Path, contents: Contents = WHOLE) -> Exported:
    async with session_of(list(HOSTILE.values()), name=SESSION) as engine:
        return await exported(engine, SESSION, path, contents)


async def test_a_file_opens_at_its_session_and_shows_what_was_sent(tmp_path):
    file = await written(tmp_path / "s.html")
    async with opened(tmp_path / "s.html") as page:
        await expect(page).to_have_url(re.compile("#/s/"))
        requests = len(file.timeline["requests"]["position"])
        await expect(page.get_by_text(f"{requests} requests").first).to_be_visible()
        await expect(page.locator("ctx-sent")).to_contain_text("onmouseover=ran=1")
        await expect(page.locator("ctx-head")).to_contain_text("verified")
        await expect(page.locator("footer")).to_contain_text(f"@{file.timeline['head']}:")


async def test_hostile_words_are_words_on_the_page(tmp_path):
    await written(tmp_path / "s.html", Contents(reveal=True))
    async with opened(tmp_path / "s.html") as page:
        last = page.locator("ctx-sent").get_by_text("onmouseover=ran=1").first
        await expect(last).to_be_visible()


async def test_every_screen_of_a_file_can_be_opened(tmp_path):
    file = await written(tmp_path / "s.html")
    first = file.timeline["requests"]["position"][3]
    for screen in ("lost", "compare", "search", "integrity"):
        place = f"#/s/%3Cimg%20src%3Dx%20onerror%3Dran%3D1%3E/{screen}?at={first}"
        async with opened(tmp_path / "s.html", place) as page:
            await expect(page.locator(f"ctx-{screen}")).to_be_visible()


async def test_the_search_of_a_file_finds_words_in_it(tmp_path):
    await written(tmp_path / "s.html")
    place = "#/s/%3Cimg%20src%3Dx%20onerror%3Dran%3D1%3E/search?q=FINISHED+ansi"
    place = place.replace("ansi", "onmouseover")
    async with opened(tmp_path / "s.html", place) as page:
        await expect(page.locator("ctx-search")).to_contain_text("Finished with")


async def test_a_structure_shows_sizes_in_place_of_texts(tmp_path):
    await written(tmp_path / "s.html", Contents(structure=True))
    async with opened(tmp_path / "s.html") as page:
        await expect(page.locator("ctx-sent")).to_contain_text("left out of this file")
        await expect(page.locator("footer")).to_contain_text("All texts are left out")
        assert "Finished" not in await page.locator("body").inner_text()


async def test_a_cut_shows_its_turns_alone(tmp_path):
    file = await written(tmp_path / "s.html", Contents(turns=(2, 3)))
    assert set(file.timeline["requests"]["turn"]) == {2, 3}
    async with opened(tmp_path / "s.html") as page:
        await expect(page.locator("ctx-head")).to_contain_text("turn 3")
        await expect(page.locator("ctx-head")).to_contain_text("verified")
        await page.keyboard.press("ArrowLeft")
        await expect(page.locator("ctx-sent")).to_contain_text("Reading")


async def test_a_file_of_20_megabytes_is_painted_within_twice_a_second(tmp_path):
    async with session_of(["word"] * 3) as engine:
        ctx = await engine.session("private name")
        for number in range(2_000):
            text = " ".join(f"{number * place % 9973:x}" for place in range(2_000))
            await ctx.add_message({"role": "user", "content": text})
        await ctx.get_messages_for_request()
        await exported(engine, "private name", tmp_path / "s.html")
    async with opened(tmp_path / "s.html") as page:
        await expect(page.locator("ctx-sent")).to_contain_text("#")
        painted = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
        assert await page.evaluate(painted) < 2_000
