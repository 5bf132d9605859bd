"""What somebody writes in the first minutes works, or is refused with what to write."""

from __future__ import annotations

import asyncio
import gc
import warnings
from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx.cli.output.opening import location
from eventctx.comparison.contenders import contenders
from eventctx.errors import InvalidMessage, InvalidSetting, NotOpened, TurnError
from eventctx.policies.proposals import keep_only
from eventctx.session.transcript import UnknownRole
from tests.policies.given import one_session
from tests.sessions import USER, filled, names, user


def newest(visible: Any, budget: Any, state: Any) -> Any:
    return keep_only(visible, [message.number for message in visible.messages[-2:]])


def files_in(folder: Path) -> set[str]:
    return {one.relative_to(folder).as_posix() for one in folder.rglob("*")}


# -- functions where an object or a coroutine was asked for --------------------------------------


async def test_a_plain_function_is_a_policy_but_for_an_async_one_and_the_error_says_why() -> None:
    async with one_session(policy=newest, max_tokens=3_000) as (engine, ctx):
        for _ in range(9):
            await ctx.add_message(user("x" * 2_000))
        await ctx.get_messages_for_request()
        assert "context:post_compact" in await names(engine)
        result = await ctx.compact(policy=newest, force=True)
        assert result.fallback is None
        assert (await engine.dry_run("s", policy=newest)).strategy == "custom"
        assert [one.label for one in contenders([newest])] == ["custom"]
    with pytest.raises(InvalidSetting, match="which is async; a policy is pure"):
        async with one_session(policy=later):
            pass


class Summing:
    model = "small"

    def __call__(self, request: eventctx.SummaryRequest) -> eventctx.ModelAnswer:
        return eventctx.ModelAnswer("a summary", prompt=3, output=4)


async def later(*_: Any) -> str:
    return "a summary"


def broken(request: eventctx.SummaryRequest) -> str:
    raise ValueError("no model")


@pytest.mark.parametrize(
    "options",
    [
        {"policy": "summarize", "summarizer": lambda request: "messages about files"},
        {"policy": "summarize", "summarizer": Summing()},
        {"policy": "summarize", "summarizer": lambda request: later(request)},
        {"policy": "importance", "scorer": lambda request: [0.5] * len(request.numbers)},
        {"policy": "summarize", "summarizer": broken},
    ],
    ids=["function", "object", "lambda of a coroutine", "scorer", "one that raises"],
)
async def test_a_summarizer_or_scorer_may_be_a_plain_function_and_is_a_failed_one_if_it_raises(
    options: dict[str, Any],
) -> None:
    async with one_session(max_tokens=8_000, **options) as (engine, ctx):
        for number in range(20):
            await ctx.add_message(user(f"{number} " + "word " * 300))
        result = await ctx.compact(budget=4_000, force=True)
        if options.get("summarizer") is broken:
            assert result.fallback == "ladder"
            assert "no model" in str(result.error)
        else:
            assert (result.outcome, result.fallback, result.error) == ("applied", None, None)
            assert "provider:response" in await names(engine)


# -- roles -----------------------------------------------------------------------------------------


async def test_a_misspelt_role_is_refused_with_the_nearest() -> None:
    nearest = {"assitant": "assistant", "User": "user", "usr": "user", "sytem": "system"}
    async with one_session() as (_, ctx):
        for role, near in nearest.items():
            with pytest.raises(InvalidMessage, match=rf"\$\.role.*did you mean '{near}'\?"):
                await ctx.add_message({"role": role, "content": "hello"})
        assert await ctx.get_messages() == []


async def test_a_role_of_another_program_is_taken_and_one_of_no_known_one_warned_of() -> None:
    known, unknown = (
        [{"role": role, "content": "hello"} for role in roles]
        for roles in (("user", "model", "function", "developer"), ("exit", "humman", "human"))
    )
    async with one_session() as (_, ctx):
        for number, message in enumerate(known):
            assert (await ctx.add_message(message)).number == number
        for message in unknown:
            with pytest.warns(UnknownRole, match=f"found '{message['role']}'"):
                await ctx.add_message(message)
        assert await ctx.get_messages() == [*known, *unknown]


# -- opening ---------------------------------------------------------------------------------------


