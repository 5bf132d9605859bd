"""The speed of JetStream without this library: bare publishes with the headers of the store's."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any, NamedTuple

import nats
from nats.js.api import StorageType, StreamConfig

MESSAGE_ID = "Nats-Msg-Id"
EXPECTED = "Nats-Expected-Last-Subject-Sequence"
BATCH = "Nats-Batch"
"""What the headers of an atomic batch begin with: a bare publish is none."""

SUBJECT, SEQUENCE = "Nats-Subject", "Nats-Sequence"
"""What a message that is read has in its headers."""

STREAM = "RAW"
READ_BATCH = 1000


class Stored(NamedTuple):
    """The messages that one append of the store made."""

    payload: bytes
    headers: Mapping[str, str]


async def stored_append(url: str, prefix: str) -> Stored:
    """The messages of the last append, as one: their payloads, and the headers of the first.

    ``prefix`` is the name of the store's streams. The last append begins with the last message
    that expects a sequence of its subject.
    """
    client = await nats.connect(url)
    stream = client.jetstream()
    names = [one.config.name for one in await stream.streams_info()]
    records = min(str(name) for name in names if str(name).startswith(f"{prefix}_0"))
    number = (await stream.stream_info(records)).state.last_seq
    payload = b""
    headers: Mapping[str, str] = {}
    while not headers:
        found = await stream.get_msg(records, number)
        payload = (found.data or b"") + payload
        if EXPECTED in (found.headers or {}):
            headers = found.headers
        number -= 1
    await client.close()
    return Stored(payload, headers)


class RawStream:
    """A stream of three replicas on disk, one connection, and publishes that wait for their ack."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: Any = None
        self._stream: Any = None
        self._last: dict[str, int] = {}

    async def __aenter__(self) -> RawStream:
        self._client = await nats.connect(self._url)
        self._stream = self._client.jetstream(timeout=10)
        config = StreamConfig(
            name=STREAM,
            subjects=[f"{STREAM}.>"],
            num_replicas=3,
            storage=StorageType.FILE,
            allow_direct=True,
        )
        try:
            await self._stream.add_stream(config)
        except nats.errors.TimeoutError:
            # Servers that elect a leader just then drop the question; the same one may be repeated.
            await self._stream.add_stream(config)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._client.close()

    async def publish(self, name: str, payload: bytes, headers: Mapping[str, str]) -> None:
        """One message to the subject of ``name``, with an id and the sequence that it follows."""
        own = {
            **{key: value for key, value in headers.items() if not key.startswith(BATCH)},
            MESSAGE_ID: os.urandom(16).hex(),
            EXPECTED: str(self._last.get(name, 0)),
        }
        ack = await self._stream.publish(f"{STREAM}.{name}", payload, headers=own)
        self._last[name] = ack.seq

    async def fill(self, name: str, count: int, payload: bytes, headers: Mapping[str, str]) -> None:
        """So many messages to one subject, many under way at once; nothing here is measured."""
        own = {key: value for key, value in headers.items() if not key.startswith("Nats-")}
        for first in range(0, count, 200):
            await asyncio.gather(
                *[
                    self._stream.publish(f"{STREAM}.{name}", payload, headers=own)
                    for _ in range(first, min(count, first + 200))
                ]
            )

    async def read(self, name: str) -> int:
        """Fetch every message of a subject in batches from any replica; how many there are."""
        subject = f"{STREAM}.{name}"
        inbox = self._client.new_inbox()
        answers = await self._client.subscribe(inbox)
        count = sequence = 0
        more = True
        while more:
            wanted = {"batch": READ_BATCH, "seq": sequence + 1, "next_by_subj": subject}
            request = json.dumps(wanted).encode()
            await self._client.publish(f"$JS.API.DIRECT.GET.{STREAM}", request, inbox)
            more = False
            # A message without a subject of its own ends a batch.
            while SUBJECT in (headers := (await answers.next_msg(timeout=30)).headers or {}):
                sequence = int(headers[SEQUENCE])
                count += 1
                more = True
        await answers.unsubscribe()
        return count
