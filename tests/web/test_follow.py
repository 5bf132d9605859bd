"""A session that another process writes grows on the page, and nobody waits for a slow reader."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventctx.web.follow import MOST_STREAMS

WRITER = """
import asyncio, json, sys, time
import eventctx

async def main():
    async with eventctx.open(sys.argv[1]) as engine:
        context = await engine.session("work", max_tokens=10_000_000)
        print("ready", flush=True)
        for line in sys.stdin:
            count, size = json.loads(line)
            took = []
            for number in range(count):
                begun = time.perf_counter()
                await context.add_message({"role": "user", "content": f"{number} " + "x" * size})
                took.append(time.perf_counter() - begun)
            head = (await engine.store.head("work")).head
            print(json.dumps([time.time(), head, took]), flush=True)

asyncio.run(main())
"""


class Writer:
    """A process that appends messages to ``work`` on demand."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._read() == "ready"

    def append(self, count: int = 1, size: int = 10) -> tuple[float, int, list[float]]:
        """The time of day when the last append was durable, the head, and each one's seconds."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([count, size]) + "\n")
        self._process.stdin.flush()
        at, head, took = json.loads(self._read())
        return at, head, took

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        self._process.communicate(timeout=60)


@pytest.fixture
def writer(store: Path) -> Iterator[Writer]:
    made = Writer(store)
    yield made
    made.close()


def test_a_stream_begins_with_what_the_page_lacks(served) -> None:
    whole = served.get("/api/s/work/timeline").document
    stream = served.open_stream("/api/s/work/follow?after=-1")
    assert stream.status == 200
    assert stream.headers["content-type"] == "text/event-stream"
    assert stream.headers["cache-control"] == "no-store"
    event = stream.event()
    assert (event.name, event.id, event.data) == ("timeline", str(whole["head"]), whole)
    stream.close()
    late = served.open_stream("/api/s/work/follow?after=40")
    assert late.event().data == served.get("/api/s/work/timeline?after=40").document
    late.close()


def test_a_connection_that_was_lost_goes_on_without_a_gap(serving, store, writer) -> None:
    served = serving(store)
    whole = served.get("/api/s/work/timeline").document
    seen = list(whole["messages"]["position"])
    stream = served.open_stream(f"/api/s/work/follow?after={whole['head']}")
    writer.append(3)
    event = stream.event()
    seen += event.data["messages"]["position"]
    stream.close()
    writer.append(5)
    again = served.open_stream(
        f"/api/s/work/follow?after={whole['head']}", f"Last-Event-ID: {event.id}"
    )
    _, head, _ = writer.append(2)
    while event.data["head"] < head:
        event = again.event()
        seen += event.data["messages"]["position"]
    again.close()
    assert seen == served.get("/api/s/work/timeline").document["messages"]["position"]


def test_a_burst_is_few_events(serving, store, writer) -> None:
    served = serving(store)
    head = served.get("/api/s/work/timeline").document["head"]
    stream = served.open_stream(f"/api/s/work/follow?after={head}")
    _, last, took = writer.append(300)
    events = []
    while not events or events[-1].data["head"] < last:
        events.append(stream.event())
    _, last, _ = writer.append(1)
    events.append(stream.event())
    assert events[-1].data["head"] == last
    stream.close()
    assert len(events) < 30 + sum(took) / 0.04
    assert all(event.data["messages"]["position"] for event in events)


def test_a_reader_that_does_not_read_keeps_neither_others_nor_the_writer_waiting(
    serving, store, writer
) -> None:
    served = serving(store)
    head = served.get("/api/s/work/timeline").document["head"]
    quiet = sorted(writer.append(200)[2])[100]
    # None of these reads one byte: each holds one event in its socket, and has no queue.
    slow = [served.open_stream("/api/s/work/follow?after=-1") for _ in range(20)]
    stream = served.open_stream(f"/api/s/work/follow?after={head}")
    busy = sorted(writer.append(200)[2])[100]
    at, last, _ = writer.append(1)
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


def test_a_session_that_was_deleted_is_told(serving, store) -> None:
    served = serving(store)
    head = served.get("/api/s/work/timeline").document["head"]
    stream = served.open_stream(f"/api/s/work/follow?after={head}")
    program = (
        "import asyncio, sys, eventctx\n"
        "async def main():\n"
        "    async with eventctx.open(sys.argv[1]) as engine:\n"
        "        await engine.delete('work')\n"
        "asyncio.run(main())\n"
    )
    subprocess.run([sys.executable, "-c", program, str(store)], check=True)
    event = stream.event()
    assert event.name == "trouble"
    assert "work" in event.data["error"]
    assert stream.event() is None
    stream.close()
    assert served.get("/api/s/work/timeline").status == 404
