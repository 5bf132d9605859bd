"""Turns on any context manager: with ids everywhere, and recorded where the context records."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from eventctx.errors import TurnError
from eventctx.log.events import Event
from eventctx.log.ids import CurrentSpan, chosen_turn_id, new_span_id, random_bytes
from eventctx.orchestrators.protocol import Ids
from eventctx.session.scope import Scope, current_scope
from eventctx.session.turns import ProviderCall, Turn


class Unrecorded:
    """The ``Emitter`` of a context without a log: spans get ids, and nothing is recorded."""

    current_span: CurrentSpan | None = None

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id

    def new_span_id(self) -> str:
        """A fresh span id."""
        return new_span_id(random_bytes)

    async def begin_turn(self, scope: Scope, agent: str | None, trace_id: str | None) -> int:
        """Always 1, because the turns are not counted."""
        return 1

    def prepared_in(self, scope: Scope) -> int | None:
        """None, because requests have no positions."""
        return None

    def first_usage(self, response_id: str | None) -> bool:
        """True, because nothing is recorded twice."""
        return True

    async def has_open_calls(self, beside: str | None) -> bool:
        """False, because no answer is kept."""
        return False

    async def emit(self, event: Event, scope: Scope, answer: str | None = None) -> None:
        """Do nothing."""


def turn_of(
    context: Any, turn_id: str | None, session_id: str | None, agent: str | None = None
) -> Turn:
    """A turn on ``context``, by the context's own ``turn`` where it has one.

    ``session_id`` is used for a context without one of its own. Raises InvalidSetting.
    """
    if turn_id is not None:
        chosen_turn_id(turn_id, random_bytes)
    own = getattr(context, "turn", None)
    if callable(own):
        # Without an id, one from the session's own source.
        turn = own(turn_id) if agent is None else own(turn_id, agent=agent)
        if isinstance(turn, Turn):
            return turn
    known = getattr(context, "session_id", None)
    name = known if isinstance(known, str) and known else session_id
    return Turn(Unrecorded(name or uuid.uuid4().hex), chosen_turn_id(turn_id, random_bytes), agent)


def ids_of(scope: Scope) -> Ids:
    """The ids of a scope, in the form that providers, tools and hooks get."""
    return Ids(
        scope.session_id,
        scope.turn_id,
        scope.span_id,
        scope.parent_span_id,
        scope.iteration,
        scope.trace_id,
    )


def current_ids() -> Ids | None:
    """The ids of the call in which the running task is, for tools and the code they call.

    None outside of a turn.
    """
    scope = current_scope()
    return None if scope is None else ids_of(scope)


async def prepared(
    context: Any,
    provider: Any,
    definitions: Sequence[dict[str, Any]],
    model: str | None,
    call: ProviderCall,
) -> list[dict[str, Any]]:
    """The messages that ``call`` is to send now.

    ``tools``, ``model``, ``call`` and the provider's ``thinking`` are passed to a context that
    takes them. Raises TurnError for
    a context that does not return a list of dicts, and what the context raises.
    """
    ask = context.get_messages_for_request
    known: Mapping[str, Any]
    try:
        known = inspect.signature(ask).parameters
    except (TypeError, ValueError):  # not written in Python
        known = {}
    more: dict[str, Any] = {}
    if "tools" in known:
        more["tools"] = list(definitions) or None
    if "model" in known:
        more["model"] = model
    if "call" in known:
        more["call"] = call
    if "thinking" in known:
        more["thinking"] = getattr(provider, "thinking", None)
    messages = await ask(provider=provider, **more)
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        raise TurnError(
            "get_messages_for_request: expected a list of dicts, "
            f"found {type(messages).__name__}: mount a context manager that keeps the contract"
        )
    return messages


async def record_additions(
    context: Any,
    position: int | None,
    made: Sequence[dict[str, Any]],
    sent: Sequence[dict[str, Any]],
) -> None:
    """Record the messages that hooks added to the request prepared at ``position``.

    ``sent`` holds the prepared messages ``made``, of which the last may have been changed, and
    then the added ones. A context without ``record_sent`` records nothing.
    """
    record = getattr(context, "record_sent", None)
    if position is None or not callable(record) or list(made) == list(sent):
        return
    same = len(made) if list(made) == list(sent[: len(made)]) else len(made) - 1
    additions = [(min(place, len(made)), row) for place, row in enumerate(sent) if place >= same]
    await record(position, len(sent), additions, made[same:])
