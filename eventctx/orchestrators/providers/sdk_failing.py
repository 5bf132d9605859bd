"""The failure of a model call, read from an SDK's exception or an API's answer.

One generator makes the SDKs of Anthropic and OpenAI, so their errors have one shape: a status with
its response, a connection that failed, or an error inside a stream. Nothing here imports them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final

from eventctx.errors import ProviderFailed
from eventctx.text import clip

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
    """The failure behind an exception; None if neither the API nor the network caused it."""
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
