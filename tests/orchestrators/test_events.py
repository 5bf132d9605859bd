"""The events orchestrator, in which every step is an event, and the order that the kernel hears."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import msgspec
import pytest
from amplifier_core import HookResult
from amplifier_core.events import ALL_EVENTS
from amplifier_core.llm_errors import InvalidRequestError, RateLimitError
from amplifier_core.testing import MockContextManager

import eventctx
from eventctx import Context, Engine
from eventctx.log.codec import decode_event
from eventctx.log.ids import agent_in
from eventctx.log.record import Record
from eventctx.orchestrators import (
    BasicOrchestrator,
    Chunk,
    EventsOrchestrator,
    OrchestratorSettings,
    Response,
    StreamingOrchestrator,
    Usage,
    current_ids,
)
from eventctx.projections.trace.fold import fold
from tests.orchestrators.agents import (
    HOOK_ENDS,
    Doing,
    Heard,
    Scripted,
    Streaming,
    Waits,
    activity,
    calls,
    contents,
    go,
    records,
    says,
    tool,
    tools,
)
from tests.orchestrators.host import Module, Writes, hear, kernel, replies, uses

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "orchestrators.md"


async def test_a_turn_runs_tools_until_the_model_answers(ctx: Context) -> None:
    provider = Scripted(calls(("1", "look")), calls(("2", "look")), says("found"))
    response = await EventsOrchestrator().execute(
        "find it", ctx, {"p": provider}, tools(tool("look", {"at": 3})), turn_id="t1"
    )
    assert response == Response("found", "t1", "answered", 3, Usage(300, 15))
    assert str(response) == "found"
    asks, runs = ["provider:request", "provider:response"], ["tool:pre", "tool:post"]
    expected = ["prompt:submit", *[*asks, *runs] * 2, *asks, "prompt:complete"]
    assert activity(await records(ctx)) == expected
    transcript = await ctx.get_messages()
    assert [one["role"] for one in transcript] == ["user", *["assistant", "tool"] * 2, "assistant"]
    assert transcript[2]["content"] == '{"at": 3}'
    assert provider.requests[2].messages == transcript[:5]


async def planned(ctx: Context) -> Heard:
    """What hooks hear of a turn with a plan and two tools, of which one fails."""
    heard = Heard()
    steps = says("first look, then answer"), calls(("1", "look"), ("2", "fail")), says("found")
    given = tool("look"), tool("fail", ValueError("no"))
    await go(ctx, Scripted(*steps), *given, hooks=heard, planning=True)
    return heard


@pytest.mark.parametrize("where", ["records", "payloads"])
async def test_every_span_has_its_own_id_under_the_right_parent(ctx: Context, where: str) -> None:
    told = (await planned(ctx)).events
    if where == "records":
        fields = "stream", "turn_id", "span_id", "parent_span_id", "iteration"
        told = [
            (one.type, {field: getattr(one, field) for field in fields})
            for one in (await records(ctx))[1:]
        ]
    assert len({data["turn_id"] for _, data in told}) == 1
    assert {data.get("stream") or data["session_id"] for _, data in told} == {"s"}
    by: dict[str, list[tuple[str, str | None, int | None]]] = {}
    for name, data in told:
        ids = data["span_id"], data["parent_span_id"], data["iteration"]
        by.setdefault(name, []).append(ids)
    ((turn, above, number),) = by["prompt:submit"]
    assert (above, number) == (None, None)
    assert by["prompt:complete"] == by["prompt:submit"]
    ((plan, *_),) = by["plan:start"]
    assert by["plan:start"] == by["plan:end"] == [(plan, turn, 1)]
    (first, *_), (second, *_), (third, *_) = by["provider:request"]
    assert by["provider:request"] == by["provider:response"]
    assert by["provider:request"] == [(first, plan, 1), (second, turn, 2), (third, turn, 3)]
    (look, *_), (fail, *_) = by["tool:pre"]
    assert by["tool:pre"] == [(look, second, 2), (fail, second, 2)]
    assert by["tool:post"] == [(look, second, 2)]
    assert by["tool:error"] == [(fail, second, 2)]
    assert len({turn, plan, first, second, third, look, fail}) == 7


async def test_a_plan_and_payloads_are_what_amplifiers_hooks_look_for(ctx: Context) -> None:
    heard = await planned(ctx)
    assert heard.of("prompt:submit")[0]["prompt"] == "go"
    assert heard.of("execution:start")[0]["prompt"] == "go"
    (pre, _), (post,), (error,) = [heard.of(f"tool:{name}") for name in ("pre", "post", "error")]
    assert pre["tool_name"] == post["tool_name"] == "look"
    assert (pre["tool_input"], pre["tool_call_id"]) == ({}, "1")
    assert post["result"] == "fine"
    assert error["error"] == {"type": "ValueError", "msg": "no"}
    assert len({one["parallel_group_id"] for one in (pre, post, error)}) == 1
    answered = heard.of("provider:response")[1]
    assert (answered["provider"], answered["tool_calls"]) == ("p", True)
    assert answered["usage"]["input_tokens"] == 100
    (complete,) = heard.of("prompt:complete")
    assert (complete["response_preview"], complete["status"]) == ("found", "ok")
    assert heard.of("execution:end")[0]["status"] == "completed"
    (whole,) = heard.of("orchestrator:complete")
    assert [whole[key] for key in ("orchestrator", "turn_count", "status")] == [
        *("loop-events", 3, "success")
    ]
    # The plan is asked for in messages that the log has.
    asked, reminded, plan, again, *_ = await ctx.get_messages()
    assert (asked["content"], plan["content"]) == ("go", "first look, then answer")
    assert [one["role"] for one in (reminded, plan, again)] == ["user", "assistant", "user"]
    for row in (reminded, again):
        assert row["content"].startswith("<system-reminder>")


async def test_providers_and_tools_are_told_where_they_are_called(ctx: Context) -> None:
    seen: list[Any] = []

    async def ask(_: dict[str, Any]) -> None:
        seen.append(current_ids())

    provider = Scripted(calls(("1", "ask")), says("ok"))
    await go(ctx, provider, Doing("ask", ask))
    assert current_ids() is None
    (pre,), (requested, _) = [await records(ctx, n) for n in ("tool:pre", "provider:request")]
    assert (seen[0].span_id, seen[0].parent_span_id) == (pre.span_id, requested.span_id)
    ids = provider.requests[0].ids
    assert (ids.span_id, ids.turn_id) == (requested.span_id, requested.turn_id)
    assert ids.iteration == 1
    assert ids.traceparent() == f"00-{ids.trace_id}-{ids.span_id}-01"


async def test_at_the_limit_the_model_is_asked_to_answer_without_tools(ctx: Context) -> None:
    provider = Scripted(calls(("1", "look")), calls(("2", "look")), says("so far"))
    response = await go(ctx, provider, tool("look"), max_iterations=2)
    assert (response.text, response.finish, response.iterations) == (
        *("so far", "iteration_limit", 3),
    )
    assert [len(one.tools) for one in provider.requests] == [1, 1, 0]
    assert "without calling tools" in (await contents(ctx))[-2]


def scripted(**fields: Any) -> Scripted:
    """A provider of another class, which has these attributes."""
    made: Scripted = type("Other", (Scripted,), fields)()
    return made


NO_SCREEN = AsyncMock(side_effect=ConnectionError("the user's screen is gone"))


@pytest.mark.parametrize("coordinator", [None, SimpleNamespace(process_hook_result=NO_SCREEN)])
@pytest.mark.parametrize("default", ["deny", "allow"])
async def test_a_call_that_nobody_can_be_asked_about_is_decided_by_the_hooks_default(
    ctx: Context, coordinator: Any, default: str
) -> None:
    asks = HookResult(action="ask_user", approval_prompt="Look?", approval_default=default)

    async def hook(event: str, _: dict[str, Any]) -> HookResult | None:
        return asks if event == "tool:pre" else None

    provider = Scripted(calls(("1", "look")), says("ok"))
    await go(ctx, provider, tool("look"), hooks=[hook], coordinator=coordinator)
    assert len(await records(ctx, "tool:post")) == (default == "allow")
    assert ("Look?" in (await contents(ctx))[2]) is (default == "deny")


async def test_of_several_hooks_each_sees_what_those_before_it_changed(ctx: Context) -> None:
    seen: list[Any] = []
    third = Heard()

    async def first(event: str, data: dict[str, Any]) -> HookResult | None:
        changed = HookResult(action="modify", data={"tool_input": {"by": "first"}})
        return changed if event == "tool:pre" else None

    async def second(event: str, data: dict[str, Any]) -> HookResult | None:
        seen.append(data.get("tool_input"))
        return HookResult(action="deny", reason="enough") if event == "tool:pre" else None

    ran: list[Any] = []

    async def look(given: dict[str, Any]) -> None:
        ran.append(given)

    provider = Scripted(calls(("1", "look")), says("ok"))
    await go(ctx, provider, Doing("look", look), hooks=[first, second, third.emit])
    assert {"by": "first"} in seen
    assert "tool:pre" not in third.names
    assert (third.of("tool:error")[0]["error"]["type"], ran) == ("ToolFailed", [])
    assert "enough" in (await contents(ctx))[2]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"providers": {}}, "at least one provider"),
        ({"providers": {"p": scripted(model=3)}}, "a model's name"),
        (
            {"providers": {"p": scripted(definitions=None)}},
            r"with a definitions\(\) method",
        ),
        ({"tools": [1]}, "expected a function, found 1"),
        ({"tools": "look"}, "expected a list of functions and tools"),
        ({"tools": {"my look": tool("look")}}, "letters, digits"),
        ({"context": object()}, "context manager with add_message"),
        ({"prompt": 3}, "prompt: expected a text"),
    ],
)
async def test_what_cannot_run_is_refused_before_anything_is_recorded(
    ctx: Context, changed: dict[str, Any], words: str
) -> None:
    good = {"prompt": "go", "context": ctx, "providers": {"p": Scripted(says("ok"))}}
    with pytest.raises(eventctx.InvalidSetting, match=words):
        await EventsOrchestrator().execute(**(good | changed))
    assert len(await records(ctx)) == 1


WRONG = {"max_iterations": 0, "max_retries": -1, "tool_timeout": 0, "sleep": None}


@pytest.mark.parametrize("name", WRONG)
def test_settings_of_the_wrong_kind_are_refused(name: str) -> None:
    with pytest.raises(eventctx.InvalidSetting, match=f"{name}: expected"):
        EventsOrchestrator(**{name: WRONG[name]})


def test_every_setting_is_in_the_reference() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", PAGE.read_text(), flags=re.MULTILINE))
    named = {"sleep": "asyncio.sleep", "jitter": "random.random"}
    for field in msgspec.structs.fields(OrchestratorSettings):
        assert rows[field.name] == named.get(field.name, repr(field.default)), field.name


async def test_every_field_of_a_payload_is_in_the_reference(ctx: Context) -> None:
    table = PAGE.read_text().partition("## Payloads for hooks")[2].partition("## When")[0]
    rows = dict(re.findall(r"^\| `([\w:]+)` \| (.+) \|$", table, flags=re.MULTILINE))
    ids = {"session_id", "turn_id", "span_id", "parent_span_id", "iteration"}
    for name, data in (await planned(ctx)).events:
        assert ids <= data.keys(), name
        known = rows[name] + rows[name.replace("post", "pre").replace("error", "pre")]
        known += rows.get(name.partition(":")[0] + ":request", "")
        for field in data.keys() - ids:
            assert f"`{field}`" in known, f"{name}: {field}"


async def test_tools_of_one_answer_run_at_the_same_time(ctx: Context) -> None:
    both = asyncio.Barrier(2)

    async def meet(_: dict[str, Any]) -> str:
        await both.wait()
        return "met"

    provider = Scripted(calls(("1", "a"), ("2", "b")), says("ok"))
    await go(ctx, provider, Doing("a", meet), Doing("b", meet))
    assert (await contents(ctx))[2:4] == ["met", "met"]


async def test_an_engines_own_hooks_are_told_nothing_twice(engine: Engine, ctx: Context) -> None:
    names: list[str] = []
    engine.on("*", lambda record: names.append(record.type))
    await go(ctx, Scripted(says("ok")), hooks=engine.hooks)
    assert names.count("provider:request") == names.count("prompt:submit") == 1


# -- the agent's name ------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", [BasicOrchestrator, StreamingOrchestrator, EventsOrchestrator])
@pytest.mark.parametrize("agent", ["coder", None])
async def test_a_turn_is_named_after_the_orchestrators_agent_if_it_has_one(
    ctx: Context, loop: Any, agent: str | None
) -> None:
    await go(ctx, Scripted(says("hello")), loop=loop, **{"agent": agent} if agent else {})
    *_, span = fold(await records(ctx))
    assert span.name == ("invoke_agent coder" if agent else "invoke_agent")
    assert span.attributes.get("gen_ai.agent.name") == agent


def test_the_id_of_a_session_that_amplifier_started_for_an_agent_names_it() -> None:
    assert agent_in("0000000000000000-4f1c2d3e4a5b6c7d_zen-architect") == "zen-architect"
    assert agent_in("0f3a2c1e-0000-4000-8000-000000000001") is None
    assert agent_in("my_session") is None


# -- the order of a turn's events in Amplifier's kernel, as its page promises it -------------------


FIRST = ["prompt:submit", "execution:start"]
LAST = ["prompt:complete", "execution:end", "orchestrator:complete"]
KERNELS_OWN = ("session:", "cancel:", "module:")
"""Events that the kernel emits by itself, around turns."""

UNRECORDED = ("execution:", "content_block:", "orchestrator:")
"""Events for hooks alone."""


def promised() -> dict[str, list[str]]:
    """The rows of the page's table of orders: the events between the first and the last ones."""
    section = PAGE.read_text().partition("\n## Order\n")[2].partition("\n## ")[0]
    short = re.findall(r"^- (\*\w+\*): (.+)$", section, flags=re.MULTILINE)
    rows = re.findall(r"^\| ([^|`]+) \| ([`*].+) \|$", section, flags=re.MULTILINE)
    found = {}
    for names, events in rows:
        for word, stands_for in short:
            events = events.replace(word, stands_for)
        assert "*" not in events, f"{events}: a word that the page does not explain"
        found |= {name: re.findall(r"`([\w:]+)`", events) for name in names.split("; ")}
    return found


