"""Debian's Chromium under Playwright: where it is, and how it is started here.

Playwright's own download is not used: what a distribution packages is what people can check. The
shell without windows is the same engine, and takes a fifth less time. As root Chromium runs without
its sandbox. The other flags keep it from calling its maker's hosts, so that what a page asks for is
all that goes out.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest
from playwright.async_api import Browser, async_playwright

in_the_browser: Final = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.slow,
    pytest.mark.xdist_group("browser"),
]
"""Marks of a file of these tests: one loop holds the one Chromium that all of them share."""

FLAGS: Final = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--renderer-process-limit=1",  # a process for each page, and a spare one, took half the time
)

NAMES: Final = ("chromium-headless-shell", "chromium")

MISSING: Final = (
    f"no Chromium on the PATH: install Debian's package `{NAMES[0]}` or `{NAMES[1]}`, or name a "
    "Chromium in EVENTCTX_CHROMIUM"
)


def found() -> str | None:
    named = os.environ.get("EVENTCTX_CHROMIUM")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


def executable() -> str:
    """Chromium's path. Without one the test is skipped; with CI=true it fails."""
    path = found()
    if path is not None:
        return path
    if os.environ.get("CI") == "true":
        pytest.fail(MISSING)
    pytest.skip(MISSING)


@asynccontextmanager
async def started(path: str, *flags: str) -> AsyncIterator[Browser]:
    """A headless Chromium until the end of the block."""
    root = ("--no-sandbox",) if hasattr(os, "geteuid") and os.geteuid() == 0 else ()
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=path, args=[*FLAGS, *root, *flags])
        try:
            yield browser
        finally:
            await browser.close()
