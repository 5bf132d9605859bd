"""The gate of the relay: it serves the program that it was started for, and nobody else.

A server on 127.0.0.1 is open to every account of the machine, and to every page that a person
visits. What it passes on goes out with what the sender gives, and stands in the owner's session. So
the address that the program gets has a token that no other run has; the names in ``Host`` and
``Origin`` are checked as the inspector's are; and where the system tells whose socket asks (Linux),
it has to be our own account's.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote

from eventctx.proxy.call_copy import Headers
from eventctx.web.guard import find_foreign

MOST_WAITING: Final = 128
"""Connections that may be open without a whole head of a request."""

MOST_SECONDS: Final = 30.0
"""Within which a head is whole, from its first byte or from the connection."""

MOST_IDLE: Final = 900.0
"""Seconds between two requests of a connection."""

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_MAPPED: Final = b"%016X%08X" % (0, int.from_bytes(b"\0\0\xff\xff", sys.byteorder))
_ROOT: Final = 0

Address = tuple[str, int]


class Refusal(NamedTuple):
    """The status line's end, and the reason as a person reads it."""

    status: bytes
    reason: str


class Gate:
    """Lets requests of one run through.

    ``tables`` are the system's tables of sockets, ``seconds`` those that a head may take.
    """

    def __init__(self, tables: Sequence[Path] = _TABLES, *, seconds: float = MOST_SECONDS) -> None:
        self._token = secrets.token_urlsafe(24)
        self._tables = tables
        self._seconds = seconds
        self._waiting = 0

    def url(self, port: int) -> str:
        """The address that the program is given: what it appends to it passes the gate."""
        return f"http://127.0.0.1:{port}/{self._token}"

    def knows(self, peer: Address, here: Address) -> bool:
        """Whether the other end of a connection is our own account's, as far as one can tell."""
        # Read twice: a table that changes while it is read may leave out a row.
        owners = (owner_of(self._tables, peer, here) for _ in range(2))
        return any(owner is None or owner in (os.getuid(), _ROOT) for owner in owners)

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """The wait for a whole head. Raises OSError for too many of them, or too long a one."""
        if self._waiting >= MOST_WAITING:
            raise OSError(errno.EMFILE, "too many connections wait for their request")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._seconds):
                yield
        finally:
            self._waiting -= 1

    def path_of(self, target: str, headers: Headers, port: int) -> str | Refusal:
        """The path of a request after our token."""
        own = [f"{name}:{port}".encode() for name in ("127.0.0.1", "localhost", "[::1]")]
        foreign = find_foreign(headers, lambda host: host.lower() in own, "record")
        if foreign is not None:
            return Refusal(b"403 Forbidden", foreign)
        _, token, rest = (*target.split("/", 2), "", "")[:3]
        if not secrets.compare_digest(token.encode("latin-1"), self._token.encode()):
            return Refusal(
                b"403 Forbidden",
                "the path: expected the address of this run, as `eventctx record` gave it",
            )
        if _climbs(rest):
            return Refusal(b"400 Bad Request", "the path: expected one without `..`")
        return f"/{rest}"


def _climbs(path: str) -> bool:
    """Whether some server may read a path as one that leaves its folder."""
    bare = path.partition("?")[0]
    while (once := unquote(bare)) != bare:
        bare = once
    return ".." in bare.replace("\\", "/").split("/")


def owner_of(tables: Sequence[Path], peer: Address, here: Address) -> int | None:
    """The account whose socket is bound to ``peer`` and talks to ``here``; None if unknown.

    A socket that nobody holds any more is nobody's (-1): its sender is gone and gets no answer.
    """
    try:
        found = b"".join(table.read_bytes() for table in tables if table.exists())
    except OSError:
        return None
    own = _row(found, here, peer)
    theirs = _row(found, peer, here)
    if theirs is None:
        # A table that has not even our end of it, such as a sandbox's, tells nothing.
        return None if own is None else -1
    # After the addresses: state, queues, timer, retransmissions, account, timeout, inode.
    return int(theirs[6]) if int(theirs[8]) else -1


def _row(tables: bytes, end: Address, other: Address) -> list[bytes] | None:
    """The fields of a socket, from its address on; one of IPv6 may talk IPv4, too."""
    for before in (b"", _MAPPED):
        at = tables.find(b" %s%s %s%s " % (before, _hex(end), before, _hex(other)))
        if at >= 0:
            return tables[at : tables.find(b"\n", at)].split()
    return None


def _hex(address: Address) -> bytes:
    host, port = address
    number = int.from_bytes(bytes(map(int, host.split("."))), sys.byteorder)
    return b"%08X:%04X" % (number, port)