class Pieces(Streaming):
    """Streams two pieces and the answer, or fails behind the pieces."""

    priority = 100

    def __init__(self, last: Any) -> None:
        super().__init__([Chunk("text", "he"), Chunk("text", "llo"), last])


class Fails(Writes):
    async def execute(self, input: dict[str, Any]) -> Any:  # noqa: A002
        raise OSError("no space")


class Hangs(Writes):
    async def execute(self, input: dict[str, Any]) -> Any:  # noqa: A002
        self.then()
        await asyncio.Event().wait()


class Stopped(Module):
    """A provider during whose answer the host asks to stop."""

    then = staticmethod(lambda: None)

    async def complete(self, request: Any, **_: Any) -> Any:
        self.then()
        await asyncio.Event().wait()


class Case:
    """A turn on the kernel: its loop, its script, its tool, and what its host does."""

    def __init__(
        self,
        *steps: Any,
        loop: str = "events",
        module: Any = None,
        tool: Writes | None = None,
        deny: str = "",
        stop: str = "",
        fails: bool = False,
        **config: Any,
    ) -> None:
        self.module, self.tool = module or Module(*steps), tool or Writes()
        self.loop, self.deny, self.stop, self.fails = loop, deny, stop, fails
        self.config = config

    async def run(self, context: Any) -> list[str]:
        heard: list[str] = []

        def handler(event: str, _: dict[str, Any]) -> HookResult:
            heard.append(event)
            if event == self.deny:
                return HookResult(action="deny", reason="not today")
            return HookResult(action="continue")

        async with kernel(context, self.module, self.tool, loop=self.loop, **self.config) as host:
            agent = host.coordinator.get("orchestrator")._orchestrator
            soon = {"sleep": Waits(), "jitter": lambda: 0.0}
            agent.settings = msgspec.structs.replace(agent.settings, **soon)
            for name in ALL_EVENTS:
                host.coordinator.hooks.register(name, handler)
            if self.stop:
                self.tool.then = getattr(host.coordinator.cancellation, self.stop)
                self.module.then = self.tool.then
            with pytest.raises(RuntimeError) if self.fails else nullcontext():
                self.said = await host.execute("go")
        return [name for name in heard if not name.startswith(KERNELS_OWN)]


