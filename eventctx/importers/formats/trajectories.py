"""Trajectories of SWE-agent (``.traj``) and of mini-swe-agent (``.traj.json``).

SWE-agent: ``history`` is the conversation, ``trajectory`` a second copy by step. Rows are in
OpenAI's chat dialect with more keys (``agent``, ``thought``, ``action``) and are kept as they are.
There are no times and no usage per call; ``info.model_stats`` has totals only.

mini-swe-agent: format 1 is text, 1.1 has tool calls; usage is in ``extra``, which holds the whole
provider response and repeats the content. It is taken out of each row and kept as ``Raw``; the rest
of a row is the message. A row in role ``exit`` is no message, but holds the end of the run. In
format 1 the last row in role user is the submitted diff, which was never sent.

In both, only the first row in role user is a person's. One after a model's row without calls is the
observation of the action in it, unless it complains about the answer's form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from eventctx.errors import InvalidMessage
from eventctx.importers.formats import chat
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
from eventctx.importers.source.values import encode, read_value
from eventctx.log.usage import OPENAI_CHAT, read_usage
from eventctx.messages.facts_reader import read_facts


def is_swe_agent(value: object) -> bool:
    """Whether a document is a trajectory of SWE-agent."""
    history = value.get("history") if isinstance(value, dict) else None
    return isinstance(history, list) and (not history or chat.holds_plain(history))


def is_mini(value: object) -> bool:
    """Whether a document is a trajectory of mini-swe-agent."""
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        return False
    info = object_or_empty(value.get("info"))
    marked = str(value.get("trajectory_format", "")).startswith("mini-swe-agent")
    return marked or "exit_status" in info or "mini_version" in info


class _Run:
    """The state from row to row: whether the task was given, and whether the model just acted."""

    def __init__(self) -> None:
        self._begun = self._acted = False

    def items(
        self,
        number: int,
        time: int | None,
        message: dict[str, Any],
        call: ModelCall | None,
        *,
        demonstrates: bool = False,
    ) -> Iterator[Item]:
        """The items of a row; ``call`` is the one that it answers."""
        role = message["role"]
        if call is not None:
            yield call
            yield MessageItem(number, time, message)
            yield CallEnded(number, time)
        else:
            task = role == "user" and not self._begun and not demonstrates
            if task:
                self._begun = True
                yield TurnBegan(number, time)
            told = role == "user" and not task
            observed = told and self._acted and _may_be_observation(message)
            yield MessageItem(number, time, message, by_harness=told, observation=observed)
        self._acted = role == "assistant" and not message.get("tool_calls")


def _may_be_observation(message: dict[str, Any]) -> bool:
    """Whether a program's message may be a result: a harness's own texts are told by their form."""
    try:
        return read_facts(message).human
    except InvalidMessage:
        return False


# -- SWE-agent -----------------------------------------------------------------------------------


def parse_swe_agent(lines: Iterable[FileLine], name: str, ended: Ended = never) -> Iterator[Item]:
    """The items of one trajectory file."""
    document, repaired = read_object(lines, name, "history")
    trajectory = document.get("trajectory")
    steps = trajectory if isinstance(trajectory, list) else []
    walked = ("history", "trajectory") if isinstance(trajectory, list) else ("history",)
    rows: list[Any] = document["history"]
    yield Session(0, None, stem(name), agent=_agent(rows))
    yield from repaired
    model = _model(document)
    run = _Run()
    for number, row in enumerate(rows, 1):
        if number <= len(steps):
            yield Raw(number, "trajectory", encode(steps[number - 1]))
        if not isinstance(row, dict) or not isinstance(row.get("role"), str):
            yield from not_understood(number, "history", encode(row), "history row without a role")
            continue
        demonstrates = _demonstrates(row)
        answers = row["role"] == "assistant" and not demonstrates
        call = ModelCall(number, None, model) if answers else None
        yield from run.items(number, None, row, call, demonstrates=demonstrates)
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


# -- mini-swe-agent ------------------------------------------------------------------------------


def parse_mini(lines: Iterable[FileLine], name: str, ended: Ended = never) -> Iterator[Item]:
    """The items of one trajectory file."""
    document, repaired = read_object(lines, name, "messages")
    rows: list[Any] = document["messages"]
    times = (_time(object_or_empty(object_or_empty(row).get("extra"))) for row in rows)
    yield Session(0, next((time for time in times if time is not None), None), stem(name))
    yield from repaired
    run = _Run()
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
        extra = object_or_empty(row.get("extra"))
        call = _call(number, extra) if role == "assistant" else None
        yield from run.items(number, _time(extra), without(row, "extra"), call)
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
