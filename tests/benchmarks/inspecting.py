"""The inspector's page in a real browser: how soon it is there, and how smoothly it goes.

The session is as long as the goals say, with turns, tools and compactions. Chromium has no GPU
here, and nothing is throttled unless a row says so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Final

from playwright.async_api import Browser, BrowserContext, Page

from tests.benchmarks import long_session, page_probes
from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row, missing
from tests.benchmarks.timing import quantile
from tests.browser import chromium
from tests.browser.inspecting import Inspector, inspecting, output_of, path_of
from tests.browser.settling import settled
from tests.browser.writing import note_words, shown_at, writing

FIGURE = "inspect"
NAME = "long"

PAINT_MS: Final = 200.0
RIVER_MS: Final = 1_000.0
STEP_MS: Final = 16.0
TASK_MS: Final = 50.0
VIEW_MS: Final = 150.0
MEMORY_MB: Final = 150.0
SHELL_KB: Final = 80.0
EXPORT_MB: Final = 6.0
OPEN_MS: Final = 1_000.0
PIXEL_MS: Final = 250.0
SAME: Final = 1.1
"""More than this between an append with a page open and one without is a slower append."""

SLOWED: Final = 4.0
"""How many times slower the processor is made for the rows that say so."""

_WINDOW: Final = {"width": 1440, "height": 900}


async def measure(place: Place) -> list[Row]:
    path = chromium.found()
    if path is None:
        return [missing(FIGURE, "the page", chromium.MISSING)]
    async with chromium.started(path) as browser:
        return [
            *await long(place, browser),
            *await live(place, browser),
            *await exported(place, browser),
        ]


async def _signed_in(browser: Browser, inspector: Inspector) -> BrowserContext:
    context = await browser.new_context(base_url=inspector.origin, viewport=_WINDOW)
    await context.add_init_script(page_probes.NOTE)
    page = await context.new_page()
    await page.goto(inspector.invitation)
    await page.close()
    return context


# -- a long session --------------------------------------------------------------------------------


async def long(place: Place, browser: Browser) -> list[Row]:
    """The first paint, the river, a step, a jump and the memory of a long session's page."""
    store = place.path("long.db")
    length = place.count(100_000)
    records = await long_session.make(store, NAME, length)
    of = f"{length:,} messages"
    async with inspecting(store) as inspector:
        context = await _signed_in(browser, inspector)
        cold, _ = await _opened(context, path_of(NAME))
        visits = [await _opened(context, path_of(NAME)) for _ in range(place.count(5, 2))]
        page = visits[-1][1]
        rows = [
            _row(f"{of}: first paint", [one[0] for one, _ in visits], PAINT_MS),
            _row(
                f"{of}: the river is drawn",
                [one[2] for one, _ in visits],
                RIVER_MS,
                f"{records:,} records; the very first time {cold[2]:,.0f} ms",
            ),
            *await _steps(place, page, of),
            await _views(place, page, of),
            Row(
                figure=FIGURE,
                name=f"{of}: memory of the page",
                value=await page_probes.memory(page),
                unit="MB",
                limit=MEMORY_MB,
                note="its scripts' heap and buffers and its document, after a collection",
            ),
        ]
        await context.close()
        return rows


async def _opened(context: BrowserContext, path: str) -> tuple[tuple[float, float, float], Page]:
    for other in context.pages:
        await other.close()
    page = await context.new_page()
    await page.goto(path)
    return await page_probes.painted(page), page


async def _steps(place: Place, page: Page, of: str) -> list[Row]:
    await settled(page)
    count = place.count(300, 100)
    rows: list[Row] = []
    for times in (1.0, SLOWED):
        await page_probes.throttled(page, times)
        taken = await page.evaluate(page_probes.STEP, ["ArrowLeft", count])
        tasks = await page.evaluate("() => window.longTasks")
        name = f"{of}: a step of {count}" + ("" if times == 1 else f", {times:g} × slower")
        at_full_speed = times == 1
        rows += [
            Row(
                figure=FIGURE,
                name=f"{name}, p95",
                value=quantile(taken, 0.95),
                unit="ms",
                limit=STEP_MS if at_full_speed else None,
                note=f"p50 {median(taken):.1f}, most {max(taken):.1f} ms; handlers and frame",
            ),
            Row(
                figure=FIGURE,
                name=f"{name}, longest task",
                value=max(tasks, default=0.0),
                unit="ms",
                limit=TASK_MS if at_full_speed else None,
                note=f"{len(tasks)} of more than 50 ms",
            ),
        ]
    await page_probes.throttled(page, 1.0)
    return rows


