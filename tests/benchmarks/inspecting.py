"""The inspector's page in a real browser, a file of it, and what a program asks of it by MCP."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from statistics import median
from typing import Any

import eventctx
from tests.benchmarks.questions import long_store
from tests.benchmarks.rows import Row, target, unmeasured
from tests.benchmarks.timing import EVENTCTX, Place, Samples, ran
from tests.benchmarks.workload import SESSION

HUGE = 50_000_000

_PAINTED = """async () => {
  const found = () => performance.getEntriesByName('first-contentful-paint')[0];
  while (!found()) await new Promise((done) => setTimeout(done, 5));
  return found().startTime;
}"""


async def measure(place: Place) -> list[Row]:
    return [await _paint(place), await _shell(place), await _mcp(place)]


async def _paint(place: Place) -> Row:
    try:
        from tests.browser import chromium
        from tests.browser.inspecting import inspecting, path_of
    except ImportError as error:
        return unmeasured("paint", str(error))
    path = chromium.found()
    if path is None:
        return unmeasured("paint", chromium.MISSING)
    store, taken = await long_store(place), []
    async with chromium.started(path) as browser, inspecting(store) as inspector:
        context = await browser.new_context(base_url=inspector.origin)
        context.set_default_timeout(180_000)
        await (await context.new_page()).goto(inspector.invitation)
        # The first visit folds the session, and fills the browser's cache.
        for _ in range(place.count(6, 3)):
            page = await context.new_page()
            await page.goto(path_of(SESSION))
            taken.append(await page.evaluate(_PAINTED))
            await page.close()
    return target("paint", median(taken[1:]), note=f"the very first {taken[0]:.0f} ms")


async def _shell(place: Place) -> Row:
    store, file = place.path("small.db"), place.path("small.html")
    async with eventctx.open(store) as engine:
        context = await engine.session("small")
        await context.add_message({"role": "user", "content": "Count the files."})
    ran("-c", EVENTCTX, "inspect", "small", "--store", store, "--html", file)
    return target("shell", file.stat().st_size / 1e3, note="with a session of one message")


async def _mcp(place: Place) -> Row:
    try:
        from mcp import Client

        from eventctx.mcp.server import mcp_server
    except ImportError as error:
        return unmeasured("mcp", str(error))
    samples, number = Samples(), 2
    async with eventctx.open(place.path("huge.db")) as engine:
        context = await engine.session("huge", max_tokens=10**9)
        line, use = "a line of a large result\n", {"id": "call_1", "name": "read", "input": {}}
        result = {"tool_use_id": "call_1", "content": line * (HUGE // len(line))}
        for message in (
            {"role": "user", "content": "Read it."},
            {"role": "assistant", "content": [{"type": "tool_use", **use}]},
            {"role": "user", "content": [{"type": "tool_result", **result}]},
        ):
            await context.add_message(message)
        await context.get_messages_for_request()
        one: dict[str, Any] = {"message": number}
        calls: dict[str, dict[str, Any]] = {"recall": one, "why": one, "view": {}, "lost": {}}
        server = mcp_server(lambda: nullcontext(engine), project=place.folder)
        async with Client(server) as client:
            for name, arguments in calls.items():
                asked = {"session": "huge", **arguments}
                answer = await samples.time(name, partial(client.call_tool, name, asked))
                assert not answer.is_error, answer.content
    slowest = max(calls, key=samples.seconds)
    note = ", ".join(f"{name} {samples.seconds(name):.2f}" for name in calls)
    return target("mcp", samples.seconds(slowest), note=f"{note} s of processor time")
