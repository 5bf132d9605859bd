"""One Chromium and one server for all tests of the page, and a clean, watched page for each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, StorageState, expect

from tests.browser import chromium, stores
from tests.browser.inspecting import Inspector, inspecting
from tests.browser.watching import Watch

expect.set_options(timeout=10_000)

Visit = Callable[..., Awaitable[Page]]

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


@pytest_asyncio.fixture(loop_scope="session")
async def watch(inspector: Inspector) -> Watch:
    return Watch(inspector.origin)


@pytest_asyncio.fixture(loop_scope="session")
async def visit(
    browser: Browser, inspector: Inspector, signed_in: StorageState, watch: Watch
) -> AsyncIterator[Visit]:
    """Open a page of the server. At the end every page must have been clean.

    The keywords are those of Playwright's ``new_context``: ``viewport``, ``color_scheme``,
    ``forced_colors``, ``reduced_motion``, ``device_scale_factor``.
    """
    contexts: list[BrowserContext] = []

    async def opened(path: str = "/", **emulated: Any) -> Page:
        emulated.setdefault("viewport", {"width": 1280, "height": 900})
        context = await browser.new_context(
            storage_state=signed_in, base_url=inspector.origin, **emulated
        )
        contexts.append(context)
        await watch.over(context)
        page = await context.new_page()
        await page.goto(path)
        return page

    yield opened
    pages = [page for context in contexts for page in context.pages]
    try:
        await watch.clean(*pages)
    finally:
        for context in contexts:
            await context.close()
