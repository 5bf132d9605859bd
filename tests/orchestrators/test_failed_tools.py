"""Tools that return their failure rather than raise it: recorded and told as failures."""

from __future__ import annotations

from typing import Any

import pytest
from amplifier_core import HookResult, ToolResult

import eventctx
from eventctx.log.codec import decode_event
from eventctx.log.events import ToolError
from eventctx.orchestrators import EventsOrchestrator, StreamingOrchestrator
from tests.orchestrators.agents import Heard, Scripted, check_log, records, says, tool, tools
from tests.orchestrators.agents import calls as calling
from tests.orchestrators.test_kernel import Module, Writes, calls, hear, kernel
from tests.orchestrators.test_kernel import says as answers

REPORTED = [
    (ToolResult(success=False, error={"message": "no such file"}), "ToolFailed", "no such file"),
    (
        ToolResult(success=False, output="half", error={"type": "OSError", "message": "full"}),
        "OSError",
        "full",
    ),
    ({"success": False, "output": None, "error": {"message": "gone"}}, "ToolFailed", "gone"),
    ({"success": False, "error": "nope \ud83d"}, "ToolFailed", "nope \\ud83d"),
]


async def ended(value: Any, heard: Heard, loop: type = EventsOrchestrator) -> tuple[Any, str]:
    """The last record of a call that returned ``value``, and what the model was told."""
    provider = Scripted(calling(("c1", "look")), says("ok"))
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        await loop().execute("go", ctx, {"p": provider}, tools(tool("look", value)), heard)
        await check_log(engine)
        (end,) = [one for one in await records(engine) if one.type in ("tool:post", "tool:error")]
    return decode_event(end), provider.requests[1].messages[-1]["content"]


@pytest.mark.parametrize("loop", [EventsOrchestrator, StreamingOrchestrator])
@pytest.mark.parametrize(("value", "kind", "message"), REPORTED)
async def test_a_returned_failure_ends_as_an_error(
    value: Any, kind: str, message: str, loop: type
) -> None:
    heard = Heard()
    event, _ = await ended(value, heard, loop)
    assert isinstance(event, ToolError)
    assert (event.error_type, event.message, event.status) == (kind, message, "error")
    assert heard.of("tool:post") == []
    (told,) = heard.of("tool:error")
    assert told["error"] == {"type": kind, "msg": message}
    assert (told["status"], told["tool_call_id"]) == ("error", "c1")
    assert told["result"]["success"] is False


async def test_the_model_gets_the_text_of_the_failure_as_ever() -> None:
    value = ToolResult(success=False, output={"code": 2}, error={"message": "no"})
    _, text = await ended(value, Heard())
    assert text == value.get_serialized_output()


@pytest.mark.parametrize(
    "value", [ToolResult(output="Error: a line"), {"success": 0}, {"error": "x"}, "Failed", None]
)
async def test_anything_else_is_a_success(value: Any) -> None:
    heard = Heard()
    await ended(value, heard)
    assert len(heard.of("tool:post")) == 1


class Unreadable:
    @property
    def success(self) -> bool:
        raise RuntimeError("not now")


async def test_a_value_that_cannot_be_looked_at_is_a_success() -> None:
    heard = Heard()
    await ended(Unreadable(), heard)
    assert len(heard.of("tool:post")) == 1


async def test_a_long_reason_is_cut_for_the_log() -> None:
    event, text = await ended(ToolResult(success=False, output="x" * 50_000), Heard())
    assert isinstance(event, ToolError)
    assert (len(event.message), len(text)) == (2_000, 50_000)


async def test_a_hook_of_the_kernel_may_change_what_the_model_reads_of_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fails = Writes()
    fails.success = False
    module = Module(calls("c1", "write", text="secret"), answers("ok"))
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        async with kernel(monkeypatch, ctx, module, fails) as session:
            hear(
                session,
                "tool:error",
                lambda data: HookResult(action="modify", data={**data, "result": "hidden"}),
            )
            await session.execute("go")
        assert (await ctx.get_messages())[2]["content"] == "hidden"
        await check_log(engine)
