"""Stores of very many sessions, made in seconds: one real session, copied in the file by SQL.

A record's digest holds neither the session's name nor its place in the store, so every copy of a
session is as sound as the one it was made from.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw

import eventctx

_MEASURED = """
import re, sys, threading
from pathlib import Path
from eventctx.cli.main import cli

peak, over = 0, threading.Event()

def look():
    # Not what is mapped of the file, which the system takes back as it likes.
    global peak
    while True:
        status = Path("/proc/self/status").read_text()
        peak = max(peak, int(re.search(r"RssAnon:\\s+(\\d+)", status)[1]))
        if over.wait(0.02):
            return

watch = threading.Thread(target=look)
watch.start()
code = None
try:
    cli.main(sys.argv[1:], standalone_mode=False)
except SystemExit as end:
    code = end.code
finally:
    over.set()
    watch.join()
print(code, peak, file=sys.stderr)
"""


async def _one_session(path: Path) -> None:
    async with eventctx.open(path, receipts=False) as engine:
        context = await engine.session("first")
        async with context.turn():
            await context.add_message({"role": "user", "content": "Say something."})
            await context.add_message({"role": "assistant", "content": "Something."})


def make(path: Path, count: int) -> Path:
    """A store of ``count`` sessions, ``first`` and then ``copy-0000002`` and so on."""
    asyncio.run(_one_session(path))
    connection = apsw.Connection(str(path))
    ((records,),) = connection.execute("SELECT count(*) FROM records").fetchall()
    ((created,),) = connection.execute("SELECT created FROM streams").fetchall()
    connection.execute("PRAGMA synchronous=OFF; BEGIN").fetchall()
    connection.execute(
        "WITH RECURSIVE n(n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM n WHERE n < ?) "
        "INSERT INTO streams(id, name, created) "
        "SELECT n, printf('copy-%07d', n), ? FROM n",
        (count, created),
    ).fetchall()
    connection.execute(
        "WITH RECURSIVE n(n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM n WHERE n < ?) "
        "INSERT INTO records SELECT (n - 1) * ? + position, n, position, r.id, type, version, "
        " time, iteration, turn, span, parent_span, digest, payload, bodies, body_digest, "
        "salt, facts, data FROM n, records r WHERE stream = 1 ORDER BY n, position",
        (count, records),
    ).fetchall()
    connection.execute("COMMIT").fetchall()
    connection.close()
    return path


def run_measured(*arguments: object) -> tuple[Any, int]:
    """The JSON document that a command prints, and the most memory that it took, in KiB."""
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, *map(str, arguments)], capture_output=True, check=True
    )
    code, peak = done.stderr.split()[-2:]
    assert code == b"0", done.stderr
    return json.loads(done.stdout), int(peak)
