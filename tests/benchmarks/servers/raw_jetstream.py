"""The speed of JetStream without this library: bare publishes with the headers of the store's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import nats
from nats.js.api import StorageType, StreamConfig

MESSAGE_ID = "Nats-Msg-Id"
EXPECTED = "Nats-Expected-Last-Subject-Sequence"

STREAM = "RAW"


class RawStream:
    """A stream of three replicas on disk, one connection, and publishes that wait for their ack."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: Any = None
        self._stream: Any = None
        self._last: dict[str, int] = {}

    async def __aenter__(self) -> RawStream:
        self._client = await nats.connect(self._url)
        self._stream = self._client.jetstream(timeout=30)
        await self._stream.add_stream(
            StreamConfig(
                name=STREAM,
                subjects=[f"{STREAM}.>"],
                num_replicas=3,
                storage=StorageType.FILE,
            )
        )
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
            **headers,
            MESSAGE_ID: os.urandom(16).hex(),
            EXPECTED: str(self._last.get(name, 0)),
        }
        ack = await self._stream.publish(f"{STREAM}.{name}", payload, headers=own)
        self._last[name] = ack.seq

    async def read(self, name: str) -> int:
        """Fetch every message of a subject with an ordered consumer; how many there are."""
        wanted = f"{STREAM}.{name}"
        info = await self._stream.stream_info(STREAM, subjects_filter=wanted)
        count: int = info.state.subjects[wanted]
        subscription = await self._stream.subscribe(wanted, ordered_consumer=True)
        for _ in range(count):
            await subscription.next_msg(timeout=30)
        await subscription.unsubscribe()
        return count
