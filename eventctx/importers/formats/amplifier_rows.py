"""A line of Amplifier's ``events.jsonl``, in either dialect, and a provider's response in it."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from eventctx.importers.formats.provider_answers import answer_body, finish_of
from eventctx.importers.source.items import CallEnded
from eventctx.importers.source.lines import nanoseconds, object_or_empty, text_or_none
from eventctx.log.usage import Usage, read_host_usage, read_provider_usage, with_prompt
from eventctx.messages.facts import Dialect

_EVENT: Final = re.compile(r"[a-z_]+:[a-z_:]+")
_AREAS: Final = frozenset(
    (
        *("session", "prompt", "execution", "provider", "llm", "content_block", "tool"),
        *("orchestrator", "context", "cleanup", "mentions", "artifact", "thinking", "plan"),
        *("approval", "cancel", "user", "policy", "delegate", "skill", "skills", "mcp", "hook"),
    )
)
"""The first parts of event names, in Amplifier's core and in its modules."""


def is_row(value: dict[str, Any]) -> bool:
    """Whether an object is a line of an event log."""
    name = name_of(value)
    if name is None or _EVENT.fullmatch(name) is None:
        return False
    return is_known(name) and "role" not in value


def is_known(name: str) -> bool:
    """Whether an event of this name is one of Amplifier's."""
    return name.partition(":")[0] in _AREAS


def name_of(row: dict[str, Any]) -> str | None:
    """The event's name; one dialect has it in ``type``."""
    return text_or_none(row.get("event")) or text_or_none(row.get("type"))


_REQUEST_KEYS: Final = ("raw", "params", "request")


class AmplifierRow:
    """The parts of a line that every handler needs. ``data`` is the line itself by default."""

    def __init__(self, line: int, row: dict[str, Any]) -> None:
        data = row.get("data")
        self.line = line
        self.row = row
        self.data: dict[str, Any] = data if isinstance(data, dict) else row
        self.time = nanoseconds(row.get("ts", row.get("timestamp")))

    @property
    def request_key(self) -> str | None:
        """The key of the request as it was sent; None where the data are it, or have none."""
        return next((key for key in _REQUEST_KEYS if isinstance(self.data.get(key), dict)), None)

    @property
    def request(self) -> dict[str, Any]:
        """The request as it was sent, if it was logged; else the data themselves."""
        key = self.request_key
        return self.data if key is None else object_or_empty(self.data[key])


class HeldResult(NamedTuple):
    """A tool's result, held back until a request contains it."""

    line: int
    time: int | None
    text: str
    name: str | None


def wire_answer(data: dict[str, Any]) -> dict[str, Any]:
    """The provider's own JSON of an answer, if it was logged; else the data themselves.

    The providers' modules have put it under ``raw``, and older ones under ``response``.
    """
    found = (answer_body(data.get(key)) for key in ("raw", "response"))
    return next((one for one in found if one), data)


def ending_of(found: AmplifierRow, wire: dict[str, Any]) -> CallEnded:
    """The end of a call by the line of its answer and the provider's JSON in it."""
    usage, name = usage_of(found.data, wire), text_or_none(wire.get("id"))
    return CallEnded(found.line, found.time, usage, finish_of(wire), name)


def both_ends(short: CallEnded | None, whole: CallEnded) -> CallEnded:
    """The end of a call that two levels of the log describe."""
    if short is None:
        return whole
    return CallEnded(
        whole.line,
        short.time if whole.time is None else whole.time,
        whole.usage or short.usage,
        whole.finish_reason or short.finish_reason,
        whole.response_id or short.response_id,
    )


def as_result(call_id: str, result: HeldResult, dialect: Dialect) -> dict[str, Any]:
    """A tool's result in the dialect of the answer with its call."""
    text, name = result.text, result.name
    if dialect == "anthropic":
        block = {"type": "tool_result", "tool_use_id": call_id, "content": text}
        return {"role": "user", "content": [block]}
    if dialect == "responses":
        return {"type": "function_call_output", "call_id": call_id, "output": text}
    row = {"role": "tool", "tool_call_id": call_id, "content": text}
    return row if name is None else {**row, "name": name}


def as_block(block: dict[str, Any]) -> dict[str, Any]:
    """A streamed block in the form of Amplifier's messages."""
    rest = dict(block)
    if rest.get("type") == "thinking" and "text" in rest:
        return {"type": "thinking", "thinking": rest.pop("text"), **rest}
    if rest.get("type") == "tool_call" and "arguments" in rest:
        arguments = rest.pop("arguments")
        return {**rest, "input": arguments}
    return rest


def usage_of(data: dict[str, Any], response: dict[str, Any]) -> Usage | None:
    """Amplifier's own counts, else the provider's; None where they count no prompt."""
    usage = object_or_empty(data.get("usage"))
    if "input_tokens" in usage or "input" in usage:
        return read_host_usage(usage)
    return with_prompt(read_provider_usage(usage or response.get("usage")))