async def _views(place: Place, page: Page, of: str) -> Row:
    count = place.count(40, 10)
    taken: list[float] = await page.evaluate(page_probes.JUMP, count)
    return _row(
        f"{of}: a view with its texts, anywhere, p95",
        [quantile(taken, 0.95)],
        VIEW_MS,
        f"p50 {median(taken):.0f} ms of {count} jumps",
    )


def _row(name: str, milliseconds: Sequence[float], limit: float | None, note: str = "") -> Row:
    return Row(
        figure=FIGURE, name=name, value=median(milliseconds), unit="ms", limit=limit, note=note
    )


# -- a session that grows --------------------------------------------------------------------------


async def live(place: Place, browser: Browser) -> list[Row]:
    """What an open page costs the agent that writes, and how soon it shows what was written."""
    rounds = place.count(200, 50)
    alone = await _appends(place, rounds, None)
    watched = await _appends(place, rounds, browser)
    return [
        Row(
            figure=FIGURE,
            name="append with a page open, median",
            value=median(took for took, _ in watched),
            unit="ms",
            against="without",
            floor=median(took for took, _ in alone),
            limit=SAME,
            note=f"{rounds} rounds of another process; p95 "
            f"{quantile([took for took, _ in watched], 0.95):.2f} against "
            f"{quantile([took for took, _ in alone], 0.95):.2f} ms",
        ),
        Row(
            figure=FIGURE,
            name="append to pixel, median",
            value=median(shown for _, shown in watched),
            unit="ms",
            limit=PIXEL_MS,
            note=f"p95 {quantile([shown for _, shown in watched], 0.95):.0f} ms",
        ),
    ]


async def _appends(place: Place, rounds: int, browser: Browser | None) -> list[tuple[float, float]]:
    """Of each round: milliseconds of an append, and from it to the page that shows it."""
    store = place.path("live.db")
    found: list[tuple[float, float]] = []
    async with AsyncExitStack() as stack:
        writer = await stack.enter_async_context(writing(store))
        await writer.says(NAME, "word-0")
        page: Page | None = None
        if browser is not None:
            inspector = await stack.enter_async_context(inspecting(store))
            context = await _signed_in(browser, inspector)
            page = await context.new_page()
            await page.goto(path_of(NAME))
            await settled(page)
            await note_words(page)
        for number in range(1, rounds + 1):
            appended = await writer.says(NAME, f"word-{number}")
            shown = 0.0
            if page is not None:
                shown = await shown_at(page, f"word-{number}") - appended.at
            found.append((appended.took, shown))
        if page is not None:
            await page.context.close()
    return found


# -- an exported file ------------------------------------------------------------------------------


async def exported(place: Place, browser: Browser) -> list[Row]:
    """The size of an exported session, and how soon it opens from the disk."""
    length = place.count(10_000)
    store = place.path("exported.db")
    await long_session.make(store, NAME, length)
    await long_session.make(store, "small", 1)
    small, large = place.path("small.html"), place.path("large.html")
    await output_of("inspect", "small", "--store", store, "--html", small)
    began = time.perf_counter()
    await output_of("inspect", NAME, "--store", store, "--html", large)
    took = time.perf_counter() - began
    painted = [await _opened_file(browser, large) for _ in range(place.count(5, 2))]
    sizes = await asyncio.to_thread(lambda: [path.stat().st_size for path in (small, large)])
    return [
        Row(
            figure=FIGURE,
            name="export: the page itself",
            value=sizes[0] / 1e3,
            unit="kB",
            limit=SHELL_KB,
            note="with a session of one turn",
        ),
        Row(
            figure=FIGURE,
            name=f"export: {length:,} messages",
            value=sizes[1] / 1e6,
            unit="MB",
            limit=EXPORT_MB,
            note=f"written in {took:.1f} s",
        ),
        _row(
            f"export: {length:,} messages, the river is drawn",
            [one[2] for one in painted],
            OPEN_MS,
            f"first paint {median(one[0] for one in painted):.0f} ms",
        ),
    ]


async def _opened_file(browser: Browser, path: Path) -> tuple[float, float, float]:
    context = await browser.new_context(viewport=_WINDOW)
    await context.add_init_script(page_probes.NOTE)
    found, _ = await _opened(context, path.as_uri())
    await context.close()
    return found
