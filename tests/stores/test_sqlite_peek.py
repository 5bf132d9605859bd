"""A peek at the end of a stream: other processes' commits are in it, and it waits for nothing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import apsw

from eventctx.log.record import Draft
from eventctx.log.store import ANY, last_position
from eventctx.stores.sqlite import SqliteStore

APPENDING = """
import asyncio, sys
from eventctx.log.store import ANY
from eventctx.stores.sqlite import SqliteStore
from eventctx.testing.store_contract.drafts import make_draft

async def main():
    store = await SqliteStore.open(sys.argv[1])
    for line in sys.stdin:
        done = await store.append("s", [make_draft()], ANY)
        print(done.receipt.position, flush=True)

asyncio.run(main())
"""


async def test_a_commit_of_another_process_is_seen_at_once(
    path: Path, draft: Callable[..., Draft]
) -> None:
    store = await SqliteStore.open(path)
    assert store.peek("s") == -1
    with subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", APPENDING, path],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as other:  # fmt: skip
        assert other.stdin is not None
        assert other.stdout is not None
        for _ in range(30):
            print("one more", file=other.stdin, flush=True)
            said = await asyncio.to_thread(other.stdout.readline)
            assert store.peek("s") == int(said)
            done = await store.append("s", [draft()], ANY)
            assert store.peek("s") == done.receipt.position
        other.stdin.close()
    await store.close()


async def test_it_does_not_wait_while_another_process_writes(
    path: Path, draft: Callable[..., Draft]
) -> None:
    store = await SqliteStore.open(path)
    await store.append("s", [draft()], ANY)
    writer = apsw.Connection(str(path))
    writer.execute("BEGIN IMMEDIATE; UPDATE streams SET created = created")
    assert store.peek("s") == 0
    writer.execute("ROLLBACK")
    writer.close()
    await store.close()


async def test_several_threads_may_ask_while_others_write(
    path: Path, draft: Callable[..., Draft]
) -> None:
    store = await SqliteStore.open(path)
    wrong: list[object] = []
    ended = threading.Event()

    def ask() -> None:
        last = -1
        try:
            while not ended.is_set():
                found = store.peek("s")
                if found is not None and found < last:
                    wrong.append((found, last))
                last = max(last, found or -1)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        await store.append("s", [draft()], ANY)
    ended.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert store.peek("s") == 49
    await store.close()


async def test_where_it_has_no_answer_the_head_is_asked_for(
    path: Path, draft: Callable[..., Draft]
) -> None:
    store = await SqliteStore.open(path)
    await store.append("s", [draft()], ANY)
    beside = await SqliteStore.open(path)
    await beside.close()
    assert beside.peek("s") is None
    assert store.peek("s") == 0
    peek = store._file._peek
    with peek._lock:  # as while another thread asks
        assert store.peek("s") is None
        assert await last_position(store, "s") == 0
    await store.close()
