"""Messages that are stored together or not at all, each behind the one before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from eventctx.stores.jetstream.connection import ATTEMPT_SECONDS, Link, checked

EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
"""The last sequence of the message's own subject, before this batch."""

EXPECTED_SUBJECT: Final = EXPECTED + "-Subject"
"""Of another subject, instead."""

_BATCH: Final = "Nats-Batch-Id"
_NUMBER: Final = "Nats-Batch-Sequence"
_COMMIT: Final = "Nats-Batch-Commit"


@dataclass(slots=True)
class Outgoing:
    """A message to store. ``headers`` may still be added to."""

    subject: str
    headers: dict[str, str]
    payload: bytes

    @property
    def size(self) -> int:
        """About its bytes on the way."""
        return len(self.payload) + sum(map(len, self.headers.values())) + 256


def outgoing(subject: str, headers: Mapping[str, str], payload: bytes) -> Outgoing:
    """A message whose headers are its own."""
    return Outgoing(subject, dict(headers), payload)


async def send(link: Link, messages: Sequence[Outgoing]) -> int:
    """Store all the messages in one step; the sequence of the first one.

    Raises ApiError if the servers refuse, so that nothing is stored, and one of ``DOUBTS`` when
    nobody knows. A message that expects a sequence makes it safe to send them again.
    """
    client = link.client
    last = messages[-1]
    if len(messages) == 1:
        answer = await client.request(
            last.subject, last.payload, timeout=ATTEMPT_SECONDS, headers=last.headers or None
        )
        return int(checked(answer)["seq"])
    batch = uuid4().hex
    for number, message in enumerate(messages[:-1], 1):
        headers = {_BATCH: batch, _NUMBER: str(number), **message.headers}
        await client.publish(message.subject, message.payload, headers=headers)
    headers = {_BATCH: batch, _NUMBER: str(len(messages)), _COMMIT: "1", **last.headers}
    answer = await client.request(
        last.subject, last.payload, timeout=ATTEMPT_SECONDS, headers=headers
    )
    return int(checked(answer)["seq"]) - len(messages) + 1
