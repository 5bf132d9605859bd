"""One form for all failures of a provider: errors of any library, and unusable answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from eventctx.errors import InvalidMessage, ProviderFailed
from eventctx.log.turn_recorder import described
from eventctx.log.usage import MOST_TOKENS
from eventctx.messages.encoding import plain_message
from eventctx.messages.facts_reader import read_facts
from eventctx.orchestrators.protocol import Answer, ToolRequest, Usage

MAX_NAME: Final = 1_000
"""Longest name, in characters, that a provider may give its model or an answer."""

RETRYABLE: Final = frozenset((408, 409, 425, 429))
"""HTTP statuses worth a retry, besides those from 500 (RFC 9110; both SDKs do the same)."""

TOO_LONG: Final = "ContextLengthError"
"""Amplifier's name for a request larger than the model's window (``amplifier_core.llm_errors``)."""


def as_failure(provider: str, error: BaseException) -> ProviderFailed:
    """Any exception of a provider as ProviderFailed.

    The attributes ``status_code``, ``retryable`` and ``retry_after`` are read as Amplifier's errors
    and the SDKs have them. Without them, only errors of the network are retryable.
    """
    if isinstance(error, ProviderFailed):
        return error
    status = _status(error)
    too_long = status == 413 or any(kind.__name__ == TOO_LONG for kind in type(error).__mro__)
    retryable = getattr(error, "retryable", None)
    if not isinstance(retryable, bool):
        passing = status is not None and (status in RETRYABLE or status >= 500)
        network = isinstance(error, ConnectionError | TimeoutError)
        retryable = not too_long and (passing or network)
    return ProviderFailed(
        provider,
        str(described(error)),
        status=status,
        retryable=retryable,
        retry_after=_seconds(getattr(error, "retry_after", None)),
        too_long=too_long,
    )


def problem_with(answer: Any, calls_allowed: bool) -> str | None:
    """The reason why an answer cannot be used; None if it can."""
    if not isinstance(answer, Answer):
        return f"expected an Answer, found {type(answer).__name__}"
    if not isinstance(answer.more, tuple):
        return f"expected a tuple of further messages, found {type(answer.more).__name__}"
    known: list[str] = []
    try:
        for message in answer.messages:
            facts = read_facts(plain_message(message))
            known += facts.calls
            if facts.kind != "assistant":
                return f"expected a message of the assistant, found role {facts.role!r}"
    except InvalidMessage as error:
        return f"its answer cannot be stored: {error}"
    if not isinstance(answer.text, str):
        return f"expected a text, found {answer.text!r}"
    for name in ("finish_reason", "response_id", "model"):
        if not _short_text(getattr(answer, name)):
            return f"expected {name} to be a short text or None, found {getattr(answer, name)!r}"
    if answer.usage is not None and not _counts(answer.usage):
        return f"expected counts of tokens from 0, found {answer.usage!r}"
    if not isinstance(answer.calls, tuple):
        return f"expected a tuple of calls, found {type(answer.calls).__name__}"
    if answer.calls and not calls_allowed:
        return "it calls tools where it may call none"
    seen: set[str] = set()
    for call in answer.calls:
        problem = _problem_with_call(call, seen, known)
        if problem is not None:
            return problem
    return None


def usable_usage(answer: Any) -> Usage | None:
    """The usage of an answer that itself cannot be used, if it reports a valid one."""
    used = answer.usage if isinstance(answer, Answer) else None
    return used if _counts(used) else None


def _problem_with_call(call: Any, seen: set[str], known: Sequence[str]) -> str | None:
    if not isinstance(call, ToolRequest):
        return f"expected a ToolRequest, found {call!r}"
    if not call.id or not _short_text(call.id) or call.id in seen:
        return f"expected a tool call with an id of its own, found {call.id!r}"
    seen.add(call.id)
    if not call.name or not _short_text(call.name):
        return f"expected a tool call with a name, found {call.name!r}"
    if call.error is None and type(call.arguments) is not dict:
        return f"expected a tool call's arguments in a dict, found {call.arguments!r}"
    if call.id not in known:
        return f"it calls {call.name!r} as {call.id!r}, and its message has no such call"
    return None


def _counts(usage: Any) -> bool:
    if not isinstance(usage, Usage):
        return False
    return all(
        type(one) is int and 0 <= one <= MOST_TOKENS for one in msgspec.structs.astuple(usage)
    )


def _short_text(value: object) -> bool:
    """Whether a record can hold the value as a name."""
    if value is None:
        return True
    return isinstance(value, str) and len(value) < MAX_NAME and value.isprintable()


def _status(error: BaseException) -> int | None:
    for name in ("status_code", "status"):
        status = getattr(error, name, None)
        if type(status) is int:
            return status
    return None


def _seconds(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and value >= 0 else None
