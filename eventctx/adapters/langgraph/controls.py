"""What a checkpoint's parts hold, relative to those of its parent.

Of values of channels that is what was added to lists and dicts.
The digests of the items of each namespace's last values are held. A value is written whole where
nothing is held of its parent's, and when what was written since takes as much as the value itself:
so all that is written of a growing value is at most twice its size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
from langchain_core.messages import BaseMessage

from eventctx.adapters.langgraph.index import ThreadIndex
from eventctx.adapters.langgraph.parts import (
    META,
    ChannelValue,
    Control,
    PartWriter,
    State,
    Whole,
    relative,
)
from eventctx.adapters.langgraph.values import Box, Boxer, Piece, Runs, is_short

COUNTERS: Final = "counters_since_delta_snapshot"
"""LangGraph's metadata of channels whose value may be in the writes alone."""

_OWN: Final = frozenset(("channel_values", "channel_versions", "versions_seen", "id"))

_LEAST: Final = 512
"""Bytes below which a value is written whole."""

_ENTRY: Final = 64
"""Bytes that a relative value takes besides its items."""


class Put(NamedTuple):
    """A checkpoint to be saved; ``changed`` are the channels that are new since its parent.

    ``runs``: its messages have these numbers, and the transcript stays as it is. ``whole``: it is
    relative to no other one. ``rests`` are those of messages that are to be written again.
    """

    ns: str
    checkpoint: Mapping[str, Any]
    metadata: Mapping[str, Any]
    changed: frozenset[str]
    parent: str | None
    runs: Runs | None = None
    whole: bool = False
    rests: Mapping[int, Piece] = {}


class Held(NamedTuple):
    """The items of a value that stands at ``position``, -1 before it is stored.

    ``size`` are the bytes of the whole one, ``since`` those of all relative ones after it.
    """

    prints: list[bytes] | dict[str, bytes]
    objects: list[Any]
    size: int
    since: int = 0
    position: int = -1


class HeldValues:
    """The last values of the channels of a thread, by namespace and channel."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], Held] = {}

    def store(self, fresh: Mapping[tuple[str, str], Held], position: int) -> None:
        """Hold ``fresh`` values, which stand in the part at ``position``."""
        for key, held in fresh.items():
            self._held[key] = held._replace(position=position)

    def written(
        self, key: tuple[str, str], value: Any, base: int | None, boxer: Boxer, writer: PartWriter
    ) -> tuple[ChannelValue, Held | None]:
        """The value as it is written, and what to hold; ``base`` is where the parent's stands."""
        kind = type(value)
        if kind is not list and kind is not dict:
            return ChannelValue(whole=writer.stored(boxer.box(value))), None
        held = self._held.get(key)
        if held is not None and held.position != base:
            held = None
        prints, boxes = _items(value, held, boxer)
        if held is not None and type(held.prints) is type(prints) and held.size > _LEAST:
            made = _relative(held, prints, boxes, writer)
            size = _ENTRY + len(msgspec.json.encode(made))
            if held.since + size <= held.size:
                made = msgspec.structs.replace(made, base=base)
                return made, Held(prints, _kept(value), held.size, held.since + size)
        box = boxer.box(value)
        size = len(msgspec.json.encode(box.json)) + sum([len(data) for _, data in box.blobs])
        size += sum([len(piece.row) * 64 for piece in box.messages])
        return ChannelValue(whole=writer.stored(box)), Held(prints, _kept(value), size)


def _items(
    value: list[Any] | dict[str, Any], held: Held | None, boxer: Boxer
) -> tuple[list[bytes] | dict[str, bytes], dict[Any, Box]]:
    """The digests of all items, and boxes of those that may be new, by place or key."""
    boxes: dict[Any, Box] = {}
    if isinstance(value, dict):
        boxes = {str(key): boxer.box(one) for key, one in value.items()}
        return {key: box.print for key, box in boxes.items()}, boxes
    prints: list[bytes] = []
    old = held.prints if held is not None and isinstance(held.prints, list) else []
    for at, one in enumerate(value):
        same = at < len(old) and held is not None and at < len(held.objects)
        if same and held is not None and held.objects[at] is one and at < len(value) - 32:
            prints.append(old[at])  # a message far from the end, which nobody changes in place
            continue
        boxes[at] = boxer.box(one)
        prints.append(boxes[at].print)
    return prints, boxes


