"""Contexts that are slow, fail or know less than ours, and tools that return their failure."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import pytest
from amplifier_core import ToolResult

from eventctx import Context
from eventctx.errors import ProviderFailed, StoreUnavailable
from eventctx.log.codec import decode_event
from eventctx.log.events import ToolError
from eventctx.orchestrators import Answer, EventsOrchestrator, StreamingOrchestrator, ToolRequest
from eventctx.testing import MockContextManager, check_request
from tests.orchestrators.agents import Heard, Scripted, calls, contents, go, records, says, tool

LOOKS = calls(("1", "look"))
TOO_LONG = ProviderFailed("p", "prompt is too long", status=400, too_long=True)


class Slow(MockContextManager):
    """Waits before it adds a message of a role, and may fail then, once."""

    def __init__(self, role: str | None = "assistant", error: Exception | None = None) -> None:
        super().__init__()
        self.reached, self.release = asyncio.Event(), asyncio.Event()
        self._role, self._error = role, error

    async def add_message(self, message: dict[str, Any]) -> None:
        if message.get("role") == self._role:
            self.reached.set()
            await self.release.wait()
            error, self._error = self._error, None
            if error is not None:
                raise error
        await super().add_message(message)


async def cancelled_while_adding(context: Slow, answer: Answer) -> None:
    turn = asyncio.create_task(go(context, Scripted(answer), tool("look")))
    await context.reached.wait()
    turn.cancel()
    await asyncio.sleep(0)
    context.release.set()
    with pytest.raises(asyncio.CancelledError):
        await turn


async def test_an_answer_that_is_being_added_is_added_whole_and_its_calls_get_results() -> None:
    thought = {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "e"}
    call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    answer = Answer(thought, calls=(ToolRequest("c", "look", {}),), more=(call,))
    context = Slow(role=None)
    await cancelled_while_adding(context, answer)
    kinds = [row.get("type", row.get("role")) for row in context.messages]
    assert kinds[:3] == ["user", "reasoning", "function_call"]
    (result,) = context.messages[3:]
    assert result["tool_call_id"] == "c" and "cancelled" in result["content"]


async def test_a_result_that_is_being_added_is_added() -> None:
    context = Slow("tool")
    await cancelled_while_adding(context, LOOKS)
    assert context.messages[-1]["content"] == "fine"
    check_request(context.messages)


async def test_an_answer_that_could_not_be_added_leaves_no_results_behind() -> None:
    context = Slow(error=StoreUnavailable("the disk is full"))
    await cancelled_while_adding(context, LOOKS)
    assert [row["role"] for row in context.messages] == ["user"]


class Compacting(MockContextManager):
    """Says that it saved nothing, of whatever budget."""

    async def get_token_count(self) -> int:
        return 1_000

    async def compact(self, budget: int | None = None, reason: str = "") -> int:
        self.calls["compact"] += 1
        return 0


class CompactingBlindly(Compacting):
    async def compact(self) -> int:  # type: ignore[override]
        self.calls["compact"] += 1
        return 500


@pytest.mark.parametrize(("kind", "compactions"), [(Compacting, 1), (CompactingBlindly, 0)])
async def test_a_request_that_cannot_be_made_shorter_is_not_sent_again(
    kind: type[Compacting], compactions: int
) -> None:
    context, provider = kind(), Scripted(TOO_LONG, says("too late"))
    with pytest.raises(ProviderFailed, match="too long"):
        await go(context, provider)
    assert (len(provider.requests), context.calls["compact"]) == (1, compactions)


def host(fails_at: str = "") -> SimpleNamespace:
    """A coordinator that cannot write what hooks inject at an event."""

    async def process_hook_result(result: Any, event: str, _: str) -> Any:
        if event == fails_at:
            raise StoreUnavailable("the disk is full")
        return result

    names = ["is_cancelled", "is_immediate", "register_tool_start", "register_tool_complete"]
    token = Mock(spec=names, is_cancelled=False, is_immediate=False)
    return SimpleNamespace(cancellation=token, process_hook_result=process_hook_result)


async def test_the_host_is_told_of_each_tool_that_runs_and_that_it_ended() -> None:
    coordinator = host()
    provider = Scripted(calls(("1", "look"), ("2", "look")), says("ok"))
    await go(MockContextManager(), provider, tool("look"), coordinator=coordinator)
    began, again, *ended = coordinator.cancellation.method_calls
    assert [began, again] == [call.register_tool_start(one, "look") for one in "12"]
    assert ended in ([call.register_tool_complete(one) for one in order] for order in ("12", "21"))


@pytest.mark.parametrize(
    ("event", "result"), [("tool:post", "fine"), ("tool:pre", "StoreUnavailable: the disk is full")]
)
async def test_an_injection_that_the_store_did_not_take_ends_the_turn_with_whole_calls(
    event: str, result: str
) -> None:
    context, provider = MockContextManager(), Scripted(LOOKS, says("ok"))
    hooks = [lambda _, __: SimpleNamespace(action="continue")]
    with pytest.raises(StoreUnavailable):
        await go(context, provider, tool("look"), hooks=hooks, coordinator=host(event))
    check_request(context.messages)
    assert context.messages[-1]["content"] == result


class TellsItself(MockContextManager):
    """Says its compactions to the host's hooks, so that nobody else has to."""

    emits_to_host = True

    def on(self, name: str, _: Any) -> Any:
        raise AssertionError(f"{name} would be heard twice")


