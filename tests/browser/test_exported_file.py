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

pytestmark = in_the_browser

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


async def test_messages_of_a_file_are_chosen_by_who_spoke_and_a_failure(exported: Exported) -> None:
    page = await exported(DEMO)
    await page.keyboard.press("/")
    says = page.locator("ctx-search .lead")
    await page.get_by_label("Failed results").check()
    await expect(says).to_have_text(re.compile("^5 messages; marked on the river"))
    await page.get_by_role("combobox", name="Said by").select_option("person")
    await expect(says).to_have_text("No message is like that in this session.")
    await page.get_by_label("Failed results").uncheck()
    await expect(says).to_have_text(re.compile("^13 messages"))
    await page.get_by_label("to", exact=True).fill("2020-01-01")
    await expect(says).to_have_text("No message is like that in this session.")


async def test_a_file_keeps_the_theme_that_was_chosen(exported: Exported) -> None:
    page = await exported(stores.CHAT)
    await choose_dark(page)
    await page.add_init_script(NOTE_FIRST_THEME)
    await page.reload()
    await settled(page)
    assert await page.evaluate("firstTheme") == "dark"
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


async def test_a_file_marks_what_a_person_demanded(exported: Exported) -> None:
    page = await exported(stores.TOLD)
    await page.keyboard.press("l")
    card = page.get_by_role("article", name="Message 0", exact=True)
    await expect(card.locator("mark")).to_have_text(stores.DEMAND)


async def test_axe_finds_nothing_in_a_file(exported: Exported) -> None:
    page = await exported(DEMO)
    assert await broken_rules(page) == []


async def test_hostile_words_in_a_file_run_nothing(exported: Exported) -> None:
    page = await exported(hostile.SESSION)
    assert await page.evaluate("() => 'ran' in window") is False
    assert await unsafe_characters(page) == []
    for key in ["ArrowLeft"] * 6 + ["w", "l"]:
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


async def test_a_file_that_cannot_be_shown_says_so(
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
