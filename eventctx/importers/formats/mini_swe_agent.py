"""mini-swe-agent's ``.traj.json``: format 1 is text, 1.1 has tool calls; usage is in ``extra``.

``extra`` holds the whole provider response, which repeats the content. It is taken out of each row
and kept as ``Raw``; the rest of a row is the message. A row in role ``exit`` is no message, but
holds the end of the run. In format 1 the last row in role user is the submitted diff, which was
never sent. Only the first row in role user is a person's; one behind a model's row without calls is
the observation of the action in it, unless it complains about the answer's form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from eventctx.importers.source import harness
from eventctx.importers.source.document import envelope, outcome, read_object, stem
from eventctx.importers.source.items import (
    CallEnded,
    Ended,
    FileLine,
    Item,
    MessageItem,
    ModelCall,
    Raw,
    Session,
    TurnBegan,
    never,
)
from eventctx.importers.source.lines import (
    nanoseconds,
    not_understood,
    object_or_empty,
    text_or_none,
    without,
)
from eventctx.importers.source.values import encode
from eventctx.log.usage import OPENAI_CHAT, read_usage

NAME: Final = "mini-swe-agent"


def parse(lines: Iterable[FileLine], name: str, ended: Ended = never) -> Iterator[Item]:
    """The items of one trajectory file."""
    document, repaired = read_object(lines, name, "messages")
    rows: list[Any] = document["messages"]
    times = (_time(object_or_empty(object_or_empty(row).get("extra"))) for row in rows)
    yield Session(0, next((time for time in times if time is not None), None), stem(name))
    yield from repaired
    begun = acted = False
    for number, row in enumerate(rows, 1):
        role = row.get("role") if isinstance(row, dict) else None
        if not isinstance(role, str):
            yield from not_understood(number, "message", encode(row), "message without a role")
            continue
        if role == "exit":
            yield Raw(number, "exit", encode(row))
            continue
        if "extra" in row:
            yield Raw(number, "extra", encode(row["extra"]))
        message = without(row, "extra")
        extra = object_or_empty(row.get("extra"))
        time = _time(extra)
        if role == "assistant":
            yield _call(number, extra)
            yield MessageItem(number, time, message)
            yield CallEnded(number, time)
            acted = not row.get("tool_calls")
            continue
        task = role == "user" and not begun
        if task:
            begun = True
            yield TurnBegan(number, time)
        told = role == "user" and not task
        observed = told and acted and harness.may_be_observation(message)
        yield MessageItem(number, time, message, by_harness=told, observation=observed)
        acted = False
    yield from outcome(document, len(rows), exact=True)
    yield envelope(document, "messages")


def _call(number: int, extra: dict[str, Any]) -> ModelCall:
    response = object_or_empty(extra.get("response"))
    choices = response.get("choices")
    choice = object_or_empty(choices[0]) if isinstance(choices, list) and choices else {}
    return ModelCall(
        number,
        None,
        model=text_or_none(response.get("model")),
        provider=text_or_none(response.get("provider")),
        usage=read_usage(response.get("usage"), OPENAI_CHAT),
        finish_reason=text_or_none(choice.get("finish_reason")),
        response_id=text_or_none(response.get("id")),
    )


def _time(extra: dict[str, Any]) -> int | None:
    response = object_or_empty(extra.get("response"))
    return nanoseconds(extra.get("timestamp", response.get("created")))
