"""Bodies of a SQLite store by address: any places in any order, with few queries."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import apsw

from eventctx.log.record import Draft, make_body
from eventctx.log.store import ANY, NO_STREAM, Address, last_position
from eventctx.stores.sqlite import SqliteStore
from eventctx.stores.sqlite_queries import Queries


def record(number: int, bodies: int) -> Draft:
    made = [make_body(b"%d.%d" % (number, at), b"facts", random.randbytes) for at in range(bodies)]
    return Draft(number.to_bytes(16, "big"), "import:raw", 1, number, b"", tuple(made))


async def stored(path: Path) -> dict[str, dict[Address, bytes]]:
    """A stream, a fork of it in its middle and a fork of that one; what lies where in each."""
    draw = random.Random(7)  # noqa: S311
    store = await SqliteStore.open(path)
    places: dict[str, dict[Address, bytes]] = {}
    first = 0
    for number, (stream, parent) in enumerate((("a", None), ("b", "a"), ("c", "b"))):
        drafts = [record(first + at, draw.choice((0, 1, 1, 1, 5))) for at in range(120)]
        if parent is None:
            await store.append(stream, drafts, NO_STREAM)
        else:
            await store.fork(parent, first - 1, stream, drafts[0])
            await store.append(stream, drafts[1:], first)
        known = {} if parent is None else places[parent]
        places[stream] = {
            **{place: data for place, data in known.items() if place.position < first},
            **{
                Address(first + at, index): body.data or b""
                for at, draft in enumerate(drafts)
                for index, body in enumerate(draft.bodies)
            },
        }
        first += 80 if number == 0 else 120
    await store.close()
    return places


async def test_bodies_anywhere_in_a_line_of_forks_come_in_the_order_asked_for(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store.db"
    places = await stored(path)
    store = await SqliteStore.open(path)
    draw = random.Random(11)  # noqa: S311
    for stream, known in places.items():
        wanted = sorted(known)
        for _ in range(30):
            found = await store.bodies(stream, wanted)
            assert [body.data for body in found] == [known[place] for place in wanted]
            # Some of them in order, with gaps of every length; at times all over the place.
            wanted = [place for place in sorted(known) if draw.random() < draw.random()]
            if draw.random() < 0.3:
                draw.shuffle(wanted)
    await store.close()


async def test_bodies_with_gaps_between_them_are_one_query(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    known = (await stored(path))["a"]
    with apsw.Connection(str(path)) as connection:
        queries = Queries(connection)
        queries.lineage("a")
        asked: list[str] = []
        connection.exec_trace = lambda cursor, sql, bindings: asked.append(sql) or True
        wanted = [place for place in sorted(known) if place.index == 0 and place.position % 3]
        assert len(queries.bodies("a", wanted)) == len(wanted) > 50
        assert len(asked) == 1


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
