"""A copy that is killed at any moment leaves whole records, and is gone on with."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from subprocess import DEVNULL

import apsw
import pytest
from click.testing import CliRunner

import eventctx
from eventctx.cli.main import cli
from eventctx.stores.sqlite import SqliteStore
from tests.queries.copying.test_copying import talk, whole

pytestmark = pytest.mark.slow


async def _write(path: Path) -> None:
    async with eventctx.open(path, receipts=False) as engine:
        for number in range(12):
            await talk(engine, f"s{number:02}", turns=8)
            if number % 4 == 1:
                await engine.fork(f"s{number:02}", 20, f"fork of s{number:02}")
        await engine.erase("s03", [2])
        await engine.delete("s06")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("killed") / "from.db"
    asyncio.run(_write(path))
    return path


_SLOW = """
import sys, time
from eventctx.cli.main import main
from eventctx.queries import copy_writing
from eventctx.stores.sqlite import SqliteStore

append = SqliteStore.append

def slowly(*given, **more):
    time.sleep(0.01)  # as on a slow disk: the killer looks now and then
    return append(*given, **more)

copy_writing.BATCH_RECORDS = 3  # many appends, so that a kill meets one
SqliteStore.append = slowly
main(sys.argv[1:])
"""


def _stored(path: Path) -> int:
    """How many records a store has, looked up as cheaply as a killer has to."""
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        ((count,),) = connection.execute("SELECT count(*) FROM records").fetchall()
    except apsw.Error:
        return 0  # there is none yet
    connection.close()
    return count


async def _all(path: Path) -> list[tuple]:
    store = await SqliteStore.open(path, read_only=True)
    try:
        return await whole(store)
    finally:
        await store.close()


def test_a_killed_copy_is_gone_on_with(source, tmp_path) -> None:
    target = tmp_path / "to.db"
    copy = ["copy", str(source), str(target)]
    wanted = asyncio.run(_all(source))
    total = _stored(source)
    reached: list[int] = []
    for share in (0.1, 0.6):
        with subprocess.Popen([sys.executable, "-c", _SLOW, *copy], stdout=DEVNULL) as child:
            limit = time.monotonic() + 60
            while _stored(target) < share * total and child.poll() is None:
                assert time.monotonic() < limit
                time.sleep(0.01)
            os.kill(child.pid, signal.SIGKILL)
        reached.append(_stored(target))
        for (info, there), (whole_info, records) in zip(
            asyncio.run(_all(target)), wanted, strict=False
        ):
            assert info.stream == whole_info.stream
            assert there == records[: len(there)], "what is there is the source's, as far as it is"
    assert 0 < reached[0] < total, "killed in the middle"
    assert reached == sorted(reached)
    assert "read back and equal" in CliRunner().invoke(cli, copy).stdout
    assert asyncio.run(_all(target)) == wanted
