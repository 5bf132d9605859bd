"""Makes the pictures of Jaeger's own interface that the how-to of traces shows.

``python -m tests.browser.jaeger_pictures [FOLDER]`` plays the demonstration, sends its spans to a
Jaeger, and clicks from a search to the message that is gone, as the page tells it; so a click that
leads nowhere fails here. It writes PNG files of at most 200 kB into ``docs/pictures``.

The Jaeger that the tests build has no interface, only a page that says so. Hence two variables:
``EVENTCTX_JAEGER_UI`` names a folder with the files of the interface, and ``EVENTCTX_JAEGER`` a
Jaeger of the same release, 2.20 or newer: an older one does not answer what its search asks.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from playwright.async_api import Locator, Page, expect

from tests.browser import pictures
from tests.browser.inspecting import output_of
from tests.services import jaeger
from tests.services.jaeger_binary import find

FOLDER: Final = pictures.FOLDER
UI: Final = "EVENTCTX_JAEGER_UI"
RELEASE: Final = "2.20"
SEARCH, TURN, TAGS, MESSAGES, TIMES = FILES = (
    "jaeger-search.png",
    "jaeger-turn.png",
    "jaeger-tags.png",
    "jaeger-messages.png",
    "jaeger-times.png",
)
"""The pictures, in the order of the page."""

SHOWN_TURN: Final = 7
"""The turn of the demonstration that is opened: two compactions stand between its model calls."""

_SIZE: Final = {"width": 1280, "height": 720}
_TO_THE_TOP: Final = "bar => window.scrollBy(0, bar.getBoundingClientRect().top - 300)"
_TRACE: Final = re.compile(r"trace ([0-9a-f]{32})")


def interface(named: str | None) -> Path:
    """The folder of the interface's files; ends the program where the variable names none."""
    if not named or not Path(named, "index.html").is_file():
        sys.exit(f"set ${UI} to the folder of the built interface of Jaeger {RELEASE} or newer")
    return Path(named).resolve()


async def make(folder: Path) -> list[Path]:
    ui, binary = interface(os.environ.get(UI)), find()
    async with pictures.demonstrated() as (_, browser):
        told = await output_of("trace", "demo", "--turn", SHOWN_TURN)
        found = _TRACE.search(told)
        assert found, told[:200]
        page = await browser.new_page(viewport=_SIZE, **pictures.LOOK)
        with jaeger.start(binary, ui=ui) as running:
            await output_of("trace", "demo", "--otlp", running.http_base)
            written = await _clicks(page, running.query, found[1], folder)
        # Of a span that it has Jaeger takes no second edition, so texts go to another one.
        with jaeger.start(binary, ui=ui) as worded:
            await output_of("trace", "demo", "--content", "--otlp", worded.http_base)
            written.append(await _messages(page, worded.query, found[1], folder))
        return written


async def _clicks(page: Page, base: str, trace: str, folder: Path) -> list[Path]:
    """From the search to the compaction, with one click a picture; then what took how long."""
    question = {"service": "eventctx", "operation": "compact workset", "lookback": "1h"}
    await page.goto(f"{base}/search?{urlencode(question)}&limit=20")
    result = page.locator(f"a[href*='/trace/{trace}']").first
    await expect(result).to_be_visible()
    written = [await _shot(page, folder / SEARCH)]
    await result.click()
    bar = _bar(page)
    await expect(bar).to_be_visible()
    written.append(await _shot(page, folder / TURN))
    await bar.click()
    await page.get_by_role("tab", name="Details").click()
    # The first tag, which the tests find to be the sentence, is read without opening the others.
    await expect(page.locator(".AccordionAttributes--header").first).to_contain_text("over budget")
    await page.locator(".AccordionAttributes--header").first.click()
    await bar.evaluate(_TO_THE_TOP)
    written.append(await _shot(page, folder / TAGS))
    await page.evaluate("scrollTo(0, 0)")  # the next view would keep the place of this one
    await page.locator(".AltViewOptions").click()
    # A click of the mouse would pass a menu that opens below it.
    times = page.get_by_role("button", name="Trace Flamegraph", exact=True)
    await times.dispatch_event("click")
    await expect(page.locator(".d3-flame-graph-label").first).to_be_visible()
    written.append(await _shot(page, folder / TIMES))
    return written


async def _messages(page: Page, base: str, trace: str, folder: Path) -> Path:
    """The messages that the compaction took out, where contents were sent."""
    await page.goto(f"{base}/trace/{trace}")
    bar = _bar(page)
    await bar.click()
    await expect(page.get_by_role("heading", name="Conversation")).to_be_visible()
    await bar.evaluate(_TO_THE_TOP)
    return await _shot(page, folder / MESSAGES)


def _bar(page: Page) -> Locator:
    """The second compaction of the turn: the one that took a person's words."""
    return page.locator(".span-row", has_text="compact workset").nth(1).locator(".span-view")


async def _shot(page: Page, path: Path) -> Path:
    await expect(page.locator(".LoadingIndicator")).to_have_count(0)
    await page.mouse.move(0, 0)  # what lies below the pointer is drawn in another colour
    return await pictures.shot(page, path)


if __name__ == "__main__":
    pictures.main(make)
