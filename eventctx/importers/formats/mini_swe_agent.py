"""mini-swe-agent's ``.traj.json``: format 1 is text, 1.1 has tool calls; usage lies in ``extra``.

``extra`` (the whole provider response, so the content a second time) is taken out of each row and
kept as ``Raw``; the rest of a row is the message. A row in role ``exit`` is none: it tells how the
run ended. In format 1 the last user row is the submitted diff. It was never sent, so no call
follows it, and no row but the first in role user is a person's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from eventctx.importers.source.document import envelope, read_object, stem
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
    TurnEnded,
    Warned,
    never,
)
from eventctx.importers.source.lines import (
    encode,
    nanoseconds,
    object_or_empty,
    text_or_none,
)
from eventctx.log.usage import OPENAI_CHAT, read_usage

NAME: Final = "mini-swe-agent"


def parse(lines: Iterable[FileLine], name: str, ended: Ended = never) -> Iterator[Item]:
    """The items of one trajectory file."""
    document, repaired = read_object(lines, name, "messages")
    rows: list[Any] = document["messages"]
    times = (_time(object_or_empty(object_or_empty(row).get("extra"))) for row in rows)
    yield Session(0, next((time for time in times if time is not None), None), stem(name))
    yield from repaired
    begun = False
    for number, row in enumerate(rows, 1):
        role = row.get("role") if isinstance(row, dict) else None
        if not isinstance(role, str):
            yield Raw(number, "message", encode(row), understood=False)
            yield Warned(number, "message without a role")
            continue
        if role == "exit":
            yield Raw(number, "exit", encode(row))
            continue
        if "extra" in row:
            yield Raw(number, "extra", encode(row["extra"]))
        message = {key: value for key, value in row.items() if key != "extra"}
        extra = object_or_empty(row.get("extra"))
        time = _time(extra)
        if role == "assistant":
            yield _call(number, extra)
            yield MessageItem(number, time, message)
            yield CallEnded(number, time)
            continue
        if role == "user" and not begun:
            begun = True
            yield TurnBegan(number, time)
        yield MessageItem(number, time, message)
    yield from _outcome(document, len(rows))
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


def _outcome(document: dict[str, Any], line: int) -> Iterator[Item]:
    status = text_or_none(object_or_empty(document.get("info")).get("exit_status"))
    if status:
        if status.lower() == "submitted":
            yield TurnEnded(line, None)
        else:
            yield TurnEnded(line, None, "error", status)
