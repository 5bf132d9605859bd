"""Records for the tests of hooks: sessions written in one line per event."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

import eventctx
from eventctx.hooks.registry import Hooks
from eventctx.log import events as ev
from eventctx.log.codec import encode_event
from eventctx.log.plan import Plan, Run
from eventctx.log.record import Body, Draft, Record, make_body, place
from eventctx.projections.trace.fold import SessionTrace, fold
from eventctx.projections.trace.spans import Span

SECOND = 1_000_000_000
START = 1_790_000_000 * SECOND
HOST_TRACE = "a" * 31 + "1"
HOST_SPAN = "b" * 15 + "2"


class Session:
    """Makes the records of one stream, one second apart."""

    def __init__(self, name: str = "s1", at: int = 0) -> None:
        self.name = name
        self.records: list[Record] = []
        self._positions = count(at)

    def add(
        self,
        event: ev.Event,
        span: str | None = None,
        parent: str | None = None,
        *,
        turn: str | None = "t1",
        iteration: int | None = None,
        bodies: tuple[Body, ...] = (),
        at: int | None = None,
    ) -> Record:
        """Add a record a second behind the one before it, or at a time (UTC nanoseconds)."""
        kind, version, payload = encode_event(event)
        return self.raw(kind, payload, span, parent, turn, iteration, version, bodies, at)

    def tell(
        self, *rows: tuple[Any, ...], turn: str | None = "t1", iteration: int | None = None
    ) -> Session:
        """Add events, each with the numbers of its span and of the one around it, if any."""
        for event, *numbers in rows:
            ids = [None if number is None else span(number) for number in numbers]
            self.add(event, *ids, turn=turn, iteration=iteration)
        return self

    def raw(
        self,
        kind: str,
        payload: bytes = b"{}",
        span: str | None = None,
        parent: str | None = None,
        turn: str | None = None,
        iteration: int | None = None,
        version: int = 1,
        bodies: tuple[Body, ...] = (),
        time: int | None = None,
    ) -> Record:
        at = next(self._positions)
        known, time = at.to_bytes(16, "big"), START + at * SECOND if time is None else time
        draft = Draft(known, kind, version, time, payload, bodies, turn, span, parent, iteration)
        self.records.append(place(draft, self.name, at, at, bytes(32)))
        return self.records[-1]


def publish(session: Session, sink: Callable[[Record], None]) -> None:
    """Let a sink hear the session's records as an engine would; it must not raise."""
    hooks = Hooks()
    hooks.on("*", sink)
    for record in session.records:
        hooks.publish(record)
    assert not hooks.stats().errors


def spans(session: Session) -> dict[str, Span]:
    return {one.span_id: one for one in fold(session.records)}


def filled(records: Iterable[Record], clean: Callable[[str], str] = str) -> list[Span]:
    """All spans of a log that was read with its bodies, with contents; unfinished ones last."""
    state, found = SessionTrace.start(clean), list[Span]()
    for record in records:
        state = state.after(record)
        found += state.finished
    return [*found, *state.unfinished()]


async def recorded(engine: eventctx.Engine, session: str = "s") -> list[Record]:
    return [record async for record in engine.records(session, bodies=True)]


async def call_model(cycle: eventctx.Iteration, model: str = "m") -> None:
    """A call of which nothing is known but that it ended."""
    async with cycle.provider_call(model):
        pass


def span(number: int) -> str:
    return f"{number:016x}"


def body(text: str = "hello") -> Body:
    return make_body(text.encode(), b"", lambda n: bytes(n))


def compacted(outcome: ev.Outcome = "applied", **more: Any) -> ev.PostCompact:
    plan = Plan(through=9, runs=(Run(0, 5, "dropped", "older"), Run(6, 9, "kept", "recent")))
    applied = outcome == "applied"
    sizes = {"messages_before": 10, "messages_after": 4 if applied else 10}
    sizes |= {"tokens_before": 1000, "tokens_after": 400 if applied else 1000}
    return ev.PostCompact(
        outcome=outcome,
        trigger="threshold",
        strategy="sliding",
        strategy_version=1,
        estimator="kinds",
        plan=plan if applied else None,
        duration=SECOND // 2,
        **(sizes | more),
    )


PRE = ev.PreCompact(
    trigger="threshold", strategy="sliding", strategy_version=1, tokens=1000, messages=10
)


class E:
    """Events without a word of their own: of a turn, a call of the model, and a tool's."""

    SUBMIT, DONE = ev.PromptSubmit(number=1), ev.PromptComplete()
    ASK, ANSWER = ev.ProviderRequest(model="m"), ev.ProviderResponse(model="m")
    USE, USED = ev.ToolPre(name="x"), ev.ToolPost(name="x")


def prepared(plan: int | None = None) -> ev.RequestPrepared:
    return ev.RequestPrepared(
        renderer=1, last_message=3, messages=4, tokens=400, digest="d" * 64, plan=plan
    )


def whole_turn(session: Session, turn: str = "t1", base: int = 0x100) -> list[Record]:
    """One turn: a message, a compaction, a model call, two parallel tools, a second model call."""
    begin = len(session.records)

    def add(
        event: ev.Event, own: int = 0, parent: int | None = base, iteration: int | None = None
    ) -> int:
        session.tell((event, base + own, parent), turn=turn, iteration=iteration)
        return session.records[-1].position

    add(ev.PromptSubmit(number=1, agent="helper"), parent=None)
    add(ev.MessageAdded(), parent=None)
    add(PRE, 1, iteration=1)
    plan = add(compacted(), 1, iteration=1)
    one = add(prepared(plan), iteration=1, parent=None)
    add(ev.ProviderRequest(model="m1", provider="p", prepared=one), 2, iteration=1)
    add(ev.ProviderResponse(model="m1", response_id="r", finish_reason="tool_use"), 2, iteration=1)
    add(ev.UsageReported(prompt=410, output=7, cache_read=0), 2, iteration=1)
    add(ev.ToolPre(name="read", call_id="c1"), 3, iteration=1)
    add(ev.ToolPre(name="grep", call_id="c2"), 4, iteration=1)
    add(ev.ToolPost(name="grep", call_id="c2"), 4, iteration=1)
    add(ev.ToolError(name="read", error_type="OSError", message="gone"), 3, iteration=1)
    two = add(prepared(plan), iteration=2, parent=None)
    add(ev.ProviderRequest(model="m1", provider="p", prepared=two), 5, iteration=2)
    add(ev.ProviderResponse(model="m1"), 5, iteration=2)
    add(E.DONE, parent=None)
    return session.records[begin:]
