"""What a compaction reads in the messages of a session: lines, files, and what the model named.

Everything is read once, oldest message first, and is bounded: of a long result only the beginning
is read, of a long session only the newest messages (``policies.workset``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from eventctx.messages.demands import demands_in
from eventctx.messages.facts import Kind
from eventctx.messages.notable.calls import deed_of
from eventctx.messages.notable.outcomes import text_of_result
from eventctx.messages.notable.shell import How
from eventctx.messages.part_queries import hosted_arguments
from eventctx.messages.parts import Part, read_parts
from eventctx.text import pattern

MOST_OF_ONE: Final = 60_000
"""Characters of one message that are read."""

SHORTEST_LINE: Final = 12
LONGEST_LINE: Final = 400
"""Characters of a line that can stand in an index: a longer one is data, or a program's."""

_NUMBERED: Final = pattern(r"\s*\d+\s*(?:[→|:\t]|: )")
"""The number of a line that a tool writes before it."""

_UNREADABLE: Final = pattern("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Controls of terminals and of the order of letters, which show a text as another than it is."""

_NAME: Final = pattern(r"[A-Za-z_][A-Za-z0-9_]{5,}")
"""Identifiers that are long enough to be telling."""


class FileDeed(NamedTuple):
    """What the call in message ``number`` did to a file."""

    path: str
    how: How
    number: int


class ReadMessage(NamedTuple):
    """A message as an index sees it.

    ``lines`` are those of a person, a harness or a result, without numbers that a tool put before
    them, each once; ``said`` are the identifiers that the model wrote; ``deeds`` are its files.
    """

    number: int
    kind: Kind
    lines: tuple[str, ...] = ()
    said: frozenset[str] = frozenset()
    deeds: tuple[FileDeed, ...] = ()
    demands: tuple[str, ...] = ()


def read_messages(
    messages: Mapping[int, dict[str, Any]], kinds: Mapping[int, Kind], persons: frozenset[int]
) -> list[ReadMessage]:
    """Read messages in the order of their numbers.

    ``kinds`` are theirs as far as the view knows them; of others the role tells.
    ``persons`` are numbers of messages whose demands are wanted.
    """
    return [
        _read(number, messages[number], kinds.get(number), number in persons)
        for number in sorted(messages)
    ]


def _read(number: int, message: dict[str, Any], kind: Kind | None, of_person: bool) -> ReadMessage:
    parts = read_parts(message)
    kind = kind or _kind_of(message, parts)
    if kind == "assistant":
        return _read_models(number, parts)
    texts = [
        text_of_result(part) if part.kind == "result" else part.value
        for part in parts
        if part.kind in ("text", "result")
    ]
    demands = demands_in(message) if of_person else ()
    return ReadMessage(number, kind, tuple(_lines(texts)), demands=demands)


def _kind_of(message: dict[str, Any], parts: Iterable[Part]) -> Kind:
    if any(part.kind == "result" for part in parts):
        return "result"
    role = message.get("role")
    if role == "assistant" or any(part.kind in ("call", "hosted", "thinking") for part in parts):
        return "assistant"
    return "user" if role == "user" else "system" if role in ("system", "developer") else "other"


def _read_models(number: int, parts: Iterable[Part]) -> ReadMessage:
    said: set[str] = set()
    deeds: list[FileDeed] = []
    for part in parts:
        if part.kind in ("call", "hosted"):
            deeds += [
                FileDeed(path, how, number) for path, how in deed_of(part).files if _is_line(path)
            ]
            value = hosted_arguments(part) if part.kind == "hosted" else part.value
            texts = _leaves(value)
        else:
            texts = [part.value] if part.kind == "text" else []
        for text in texts:
            said.update(_NAME.findall(text[:MOST_OF_ONE]))
    return ReadMessage(number, "assistant", said=frozenset(said), deeds=tuple(deeds))


def _leaves(value: object) -> list[str]:
    """The texts in arguments; JSON in a text is as good as the text itself here."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for one in value.values() for text in _leaves(one)]
    if isinstance(value, list):
        return [text for one in value for text in _leaves(one)]
    return []


def _lines(texts: Iterable[str]) -> dict[str, None]:
    found: dict[str, None] = {}
    for text in texts:
        for line in text[:MOST_OF_ONE].splitlines():
            line = line.strip()
            if line[:1].isdigit():
                number = _NUMBERED.match(line)
                line = line if number is None else line[number.end() :].strip()
            if len(line) >= SHORTEST_LINE and _is_line(line):
                found[line] = None
    return found


def _is_line(text: str) -> bool:
    """Whether a text can be quoted on a line of its own, and is shown as what it is."""
    return len(text) <= LONGEST_LINE and (text.isprintable() or not _UNREADABLE.search(text))


def names_in_line(line: str) -> list[str]:
    """The identifiers in a line."""
    return _NAME.findall(line)
