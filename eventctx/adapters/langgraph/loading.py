"""Checkpoints as LangGraph takes them, made of the parts and messages of a thread's session.

All that a checkpoint needs is read in a few steps, each one call to the store. A value or message
that was erased is missing, or says so; the checkpoint loads all the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.base import SerializerProtocol

from eventctx.adapters.langgraph.index import Saved, ThreadIndex, Writes
from eventctx.adapters.langgraph.parts import META, ChannelValue, StoredState, Whole, decode_state
from eventctx.adapters.langgraph.rows import Row
from eventctx.adapters.langgraph.values import Unboxer, numbers_in
from eventctx.log.integrity import sound_bodies
from eventctx.log.record import Body
from eventctx.log.store import Address, EventStore
from eventctx.messages.encoding import pause_collector
from eventctx.messages.facts import decode_facts
from eventctx.projections.view.render import ERASED

_MISSING: Final = object()


class LoadedCheckpoint(NamedTuple):
    """A checkpoint as it was saved, with its control, and the ``numbers`` of all its messages.

    ``writes`` are task, path, channel, index and value of each write to it.
    """

    saved: CheckpointTuple
    whole: Whole
    writes: list[tuple[str, str, str, int, Any]]
    numbers: set[int]


class Loader:
    """Loads checkpoints of one thread. The messages that it made are shared by all of them."""

    def __init__(
        self,
        store: EventStore,
        stream: str,
        index: ThreadIndex,
        serde: SerializerProtocol,
        channel: str,
    ) -> None:
        self._store = store
        self._stream = stream
        self._index = index
        self._serde = serde
        self._channel = channel
        self._messages: dict[int, BaseMessage] = {}
        self._parts: dict[int, StoredState | None] = {}
        self.rows: dict[int, Row] = {}
        self._unboxer = Unboxer(serde, self._messages.__getitem__)

    async def load(self, thread: str, saved: Saved) -> LoadedCheckpoint:
        """The checkpoint with its values and writes. Raises LogCorrupted."""
        index, whole = self._index, self._index.whole(saved)
        chains = {name: list(index.chain(name, at)) for name, at in whole.at.items()}
        writes = index.writes.get((saved.ns, saved.id), {})
        await self._read_parts({*[p for of in chains.values() for p in of], *_places(writes)})
        numbers = {number for first, last in whole.runs or () for number in range(first, last + 1)}
        for name, chain in chains.items():
            for position in chain:
                numbers.update(self._numbers_in_value(position, name))
        for one in writes.values():
            part = self._parts[one.position]
            if part is not None:
                numbers.update(numbers_in(part.state.writes[one.item].writes[one.number][2]))
        await self._read_messages(numbers)
        made, found = self._made(thread, saved, whole, chains, writes)
        return LoadedCheckpoint(made, whole, found, numbers)

    # -- reading ---------------------------------------------------------------------------------

    async def _read_parts(self, positions: Iterable[int]) -> None:
        missing = sorted({one for one in positions if one not in self._parts})
        addresses = [Address(position, 0) for position in missing]
        bodies = await self._bodies(addresses)
        with pause_collector(len(missing)):
            for position, body in zip(missing, bodies, strict=True):
                data = body.data
                self._parts[position] = None if data is None else decode_state(_plain(data))

    async def _bodies(self, addresses: Sequence[Address]) -> list[Body]:
        if not addresses:
            return []
        return await sound_bodies(self._store, self._stream, addresses)

    def _numbers_in_value(self, position: int, name: str) -> list[int]:
        part = self._parts[position]
        value = None if part is None else part.state.values.get(name)
        if value is None:
            return []
        whole = [] if value.whole is None else [value.whole]
        boxes = [*whole, *(value.items or ()), *(value.keys or {}).values()]
        return [number for box in boxes for number in numbers_in(box)]

    def message(self, number: int) -> BaseMessage:
        """A message that was read."""
        return self._messages[number]

    async def _read_messages(self, numbers: Iterable[int]) -> None:
        """Make the messages of these numbers, each once."""
        index = self._index
        missing = sorted({one for one in numbers if one not in self._messages})
        await self._read_parts({index.rests[one] for one in missing if one in index.rests})
        bodies = await self._bodies([index.addresses[one] for one in missing])
        with pause_collector(len(missing)):
            for number, body in zip(missing, bodies, strict=True):
                self._messages[number] = self._message(number, body)

    def _message(self, number: int, body: Body) -> BaseMessage:
        if body.data is None:
            return _erased(number, body)
        row = self.rows[number] = msgspec.json.decode(body.data)
        part = self._parts.get(self._index.rests.get(number, -1))
        rest = {}
        if part is not None:
            rest = self._unboxer.value(part.state.rest[str(number)], part.blobs)
        return self._unboxer.built(row, rest)

    def _in_order(self, runs: Iterable[tuple[int, int]]) -> list[BaseMessage]:
        """Messages that were read, in the order of runs of their numbers."""
        made = self._messages
        return [made[number] for first, last in runs for number in range(first, last + 1)]

    # -- making ----------------------------------------------------------------------------------

    def _made(
        self,
        thread: str,
        saved: Saved,
        whole: Whole,
        chains: Mapping[str, list[int]],
        writes: Writes,
    ) -> tuple[CheckpointTuple, list[tuple[str, str, str, int, Any]]]:
        values: dict[str, Any] = dict(whole.plain)
        for name, chain in chains.items():
            value = self._value(name, chain)
            if value is not _MISSING:
                values[name] = value
        long: Mapping[str, Any] = values.pop(META, {})
        if whole.runs is not None:
            values[self._channel] = self._in_order(whole.runs)
        head, meta = dict(whole.head), dict(whole.meta)
        for name, value in long.items():
            where, _, key = name.partition(" ")
            (head if where == "head" else meta)[key] = value
        made = self._writes(writes)
        checkpoint: Any = {
            **head,
            "id": whole.id,
            "channel_values": values,
            "channel_versions": dict(whole.versions),
            "versions_seen": {node: dict(seen) for node, seen in whole.seen.items()},
        }
        metadata: Any = meta
        config: Any = config_of(thread, saved.ns, saved.id)
        parent: Any = None if whole.parent is None else config_of(thread, saved.ns, whole.parent)
        pending = [(task, channel, value) for task, _, channel, _, value in made]
        return CheckpointTuple(config, checkpoint, metadata, parent, pending), made

    def _value(self, name: str, chain: Sequence[int]) -> Any:
        """The value of a channel; the last change of it is first in ``chain``."""
        found: Any = _MISSING
        for position in reversed(chain):
            part = self._parts[position]
            stored = None if part is None else part.state.values.get(name)
            if part is None or stored is None:
                return _MISSING
            found = self._changed(found, stored, part)
        return found

    def _changed(self, value: Any, stored: ChannelValue, part: StoredState) -> Any:
        made = self._unboxer.value
        if stored.whole is not None:
            return made(stored.whole, part.blobs)
        if stored.items is not None:
            return value[: stored.keep] + [made(one, part.blobs) for one in stored.items]
        fresh = {key: made(one, part.blobs) for key, one in (stored.keys or {}).items()}
        return {**{key: one for key, one in value.items() if key not in stored.gone}, **fresh}

    def _writes(self, writes: Writes) -> list[tuple[str, str, str, int, Any]]:
        found: list[tuple[str, str, str, int, Any]] = []
        for (task, number), one in writes.items():
            part = self._parts[one.position]
            if part is not None:
                box = part.state.writes[one.item].writes[one.number][2]
                value = self._unboxer.value(box, part.blobs)
                found.append((task, one.path, one.channel, number, value))
        # By path, task and index: the order in which a graph applies the writes of a step.
        return sorted(found, key=lambda one: (one[1], one[0], one[3]))


def config_of(thread: str, ns: str, checkpoint: str) -> dict[str, Any]:
    """The config that names a checkpoint."""
    named = {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": checkpoint}
    return {"configurable": named}


def _places(writes: Writes) -> set[int]:
    return {one.position for one in writes.values()}


def _plain(data: bytes) -> bytes:
    """A part's bytes, which are packed where they are many; neither form begins as zlib's does."""
    return zlib.decompress(data) if data[:1] == b"x" else data


def _erased(number: int, body: Body) -> BaseMessage:
    """A message in place of an erased one. Calls and results keep their ids, as providers ask."""
    facts = decode_facts(body.facts)
    name = f"erased-{number}"
    if facts.role == "tool" or facts.results:
        return ToolMessage(ERASED, id=name, tool_call_id=next(iter(facts.results), name))
    if facts.role == "assistant":
        calls = [{"name": "erased", "args": {}, "id": call} for call in facts.calls]
        return AIMessage(ERASED, id=name, tool_calls=calls)
    return (SystemMessage if facts.role == "system" else HumanMessage)(ERASED, id=name)
