"""The rules of real APIs that every request must keep, whatever made it.

This module reads messages by itself, not with the engine's reader, so that it finds the reader's
mistakes, too. It reads all dialects. Sources: Anthropic's messages API (a ``tool_result`` must
be in the message after its ``tool_use``, the first message must have role ``user``) and
OpenAI's chat API (an assistant message with ``tool_calls`` must be followed by tool messages for
every call). A provider's own summary may come first, too (Anthropic's compaction on demand).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from eventctx.text import clip

Row = Mapping[str, Any]

_CALL_ITEMS: Final = (
    *("function_call", "custom_tool_call", "local_shell_call", "computer_call"),
    *("shell_call", "apply_patch_call"),
)
_RESULT_ITEMS: Final = tuple(f"{item}_output" for item in _CALL_ITEMS)
_SHOWN: Final = 60


def calls_of(message: Row) -> list[str]:
    """The ids of the calls in a message, each once."""
    found: dict[str, None] = {}
    for block in _blocks(message):
        if block.get("type") in ("tool_use", "tool_call"):
            found[block["id"]] = None
    for call in message.get("tool_calls") or ():
        found[call["id"]] = None
    if message.get("type") in _CALL_ITEMS:
        found[message["call_id"]] = None
    return list(found)


def results_of(message: Row) -> list[str]:
    """The ids of the calls that a message answers."""
    if message.get("role") in ("tool", "function"):
        return list(message.get("tool_call_ids") or [message["tool_call_id"]])
    if message.get("type") in _RESULT_ITEMS:
        # A local shell's output has the call's id in ``id``.
        return [message["call_id"] if "call_id" in message else message["id"]]
    return [
        block["tool_use_id"] if "tool_use_id" in block else block["tool_call_id"]
        for block in _blocks(message)
        if block.get("type") == "tool_result"
    ]


def is_system(message: Row) -> bool:
    """Whether a message is no part of the conversation."""
    return message.get("role") in ("system", "developer")


def refusal(messages: Sequence[Row]) -> str | None:
    """The reason for which a provider would refuse this request, with the message's index.

    None if no provider would.
    """
    conversation = [place for place, row in enumerate(messages) if not is_system(row)]
    if conversation:
        place, row = conversation[0], messages[conversation[0]]
        summary = any(one.get("type") == "compaction" for one in (row, *_blocks(row)))
        known = summary or row.get("role") == "user"
        if not known or (_without_id(row) is None and results_of(row)):
            return f"message {place}: expected a user's message first, found {_describe(row)}"
    pending: dict[str, int] = {}
    answering = False
    for place, message in enumerate(messages):
        unnamed = _without_id(message)
        if unnamed is not None:
            return f"message {place}: {unnamed}"
        answers = results_of(message)
        for one in answers:
            if one not in pending:
                return f"message {place}: result {one!r} answers no call directly before it"
            del pending[one]
        if answers:
            answering = True
            continue
        if pending and not (_is_item_of_answer(message) and not answering):
            return (
                f"message {place}: {_calls(pending)} must be answered before it, "
                f"found {_describe(message)}"
            )
        pending.update(dict.fromkeys(calls_of(message), place))
        answering = False
    return f"{_calls(pending)} have no result" if pending else None


def check_request(messages: Sequence[Row], name: str = "the request") -> None:
    """Raise AssertionError, with a list of the messages, if a provider would refuse them."""
    problem = refusal(messages)
    if problem is not None:
        listed = "\n".join(f"  {place}  {_describe(row)}" for place, row in enumerate(messages))
        raise AssertionError(f"a provider refuses {name}: {problem}\n{listed}")


def _blocks(message: Row) -> list[Row]:
    content = message.get("content")
    return (
        [block for block in content if isinstance(block, Mapping)]
        if isinstance(content, list)
        else []
    )


def _without_id(message: Row) -> str | None:
    """The call or result in a message that has no id where its dialect has it."""
    if message.get("role") in ("tool", "function"):
        if not message.get("tool_call_ids") and "tool_call_id" not in message:
            return f"a {message['role']} message without the tool_call_id of its call"
        return None
    for block in _blocks(message):
        kind = block.get("type")
        if kind in ("tool_use", "tool_call") and "id" not in block:
            return f"a {kind} block without an id"
        if kind == "tool_result" and not block.keys() & {"tool_use_id", "tool_call_id"}:
            return "a tool_result block without the tool_use_id of its call"
    if any("id" not in call for call in message.get("tool_calls") or ()):
        return "a call in tool_calls without an id"
    if message.get("type") in _CALL_ITEMS and "call_id" not in message:
        return f"a {message['type']} item without a call_id"
    if message.get("type") in _RESULT_ITEMS and not message.keys() & {"call_id", "id"}:
        return f"a {message['type']} item without the call_id of its call"
    return None


def _is_item_of_answer(message: Row) -> bool:
    """Whether a message is one of several items that form one answer (OpenAI Responses)."""
    kind = message.get("type")
    if not isinstance(kind, str):
        return False
    return message.get("role") == "assistant" or kind == "reasoning" or kind.endswith("_call")


def _calls(pending: Mapping[str, int]) -> str:
    return "calls " + ", ".join(f"{one!r} of message {place}" for one, place in pending.items())


def _describe(message: Row) -> str:
    """A message in one line: role, calls and results, the beginning of its text."""
    parts = [str(message.get("role") or message.get("type"))]
    if _without_id(message) is None:
        parts += [f"calls {one!r}" for one in calls_of(message)]
        parts += [f"answers {one!r}" for one in results_of(message)]
    content = message.get("content")
    words = [content] if isinstance(content, str) else [b.get("text") for b in _blocks(message)]
    text = " ".join(" ".join(word.split()) for word in words if isinstance(word, str))
    cut = clip(text, _SHOWN + 1)
    return ", ".join([*parts, repr(cut)] if cut else parts)
