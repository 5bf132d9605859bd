"""Shortened copies of messages: long tool results and arguments cut in the middle, all else as is.

The copies are made for a view and stored as bodies of the compaction that needs them; the message
itself is never changed. Only texts of a kind with a limit change: ids, order, keys, thinking blocks
and their signatures stay.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from eventctx.messages import response_items as items
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.parts import Part, Place, parts_of_result, read_parts

MARKER: Final = "\n[… {left} characters left out of message {number} …]\n"
MARKER_CHARACTERS: Final = 80
"""No marker is longer: two numbers of up to 19 digits and the words around them."""


_WORDS: Final = ("text", "refusal", "document", "other")


class Limit(NamedTuple):
    """Largest number of characters to keep of a message: of its results, arguments and words.

    None leaves that kind as it is.
    """

    outcome: int | None = None
    arguments: int | None = None
    prose: int | None = None


def shorten(
    message: dict[str, Any], number: int, limit: Limit, *, observation: bool = False
) -> dict[str, Any]:
    """Cut the results and arguments of ``message`` in place to the limits, and return it.

    Each text keeps its beginning (two thirds of its share) and its end (a third), with a marker
    between. A result or arguments of so many parts that this is not enough become one text, which
    is cut in the same way. The words of an ``observation`` are its result.
    """
    if observation:
        return _shorten_observation(message, number, limit)
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
        parts = [part for part in read_parts(message) if part.kind in _WORDS]
        _share([text for part in parts for text in _texts(message, part)], number, limit.prose)
    return message


def _shorten_observation(message: dict[str, Any], number: int, limit: Limit) -> dict[str, Any]:
    if limit.outcome is not None:
        parts = [part for part in read_parts(message) if part.kind in _WORDS]
        texts = [text for part in parts for text in _texts(message, part)]
        # All the markers together take no more than one may.
        most = limit.outcome - MARKER_CHARACTERS * (len(texts) - 1)
        _share(texts, number, max(0, most))
    return message


def cut(text: str, number: int, characters: int) -> str:
    """The first and last parts of ``text``; at most ``characters`` of it and a marker."""
    if len(text) <= characters + MARKER_CHARACTERS:
        return text
    tail = characters // 3
    head = characters - tail
    marker = MARKER.format(left=len(text) - characters, number=number)
    return text[:head] + marker + (text[len(text) - tail :] if tail else "")


def _at(message: dict[str, Any], place: Place) -> tuple[Any, Any]:
    """The holder of the value at a place, and the value's key or index in it."""
    holder: Any = message
    for step in place[:-1]:
        holder = holder[step]
    return holder, place[-1]


def _results(message: dict[str, Any]) -> list[Part]:
    """The results of a message; for a result whose blocks are results, the blocks."""
    found: list[Part] = []
    for part in read_parts(message):
        if part.kind == "result":
            inner = [one for one in parts_of_result(part) if one.kind == "result"]
            found += inner or [part]
    return found


def _texts(message: dict[str, Any], part: Part) -> list[tuple[Any, Any, str]]:
    """The texts in a part or a result: for each its holder, its key there, and the text."""
    value = part.value
    if not part.place:
        return []  # a whole item, which nobody knows how to cut
    typed = items.cuttable(part.type, value)
    if typed is not None:
        return [(holder, key, holder[key]) for holder, key in typed]
    if part.kind == "result" and isinstance(value, list):
        return [text for one in parts_of_result(part) for text in _texts(message, one)]
    if isinstance(value, str):
        return [(*_at(message, part.place), value)]
    if isinstance(value, dict) and part.kind == "result":
        # A structured output (Amplifier's {"error", "output", "success"}): its long texts.
        return [(value, name, item) for name, item in value.items() if isinstance(item, str)]
    if not isinstance(value, dict):
        return []
    source = value.get("source")
    if part.kind == "document" and isinstance(source, dict) and source.get("type") == "text":
        value = source  # a document in plain text, under "data"
    key = "text" if value is not source else "data"
    return [(value, key, value[key])] if isinstance(value.get(key), str) else []


def _replace_results(message: dict[str, Any], number: int, characters: int) -> None:
    results = [part for part in _results(message) if part.place]
    for part in results:
        holder, key = _at(message, part.place)
        share = max(0, characters // len(results))
        if _joined(message, part, number, share):
            continue
        holder[key] = cut(_as_text(part.value), number, share)[: characters + 80]


def _joined(message: dict[str, Any], part: Part, number: int, characters: int) -> bool:
    """Cut all the texts of a typed value as one; whether the part has such a value."""
    if items.cuttable(part.type, part.value) is None:
        return False
    text = "\n".join([text for _, _, text in _texts(message, part)])
    if text:
        items.joined(part.type, part.value, cut(text, number, characters))
    return True


def _replace_arguments(message: dict[str, Any], number: int, characters: int) -> None:
    parts = [part for part in read_parts(message) if part.kind == "call" and part.place]
    if parts and items.cuttable(parts[0].type, parts[0].value) is not None:
        _joined(message, parts[0], number, characters)
        return
    holders = _argument_holders(message)
    for holder, key in holders:
        text = cut(_as_text(holder[key]), number, characters // (2 * len(holders)))
        short = {"shortened": text}
        # A text stays a text: a function takes JSON, a custom tool any text.
        as_text = isinstance(holder[key], str)
        holder[key] = msgspec.json.encode(short).decode() if as_text else short


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _shorten_results(message: dict[str, Any], number: int, characters: int) -> None:
    results = [part for part in read_parts(message) if part.kind == "result"]
    _share([text for part in results for text in _texts(message, part)], number, characters)


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


def _argument_holders(message: dict[str, Any]) -> list[tuple[Any, Any]]:
    """The holder of the arguments of each call, and their key there; copies of calls included.

    An item of a call that the provider answers (mcp_call) counts as arguments too.
    """
    holders: list[tuple[Any, Any]] = []
    for part in read_parts(message, copies=True):
        if part.kind == "call" and part.place:
            holders.append(_at(message, part.place))
        elif part.kind == "hosted" and not part.place:
            holders += [(part.value, "arguments"), (part.value, "input")]
    return [(holder, key) for holder, key in holders if key in holder]


def _shorten_arguments(message: dict[str, Any], number: int, characters: int) -> None:
    parts = [part for part in read_parts(message) if part.kind == "call"]
    if parts and items.cuttable(parts[0].type, parts[0].value) is not None:
        _share(_texts(message, parts[0]), number, characters)
        return
    holders = _argument_holders(message)
    for holder, key in holders:
        share = characters // len(holders)
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
