"""SWE-agent's ``.traj``: ``history`` is the conversation, ``trajectory`` a second copy by step.

Rows are in OpenAI's chat dialect with more keys (``agent``, ``thought``, ``action``) and are kept
as they are. There are no times and no usage per call; ``info.model_stats`` has totals only.
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
from eventctx.importers.source.lines import not_understood, object_or_empty, text_or_none
from eventctx.importers.source.values import encode, read_value

NAME: Final = "swe-agent"


def parse(lines: Iterable[FileLine], name: str, ended: Ended = never) -> Iterator[Item]:
    """The items of one trajectory file."""
    document, repaired = read_object(lines, name, "history")
    trajectory = document.get("trajectory")
    steps = trajectory if isinstance(trajectory, list) else []
    walked = ("history", "trajectory") if isinstance(trajectory, list) else ("history",)
    rows: list[Any] = document["history"]
    yield Session(0, None, stem(name), agent=_agent(rows))
    yield from repaired
    model = _model(document)
    begun = acted = False
    for number, row in enumerate(rows, 1):
        if number <= len(steps):
            yield Raw(number, "trajectory", encode(steps[number - 1]))
        if not isinstance(row, dict) or not isinstance(row.get("role"), str):
            yield from not_understood(number, "history", encode(row), "history row without a role")
            continue
        if row["role"] == "assistant" and not _demonstrates(row):
            yield ModelCall(number, None, model)
            yield MessageItem(number, None, row)
            yield CallEnded(number, None)
            acted = not row.get("tool_calls")
            continue
        # Later rows in role user hold observations, or complain about the answer's form.
        task = row["role"] == "user" and not begun and not _demonstrates(row)
        if task:
            begun = True
            yield TurnBegan(number, None)
        told = row["role"] == "user" and not task
        observed = told and acted and harness.may_be_observation(row)
        yield MessageItem(number, None, row, by_harness=told, observation=observed)
        acted = row["role"] == "assistant" and not row.get("tool_calls")
    for number in range(len(rows) + 1, len(steps) + 1):
        yield Raw(number, "trajectory", encode(steps[number - 1]))
    yield from outcome(document, len(rows), exact=False)
    yield envelope(document, *walked)


def _demonstrates(row: dict[str, Any]) -> bool:
    return bool(row.get("is_demo")) or row.get("message_type") == "demonstration"


def _agent(rows: list[Any]) -> str | None:
    """The agent that the rows are of, which demonstrations may name otherwise."""
    own = (row for row in rows if isinstance(row, dict) and not _demonstrates(row))
    return text_or_none(object_or_empty(next(own, None)).get("agent"))


def _model(document: dict[str, Any]) -> str | None:
    config = document.get("replay_config")
    if isinstance(config, str):
        # Some releases write it as JSON in a string.
        try:
            config, _ = read_value(config.encode())
        except ValueError:
            return None
    for key in ("agent", "model"):
        config = object_or_empty(config).get(key)
    return text_or_none(object_or_empty(config).get("name"))
