"""One form for all failures of a provider: errors of any library, and unusable answers.

One generator makes the SDKs of Anthropic and OpenAI, so their errors have one shape. A failure is
read from the exception, or from the JSON of an answer that reports an error.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, Final

import msgspec

from eventctx.errors import InvalidMessage, ProviderFailed
from eventctx.log.turn_recorder import described
from eventctx.log.usage import MOST_TOKENS
from eventctx.messages.encoding import plain_message
from eventctx.messages.facts_reader import read_facts
from eventctx.orchestrators.protocol import Answer, ToolRequest, Usage
from eventctx.text import clip

MAX_NAME: Final = 1_000
"""Longest name, in characters, that a provider may give its model or an answer."""

RETRYABLE: Final = frozenset((408, 409, 425, 429))
"""HTTP statuses worth a retry, as those from 500 are (RFC 9110; both SDKs do the same)."""

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
            if facts.kind != "assistant" and facts.item != "compaction":
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


# -- of an SDK ----------------------------------------------------------------------------------

PROBLEM_CHARACTERS: Final = 500
"""Characters of an API's message that are kept, because it may be a whole page of HTML."""

_SDKS: Final = frozenset(("anthropic", "openai"))
_NETWORK: Final = frozenset(("httpx", "httpx2", "httpcore", "httpcore2", "h11", "h2", "anyio"))

_FINAL_KINDS: Final = frozenset(
    (
        *("invalid_request_error", "authentication_error", "permission_error", "not_found_error"),
        *("request_too_large", "billing_error", "insufficient_quota", "context_length_exceeded"),
        *("invalid_prompt", "content_policy_violation", "invalid_api_key", "model_not_found"),
    )
)
"""Error types and codes that the same request would meet again, whatever the status."""

_TOO_LONG: Final = (
    "prompt is too long",
    "exceed context limit",
    "maximum context length",
    "context window",
    "context length",
)
"""Texts by which APIs refuse a prompt as too long: two of Anthropic, one of OpenAI, others."""


def failure(provider: str, error: Exception) -> ProviderFailed | None:
    """The failure that an exception reports; None if neither API nor network caused it."""
    response = getattr(error, "response", None)
    root = type(error).__module__.partition(".")[0]
    if root in _SDKS and response is not None:
        status = getattr(error, "status_code", 0)
        body = getattr(error, "body", None)
        if isinstance(status, int) and status >= 400:
            return refused(provider, status, response.headers, body, str(error))
        return reported(provider, body, str(error))
    if root in _SDKS and getattr(error, "body", None) is not None:
        return reported(provider, getattr(error, "body", None), str(error))
    if root in _SDKS | _NETWORK or isinstance(error, OSError):
        cause = error.__cause__ if root in _SDKS and error.__cause__ is not None else error
        problem = f"no whole answer came: {type(cause).__name__} {cause}"
        return ProviderFailed(provider, _bounded(problem), retryable=True)
    if isinstance(error, ValueError):
        return garbage(provider, str(error))
    return None


def refused(
    provider: str, status: int, headers: Mapping[str, str], body: object, message: str
) -> ProviderFailed:
    """The failure of an answer with an error's status."""
    kinds, detail = _detail(body)
    text = detail or message
    should_retry = headers.get("x-should-retry")
    retryable = status in (408, 409, 429) or status >= 500
    if should_retry in ("true", "false"):
        retryable = should_retry == "true"
    return ProviderFailed(
        provider,
        _bounded(text),
        status=status,
        retryable=retryable and not kinds & _FINAL_KINDS,
        retry_after=retry_after(headers),
        too_long=status == 413 or (status == 400 and _is_too_long(kinds, text)),
    )


def reported(provider: str, body: object, message: str = "") -> ProviderFailed:
    """An error in the place of an answer: inside a stream, or under status 200.

    The API had accepted the request by then, so it may succeed later unless the error forbids it.
    """
    kinds, detail = _detail(body)
    text = detail or message
    too_long = _is_too_long(kinds, text)
    client_side = any(kind.isdigit() and 400 <= int(kind) < 500 for kind in kinds)
    transient = bool(kinds & {"408", "409", "429"}) or not client_side
    return ProviderFailed(
        provider,
        _bounded(text or "an error without a message"),
        retryable=transient and not too_long and not kinds & _FINAL_KINDS,
        too_long=too_long,
    )


def garbage(provider: str, found: str) -> ProviderFailed:
    """An answer that is no JSON. A gateway sent it in place of the API, so a retry may help."""
    return ProviderFailed(
        provider, _bounded(f"expected JSON from the API, found: {found}"), retryable=True
    )


def unusable(provider: str, expected: str, found: object) -> ProviderFailed:
    """JSON that is not an answer: the address belongs to another API."""
    return ProviderFailed(
        provider, _bounded(f"expected {expected}, found {found!r}; check the client's base_url")
    )


def cut(provider: str) -> ProviderFailed:
    """A stream that ended before the answer did."""
    return ProviderFailed(provider, "the stream ended before the answer did", retryable=True)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, from ``retry-after-ms`` or ``retry-after`` (RFC 9110, 10.2.3).

    A date is compared with the server's own ``date``, so that clocks need not agree.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1_000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None or value is None:
        return seconds
    then = _timestamp(value)
    if then is None:
        return None
    now = _timestamp(headers.get("date"))
    return max(0.0, then - (time.time() if now is None else now))


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None


def _timestamp(value: str | None) -> float | None:
    try:
        return parsedate_to_datetime(value or "").timestamp()
    except (ValueError, OverflowError):
        return None


def _detail(body: object) -> tuple[frozenset[str], str]:
    """The types and codes of an error's body, and its message; a body that is a text is that."""
    if not isinstance(body, dict):
        return frozenset(), body if isinstance(body, str) else ""
    inner = body.get("error")
    if isinstance(inner, str):
        return frozenset(), inner
    detail: dict[str, Any] = inner if isinstance(inner, dict) else body
    kinds = frozenset(
        str(detail[key]) for key in ("type", "code") if isinstance(detail.get(key), str | int)
    )
    message = detail.get("message") or detail.get("detail")
    return kinds, message if isinstance(message, str) else ""


def _is_too_long(kinds: frozenset[str], message: str) -> bool:
    if kinds & {"context_length_exceeded", "request_too_large"}:
        return True
    lowered = message.lower()
    return any(words in lowered for words in _TOO_LONG)


def _bounded(text: str) -> str:
    return clip(" ".join(text.split()), PROBLEM_CHARACTERS + 1)