async def test_an_engine_or_a_message_that_was_not_awaited_says_what_to_write() -> None:
    engine: Any = eventctx.open()
    with pytest.raises(NotOpened, match=r"async with eventctx\.open.*await eventctx"):
        engine.session("s")
    with pytest.raises(NotOpened, match="async with"), engine:
        raise AssertionError("the block must not run")
    assert not hasattr(engine, "hooks")
    async with engine as opened:
        await opened.session("s")
    async with one_session() as (_, ctx):
        pending: Any = ctx.get_messages()
        with pytest.raises(InvalidMessage, match="was not awaited"):
            await ctx.add_message(pending)
        await pending
        assert await ctx.add_message(USER)


@pytest.mark.slow
async def test_a_session_that_was_not_awaited_says_what_to_write() -> None:
    async with eventctx.open() as engine:
        ctx: Any = engine.session("s")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(NotOpened, match=r"`ctx = await engine\.session\(…\)`"):
                await ctx.add_message({"role": "user", "content": "hello"})
            del ctx
            gc.collect()
        limited = asyncio.wait_for(engine.session("s"), 60)
        tasks = [asyncio.create_task(engine.session("s")), limited]
        opened = await asyncio.gather(*tasks, engine.session("s"))
        assert len(set(opened)) == 1


async def test_a_store_that_is_none_is_refused_with_the_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong: dict[Any, str] = {
        None: "expected a path, sqlite:///PATH, memory://",
        3: "expected a path",
        "": "expected a path",
        "memory:": "expected memory://, found 'memory:'",
        "memory:/": "expected memory://",
        "sqlite:contexts.db": "expected sqlite:///PATH, found 'sqlite:contexts.db'",
        "postgresql:host/db": "expected postgresql://HOST/…",
        "nats:4222": "expected nats://HOST/…",
    }
    for url, expected in wrong.items():
        with pytest.raises(InvalidSetting) as caught:
            await eventctx.open(url)
        assert expected in str(caught.value)
    assert files_in(tmp_path) == set()


async def test_sinks_are_a_list_of_functions_and_what_is_emitted_is_an_event() -> None:
    wrong: Any
    for wrong in (print, 3, [3], ["text"]):
        with pytest.raises(InvalidSetting, match=r"sinks: expected a (list of sinks|function)"):
            await eventctx.open(sinks=wrong)
    wrong = {}
    async with one_session() as (_, ctx):
        with pytest.raises(InvalidSetting, match=r"such as eventctx\.log\.events\.PlanStart"):
            await ctx.emit(wrong)


@pytest.mark.parametrize("form", ["~/work/s.db", "sqlite:///~/work/s.db", Path("~/work/s.db")])
async def test_a_tilde_is_the_home_of_the_user(
    form: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "work").mkdir()
    async with eventctx.open(form, receipts="~/book.jsonl") as engine:
        ctx = await filled(engine, 1)
        async with ctx.turn():
            pass
    async with eventctx.open("./~x.db"):
        pass
    assert {"work/s.db", "book.jsonl", "~x.db"} <= files_in(tmp_path)
    with pytest.raises(InvalidSetting, match="folder of a user of this machine"):
        await eventctx.open("~nobody-of-that-name/s.db")
    assert location(str(form)) == str(form).replace("~", str(tmp_path))


async def test_without_a_turn_the_last_request_is_meant() -> None:
    async with one_session() as (engine, ctx):
        with pytest.raises(InvalidSetting, match="has no request"):
            await engine.request_view("s")
        for words in ("first", "second"):
            async with ctx.turn() as turn, turn.iteration():
                await ctx.add_message(user(words))
                await ctx.get_messages_for_request()
        last = await engine.request_view("s")
        assert last == await engine.request_view("s", 2)
        assert last.messages[-1]["content"] == "second"
        with pytest.raises(InvalidSetting, match="found turn and position"):
            await engine.request_view("s", 2, position=last.position)


async def test_a_copy_needs_an_engine_a_key_a_signer_an_iteration_a_turn() -> None:
    async with one_session() as (engine, ctx):
        with pytest.raises(InvalidSetting, match="expected an engine"):
            await engine.copy_to("x.db")  # type: ignore[arg-type]
        with pytest.raises(InvalidSetting, match=r"eventctx\.signer") as refused:
            await engine.sign("s", "SECRET")  # type: ignore[arg-type]
        assert "SECRET" not in str(refused.value)
        async with ctx.turn() as turn:
            pass
        with pytest.raises(TurnError, match="has ended"):
            turn.iteration()


@pytest.mark.parametrize("reserve", [4_000, 4_001])
async def test_a_reserve_that_leaves_nothing_is_refused_at_once(reserve: int) -> None:
    with pytest.raises(InvalidSetting, match="nothing would be left"):
        async with one_session(max_tokens=4_000, reserve_tokens=reserve):
            pass