FAILED = InvalidRequestError("no such model")
BUSY = RateLimitError("busy", retry_after=0.0)
CALLS = uses("c1", "write")
AT_ONCE = "request_immediate"

CASES: dict[str, Callable[[], Case]] = {
    "an answer": lambda: Case(replies("hello")),
    "an answer, streamed": lambda: Case(loop="streaming", module=Pieces(says("hello"))),
    "a stream that breaks": lambda: Case(loop="streaming", module=Pieces(FAILED), fails=True),
    "a tool, then the answer": lambda: Case(CALLS, replies("done")),
    "a tool that fails": lambda: Case(CALLS, replies("done"), tool=Fails()),
    "a tool that a hook denies": lambda: Case(CALLS, replies("done"), deny="tool:pre"),
    "a plan, then the answer": lambda: Case(replies("first"), replies("done"), planning=True),
    "the limit is reached": lambda: Case(CALLS, replies("done"), max_iterations=1),
    "a second attempt": lambda: Case(BUSY, replies("done")),
    "the provider fails": lambda: Case(FAILED, fails=True),
    "a hook denies the model call": lambda: Case(deny="provider:request"),
    "a hook denies the plan's model call": lambda: Case(deny="provider:request", planning=True),
    "a stop at once while the model answers": lambda: Case(module=Stopped(), stop=AT_ONCE),
    "a graceful stop while a tool runs": lambda: Case(CALLS, stop="request_graceful"),
    "a stop at once while a tool runs": lambda: Case(CALLS, tool=Hangs(), stop=AT_ONCE),
}