def _relative(
    held: Held,
    prints: list[bytes] | dict[str, bytes],
    boxes: Mapping[Any, Box],
    writer: PartWriter,
) -> ChannelValue:
    if isinstance(prints, dict) and isinstance(held.prints, dict):
        old = held.prints
        keys = {
            key: writer.stored(boxes[key]) for key, one in prints.items() if old.get(key) != one
        }
        return ChannelValue(keys=keys, gone=[key for key in old if key not in prints])
    keep = 0
    for one, other in zip(held.prints, prints, strict=False):
        if one != other:
            break
        keep += 1
    return ChannelValue(
        keep=keep, items=[writer.stored(boxes[at]) for at in range(keep, len(prints))]
    )


def _kept(value: list[Any] | dict[str, Any]) -> list[Any]:
    """The items that are known again by their objects: messages alone."""
    if isinstance(value, list) and value and isinstance(value[0], BaseMessage):
        return list(value)
    return []


class Made(NamedTuple):
    """A checkpoint's control, whole and as it is written, and the values to hold once it is."""

    whole: Control
    control: Control
    held: dict[tuple[str, str], Held]


class ControlMaker:
    """Makes the controls of a thread. ``channel`` is that of the transcript's messages."""

    def __init__(self, thread: str, channel: str, index: ThreadIndex, boxer: Boxer) -> None:
        self.values = HeldValues()
        self._thread = thread
        self._channel = channel
        self._index = index
        self._boxer = boxer

    def made(self, put: Put, runs: Runs | None, said: PartWriter, writer: PartWriter) -> Made:
        """The control of a checkpoint with the messages of ``runs``.

        Values go to ``writer``; ``said`` has writes and rests.
        """
        checkpoint, index = put.checkpoint, self._index
        saved = None if put.parent is None or put.whole else index.find(put.ns, put.parent)
        base = None if saved is None else index.whole(saved)
        head, meta, long = _sorted_out(checkpoint, put.metadata)
        values = {**checkpoint["channel_values"], **({META: long} if long else {})}
        if runs is not None:
            values.pop(self._channel, None)
        plain = {name: one for name, one in values.items() if _is_plain(one)}
        at: dict[str, int] = {}
        held: dict[tuple[str, str], Held] = {}
        stored: list[str] = []
        for name, value in values.items():
            where = None if base is None else base.at.get(name)
            if name in plain:
                continue
            if where is not None and base is not None and _is_same(put, name, base):
                at[name] = where
                continue
            stored.append(name)
            made, items = self.values.written((put.ns, name), value, where, self._boxer, writer)
            writer.state.values[name] = made
            if items is not None:
                held[put.ns, name] = items
        whole = Control(
            id=checkpoint["id"],
            ns=put.ns,
            parent=put.parent,
            thread=self._thread,
            head=head,
            versions=dict(checkpoint["channel_versions"]),
            seen={node: dict(of) for node, of in checkpoint["versions_seen"].items()},
            meta=meta,
            plain=plain,
            stored=tuple(stored),
            runs=runs,
            at=at,
            state=_small(said, writer),
            apart=not writer.is_small,
        )
        if saved is None or base is None or saved.grown:
            return Made(whole, whole, held)
        return Made(whole, relative(whole, base, saved.position) or whole, held)


def _small(said: PartWriter, values: PartWriter) -> State | None:
    """What a control holds in place of state parts."""
    writes = said.state.writes if said.is_small else []
    stored = values.state.values if values.is_small else {}
    return State(writes=writes, values=stored) if writes or stored else None


def _is_plain(value: Any) -> bool:
    return value is None or type(value) in (bool, int, float)


def _is_same(put: Put, name: str, base: Whole) -> bool:
    """Whether a channel has the value of the parent, as LangGraph's versions say."""
    versions = put.checkpoint["channel_versions"]
    return (
        name not in put.changed and name != META and versions.get(name) == base.versions.get(name)
    )


def _sorted_out(
    checkpoint: Mapping[str, Any], metadata: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """A checkpoint's own fields and metadata that a control may hold, and what it may not."""
    head = {name: value for name, value in checkpoint.items() if name not in _OWN}
    long: dict[str, Any] = {}
    for name in [name for name, value in head.items() if not is_short(value)]:
        long["head " + name] = head.pop(name)
    meta = dict(metadata)
    if isinstance(meta.get(COUNTERS), dict):
        meta[COUNTERS] = {name: list(one) for name, one in meta[COUNTERS].items()}
    for name in [name for name, value in meta.items() if not is_short(value)]:
        long["meta " + name] = meta.pop(name)
    return head, meta, long