class Registering(Heard):
    """Hooks with a ``register`` of their own kind, which is not that of Amplifier's registry."""

    def register(self, handler: Any) -> None:
        raise AssertionError("expected no call with one argument")


async def test_who_tells_or_registers_by_itself_is_told_of_the_turn_all_the_same() -> None:
    for context, heard in ((TellsItself(), Heard()), (MockContextManager(), Registering())):
        await go(context, Scripted(says("ok")), hooks=heard)
        assert heard.names[-1] == "orchestrator:complete"


# -- tools that return their failure ---------------------------------------------------------------


GONE = {"message": "no such file"}
FULL = {"type": "OSError", "message": "full"}
REPORTED = [
    (ToolResult(success=False, error=GONE), "ToolFailed", "no such file"),
    (ToolResult(success=False, output="half", error=FULL), "OSError", "full"),
    ({"success": False, "output": None, "error": {"message": "gone"}}, "ToolFailed", "gone"),
    ({"success": False, "error": "nope \ud83d"}, "ToolFailed", "nope \\ud83d"),
]


@pytest.mark.parametrize("loop", [EventsOrchestrator, StreamingOrchestrator])
@pytest.mark.parametrize(("value", "kind", "message"), REPORTED)
async def test_a_returned_failure_is_an_error(
    ctx: Context, value: Any, kind: str, message: str, loop: type
) -> None:
    heard = Heard()
    await go(ctx, Scripted(LOOKS, says("ok")), tool("look", value), hooks=heard, loop=loop)
    (event,) = [decode_event(one) for one in await records(ctx, "tool:error")]
    assert isinstance(event, ToolError)
    assert (event.error_type, event.message, event.status) == (kind, message, "error")
    assert heard.of("tool:post") == []
    (told,) = heard.of("tool:error")
    assert told["error"] == {"type": kind, "msg": message}
    assert (told["status"], told["tool_call_id"]) == ("error", "1")
    assert told["result"]["success"] is False


@pytest.mark.parametrize(
    "value", [ToolResult(output="Error: a line"), {"success": 0}, {"error": "x"}, "Failed", None]
)
async def test_anything_else_is_a_success(ctx: Context, value: Any) -> None:
    heard = Heard()
    await go(ctx, Scripted(LOOKS, says("ok")), tool("look", value), hooks=heard)
    assert len(heard.of("tool:post")) == 1


async def test_a_long_reason_is_cut_for_the_log(ctx: Context) -> None:
    long = tool("look", ToolResult(success=False, output="x" * 50_000))
    await go(ctx, Scripted(LOOKS, says("ok")), long)
    (event,) = [decode_event(one) for one in await records(ctx, "tool:error")]
    assert isinstance(event, ToolError)
    assert (len(event.message), len((await contents(ctx))[2])) == (2_000, 50_000)
