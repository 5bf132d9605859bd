"""Arguments that make no sense: an error that says what was expected and found, and no record."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

import eventctx
from eventctx.engine import Engine
from eventctx.errors import InvalidSessionId, InvalidSetting, UnknownEventName
from eventctx.log import events
from eventctx.session.context import Context
from eventctx.session.turns import Turn
from eventctx.stores.memory import MemoryStore
from tests.session.given import opened
from tests.sessions import USER, names

SURROGATE = "a\ud800"
NO_TEXT: list[Any] = [5, b"x", ["x"], {}, True, 1.5, SURROGATE]
NO_ID: list[Any] = [*NO_TEXT, None, "", "a/b", "..", "a\nb", "x" * 300]
NO_INT: list[Any] = ["5", 1.0, 1.5, True, [1], {}, float("nan")]
NO_POSITION: list[Any] = [*NO_INT, -1, 2**63, 10**5000]
NO_TOKENS: list[Any] = [*NO_INT, 0, -1, 10**12 + 1, 10**30, 10**5000]
NO_COUNT: list[Any] = [*NO_INT, -5, 10**12 + 1, 2**63, 2**64, 10**5000]
NO_FLAG: list[Any] = ["no", 1, [], 0.0]
NO_OBJECT: list[Any] = [5, "x", b"x"]
NO_LIST: list[Any] = [5, "x", b"x", True, None, {"role": "user"}, 1.5]
NO_TOOLS: list[Any] = [5, "x", b"x", True, {"name": "f"}, [5], ["f"], [None]]
NO_POLICY: list[Any] = [5, b"x", SURROGATE]
NO_PRIORITY: list[Any] = ["1", 1.5, None]
NO_NAME: list[Any] = [5, ["x"], {}, SURROGATE]
PRE: Final = "context:pre_compact"
NO_ADDITIONS: list[Any] = [
    *[-5, 1.5, True, None, "x"],
    *[[5], [(1,)], [("1", {"role": "user"})], [(-1, {"role": "user"})]],
]


def _shown(value: Any) -> str:
    return "a long int" if type(value) is int and abs(value) > 2**70 else ascii(value)[:60]


class Place(NamedTuple):
    """An engine with a session in a turn, to try calls in."""

    engine: Engine
    context: Context
    turn: Turn


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with eventctx.open() as engine:
        context = await engine.session("s")
        async with context.turn() as turn:
            await context.add_message({"role": "user", "content": "hello"})
            await context.get_messages_for_request()
            await context.close()
            yield Place(engine, context, turn)


async def _iteration(turn: Turn, use: Callable[[Any], Any], *, call: bool = False) -> None:
    """Use an iteration, which is no record, or a model call, whose beginning and end are."""
    async with turn.iteration() as cycle:
        found = use(cycle.provider_call("m") if call else cycle)
        if isinstance(found, Awaitable):
            await found


def _called(turn: Turn, use: Callable[[Any], Any]) -> Awaitable[None]:
    return _iteration(turn, use, call=True)


Call = Callable[[Place, Any], Any]

SETTINGS: dict[str, list[Any]] = {
    "max_tokens": NO_TOKENS,
    "reserve_tokens": NO_COUNT,
    "storage_path": NO_TEXT,
    "auto_compact": NO_FLAG,
    "export_on_compact": NO_FLAG,
    "compact_threshold": ["0.5", True, 2, 1.5, -1, 0, float("nan"), float("inf")],
    "target_usage": [0.95],
    "prepare_at": [-0.1, 1.5, "soon", True],
    "adviser_timeout": ["5", True, 0, -1, float("nan"), 10**400],
    "on_overflow": ["panic"],
    "policy": [*NO_POLICY, [], "psychic"],
    "summarizer": NO_OBJECT,
    "tokenizer": NO_OBJECT,
}
OF_SIMPLE: dict[str, list[Any]] = {"keep_recent": [*NO_INT, 0, -1, 10**5000], "max_messages": [3]}


def _setting(name: str, **others: Any) -> Call:
    return lambda place, value: place.engine.session("n", **others, **{name: value})


CALLS: dict[str, tuple[list[Any], Call]] = {
    # -- Engine
    "session": (NO_ID, lambda p, v: p.engine.session(v)),
    **{f"session: {one}": (values, _setting(one)) for one, values in SETTINGS.items()},
    **{
        f"session: {one}": (values, _setting(one, policy="simple"))
        for one, values in OF_SIMPLE.items()
    },
    "compaction_threshold": ([0.9], _setting("compaction_threshold", compact_threshold=1)),
    "fork": (NO_ID, lambda p, v: p.engine.fork(v, 0, "n")),
    "fork: at": ([*NO_POSITION, None], lambda p, v: p.engine.fork("s", v, "n")),
    "fork: new": (NO_ID, lambda p, v: p.engine.fork("s", 0, v)),
    "link: parent": (NO_ID, lambda p, v: p.engine.link(v, "s")),
    "link: child": (NO_ID, lambda p, v: p.engine.link("s", v)),
    "link: kind": ([*NO_TEXT, None], lambda p, v: p.engine.link("s", "s", kind=v)),
    "link: call_id": (NO_TEXT, lambda p, v: p.engine.link("s", "s", call_id=v)),
    "records": (NO_ID, lambda p, v: anext(p.engine.records(v))),
    "records: start": (NO_POSITION, lambda p, v: anext(p.engine.records("s", v))),
    "records: stop": (NO_POSITION, lambda p, v: anext(p.engine.records("s", 0, v))),
    "transcript": (NO_ID, lambda p, v: p.engine.transcript(v)),
    "transcript: at": (NO_POSITION, lambda p, v: p.engine.transcript("s", at=v)),
    "transcript: turn": (NO_POSITION, lambda p, v: p.engine.transcript("s", turn=v)),
    "request_view": (NO_ID, lambda p, v: p.engine.request_view(v, 1)),
    "request_view: turn": (NO_POSITION, lambda p, v: p.engine.request_view("s", v)),
    "request_view: iteration": (NO_POSITION, lambda p, v: p.engine.request_view("s", 1, v)),
    "request_view: at": (NO_POSITION, lambda p, v: p.engine.request_view("s", position=v)),
    "audit": (NO_ID, lambda p, v: p.engine.audit(v)),
    "verify": (NO_ID, lambda p, v: p.engine.verify(v)),
    "verify: receipt": ([5, "x", ("s", 1)], lambda p, v: p.engine.verify("s", v)),
    "why": (NO_ID, lambda p, v: p.engine.why(v, 0)),
    "why: number": ([*NO_POSITION, None], lambda p, v: p.engine.why("s", v)),
    "why: turn": (NO_POSITION, lambda p, v: p.engine.why("s", 0, turn=v)),
    "why: iteration": (NO_POSITION, lambda p, v: p.engine.why("s", 0, turn=1, iteration=v)),
    "why: position": (NO_POSITION, lambda p, v: p.engine.why("s", 0, position=v)),
    "diff": (NO_ID, lambda p, v: p.engine.diff(v, 1, 1)),
    "diff: turn": ([*NO_POSITION, None], lambda p, v: p.engine.diff("s", v, 1)),
    "diff: by": (NO_TEXT, lambda p, v: p.engine.diff("s", 1, 1, by=v)),
    "lost": (NO_ID, lambda p, v: p.engine.lost(v)),
    "lost: turn": (NO_POSITION, lambda p, v: p.engine.lost("s", turn=v)),
    "lost: compaction": (NO_POSITION, lambda p, v: p.engine.lost("s", compaction=v)),
    "dry_run": (NO_ID, lambda p, v: p.engine.dry_run(v)),
    "dry_run: max_tokens": (NO_TOKENS, lambda p, v: p.engine.dry_run("s", max_tokens=v)),
    "dry_run: policy": (NO_POLICY, lambda p, v: p.engine.dry_run("s", policy=v)),
    "dry_run: reason": (NO_TEXT, lambda p, v: p.engine.dry_run("s", reason=v)),
    "dry_run: keep": (NO_TEXT, lambda p, v: p.engine.dry_run("s", keep=v)),
    "recall": ([*NO_TEXT, None], lambda p, v: p.engine.recall(v)),
    "recall: session": (NO_TEXT, lambda p, v: p.engine.recall("hello", v)),
    "recall: limit": (NO_POSITION, lambda p, v: p.engine.recall("hello", limit=v)),
    "close_session": (NO_ID, lambda p, v: p.engine.close_session(v)),
    # -- Context
    "budget": (NO_TOKENS, lambda p, v: p.context.get_messages_for_request(v)),
    "model": (NO_TEXT, lambda p, v: p.context.get_messages_for_request(model=v)),
    "tools": (NO_TOOLS, lambda p, v: p.context.get_messages_for_request(tools=v)),
    "compact: reason": (NO_TEXT[:-1], lambda p, v: p.context.compact(reason=v)),
    "compact: keep": (NO_TEXT, lambda p, v: p.context.compact(keep=v)),
    "compact: budget": (NO_TOKENS, lambda p, v: p.context.compact(budget=v)),
    "compact: policy": (NO_POLICY, lambda p, v: p.context.compact(policy=v)),
    "compact: dry_run": (NO_FLAG, lambda p, v: p.context.compact(dry_run=v)),
    "pin": ([*NO_POSITION, None], lambda p, v: p.context.pin(v)),
    "unpin": ([*NO_POSITION, None], lambda p, v: p.context.unpin(v)),
    "restore": ([*NO_POSITION, None], lambda p, v: p.context.restore(v)),
    "turn: id": ([*NO_TEXT, "", "x" * 300], lambda p, v: p.context.turn(v)),
    "turn: agent": (NO_TEXT, lambda p, v: p.context.turn(agent=v)),
    "record_sent: prepared": (NO_POSITION, lambda p, v: p.context.record_sent(v, 1, [])),
    "record_sent: messages": (NO_POSITION, lambda p, v: p.context.record_sent(1, v, [])),
    "record_sent: missing": (NO_POSITION, lambda p, v: p.context.record_sent(1, 1, [], v)),
    "record_sent: additions": (NO_ADDITIONS, lambda p, v: p.context.record_sent(1, 1, v)),
    "emit": ([5, "x", None], lambda p, v: p.context.emit(v)),
    "emit: usage": (NO_COUNT, lambda p, v: p.context.emit(events.UsageReported(prompt=v))),
    "emit: model": (NO_NAME, lambda p, v: p.context.emit(events.ProviderRequest(model=v))),
    "recall_tool": (NO_POSITION, lambda p, v: p.context.recall_tool(limit=v)),
    "hook: priority": (NO_PRIORITY, lambda p, v: p.engine.on("*", print, priority=v)),
    "interceptor: name": ([*NO_NAME, b"x", None], lambda p, v: p.engine.intercept(v, print)),
    "interceptor: priority": (NO_PRIORITY, lambda p, v: p.engine.intercept(PRE, print, priority=v)),
    "set_messages": (NO_LIST, lambda p, v: p.context.set_messages(v)),
    "resume_messages": (NO_LIST, lambda p, v: p.context.resume_messages(v)),
    "set_system_prompt": (NO_TEXT[:-1], lambda p, v: p.context.set_system_prompt(v)),
    "on: handler": ([None, *NO_OBJECT], lambda p, v: p.context.on("*", v)),
    # -- Turn
    "iteration": ([*NO_POSITION, 2**31], lambda p, v: p.turn.iteration(v)),
    "provider_call": (NO_TEXT, lambda p, v: _iteration(p.turn, lambda c: c.provider_call(v))),
    "call: by": (NO_TEXT, lambda p, v: _iteration(p.turn, lambda c: c.provider_call("m", v))),
    "tool_call": ([*NO_TEXT, None], lambda p, v: _iteration(p.turn, lambda c: c.tool_call(v))),
    "tool_call: id": (NO_TEXT, lambda p, v: _iteration(p.turn, lambda c: c.tool_call("f", v))),
    "plan": (NO_TEXT, lambda p, v: _iteration(p.turn, lambda c: c.plan(v))),
    "call: model": (NO_TEXT, lambda p, v: _called(p.turn, lambda c: setattr(c, "model", v))),
    "finished": (NO_TEXT, lambda p, v: _called(p.turn, lambda c: c.finished(v))),
    "finished: id": (NO_TEXT, lambda p, v: _called(p.turn, lambda c: c.finished("end", v))),
    "usage": (NO_COUNT, lambda p, v: _called(p.turn, lambda c: c.usage(v, 3))),
    "usage: output": (NO_COUNT, lambda p, v: _called(p.turn, lambda c: c.usage(3, v))),
    "usage: cache": (NO_COUNT, lambda p, v: _called(p.turn, lambda c: c.usage(3, cache_read=v))),
}


@pytest.mark.parametrize("call", CALLS)
async def test_a_bad_argument_is_refused_and_writes_nothing(call: str, place: Place) -> None:
    values, use = CALLS[call]
    before = [info.head for info in await place.engine.sessions()]
    wrong: list[str] = []
    named = call.partition("session: ")[2]
    for value in values:
        try:
            async with asyncio.timeout(60):
                found = use(place, value)
                if isinstance(found, Awaitable):
                    await found
        except (InvalidSetting, InvalidSessionId, UnknownEventName) as error:
            said = str(error).lower()
            told = "expected" in said and ("found" in said or "got" in said) and named in said
            if not told or len(said) > 500:
                wrong.append(f"{_shown(value)}: {said[:200]}")
        except Exception as error:
            wrong.append(f"{_shown(value)}: {type(error).__name__} {str(error)[:200]}")
        else:
            wrong.append(f"{_shown(value)}: no error")
    assert not wrong, "\n".join(wrong)
    assert [info.head for info in await place.engine.sessions()] == before


@pytest.mark.parametrize(
    "time", [None, "now", 1.5, True, -1, 2**63, 10**5000, float("nan"), b"1"], ids=_shown
)
async def test_a_clock_that_gives_no_time_is_refused_and_writes_nothing(time: Any) -> None:
    with pytest.raises(InvalidSetting, match="clock: expected a function"):
        Engine(MemoryStore(), clock=time)
    times: list[Any] = [time]
    engine = Engine(MemoryStore(), clock=lambda: times[0])
    with pytest.raises(InvalidSetting, match=r"clock: expected .* found"):
        await engine.session("s")
    assert await engine.sessions() == []
    times[0] = 1
    context = await engine.session("s")
    times[0] = time
    for call in (
        lambda: context.add_message({"role": "user", "content": "x"}),
        context.get_messages_for_request,
        context.clear,
    ):
        with pytest.raises(InvalidSetting, match="clock: expected"):
            await call()
    assert [info.head for info in await engine.sessions()] == [0]


@pytest.mark.parametrize(
    "url", [5, None, b"x.db", ["x.db"], "a\0b", "a\ud800b", "ftp://x"], ids=_shown
)
async def test_what_is_no_place_of_a_store_is_an_invalid_setting(url: Any) -> None:
    with pytest.raises(InvalidSetting, match=r"store: expected .* found"):
        await eventctx.open(url)


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("lock_timeout", ["5", None, -1, float("nan"), True, [1]]),
        ("durability", ["none", 5, True]),
        ("create", ["no", 5, None]),
        ("clock", [5, "now", None]),
        ("random", [5, "x", None]),
    ],
)
async def test_a_bad_option_of_a_store_is_refused(
    option: str, values: list[Any], tmp_path: Path
) -> None:
    for value in values:
        options: dict[str, Any] = {option: value}
        with pytest.raises(InvalidSetting, match=rf"{option}: expected .* found"):
            await eventctx.open(tmp_path / "store.db", **options)


@pytest.mark.parametrize(
    "event",
    [
        events.MessageAdded(),
        events.MessagesSet(order=((0, 3),)),
        events.Cleared(messages=1),
        events.Erased(numbers=(0,), bodies=((1, 0),)),
        events.SessionStart(library="mine"),
        events.PromptSubmit(number=7),
        events.RequestPrepared(1, 9, messages=10, tokens=1, digest="00", estimator="e"),
    ],
    ids=lambda event: type(event).__name__,
)
async def test_an_event_with_a_command_of_its_own_has_no_other_way_in(event: Any) -> None:
    engine, ctx = await opened(USER)
    before = await names(engine)
    refused = f"{event.__struct_config__.tag} is written by the command that it records"
    with pytest.raises(InvalidSetting, match=refused):
        await ctx.emit(event)
    assert await names(engine) == before
    assert await ctx.get_messages_for_request() == [USER]
