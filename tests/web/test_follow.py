"""A session that another process writes grows on the page, and nobody waits for a slow reader."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eventctx.web.follow import MOST_STREAMS
from tests.children import started

WRITER = """
import asyncio, json, sys, time
import eventctx

async def main():
    async with eventctx.open(sys.argv[1]) as engine:
        context = await engine.session("work", max_tokens=10_000_000)
        print("ready", flush=True)
        for line in sys.stdin:
            took = []
            for number in range(int(line)):
                begun = time.perf_counter()
                await context.add_message({"role": "user", "content": f"{number} xxxxxxxxxx"})
                took.append(time.perf_counter() - begun)
            head = (await engine.store.head("work")).head
            print(json.dumps([time.time(), head, took]), flush=True)

asyncio.run(main())
"""


Append = Callable[[int], tuple[float, int, list[float]]]


@pytest.fixture
def append(store: Path) -> Iterator[Append]:
    """A process that appends so many messages to ``work``.

    It tells the time of day when the last append was durable, the head, and each one's seconds.
    """
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with started([sys.executable, "-c", WRITER, store], **pipes) as process:

        def appended(count: int) -> tuple[float, int, list[float]]:
            process.stdin.write(f"{count}\n")
            process.stdin.flush()
            at, head, took = json.loads(process.stdout.readline())
            return at, head, took

        assert process.stdout.readline() == "ready\n"
        yield appended


def test_a_stream_begins_with_what_the_page_lacks(served) -> None:
    whole = served.get("/api/s/work/timeline").document
    stream = served.open_stream("/api/s/work/follow?after=-1")
    kinds = [stream.headers[name] for name in ("content-type", "cache-control")]
    assert (stream.status, kinds) == (200, ["text/event-stream", "no-store"])
    event = stream.event()
    assert (event.name, event.id, event.data) == ("timeline", str(whole["head"]), whole)
    stream.close()
    late = served.open_stream("/api/s/work/follow?after=40")
    assert late.event().data == served.get("/api/s/work/timeline?after=40").document
    late.close()


def test_a_connection_that_was_lost_goes_on_without_a_gap(serving, store, append) -> None:
    served = serving(store)
    whole = served.get("/api/s/work/timeline").document
    seen = list(whole["messages"]["position"])
    stream = served.open_stream(f"/api/s/work/follow?after={whole['head']}")
    append(3)
    event = stream.event()
    seen += event.data["messages"]["position"]
    stream.close()
    append(5)
    target = f"/api/s/work/follow?after={whole['head']}"
    again = served.open_stream(target, f"Last-Event-ID: {event.id}")
    _, head, _ = append(2)
    while event.data["head"] < head:
        event = again.event()
        seen += event.data["messages"]["position"]
    again.close()
    assert seen == served.get("/api/s/work/timeline").document["messages"]["position"]


def test_a_burst_is_few_events(serving, store, append) -> None:
    served = serving(store)
    head = served.get("/api/s/work/timeline").document["head"]
    stream = served.open_stream(f"/api/s/work/follow?after={head}")
    _, last, took = append(300)
    events = []
    while not events or events[-1].data["head"] < last:
        events.append(stream.event())
    _, last, _ = append(1)
    events.append(stream.event())
    assert events[-1].data["head"] == last
    stream.close()
    assert len(events) < 30 + sum(took) / 0.04
    assert all(event.data["messages"]["position"] for event in events)


def test_a_reader_that_does_not_read_keeps_nobody_waiting(serving, store, append) -> None:
    served = serving(store)
    head = served.get("/api/s/work/timeline").document["head"]
    quiet = sorted(append(200)[2])[100]
    # None of these reads one byte: each holds one event in its socket, and has no queue.
    slow = [served.open_stream("/api/s/work/follow?after=-1") for _ in range(20)]
    stream = served.open_stream(f"/api/s/work/follow?after={head}")
    busy = sorted(append(200)[2])[100]
    at, last, _ = append(1)
    event = stream.event()
    while event.data["head"] < last:
        event = stream.event()
    assert time.time() - at < 5
    assert busy < max(10 * quiet, 0.05), (quiet, busy)
    for one in (*slow, stream):
        one.close()


def test_there_are_so_many_streams_and_no_more_and_a_closed_one_makes_room(served) -> None:
    head = served.get("/api/s/work/timeline").document["head"]
    target = f"/api/s/work/follow?after={head}"
    streams = [served.open_stream(target) for _ in range(200)]
    statuses = [one.status for one in streams]
    assert statuses == [200] * MOST_STREAMS + [503] * (200 - MOST_STREAMS)
    assert served.get("/api/about").status == 200
    for one in streams:
        one.close()
    deadline = time.monotonic() + 60
    while (again := served.open_stream(target)).status != 200:
        again.close()
        assert time.monotonic() < deadline
    again.close()


def test_a_session_that_was_deleted_is_told(serving, run, store) -> None:
    served = serving(store)
    head = served.get("/api/s/work/timeline").document["head"]
    stream = served.open_stream(f"/api/s/work/follow?after={head}")
    run("delete", "work", "--yes").ok()
    event = stream.event()
    assert (event.name, "work" in event.data["error"]) == ("trouble", True)
    assert stream.event() is None
    stream.close()
    assert served.get("/api/s/work/timeline").status == 404
