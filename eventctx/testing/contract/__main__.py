"""The process in which a module is examined: an ``Order`` on stdin, findings on stdout.

The module's own output goes to stderr, so that it cannot be taken for a finding.
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
from eventctx.testing.contract.subject import resolve


class Order(msgspec.Struct, frozen=True):
    """The module to examine: ``given``, relative to ``cwd``; the rest as for ``examine``."""

    given: str
    cwd: str
    folder: str
    config: dict[str, Any]
    seconds: float
    done: int = 0
    failed: tuple[str, ...] = ()
    hung: int = 0


class Unusable(msgspec.Struct, frozen=True, tag_field="kind", tag="unusable"):
    """There is no such module; ``problem`` is the error text for the user."""

    problem: str


class Started(msgspec.Struct, frozen=True, tag_field="kind", tag="started"):
    """The process has started; from now on the time of each check counts."""


class Ended(msgspec.Struct, frozen=True, tag_field="kind", tag="ended"):
    """All findings are written: how the process ends after this is no finding."""


async def _work(order: Order, out: int) -> None:
    process = os.getpid()

    def put(value: object) -> None:
        if os.getpid() != process:
            os._exit(1)  # the module forked: the copy of this process must write no finding
        os.write(out, msgspec.json.encode(value) + b"\n")

    put(Started())
    try:
        target = resolve(order.given, Path(order.cwd))
    except InvalidSetting as error:
        put(Unusable(str(error)))
        return
    # A new folder for each process: an earlier one may have left files in its own.
    folder = Path(order.folder) / f"from-{order.done}"
    async for found in examine(
        target,
        order.config,
        folder,
        seconds=order.seconds,
        done=order.done,
        failed=order.failed,
        hung=order.hung,
    ):
        put(found)
    put(Ended())


def main() -> None:
    """Carry out the order on stdin."""
    out = os.dup(1)
    os.dup2(2, 1)
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    asyncio.run(_work(order, out))
    # The findings are written, so a thread that the module left must not keep the process alive.
    os.close(out)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
