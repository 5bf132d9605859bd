"""Turns entries to the messages of a request: stored bytes unchanged, and a few generated texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from eventctx.log.store import Address
from eventctx.messages import response_items as items
from eventctx.messages.encoding import decode_bodies, decode_body
from eventctx.messages.facts import Facts
from eventctx.messages.tool_rounds import BY_NAME, name_called, number_of, own_id
from eventctx.projections.view.entries import (
    ANSWER_KEPT,
    CALL_ENDED,
    CALL_NOT_ENDED,
    KEPT_CUT,
    OPENING,
    SYNTHETIC_RESULT,
    Entry,
)
from eventctx.projections.view.refs import KEPT_CHARACTERS, CallEnd, MessageRef

ERASED = "[erased]"
THINKING_LEFT_OUT = "[Only thinking was here; it is left out.]"


def places(entries: Iterable[Entry]) -> list[tuple[int, int]]:
    """``(position, index)`` of the bodies that ``render`` needs, without repetition."""
    found: list[tuple[int, int]] = []
    for entry in entries:
        if entry.ref is not None:
            found.append((entry.ref.position, entry.ref.index))
        if entry.end is not None and entry.end.position is not None:
            found.append((entry.end.position, 0))
    return list(dict.fromkeys(found))


def addresses(entries: Iterable[Entry]) -> list[Address]:
    """The same places as a store takes them."""
    return [Address(*place) for place in places(entries)]


def render(
    entries: Iterable[Entry], bodies: Mapping[tuple[int, int], bytes | None]
) -> list[dict[str, Any]]:
    """The messages of a view, each a new dict that the caller owns.

    ``bodies`` maps ``(position, index)`` to stored bytes, None for an erased body.
    """
    parts: list[bytes] = []
    made: list[tuple[int, dict[str, Any]]] = []
    for place, (kind, ref, call_id, omit, end) in enumerate(entries):
        if kind == "message" or kind == "insertion":
            assert ref is not None  # noqa: S101 - tells the type checker
            data = bodies[ref.position, ref.index]
            stripped = isinstance(ref, MessageRef) and ref.stripped
            if data is not None and not omit and not stripped:
                parts.append(data)
                continue
            message = _erased(ref, omit) if data is None else _without(decode_body(data), omit)
            if stripped:
                message = without_thinking(message)
        elif kind == "synthetic":
            assert isinstance(ref, MessageRef)  # noqa: S101 - tells the type checker
            text = _said_of(end, bodies)
            message = synthetic_result(ref, call_id, text, bodies[ref.position, ref.index])
        else:
            message = {"role": "user", "content": OPENING}
        made.append((place, message))
        parts.append(b"null")
    messages = decode_bodies(parts)
    for place, message in made:
        messages[place] = message
    return messages


def _erased(ref: Any, omit: tuple[str, ...]) -> dict[str, Any]:
    """The placeholder for an erased row, with its role, its calls and its results."""
    facts = ref.facts
    results = [call_id for call_id in facts.results if call_id not in omit]
    if facts.item in items.TABLE and (results or facts.calls):
        return _erased_item(facts)
    if results:
        row = _result_row(facts.dialect, results[0], ERASED, None)
        if facts.dialect == "anthropic":
            rows = [_result_row("anthropic", one, ERASED, None) for one in results]
            row["content"] = [block for one in rows for block in one["content"]]
        elif len(results) > 1:
            row["tool_call_ids"] = results
            row.pop("tool_call_id", None)
        return row
    if facts.calls:
        return _erased_calls(facts.dialect, facts.calls)
    role = facts.role if facts.role in ("system", "developer", "user", "assistant") else "user"
    return {"role": role, "content": ERASED}


def _erased_item(facts: Facts) -> dict[str, Any]:
    """The placeholder for an erased item: a call or its answer, of the same type."""
    if facts.calls:
        return items.call_of_type(facts.item, facts.calls[0])
    return items.output_of_type(facts.item, facts.results[0], ERASED)


def _erased_calls(dialect: str, calls: tuple[str, ...]) -> dict[str, Any]:
    if dialect == "responses":
        return {"type": "function_call", "call_id": calls[0], "name": "erased", "arguments": "{}"}
    if dialect == "anthropic":
        blocks = [{"type": "tool_use", "id": one, "name": "erased", "input": {}} for one in calls]
        return {"role": "assistant", "content": blocks}
    if any(one.startswith(BY_NAME) for one in calls):
        return _erased_by_name(calls, ollama="1" in map(number_of, calls))
    own = [own_id(one) for one in calls]
    if dialect == "amplifier":
        plain = [{"id": one, "tool": "erased", "arguments": {}} for one in own]
        return {"role": "assistant", "content": ERASED, "tool_calls": plain}
    function = {"name": "erased", "arguments": "{}"}
    made = [{"id": one, "type": "function", "function": dict(function)} for one in own]
    return {"role": "assistant", "content": ERASED, "tool_calls": made}


def _erased_by_name(calls: tuple[str, ...], *, ollama: bool) -> dict[str, Any]:
    """Erased calls, of which a tool's name may answer one; in the form of Ollama or of OpenAI."""
    made: list[dict[str, Any]] = []
    for call_id in calls:
        function = {
            "name": name_called(call_id) or "erased",
            "arguments": {} if ollama else "{}",
        }
        own = own_id(call_id)
        head = {} if own.startswith(BY_NAME) else {"id": own}
        made.append(head | ({} if ollama else {"type": "function"}) | {"function": function})
    if len(calls) == 1 and not ollama:
        return {"role": "assistant", "content": ERASED, "function_call": made[0]["function"]}
    return {"role": "assistant", "content": ERASED, "tool_calls": made}


