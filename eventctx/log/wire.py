"""The wire form of a request in the log: addresses of its contents, and a digest.

A request repeats nearly all of the one before it. So it names an earlier request, how many of its
messages it begins with, and the addresses of the others: its size in the log does not grow with the
conversation. Each content is stored once, as a message of the transcript or as a
``context:request_content``.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from hashlib import _Hash as Hash

BodyAt = tuple[int, int]
"""The address of a body: the position of its record, and its index there."""


class SentApi(NamedTuple):
    """How the rule of a request that was seen on its way reads a body: the names of two fields.

    ``messages`` is the field of its messages, ``system`` that of the system prompt. ``whole``: of a
    message that is in the transcript all was sent, and not only role and content.
    """

    messages: str = "messages"
    system: str = "system"
    whole: bool = False


APIS: Final = {
    "anthropic-messages-1": SentApi(whole=True),
    "openai-chat-1": SentApi(whole=True),
    "openai-responses-1": SentApi("input", "instructions", True),
    "tape-messages-1": SentApi(),
    "tape-chat-1": SentApi(),
    "tape-responses-1": SentApi("input", "instructions"),
}
"""The rules of requests that we saw on their way. An importer's rule is that of its client."""


class CacheMark(msgspec.Struct, frozen=True, array_like=True):
    """A ``cache_control`` of a request: its path in the request's body, and its value."""

    path: tuple[str | int, ...]
    value: Any


class WireForm(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request as it was sent.

    Its messages are the first ``keep`` ones of the request at position ``base``, then those at
    ``tail``; of a message of the transcript only role and content were sent, or all of it where its
    rule in ``APIS`` says so. ``system``, ``tools`` and ``parameters`` (all other fields of the
    request) are addresses, too. The client named each of these contents by a hash when it sent
    them; ``rule`` names the rule of these hashes, by which each was made again before it was
    believed. A rule of ``APIS`` names none: the request was seen on its way. ``digest`` (hex)
    covers the salted digests of the stored bodies, so that it tells nothing of an erased text.
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


def hash_of(messages: Iterable[bytes], after: Hash | None = None) -> Hash:
    """A hash over the body digests of messages, continuing the hash ``after``."""
    found = sha256() if after is None else after.copy()
    for message in messages:
        found.update(message)
    return found


def request_digest(
    messages: Hash, system: bytes | None, tools: bytes | None, parameters: bytes | None
) -> str:
    """The digest of a wire form, in hex, from the body digests of its parts."""
    found = messages.copy()
    for part in (system, tools, parameters):
        found.update(b"\0" if part is None else b"\1" + part)
    return found.hexdigest()
