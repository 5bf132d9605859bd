# ruff: noqa: T201
"""What processes of their own do to a store: run with the name of a function and its arguments."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from pathlib import Path

import apsw

from eventctx.errors import EventctxError, StoreFull, WrongExpectedVersion
from eventctx.log.store import ANY
from eventctx.stores.location import open_store
from eventctx.stores.sqlite import SqliteStore
from eventctx.testing.store_contract.drafts import make_draft


async def write(path: str) -> None:
    """Append to the session "s" until killed; print each receipt."""
    store, last = await SqliteStore.open(path), -1
    while True:
        bodies = [[os.urandom(700)] * (1 + place % 2) for place in range(3)]
        done = await store.append("s", [make_draft(*one) for one in bodies], last)
        last = done.receipt.position
        # One write call for each line, so that a killed process leaves whole lines.
        os.write(1, f"{done.receipt}\n".encode())


async def compete(url: str, name: str, count: str) -> None:
    """Append to a shared stream and to an own one; prints the positions won in the shared one."""
    store = await open_store(url)
    for number in range(int(count)):
        seeds = [f"{name} {number} {one}" for one in range(3)]
        first, second, shared = (make_draft(seed=seed) for seed in seeds)
        await store.append(name, [first, second], 2 * number - 1)
        expected, won = -1, None
        while won is None:
            try:
                won = (await store.append("shared", [shared], expected)).receipt.position
            except WrongExpectedVersion as conflict:
                expected = conflict.actual
        print(won)
    await store.close()


async def leave(path: str, count: str) -> None:
    store = await open_store(path)
    for number in range(int(count)):
        store.append("s", [make_draft()], number - 1)


async def hold(path: str) -> None:
    """Read a store and keep its state alive until killed."""
    rows = apsw.Connection(path).execute("SELECT * FROM records")
    next(rows)
    print("reading", flush=True)
    await asyncio.sleep(1_000)


async def erase(path: str, what: str) -> None:
    """Erase message 0 of session "s", or delete the session."""
    import eventctx

    async with eventctx.open(path, receipts=False, lock_timeout=0.2) as engine:
        await engine.recall("whatever")
        print("ready", flush=True)
        if what == "erase":
            await engine.erase("s", [0])
        else:
            await engine.delete("s", forks=True)
        print("done", flush=True)


async def open_and_append(path: str) -> None:
    """Open a store, say so, and append a record at each line of the input."""
    print("opening", flush=True)
    try:
        store = await SqliteStore.open(path, lock_timeout=30)
    except EventctxError as error:
        print(type(error).__name__, error, flush=True)
        return
    print("opened", flush=True)
    for number, _ in enumerate(sys.stdin):
        done = await store.append("other", [make_draft(seed=f"{os.getpid()} {number}")], ANY)
        print(done.receipt, flush=True)
    await store.close()


async def open_twice(path: str) -> None:
    """Append messages by one engine until killed, while a second one opens and closes.

    Prints the receipts, and "opened" when the second engine was open.
    """
    import eventctx

    async with eventctx.open(path) as engine:
        context = await engine.session("kept")
        for number in itertools.count():
            receipt = await context.add_message({"role": "user", "content": f"message {number}"})
            print(receipt, flush=True)
            if number == 20:
                async with eventctx.open(path) as second:
                    await second.sessions()
                print("opened", flush=True)


async def search(path: str, word: str, times: str) -> None:
    """Print how many messages hold a word; delete the index and begin anew so many times."""
    from eventctx.search.recall import Recall
    from eventctx.search.sqlite_index import SqliteTextIndex

    store = await SqliteStore.open(path)
    recall = Recall(store, SqliteTextIndex(Path(path)))
    for left in range(int(times), -1, -1):
        found = await recall.search(word, limit=1000)
        os.write(1, f"{len(found)}\n".encode())
        if left:
            Path(f"{path}.eventctx-recall").unlink(missing_ok=True)  # noqa: ASYNC240
    await recall.close()
    await store.close()


async def back_up_with_a_limit(path: str, target: str, size: str) -> None:
    """Back a store up to a file that may not grow past a size, and then without a limit."""
    import resource

    store = await SqliteStore.open(path)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), hard))
    try:
        await store.backup(target)
    except StoreFull as error:
        print("full", error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    await store.backup(target)
    print("backed up")
    await store.close()


def killed_before(step: str, folder: Path) -> None:
    """Be killed before a step, from 0: a change of a name, right or content in a folder."""
    left = int(step)

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        steps = ("os.link", "os.rename", "os.remove", "os.chmod", "os.chown", "open")
        if event in steps and str(folder) in str(arguments[0]):
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

    sys.addaudithook(count)


async def back_up(path: str, target: str, step: str) -> None:
    """Back a store up until a step; prints "done" if there are fewer."""
    store = await SqliteStore.open(path)
    killed_before(step, Path(target).parent)
    await store.backup(target)
    await store.close()
    print("done")


async def restore(backup: str, path: str, step: str) -> None:
    """Restore a store until a step; prints "done" if there are fewer."""
    from eventctx.stores.sqlite_backup import fetch_copy, put_in_place

    killed_before(step, Path(path).parent)
    with fetch_copy(Path(backup), Path(path)) as copy:
        put_in_place(copy, Path(path), replace=True)
    print("done")


if __name__ == "__main__":
    asyncio.run(globals()[sys.argv[1]](*sys.argv[2:]))
