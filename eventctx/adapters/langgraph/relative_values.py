"""Values of channels relative to those of the parent checkpoint: what was added to lists and dicts.

The digests of the items of each namespace's last values are held. A value is written whole where
nothing is held of its parent's, and when what was written since takes as much as the value itself:
so all that is written of a growing value is at most twice its size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
from langchain_core.messages import BaseMessage

from eventctx.adapters.langgraph.parts import PartWriter, Value
from eventctx.adapters.langgraph.values import Box, Boxer

_LEAST: Final = 512
"""Bytes below which a value is written whole."""

_ENTRY: Final = 64
"""Bytes that a relative value takes besides its items."""


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
    ) -> tuple[Value, Held | None]:
        """The value as it is written, and what to hold; ``base`` is where the parent's stands."""
        kind = type(value)
        if kind is not list and kind is not dict:
            return Value(whole=writer.stored(boxer.box(value))), None
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
        return Value(whole=writer.stored(box)), Held(prints, _kept(value), size)


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
) -> Value:
    if isinstance(prints, dict) and isinstance(held.prints, dict):
        old = held.prints
        keys = {
            key: writer.stored(boxes[key])
            for key, one in prints.items()
            if old.get(key) != one
        }
        return Value(keys=keys, gone=[key for key in old if key not in prints])
    keep = 0
    for one, other in zip(held.prints, prints, strict=False):
        if one != other:
            break
        keep += 1
    return Value(keep=keep, items=[writer.stored(boxes[at]) for at in range(keep, len(prints))])


def _kept(value: list[Any] | dict[str, Any]) -> list[Any]:
    """The items that are known again by their objects: messages alone."""
    if isinstance(value, list) and value and isinstance(value[0], BaseMessage):
        return list(value)
    return []
