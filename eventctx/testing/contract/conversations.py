"""Conversations to put into a context, and the rules that every view of one must keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from eventctx.testing.contract.verdicts import Broken, sees
from eventctx.testing.requests import calls_of, results_of
from eventctx.text import clip

Row = dict[str, Any]

RESULT: Final = "The quick brown fox jumps over the lazy dog. " * 45
"""A tool result of about 2,000 characters."""

CHARACTERS_PER_TOKEN: Final = 5
"""More than any tokenizer needs for English text: a view of more characters is over its budget."""

PAYLOAD_KEYS: Final = ("role", "content", "tool_calls", "tool_call_id")
"""The keys of a message that are compared; a context may add keys of its own."""


def talk(rounds: int) -> list[Row]:
    """A system message, and so many tasks with two parallel tool calls each.

    Every other round is in the form of the contract's page (OpenAI functions), the others in that
    of Amplifier's loops (content blocks and ``{"id", "tool", "arguments"}``). A round is about
    4,300 characters.
    """
    rows: list[Row] = [{"role": "system", "content": "You are careful and brief."}]
    for number in range(rounds):
        ids = [f"call_{number}_{place}" for place in range(2)]
        rows.append({"role": "user", "content": f"Task {number}: look around in folder {number}."})
        rows.append(_function_calls(ids) if number % 2 else _block_calls(ids))
        rows += [
            {"role": "tool", "tool_call_id": one, "content": f"{number}: {RESULT}"} for one in ids
        ]
        rows.append({"role": "assistant", "content": f"Task {number} is done."})
    return rows


def giant(characters: int) -> list[Row]:
    """A short conversation in which a tool returned so many characters."""
    rows = talk(2)
    return [
        *rows,
        {"role": "user", "content": "Read the log."},
        _function_calls(["call_giant"]),
        {
            "role": "tool",
            "tool_call_id": "call_giant",
            "content": ("x" * 79 + "\n") * (characters // 80),
        },
    ]


def _function_calls(ids: Sequence[str]) -> Row:
    calls = [
        {"id": one, "type": "function", "function": {"name": "read", "arguments": '{"path": "x"}'}}
        for one in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def _block_calls(ids: Sequence[str]) -> Row:
    blocks = [
        {"type": "tool_call", "id": one, "name": "read", "input": {"path": "x"}} for one in ids
    ]
    calls = [{"id": one, "tool": "read", "arguments": {"path": "x"}} for one in ids]
    content = [{"type": "text", "text": "Let me look."}, *blocks]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def payload_of(row: object) -> Row:
    """A message without a context's own keys. Raises Broken if it is no message."""
    sees(isinstance(row, dict), f"a message of type {type(row).__name__}, expected a dict")
    assert isinstance(row, dict)
    return {key: row[key] for key in PAYLOAD_KEYS if row.get(key) is not None}


def rows_of(found: object, method: str) -> list[Row]:
    """The list of messages that a method returned. Raises Broken if it is none."""
    sees(isinstance(found, list), f"{method}() returned {type(found).__name__}, expected a list")
    assert isinstance(found, list)
    for row in found:
        payload_of(row)
    return found


def check_same(found: Sequence[Row], wanted: Sequence[Row], where: str) -> None:
    """Raise Broken unless the messages have the same payloads in the same order."""
    sees(len(found) == len(wanted), f"{where}: {len(found)} messages, expected {len(wanted)}")
    for place, (one, other) in enumerate(zip(found, wanted, strict=True)):
        seen, expected = payload_of(one), payload_of(other)
        for key in PAYLOAD_KEYS:
            if seen.get(key) != expected.get(key):
                pair = difference(seen.get(key), expected.get(key))
                raise Broken(f"{where}: {key!r} of message {place} is {pair}")


def check_pairs(view: Sequence[Row], where: str) -> None:
    """Raise Broken unless the results of each call come directly after it."""
    open_calls: dict[str, int] = {}
    for place, row in enumerate(view):
        answered = results_of(row)
        for one in answered:
            sees(
                one in open_calls,
                f"{where}: message {place} answers {one!r}, which is not before it",
            )
            del open_calls[one]
        if open_calls and not answered:
            one, call = next(iter(open_calls.items()))
            later = any(one in results_of(other) for other in view[place:])
            raise Broken(
                f"{where}: {short(row)} is between the call {one!r} and its result"
                if later
                else f"{where}: message {call} calls {one!r}, and the result is not in the view"
            )
        open_calls.update(dict.fromkeys(calls_of(row), place))
    for one, place in open_calls.items():
        raise Broken(f"{where}: message {place} calls {one!r}, and the result is not in the view")


def check_order(view: Sequence[Row], transcript: Sequence[Row], where: str) -> None:
    """Raise Broken if messages are in another order than they were added in.

    Messages are recognised by their calls and results, which a view that shortens a message does
    not change, and by their text where that is unchanged; others are passed over.
    """
    places = {name: place for place, row in enumerate(transcript) for name in _names(row)}
    last, last_seen = -1, ""
    for row in view:
        known = [places[name] for name in _names(row) if name in places]
        if known and known[0] < last:
            raise Broken(f"{where}: {short(row)} is after {last_seen}, which was added later")
        if known:
            last, last_seen = known[0], short(row)


def _names(row: Row) -> list[str]:
    """Names that only this message of ``talk`` has: its calls and results, else role and text."""
    ids = [f"call {one}" for one in calls_of(row)] + [f"result {one}" for one in results_of(row)]
    content = row.get("content")
    return ids or ([f"{row.get('role')} {content}"] if isinstance(content, str) else [])


def is_told(view: Sequence[Row], text: str) -> bool:
    """Whether a system message of a view has this text, alone or among other text."""
    system = (row for row in view if row.get("role") in ("system", "developer"))
    return any(text in str(row.get("content")) for row in system)


def characters(view: Sequence[Row]) -> int:
    """Characters of the messages' payloads as JSON."""
    return sum(len(msgspec.json.encode(payload_of(row), enc_hook=str)) for row in view)


def difference(seen: object, expected: object) -> str:
    """Two values that differ, shortened around the first difference."""
    texts = repr(seen), repr(expected)
    same = next(
        (place for place, (one, other) in enumerate(zip(*texts, strict=False)) if one != other),
        min(map(len, texts)),
    )
    start = max(0, same - 30) if same > 60 else 0
    one, other = (f"{'…' if start else ''}{short_text(text[start:])}" for text in texts)
    return f"{one}, expected {other}"


def short(row: object) -> str:
    """A message in a few words."""
    return short_text(repr(row))


def short_text(text: str) -> str:
    """The beginning of a text."""
    return clip(text, 91)
