"""The process in which a module is examined: an ``Order`` on stdin, findings on stdout.

What the module prints goes to stderr, so that it cannot be taken for a finding.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.testing.contract.examining import examine
from eventctx.testing.contract.target import resolve


class Order(msgspec.Struct, frozen=True):
    """What to examine: ``given`` as seen from ``cwd``; the rest as for ``examine``."""

    given: str
    cwd: str
    folder: str
    config: dict[str, Any]
    seconds: float
    done: int = 0
    failed: tuple[str, ...] = ()


class Unusable(msgspec.Struct, frozen=True, tag_field="kind", tag="unusable"):
    """There is no such module; ``problem`` is what to tell the user."""

    problem: str


class Started(msgspec.Struct, frozen=True, tag_field="kind", tag="started"):
    """The process is up; from here on the checks' own time runs."""


class Ended(msgspec.Struct, frozen=True, tag_field="kind", tag="ended"):
    """All findings are out: whatever becomes of the process now says nothing of the module."""


async def _work(order: Order, out: int) -> None:
    process = os.getpid()

    def put(value: object) -> None:
        if os.getpid() != process:
            os._exit(1)  # the module forked, and its copy of us has nothing to say
        os.write(out, msgspec.json.encode(value) + b"\n")

    put(Started())
    try:
        target = resolve(order.given, Path(order.cwd))
    except InvalidSetting as error:
        put(Unusable(str(error)))
        return
    # A folder that a process before this one wrote into is left alone.
    folder = Path(order.folder) / f"from-{order.done}"
    async for found in examine(
        target,
        order.config,
        folder,
        seconds=order.seconds,
        done=order.done,
        failed=order.failed,
    ):
        put(found)
    put(Ended())


def main() -> None:
    """Do what stdin says."""
    out = os.dup(1)
    os.dup2(2, 1)
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    asyncio.run(_work(order, out))
    # A thread that the module left must not keep the process: the findings are out.
    os.close(out)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