def test_every_order_of_the_page_is_tried() -> None:
    assert sorted(promised()) == sorted(CASES)


@pytest.mark.parametrize("recorded", [True, False], ids=["our context", "another context"])
@pytest.mark.parametrize("name", CASES)
async def test_the_kernel_hears_the_events_in_the_order_of_the_page(
    ctx: Context, name: str, recorded: bool
) -> None:
    heard = await CASES[name]().run(ctx if recorded else MockContextManager())
    assert heard == [*FIRST, *promised()[name], *LAST]
    for begin, ends in HOOK_ENDS.items():
        assert heard.count(begin) == sum(heard.count(end) for end in ends), begin
    if recorded:
        names = [one for one in heard if not one.startswith(UNRECORDED)]
        assert activity(await records(ctx)) == names


ONE_CALL = (
    *("an answer", "a second attempt", "the provider fails", "a hook denies the model call"),
    "a stop at once while the model answers",
)
OTHER_LOOPS = [("basic", name) for name in ONE_CALL] + [
    ("streaming", name) for name in CASES if "stream" not in name and "plan" not in name
]


@pytest.mark.parametrize(("loop", "name"), OTHER_LOOPS)
async def test_the_other_loops_differ_in_nothing_but_plans_and_pieces(loop: str, name: str) -> None:
    case = CASES[name]()
    case.loop = loop
    if loop == "basic":
        case.config["tools"] = "ignore"
    assert await case.run(MockContextManager()) == [*FIRST, *promised()[name], *LAST]