def _without(message: dict[str, Any], omit: tuple[str, ...]) -> dict[str, Any]:
    """The message without the results in ``omit``, which answer no call in view."""
    several = message.get("tool_call_ids")
    if isinstance(several, list):
        message["tool_call_ids"] = [call_id for call_id in several if call_id not in omit]
    content = message.get("content")
    if isinstance(content, list):
        message["content"] = [
            block
            for block in content
            if not (
                isinstance(block, dict)
                and block.get("type") == "tool_result"
                and block.get("tool_use_id", block.get("tool_call_id")) in omit
            )
        ]
    return message


def without_thinking(message: dict[str, Any]) -> dict[str, Any]:
    """The message without its thinking blocks, which no longer match the messages before them."""
    message.pop("thinking_block", None)
    content = message.get("content")
    if isinstance(content, list):
        left = [
            block
            for block in content
            if not (
                isinstance(block, dict) and block.get("type") in ("thinking", "redacted_thinking")
            )
        ]
        # Providers refuse a message without content.
        message["content"] = left or [{"type": "text", "text": THINKING_LEFT_OUT}]
    return message


def _said_of(end: CallEnd | None, bodies: Mapping[tuple[int, int], bytes | None]) -> str:
    """The text of the result that is made up for a call of which no more than ``end`` is known."""
    if end is None:
        return SYNTHETIC_RESULT
    if end.position is None:
        return CALL_ENDED if end.ended else CALL_NOT_ENDED
    kept = bodies[end.position, 0]
    if kept is None:
        return ANSWER_KEPT + ERASED
    content = decode_body(kept).get("content")
    return ANSWER_KEPT + _cut(content if isinstance(content, str) else "")


def _cut(answer: str) -> str:
    left = len(answer) - KEPT_CHARACTERS
    if left <= 0:
        return answer
    head = KEPT_CHARACTERS * 2 // 3
    return answer[:head] + KEPT_CUT.format(left=left) + answer[head + left :]


def synthetic_result(
    ref: MessageRef, call_id: str, text: str, caller: bytes | None
) -> dict[str, Any]:
    """A result for a call that never got one, in the caller's dialect; ``text`` marks it as such.

    ``caller`` is the stored body of the message with the call, None if it was erased.
    """
    item = items.synthetic_output(ref.facts.item, call_id, text)
    if item is not None:
        return item
    kind = None  # of facts that an older release stored, without the type of the item
    if ref.facts.dialect == "responses" and caller is not None:
        kind = decode_body(caller).get("type")
    return _result_row(ref.facts.dialect, call_id, text, kind)


def _result_row(dialect: str, call_id: str, text: str, call_type: str | None) -> dict[str, Any]:
    if dialect == "anthropic":
        block = {"type": "tool_result", "tool_use_id": call_id, "content": text, "is_error": True}
        return {"role": "user", "content": [block]}
    if dialect == "responses":
        custom = call_type == "custom_tool_call"
        output = "custom_tool_call_output" if custom else "function_call_output"
        return {"type": output, "call_id": call_id, "output": text}
    own = own_id(call_id)
    if own == BY_NAME:
        return {"role": "tool", "content": text}
    if own.startswith(BY_NAME):
        return {"role": "function", "name": name_called(call_id), "content": text}
    return {"role": "tool", "tool_call_id": own, "content": text}
