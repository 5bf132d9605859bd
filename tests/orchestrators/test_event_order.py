"""The order of a turn's events in Amplifier's kernel, as its page promises it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest
from amplifier_core import HookResult
from amplifier_core.events import ALL_EVENTS
from amplifier_core.llm_errors import InvalidRequestError, RateLimitError
from amplifier_core.testing import MockContextManager

from eventctx import Context, Engine
from eventctx.log.codec import decode_event
from eventctx.log.record import Record
from eventctx.orchestrators import Chunk
from tests.orchestrators.agents import HOOK_ENDS, Streaming, Waits, activity, records
from tests.orchestrators.agents import says as answers
from tests.orchestrators.host import Module, Writes, calls, hear, kernel, says

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "orchestrators.md"
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
CALLS = calls("c1", "write")
AT_ONCE = "request_immediate"

CASES: dict[str, Callable[[], Case]] = {
    "an answer": lambda: Case(says("hello")),
    "an answer, streamed": lambda: Case(loop="streaming", module=Pieces(answers("hello"))),
    "a stream that breaks": lambda: Case(loop="streaming", module=Pieces(FAILED), fails=True),
    "a tool, then the answer": lambda: Case(CALLS, says("done")),
    "a tool that fails": lambda: Case(CALLS, says("done"), tool=Fails()),
    "a tool that a hook denies": lambda: Case(CALLS, says("done"), deny="tool:pre"),
    "a plan, then the answer": lambda: Case(says("first"), says("done"), planning=True),
    "the limit is reached": lambda: Case(CALLS, says("done"), max_iterations=1),
    "a second attempt": lambda: Case(BUSY, says("done")),
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
    "an answer",
    "a second attempt",
    "the provider fails",
    "a hook denies the model call",
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