async def test_a_denied_model_call_is_recorded_with_the_reason(
    engine: Engine, ctx: Context
) -> None:
    told: list[Record] = []
    engine.on("provider:error", told.append)
    async with kernel(ctx, Module()) as host:
        hear(host, "provider:request", HookResult(action="deny", reason="too dear"))
        errors, ends = hear(host, "provider:error"), hear(host, "prompt:complete")
        assert await host.execute("go") == "Operation denied: too dear"
    event: Any = decode_event((await records(ctx, "provider:error"))[0])
    assert (event.status, event.error_type) == ("cancelled", "Denied")
    assert event.message == "denied by a hook: too dear"
    assert errors[0]["error"] == {"type": "Denied", "msg": "denied by a hook: too dear"}
    assert [errors[0]["span_id"]] == [one.span_id for one in told]
    assert (ends[0]["status"], ends[0]["finish"]) == ("ok", "denied")


async def test_a_denied_prompt_begins_no_execution_and_ends_none(ctx: Context) -> None:
    case = Case(deny="prompt:submit")
    assert await case.run(ctx) == ["prompt:submit", "prompt:complete", "orchestrator:complete"]
    assert case.said == "Operation denied: not today"
    assert await ctx.get_messages() == []
    assert activity(await records(ctx)) == ["prompt:submit", "prompt:complete"]
