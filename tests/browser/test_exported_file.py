"""An exported session opens from the disk, alone: it asks nobody for anything."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, expect

from tests.browser import hostile, stores
from tests.browser.chromium import in_the_browser
from tests.browser.inspecting import answer_of
from tests.browser.settling import NOTE_FIRST_THEME, choose_dark, settled, unsafe_characters
from tests.browser.stores import DEMO
from tests.browser.test_accessibility import broken_rules
from tests.browser.watching import Watch
from tests.web.exported import exported as write_exported
from tests.web.test_export_file import session_of

pytestmark = in_the_browser

_PAINTED_AND_READ = """() => [
  performance.getEntriesByName('first-contentful-paint')[0].startTime,
  performance.getEntriesByType('navigation')[0].domInteractive,
]"""

Exported = Callable[..., Awaitable[Page]]
Written = Callable[..., Awaitable[Path]]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def written(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Export a session with these options, once for all tests; the file."""
    folder = tmp_path_factory.mktemp("exported")
    files: dict[tuple[str, ...], Path] = {}

    async def wrote(session: str, *options: str) -> Path:
        asked = (session, *options)
        if asked not in files:
            file = folder / f"{len(files)}.html"
            await answer_of("inspect", "--store", store, "--html", file, *options, "--", session)
            files[asked] = file
        return files[asked]

    return wrote


@pytest_asyncio.fixture(loop_scope="session")
async def exported(browser: Browser, written: Written) -> AsyncIterator[Exported]:
    """Open the file of a session that was exported with these options."""
    watch = Watch("file://")
    contexts: list[BrowserContext] = []

    async def opened(session: str, *options: str) -> Page:
        file = await written(session, *options)
        context = await browser.new_context(viewport={"width": 1280, "height": 900})
        contexts.append(context)
        await watch.over(context)
        page = await context.new_page()
        await page.goto(file.as_uri())
        return await settled(page)

    yield opened
    try:
        await watch.clean(*[page for context in contexts for page in context.pages])
    finally:
        for context in contexts:
            await context.close()


async def test_a_file_keeps_the_theme_that_was_chosen(exported: Exported) -> None:
    page = await exported(stores.CHAT)
    await page.add_init_script(NOTE_FIRST_THEME)
    found = ""
    # On 3 of 84 reloads Chromium gave a file an empty storage, and the whole one on the next or on
    # none: then the choice was lost with it.
    for attempt in range(6):
        if attempt % 2 == 0:
            await choose_dark(page)
        await page.reload()
        await settled(page)
        found = await page.evaluate("firstTheme")
        if found == "dark":
            break
    assert found == "dark"
    await expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()


async def test_a_file_answers_what_was_forgotten_and_why(exported: Exported) -> None:
    page = await exported(stores.CHAT)
    await page.get_by_role("link", name=re.compile("of your messages (is|are) not in view")).click()
    card = page.get_by_role("article", name="Message 2", exact=True)
    await expect(card).to_contain_text(stores.FORGOTTEN)
    await card.get_by_role("link", name="Why message 2 is not in view").click()
    await expect(page.locator("ctx-drawer")).to_contain_text("the policy ranked it lower")
    await page.keyboard.press("ArrowLeft")
    await expect(page).to_have_url(re.compile(r"#/s/a%20long%20chat\?at=\d+"))


async def test_hostile_words_in_a_file_run_nothing(exported: Exported) -> None:
    page = await exported(hostile.SESSION)
    for keys in ((), ("ArrowLeft",) * 6, ("w", "l")):
        for key in keys:
            await page.keyboard.press(key)
        assert await page.evaluate("() => 'ran' in window") is False
        assert await unsafe_characters(page) == []


async def test_a_file_of_the_structure_holds_no_text(exported: Exported) -> None:
    page = await exported(DEMO, "--structure")
    file = await asyncio.to_thread(Path(page.url.removeprefix("file://").split("#")[0]).read_text)
    assert "Follow one message" not in file
    await expect(page.locator("ctx-sent")).to_be_visible()
    await page.keyboard.press("ArrowLeft")
    await expect(page).to_have_url(re.compile(r"at=\d+"))


async def test_a_cut_shows_its_turns_alone_and_breaks_no_rule_of_axe(exported: Exported) -> None:
    page = await exported(DEMO, "--turn", "2..3")
    for words in ("turn 3", "verified"):
        await expect(page.locator("ctx-head")).to_contain_text(words)
    assert await broken_rules(page) == []


async def test_megabytes_are_painted_before_they_are_read(browser: Browser, tmp_path: Path) -> None:
    words = [f"{number:x}" for number in range(9_973)]
    path = tmp_path / "large.html"
    async with session_of(["word"] * 3, name="large") as engine:
        ctx = await engine.session("large")
        for number in range(1_000):
            text = " ".join([words[number * place % 9_973] for place in range(2_000)])
            await ctx.add_message({"role": "user", "content": text})
        await ctx.get_messages_for_request()
        await write_exported(engine, "large", path)
    context = await browser.new_context(offline=True)
    page = await context.new_page()
    await page.goto(path.as_uri())
    await expect(page.locator("ctx-sent")).to_contain_text("#")
    painted, read = await page.evaluate(_PAINTED_AND_READ)
    assert painted < read
    await context.close()


async def test_what_is_not_shown_says_so(
    browser: Browser, written: Written, tmp_path: Path
) -> None:
    whole, cut = await written(DEMO), tmp_path / "cut.html"
    cut.write_bytes(whole.read_bytes()[:-2_000])
    said = re.compile("the session cannot be shown: the file is not whole, or this browser is too")
    old = await browser.new_context()
    await old.add_init_script("delete globalThis.DecompressionStream;")
    without_scripts = await browser.new_context(java_script_enabled=False)
    today = await browser.new_context()
    for context, file in ((old, whole), (without_scripts, whole), (today, cut)):
        page = await context.new_page()
        await page.goto(file.as_uri())
        await expect(page.get_by_text(said)).to_be_visible()
    page = await today.new_page()
    await page.goto(whole.as_uri())
    await settled(page)
    await expect(page.get_by_text(said)).to_have_count(0)
    for context in (old, without_scripts, today):
        await context.close()
