"""Problems of an adapter in words: expected, found, and what to do."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence, Set
from typing import Any, Final

from eventctx.projections.trace import semconv
from eventctx.text import clip

_SHOWN: Final = 160

_TURNS: Final = "HostSession.turns"
_REPORTS: Final[Mapping[str, str]] = {
    "prompt:submit": f"{_TURNS}.turn_began(), once for each run",
    "prompt:complete": f"{_TURNS}.turn_ended(), also for a run that failed or was cancelled",
    "provider:request": f"{_TURNS}.iteration_began(), before prepare() of each call",
    "provider:response": f"{_TURNS}.model_answered(), for each call that did not fail",
    "provider:error": f"{_TURNS}.model_failed(), for each call that failed",
    "tool:pre": f"{_TURNS}.tool_began(), with a key that its end has, too",
    "tool:post": f"{_TURNS}.tool_ended(), with the key of tool_began()",
    "tool:error": f"{_TURNS}.tool_failed(), with the key of tool_began()",
    "context:request_prepared": "HostSession.prepare(), once for each call of the model",
    "context:messages_set": (
        "the host's list was not known again: identity() has to be equal for a message that the "
        "host gives back in another form, and add() and mirror() get its whole list, in its order"
    ),
}


_BEGAN: Final = "iteration_began(provider, model, read_settings(stream=, max_tokens=, url=))"

KNOWN_OF_CALLS: Final[Mapping[str, str]] = {
    semconv.PROVIDER_NAME: f"{_TURNS}.{_BEGAN}",
    semconv.REQUEST_MODEL: f"{_TURNS}.{_BEGAN}",
    semconv.REQUEST_STREAM: f"{_TURNS}.{_BEGAN}",
    semconv.REQUEST_MAX_TOKENS: f"{_TURNS}.{_BEGAN}",
    semconv.SERVER_ADDRESS: f"{_TURNS}.{_BEGAN}",
    semconv.RESPONSE_ID: f"{_TURNS}.model_known(response_id=)",
    semconv.FINISH_REASONS: f"{_TURNS}.model_known(finish_reason=)",
}
"""Attributes of a model call's span that depend on what the host says, and how they are told."""


def of_known(expected: Set[str], found: Set[str]) -> str | None:
    """Which attributes of a call's span are missing or not named; None if all are as expected."""
    wrong = [
        f"expected {name} on the span of a model call: {KNOWN_OF_CALLS[name]}"
        for name in sorted(expected - found)
    ]
    wrong += [
        f"the span of a model call has {name}: add it to the contract's knows"
        for name in sorted(found - expected)
    ]
    return "\n".join(wrong) or None


def of_counts(expected: Mapping[str, int], found: Mapping[str, int]) -> str | None:
    """The records that are missing or repeated; None if they are as expected."""
    wrong = [
        f"expected {number} of {name}, found {found.get(name, 0)}: {_REPORTS[name]}"
        for name, number in expected.items()
        if found.get(name, 0) != number
    ]
    return "\n".join(wrong) or None


def of_ends(
    expected: Mapping[str, str], found: Mapping[str, Any], error_type: str | None = None
) -> str | None:
    """Which records end with another status or type of error; None if they are as expected."""
    wrong = []
    for name, status in expected.items():
        event = found.get(name)
        seen = [getattr(event, field, None) for field in ("status", "error_type")]
        if seen[0] != status or error_type not in (None, seen[1]):
            kind = "" if error_type is None else f" of {error_type}"
            wrong.append(
                f"expected {name} with status {status!r}{kind}, found {seen[0]!r} of {seen[1]}: "
                f"{_REPORTS[name]}; a failure is told with its exception, and only a cancellation "
                "is cancelled"
            )
    return "\n".join(wrong) or None


def of_texts(texts: Sequence[str], rows: Sequence[Any], *, again: bool = False) -> str | None:
    """Which texts the transcript lacks, has twice or in another order; None if it is as expected.

    ``again``: several messages may have one text, but no message is followed by itself.
    """
    said = json.dumps(rows, ensure_ascii=False, default=str)
    missing = [text for text in texts if text not in said]
    each = [json.dumps(row, sort_keys=True, default=str) for row in rows]
    twice = (
        [one for before, one in itertools.pairwise(each) if one == before]
        if again
        else [text for text in texts if said.count(text) > 1]
    )
    found = []
    if missing:
        found.append(
            f"the transcript lacks {missing}: take() or mirror() adds what the model is sent, "
            "answered() an answer before its tools run, add() or mirror() what the host stores"
        )
    if twice:
        found.append(
            f"the transcript has {[_cut(one) for one in twice]} more than once: rows_of() has to "
            "make the same row of a message each time, or identity() has to know it again; nothing "
            "but HostSession adds messages. If the host's own messages say an answer again, as a "
            "final_answer tool does, set says_again = True"
        )
    order = sorted(texts, key=said.find)
    if not found and order != list(texts):
        found.append(f"expected {list(texts)} in this order, found {order}")
    return "\n".join([*found, "the transcript:", *_list(rows)]) if found else None


