"""The form in which a request was sent, as the log keeps it: addresses of contents, and a digest.

A request repeats nearly all of the one before it. So it names an earlier request, how many of its
messages it begins with, and the addresses of the others: its size in the log does not grow with the
conversation. Each content is stored once, as a message of the transcript or as a
``context:request_content``.
"""

from __future__ import annotations

from typing import Any

import msgspec

BodyAt = tuple[int, int]
"""The address of a body: the position of its record, and its index there."""


class CacheMark(msgspec.Struct, frozen=True, array_like=True):
    """A ``cache_control`` of a request: its path in the request's body, and its value."""

    path: tuple[str | int, ...]
    value: Any


class WireForm(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request as it was sent.

    Its messages are the first ``keep`` ones of the request at position ``base``, then those at
    ``tail``; of a stored message only role and content were sent. ``system``, ``tools`` and
    ``parameters`` (all other fields of the request) are addresses, too. ``digest`` (hex) was made
    by the digest rule named ``rule`` from what the client recorded when it sent the request.
    ``message_tokens``, ``system_tokens`` and ``tools_tokens`` are our estimates; ``injected``
    counts the texts in its messages that the client put there.
    """

    rule: str
    digest: str
    tail: tuple[BodyAt, ...]
    messages: int
    base: int | None = None
    keep: int = 0
    system: BodyAt | None = None
    tools: BodyAt | None = None
    parameters: BodyAt | None = None
    cache_control: tuple[CacheMark, ...] = ()
    message_tokens: int = 0
    system_tokens: int = 0
    tools_tokens: int = 0
    injected: int = 0

    @property
    def tokens(self) -> int:
        """Our estimate for the whole request."""
        return self.message_tokens + self.system_tokens + self.tools_tokens


class Injected(msgspec.Struct, frozen=True, array_like=True):
    """A text that the client put into a message: characters ``start`` to ``end`` of a text in it.

    ``place`` are the keys and indexes that lead from the message to that text.
    """

    place: tuple[str | int, ...]
    start: int
    end: int
