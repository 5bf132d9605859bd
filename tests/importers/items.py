"""Short ways to what a format's parser makes of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from eventctx.importers.source.items import (
    CallEnded,
    FileLine,
    Item,
    MessageItem,
    Parser,
    Raw,
    never,
)


def as_lines(data: bytes) -> list[FileLine]:
    lines = enumerate(data.splitlines(keepends=True), 1)
    return [FileLine(number, one.rstrip(b"\r\n"), one.endswith(b"\n")) for number, one in lines]


def items_of(parse: Parser, data: bytes, ended: Callable[[], bool] = never) -> list[Item]:
    return list(parse(as_lines(data), "file.jsonl", ended))


def of_type(items: Iterable[Item], *kinds: type[Any]) -> list[Any]:
    return [item for item in items if isinstance(item, kinds)]


def texts(items: Iterable[Item]) -> list[Any]:
    return [item.message for item in items if isinstance(item, MessageItem)]


def roles(items: Iterable[Item]) -> list[str]:
    return [str(m.get("role") or m.get("type")) for m in texts(items)]


def raw_kinds(items: Iterable[Item]) -> list[str]:
    return [item.kind for item in items if isinstance(item, Raw)]


def always() -> bool:
    return True


def ended_usages(found: list[Item]) -> list[Any]:
    return [item.usage for item in of_type(found, CallEnded)]