def of_requests(
    views: Sequence[Sequence[Any]],
    received: Sequence[Sequence[Any]],
    transcripts: Sequence[Sequence[Any]],
) -> str | None:
    """The first difference between the requests and the views of the log; None without one.

    ``views`` are those of the requests of the session, the last of which are this driver's;
    ``transcripts`` are the messages of the log at the same places, as the model would be shown
    them.
    """
    if not received:
        return (
            "the model received nothing: received() of the driver has to give a list of messages "
            "for each call, the system prompt first"
        )
    if len(views) < len(received):
        return (
            f"the model was called {len(received)} times, and the log has {len(views)} requests: "
            "call HostSession.prepare() before each call"
        )
    last = slice(-len(received), None)
    each = zip(views[last], received, transcripts[last], strict=True)
    for number, (view, request, transcript) in enumerate(each):
        if list(view) != list(request):
            head = f"request {number} of {len(received)} is not the view that the log has for it"
            return "\n".join([head, *_differing(view, request, transcript)])
    return None


def _differing(view: Sequence[Any], request: Sequence[Any], transcript: Sequence[Any]) -> list[str]:
    pairs = itertools.zip_longest(view, request, fillvalue="nothing")
    at = next(at for at, (one, other) in enumerate(pairs) if one != other)
    ours, theirs = (one[at] if at < len(one) else "nothing" for one in (view, request))
    lengths = f"of {len(view)} messages in the view, {len(request)} received"
    return [
        f"message {at}, {lengths}",
        f"  in the view:  {_from_difference(ours, theirs)}",
        f"  received:     {_from_difference(theirs, ours)}",
        _advice(view, request, transcript),
        "the view:",
        *_list(view),
        "received:",
        *_list(request),
    ]


def _advice(view: Sequence[Any], request: Sequence[Any], transcript: Sequence[Any]) -> str:
    """The likely mistake."""
    if list(request[1:]) in (list(view), list(view[1:])):
        return (
            "the view has another system prompt, or none: give prepare() the one that the host "
            "sends, as instructions="
        )
    if list(view[1:]) == list(request):
        return "the driver's received() begins each request with its system prompt"
    if len(view) == len(request) and not any(map(_pair_is_equal, zip(view, request, strict=True))):
        return (
            "no message is equal: shown() of the driver has to give a row in the form in which "
            "received() gives messages (the system prompt is a row of role system)"
        )
    if list(request[1:]) == list(transcript):
        return "the host's own list was sent: the model has to get what prepare() returned"
    if len(request) < len(view) and all(one in view for one in request):
        return (
            "the host sent less than the conversation: give it back what the log has, "
            "HostSession.messages(), when it starts; mirror() its list where it forgot a message; "
            "where it cut the list on purpose, tell sent()"
        )
    return (
        "the model has to get what prepare() returned, message by message: messages_of() may lose "
        "or change nothing (check_dialect finds that), and nothing after the adapter may. A list "
        "that the host cut is recorded by sent()"
    )


def _pair_is_equal(pair: tuple[Any, Any]) -> bool:
    return bool(pair[0] == pair[1])


def _list(messages: Sequence[Any]) -> list[str]:
    return [f"  {at}  {_cut(_text(one))}" for at, one in enumerate(messages)]


def _from_difference(one: Any, other: Any) -> str:
    """The text of a message from shortly before it differs from the other one's."""
    mine, theirs = _text(one), _text(other)
    alike = sum(1 for _ in itertools.takewhile(_pair_is_equal, zip(mine, theirs, strict=False)))
    start = max(alike - 60, 0)
    return ("…" if start else "") + _cut(mine[start:])


def _text(message: Any) -> str:
    return message if isinstance(message, str) else repr(message)


def _cut(text: str) -> str:
    return clip(text, _SHOWN + 1)
