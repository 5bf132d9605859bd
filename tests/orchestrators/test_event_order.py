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
from amplifier_core.message_models import ChatRequest
from amplifier_core.testing import MockContextManager

from eventctx import Engine
from eventctx.log.codec import decode_event
from eventctx.log.events import ProviderError
from eventctx.log.record import Record
from eventctx.orchestrators import Chunk
from eventctx.orchestrators.loops.settings import OrchestratorSettings
from tests.orchestrators.agents import HOOK_ENDS, Streaming, Waits, activity, check_log, records
from tests.orchestrators.agents import says as answers
from tests.orchestrators.test_kernel import Module, Writes, calls, hear, kernel, says

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
        raise AssertionError


class Stopped(Module):
    """A provider during whose answer the host asks to stop."""

    then = staticmethod(lambda: None)

    async def complete(self, request: ChatRequest, **_: Any) -> Any:
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
        self.module = module or Module(*steps)
        self.tool = tool or Writes()
        self.loop, self.deny, self.stop, self.fails = loop, deny, stop, fails
        self.config = config

    async def run(self, monkeypatch: pytest.MonkeyPatch, context: Any) -> list[str]:
        heard: list[str] = []
        async with kernel(
            monkeypatch, context, self.module, self.tool, loop=self.loop, **self.config
        ) as session:
            mounted = session.coordinator.get("orchestrator")
            mounted._orchestrator.settings = _without_waits(mounted._orchestrator.settings)
            for name in ALL_EVENTS:
                self._listen(session, name, heard)
            if self.stop:
                self.tool.then = getattr(session.coordinator.cancellation, self.stop)
                self.module.then = self.tool.then
            expected = pytest.raises(RuntimeError) if self.fails else nullcontext()
            with expected:
                await session.execute("go")
        return [name for name in heard if not name.startswith(KERNELS_OWN)]

    def _listen(self, session: Any, name: str, heard: list[str]) -> None:
        def handler(event: str, _: dict[str, Any]) -> HookResult:
            heard.append(event)
            if event == self.deny:
                return HookResult(action="deny", reason="not today")
            return HookResult(action="continue")

        session.coordinator.hooks.register(name, handler)


def _without_waits(settings: OrchestratorSettings) -> OrchestratorSettings:
    return msgspec.structs.replace(settings, sleep=Waits(), jitter=lambda: 0.0)


FAILED = InvalidRequestError("no such model")
BUSY = RateLimitError("busy", retry_after=0.0)

CASES: dict[str, Callable[[], Case]] = {
    "an answer": lambda: Case(says("hello")),
    "an answer, streamed": lambda: Case(loop="streaming", module=Pieces(answers("hello"))),
    "a stream that breaks": lambda: Case(loop="streaming", module=Pieces(FAILED), fails=True),
    "a tool, then the answer": lambda: Case(calls("c1", "write"), says("done")),
    "a tool that fails": lambda: Case(calls("c1", "write"), says("done"), tool=Fails()),
    "a tool that a hook denies": lambda: Case(calls("c1", "write"), says("done"), deny="tool:pre"),
    "a plan, then the answer": lambda: Case(says("first"), says("done"), planning=True),
    "the limit is reached": lambda: Case(calls("c1", "write"), says("done"), max_iterations=1),
    "a second attempt": lambda: Case(BUSY, says("done")),
    "the provider fails": lambda: Case(FAILED, fails=True),
    "a hook denies the model call": lambda: Case(deny="provider:request"),
    "a hook denies the plan's model call": lambda: Case(deny="provider:request", planning=True),
    "a stop at once while the model answers": lambda: Case(
        module=Stopped(), stop="request_immediate"
    ),
    "a graceful stop while a tool runs": lambda: Case(
        calls("c1", "write"), stop="request_graceful"
    ),
    "a stop at once while a tool runs": lambda: Case(
        calls("c1", "write"), tool=Hangs(), stop="request_immediate"
    ),
}


def test_every_order_of_the_page_is_tried() -> None:
    assert sorted(promised()) == sorted(CASES)


@pytest.mark.parametrize("recorded", [True, False], ids=["our context", "another context"])
@pytest.mark.parametrize("name", CASES)
async def test_the_kernel_hears_the_events_in_the_order_of_the_page(
    engine: Engine, name: str, recorded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = await engine.session("s") if recorded else MockContextManager()
    heard = await CASES[name]().run(monkeypatch, context)
    assert heard == [*FIRST, *promised()[name], *LAST]
    every_begin_has_one_end(heard)
    if recorded:
        names = [one for one in heard if not one.startswith(UNRECORDED)]
        assert activity(await records(engine)) == names
        await check_log(engine)


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
async def test_the_other_loops_differ_in_nothing_but_plans_and_pieces(
    loop: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]()
    case.loop = loop
    if loop == "basic":
        case.config["tools"] = "ignore"
    heard = await case.run(monkeypatch, MockContextManager())
    assert heard == [*FIRST, *promised()[name], *LAST]


async def test_a_denied_model_call_leaves_its_record_with_the_reason(
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Record] = []
    engine.on("provider:error", told.append)
    ctx = await engine.session("s")
    async with kernel(monkeypatch, ctx, Module()) as session:
        hear(session, "provider:request", HookResult(action="deny", reason="too dear"))
        errors = hear(session, "provider:error")
        ends = hear(session, "prompt:complete")
        assert await session.execute("go") == "Operation denied: too dear"
    event = decode_event((await records(engine))[-2])
    assert isinstance(event, ProviderError)
    assert (event.status, event.error_type) == ("cancelled", "Denied")
    assert event.message == "denied by a hook: too dear"
    assert [one.type for one in told] == ["provider:error"]
    assert errors[0]["error"] == {"type": "Denied", "msg": "denied by a hook: too dear"}
    assert errors[0]["span_id"] == told[0].span_id
    assert (ends[0]["status"], ends[0]["finish"]) == ("ok", "denied")


def every_begin_has_one_end(heard: list[str]) -> None:
    for begin, ends in HOOK_ENDS.items():
        assert heard.count(begin) == sum(heard.count(end) for end in ends), begin


async def test_a_denied_prompt_begins_no_execution_and_ends_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard = await Case(deny="prompt:submit").run(monkeypatch, MockContextManager())
    assert heard == ["prompt:submit", "prompt:complete", "orchestrator:complete"]
