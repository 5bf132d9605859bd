"""One Chromium, one server and one watched page for all tests of the page.

To load the page takes some tenths of a second, to go to a place in it some hundredths. So a test
walks there in the page that is open, and only what has loading as its subject loads one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, StorageState, ViewportSize, expect

from tests.browser import chromium, stores
from tests.browser.inspecting import Inspector, inspecting
from tests.browser.settling import walk
from tests.browser.watching import Watch

expect.set_options(timeout=60_000)  # a condition holds within one; a loaded machine is slow

Visit = Callable[..., Awaitable[Page]]

WINDOW: Final[ViewportSize] = {"width": 1280, "height": 900}

_NEW: Final = {"color_scheme": "light", "forced_colors": "none", "reduced_motion": "no-preference"}

shared = pytest_asyncio.fixture(scope="session", loop_scope="session")


@pytest.fixture(scope="session")
def chromium_path() -> str:
    return chromium.executable()


@shared
async def browser(chromium_path: str) -> AsyncIterator[Browser]:
    async with chromium.started(chromium_path) as running:
        yield running


@shared
async def store(chromium_path: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of all tests that only read: the demonstration, its fork, and hostile sessions."""
    path = tmp_path_factory.mktemp("inspected") / "inspected.db"
    await stores.make(path)
    folder = stores.recorded_folder()
    if folder is not None:
        await stores.add_recorded(path, folder)
    return path


@shared
async def inspector(store: Path) -> AsyncIterator[Inspector]:
    async with inspecting(store) as running:
        yield running


@shared
async def signed_in(browser: Browser, inspector: Inspector) -> StorageState:
    """The cookie that the invitation was exchanged for."""
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(inspector.invitation)
    state = await context.storage_state()
    await context.close()
    return state


@shared
async def context(
    browser: Browser, inspector: Inspector, signed_in: StorageState, watch: Watch
) -> AsyncIterator[BrowserContext]:
    """The context of every page of the server; what happens in any of them is watched."""
    context = await browser.new_context(storage_state=signed_in, base_url=inspector.origin)
    await watch.over(context)
    yield context
    await context.close()


@pytest.fixture(scope="session")
def watch(inspector: Inspector) -> Watch:
    return Watch(inspector.origin)


@shared
async def walked(context: BrowserContext) -> Page:
    page = await context.new_page()
    await page.goto("/")
    return page


@pytest_asyncio.fixture(loop_scope="session")
async def visit(walked: Page, watch: Watch) -> AsyncIterator[Visit]:
    """Go to a place in the page that is open, which then is as one that was just loaded there.

    The keywords are those of Playwright's ``emulate_media``, and ``viewport``. At the end the page
    must have been clean.
    """

    async def went(path: str = "/", *, viewport: ViewportSize = WINDOW, **emulated: Any) -> Page:
        await walked.set_viewport_size(viewport)
        await walked.emulate_media(**{**_NEW, **emulated})
        return await walk(walked, path)

    yield went
    await _clean(watch, walked)


@pytest_asyncio.fixture(loop_scope="session")
async def load(context: BrowserContext, watch: Watch) -> AsyncIterator[Visit]:
    """Load a page of the server. At the end every page must have been clean."""
    pages: list[Page] = []

    async def loaded(path: str = "/") -> Page:
        page = await context.new_page()
        pages.append(page)
        await page.set_viewport_size(WINDOW)
        await page.goto(path)
        return page

    yield loaded
    try:
        await _clean(watch, *pages)
    finally:
        for page in pages:
            await page.close()


async def _clean(watch: Watch, *pages: Page) -> None:
    try:
        await watch.clean(*pages)
    finally:
        watch.found.clear()  # the next test answers for its own
