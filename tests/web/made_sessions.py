"""Made sessions in which everything happens that changes a view, for the browser to agree on."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import eventctx
from eventctx.cli.demo.play import Player
from eventctx.cli.demo.run import BUDGET, SAMPLE
from eventctx.engine import Engine
from eventctx.errors import ContextOverflow
from eventctx.importers.detect import choose
from eventctx.importers.source.lines import read_lines
from eventctx.policies.advisers import Verdict
from eventctx.policies.named import policy_named
from eventctx.queries.transfer import import_drafts, read_drafts
from eventctx.stores.memory import MemoryStore
from tests.sessions import model, tool_round
from tests.sessions import user as person

GOLDEN = Path(__file__).parents[1] / "golden"
SESSIONS: dict[str, Callable[[], Awaitable[tuple[Engine, str]]]] = {}
Row = dict[str, Any]


def session(make: Callable[[Engine], Awaitable[str | None]]) -> object:
    """Take a made session into the list; its name is ``s`` where it says no other."""

    async def made() -> tuple[Engine, str]:
        engine = Engine(MemoryStore())
        return engine, await make(engine) or "s"

    SESSIONS[make.__name__] = made
    return make


def calls(*ids: str) -> Row:
    blocks = [{"type": "tool_use", "id": one, "name": "read", "input": {}} for one in ids]
    return {"role": "assistant", "content": blocks}


def results(*ids: str, size: int = 40) -> Row:
    blocks = [{"type": "tool_result", "tool_use_id": one, "content": "z" * size} for one in ids]
    return {"role": "user", "content": blocks}


async def in_short(request: object) -> str:
    return "In short: all went well."


async def begun(engine: Engine, rounds: int = 12, **options: Any) -> eventctx.Context:
    """A session with a task and some rounds, each with its request."""
    ctx = await engine.session("s", **{"summarizer": in_short, **options})
    await ctx.add_message(person("Fix the tests. Never touch the migrations."))
    for number in range(rounds):
        async with ctx.turn():
            await say(ctx, person(f"and number {number}?"), *tool_round(number, 300 * number))
    return ctx


async def say(ctx: eventctx.Context, *messages: Row, model: str | None = None) -> None:
    """Add messages, each followed by a request."""
    for message in messages:
        await ctx.add_message(message)
        with contextlib.suppress(ContextOverflow):
            await ctx.get_messages_for_request(model=model)


@session
async def the_demo(engine: Engine) -> str:
    ctx = await engine.session("demo", max_tokens=BUDGET, on_overflow="send_floor")
    items = choose(SAMPLE, None).parse(read_lines(SAMPLE), SAMPLE.name, lambda: True)
    player = Player(ctx, BUDGET, began=lambda *_: None, ended=lambda _: None)
    await player.play(items)
    return "demo"


async def exported(engine: Engine, name: str) -> str:
    _, *lines = (GOLDEN / name).read_bytes().splitlines()
    await import_drafts(engine.store, "again", read_drafts(lines))
    return "again"


@session
async def the_first_format(engine: Engine) -> str:
    return await exported(engine, "export-v1.jsonl")


@session
async def one_that_crashed(engine: Engine) -> str:
    return await exported(engine, "export-v1-crashed.jsonl")


@session
async def every_policy(engine: Engine) -> None:
    ctx = await begun(engine)
    for place, name in enumerate(("ladder", "truncate", "summarize", "simple", "workset")):
        await ctx.compact(policy=policy_named(name))
        await say(ctx, person(f"go on {place}"), *tool_round(100 + place, 9_000), model("done"))


@session
async def a_small_window(engine: Engine) -> None:
    ctx = await begun(engine, 30, max_tokens=3_000, on_overflow="send_floor")
    await say(ctx, person("And now?"), model("Nothing."))


@session
async def sets_and_clears(engine: Engine) -> None:
    ctx = await begun(engine)
    rows = await ctx.get_messages()
    await ctx.set_messages([*rows[:5], *rows[9:], person("new")])
    await say(ctx, model("yes"))
    await ctx.compact(policy=policy_named("simple", {"keep_recent": 4}))
    rows = await ctx.get_messages()
    await ctx.set_messages([person("other"), *rows[:20], *rows[24:]])
    await say(ctx, model("again"))
    await ctx.clear()
    await say(ctx, person("from nothing"), *tool_round(7, 50))


@session
async def one_that_begins_with_the_model(engine: Engine) -> None:
    ctx = await begun(engine, 3)
    rows = await ctx.get_messages()
    await ctx.set_messages([model("I begin."), *rows[4:], person("same"), person("same")])
    await say(ctx, person("same"), *tool_round(9))
    await ctx.compact(policy=policy_named("simple", {"keep_recent": 3}))
    await say(ctx, model("end"))


@session
async def restores_and_pins(engine: Engine) -> None:
    ctx = await begun(engine)
    await ctx.pin(3, 8)
    await ctx.compact(policy=policy_named("simple", {"keep_recent": 3}))
    await say(ctx, person("what was it?"))
    await ctx.restore(6, 7)
    await say(ctx, model("this"))
    await ctx.compact(policy=policy_named("simple", {"keep_recent": 3}))
    await say(ctx, person("7 is gone again"))
    await ctx.unpin(3)
    await ctx.compact(policy=policy_named("ladder"))
    await say(ctx, person("and?"))
    await ctx.restore(11, 2)
    await say(ctx, model("that"))


@session
async def results_late_alone_and_too_many(engine: Engine) -> None:
    ctx = await begun(engine, 3)
    await say(ctx, calls("a", "b"), results("a"), model("I go on."), results("b"))
    await say(ctx, results("nobody"), calls("c"), results("c", "stranger"), calls("d"))
    await say(ctx, person("Leave it."), calls("e", "f"), person("wait"), results("f", "e"))


@session
async def thinking_that_is_bound(engine: Engine) -> None:
    ctx = await begun(engine, 4)
    for number in range(8):
        thought = {"type": "thinking", "thinking": f"t{number} " * 200, "signature": "c2ln"}
        call = {"type": "tool_use", "id": f"t{number}", "name": "read", "input": {}}
        answer = {"role": "assistant", "content": [thought, call]}
        await say(ctx, answer, results(f"t{number}", size=4_000))
        if number % 3 == 2:
            await ctx.compact(policy=policy_named("ladder", {"protected_recent": 0.1}))
    rows = await ctx.get_messages()
    await ctx.set_messages([*rows[:2], *rows[5:]])
    await say(ctx, person("on"))


@session
async def prompts_of_the_host(engine: Engine) -> None:
    ctx = await engine.session("s", summarizer=in_short)
    await say(ctx, {"role": "system", "content": "stored"}, person("a"))
    await ctx.set_system_prompt("one")
    await say(ctx, model("b"), *tool_round(1))
    await ctx.set_system_prompt("two", replaces_stored=True)
    await say(ctx, person("c"), *tool_round(2))
    await ctx.compact(policy=policy_named("summarize", {"keep_recent_share": 0.2}))
    await say(ctx, person("d"))
    await ctx.set_system_prompt(None)
    await say(ctx, person("e"))


@session
async def texts_of_interceptors(engine: Engine) -> None:
    engine.intercept(
        "context:pre_compact",
        lambda about: Verdict(pins=about.numbers[3:5], texts=("The host keeps this.",)),
    )
    ctx = await begun(engine, 30, max_tokens=6_000, on_overflow="send_floor")
    await ctx.compact(policy=policy_named("summarize", {"keep_recent_share": 0.2}))
    await say(ctx, person("on"), *tool_round(77, 900))


@session
async def erasures(engine: Engine) -> None:
    ctx = await begun(engine)
    await ctx.compact(policy=policy_named("summarize", {"keep_recent_share": 0.2}))
    await say(ctx, person("the code is 0042"), model("I know."))
    await engine.erase("s", [len(await engine.transcript("s")) - 2, 4])
    ctx = await engine.session("s", summarizer=in_short)
    await say(ctx, person("on"), *tool_round(50))


@session
async def models_of_several_families(engine: Engine) -> None:
    ctx = await engine.session("s", summarizer=in_short)
    await say(ctx, person("Begin: 123 and ünïcödé." * 20), *tool_round(0, 900))
    for number, name in enumerate(("claude-opus-4-1", "gpt-5", "gpt-5", "gemini-2.5-pro", None)):
        await say(ctx, person(f"with {name}"), *tool_round(10 + number, 2_000), model=name)
        if number == 2:
            await ctx.compact(policy=policy_named("truncate", {"keep_recent": 4}))


@session
async def a_fork(engine: Engine) -> str:
    ctx = await begun(engine)
    await ctx.get_messages_for_request(model="claude-opus-4-1")
    await ctx.compact(policy=policy_named("simple", {"keep_recent": 5}))
    await say(ctx, person("here they part"), model="claude-opus-4-1")
    head = await engine.store.head("s")
    assert head is not None
    await engine.fork("s", head.head, "child")
    child = await engine.session("child", summarizer=in_short)
    await say(child, model("on"), *tool_round(60, 3_000))
    await child.compact(policy=policy_named("summarize", {"keep_recent_share": 0.2}))
    await say(child, person("further"), *tool_round(61), model="gpt-5")
    return "child"
