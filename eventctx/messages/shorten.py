"""Shortened copies of messages: long tool results and arguments cut in the middle, all else as is.

The copies are made for a view and stored as bodies of the compaction that asked for them; the
message itself is never touched. Only what a limit concerns changes: ids, order, keys, thinking
blocks and their signatures stay.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from eventctx.messages.facts_reader import as_list, read_facts

MARKER: Final = "\n[… {left} characters left out of message {number} …]\n"
MARKER_CHARACTERS: Final = 80
"""No marker is longer: two numbers of up to 19 digits and the words around them."""


class Limit(NamedTuple):
    """Largest number of characters to keep of a message: of its results, arguments and words.

    None leaves that kind as it is.
    """

    outcome: int | None = None
    arguments: int | None = None
    prose: int | None = None


def shorten(message: dict[str, Any], number: int, limit: Limit) -> dict[str, Any]:
    """Cut the results and arguments of ``message`` in place to the limits, and return it.

    Of each text the first two thirds and the last third of its share stay, with a marker between.
    What is made of so many parts that this is not enough becomes one text, cut like the others.
    """
    if limit.outcome is not None:
        _shorten_results(message, number, limit.outcome)
        facts = read_facts(message)
        if facts.outcome > limit.outcome + MARKER_CHARACTERS * max(1, len(facts.results)):
            _replace_results(message, number, limit.outcome)
    if limit.arguments is not None:
        _shorten_arguments(message, number, limit.arguments)
        facts = read_facts(message)
        most = limit.arguments + 2 * MARKER_CHARACTERS * max(1, len(facts.calls))
        if facts.arguments > most:
            _replace_arguments(message, number, limit.arguments)
    if limit.prose is not None:
        places = _texts_of_words(message)
        _share([(holder, key, holder[key]) for holder, key in places], number, limit.prose)
    return message


def cut(text: str, number: int, characters: int) -> str:
    """The first and last parts of ``text``; at most ``characters`` of it and a marker."""
    if len(text) <= characters + MARKER_CHARACTERS:
        return text
    tail = characters // 3
    head = characters - tail
    marker = MARKER.format(left=len(text) - characters, number=number)
    return text[:head] + marker + (text[len(text) - tail :] if tail else "")


def _texts_of_results(message: dict[str, Any]) -> list[tuple[Any, Any]]:
    """``(container, key)`` of every text that is (part of) a tool result."""
    places: list[tuple[Any, Any]] = []
    row = message.get("role") in ("tool", "function")
    if "role" not in message and isinstance(message.get("type"), str):
        _collect(message, "output", places)
    content = message.get("content")
    if row and isinstance(content, str):
        places.append((message, "content"))
    if isinstance(content, list):
        for block in content:
            if not isinstance(block, dict):
                continue
            if block.get("type") == "tool_result":
                _collect(block, "content" if "content" in block else "output", places)
            elif row and isinstance(block.get("text"), str):
                places.append((block, "text"))
    return places


def _texts_of_words(message: dict[str, Any]) -> list[tuple[Any, Any]]:
    """``(container, key)`` of every text that is no part of a result."""
    if message.get("role") in ("tool", "function"):
        return []
    content = message.get("content")
    if isinstance(content, str):
        return [(message, "content")]
    return [
        (block, "text")
        for block in as_list(content)
        if isinstance(block, dict) and isinstance(block.get("text"), str)
    ]


def _collect(holder: dict[str, Any], key: str, places: list[tuple[Any, Any]]) -> None:
    value = holder.get(key)
    if isinstance(value, str):
        places.append((holder, key))
    elif isinstance(value, list):
        parts = [part for part in value if isinstance(part, dict)]
        places.extend((part, "text") for part in parts if isinstance(part.get("text"), str))
    elif isinstance(value, dict):
        # A structured output (Amplifier's {"error", "output", "success"}): its long texts.
        places.extend((value, name) for name, item in value.items() if isinstance(item, str))


def _result_holders(message: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """``(container, key)`` of every whole result of a message."""
    content = message.get("content")
    blocks = [
        (block, "content" if "content" in block else "output")
        for block in as_list(content)
        if isinstance(block, dict) and block.get("type") == "tool_result"
    ]
    if blocks:
        return blocks
    return [(message, "content" if "role" in message else "output")]


def _replace_results(message: dict[str, Any], number: int, characters: int) -> None:
    holders = _result_holders(message)
    for holder, key in holders:
        text = _as_text(holder.get(key))
        holder[key] = cut(text, number, max(0, characters // len(holders)))[: characters + 80]


def _replace_arguments(message: dict[str, Any], number: int, characters: int) -> None:
    holders = [(holder, key) for holder, key in _argument_holders(message) if key in holder]
    for holder, key in holders:
        text = cut(_as_text(holder[key]), number, characters // (2 * len(holders)))
        short = {"shortened": text}
        as_json = isinstance(holder[key], str) and key == "arguments"
        holder[key] = msgspec.json.encode(short).decode() if as_json else short


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _shorten_results(message: dict[str, Any], number: int, characters: int) -> None:
    places = _texts_of_results(message)
    _share([(holder, key, holder[key]) for holder, key in places], number, characters)


def _share(texts: list[tuple[Any, Any, str]], number: int, characters: int) -> None:
    """Give every text its share of ``characters``: short ones stay whole, long ones the rest."""
    remaining = characters
    waiting = sorted(texts, key=lambda text: len(text[2]))
    while waiting:
        share = remaining // len(waiting)
        holder, key, text = waiting.pop(0)
        shortened = cut(text, number, share)
        holder[key] = shortened
        remaining -= min(len(text), share)


def _argument_holders(message: dict[str, Any]) -> list[tuple[Any, str]]:
    """``(container, key)`` of the arguments of every call of a message."""
    holders: list[tuple[Any, str]] = [
        (block, "input")
        for block in as_list(message.get("content"))
        if isinstance(block, dict) and block.get("type") in ("tool_use", "tool_call")
    ]
    for call in as_list(message.get("tool_calls")):
        if isinstance(call, dict):
            function = call.get("function")
            holders.append((function if isinstance(function, dict) else call, "arguments"))
    legacy = message.get("function_call")
    if isinstance(legacy, dict):
        holders.append((legacy, "arguments"))
    if "role" not in message:
        holders.extend((message, key) for key in ("arguments", "input") if key in message)
    return holders


def _shorten_arguments(message: dict[str, Any], number: int, characters: int) -> None:
    holders = _argument_holders(message)
    for holder, key in holders:
        if key in holder:
            share = characters // max(1, len(holders))
            holder[key] = _shorter_arguments(holder[key], number, share)


def _shorter_arguments(value: Any, number: int, characters: int) -> Any:
    if not isinstance(value, str):
        return _shorter_values(value, number, characters)
    if len(value) <= characters + MARKER_CHARACTERS:
        return value
    # A JSON text must stay JSON: providers parse it again.
    try:
        parsed = msgspec.json.decode(value)
    except msgspec.DecodeError:
        return cut(value, number, characters)
    return msgspec.json.encode(_shorter_values(parsed, number, characters)).decode()


def _shorter_values(value: Any, number: int, characters: int) -> Any:
    texts: list[tuple[Any, Any, str]] = []
    root = [value]
    stack: list[tuple[Any, Any]] = [(root, 0)]
    while stack:
        holder, key = stack.pop()
        item = holder[key]
        if isinstance(item, str):
            texts.append((holder, key, item))
        elif isinstance(item, dict):
            stack.extend((item, name) for name in item)
        elif isinstance(item, list):
            stack.extend((item, place) for place in range(len(item)))
    _share(texts, number, characters)
    return root[0]
