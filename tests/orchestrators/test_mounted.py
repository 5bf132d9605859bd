"""What the kernel shows of our loops when they are mounted: refused tools, and ids of turns."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
from amplifier_core.testing import MockContextManager

import eventctx
from tests.orchestrators.agents import activity, records
from tests.orchestrators.test_kernel import Module, Writes, calls, hear, kernel, says


async def test_basic_does_not_mount_in_a_plan_that_names_tools(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = r"Cannot initialize without orchestrator: .*found tool-test: .*tools: ignore"
    with pytest.raises(RuntimeError, match=words):
        async with kernel(monkeypatch, MockContextManager(), Module(), loop="basic"):
            pass


async def test_basic_mounts_where_the_plan_says_to_ignore_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module, tool = Module(says("hello")), Writes()
    context = MockContextManager()
    async with kernel(monkeypatch, context, module, tool, "basic", tools="ignore") as session:
        assert await session.execute("hi") == "hello"
    assert tool.inputs == []
    assert [one.name for one in module.requests[0].tools or ()] == ["write"]
    assert module.requests[0].tool_choice == "none"


@pytest.mark.parametrize("said", ["drop", True, None, "IGNORE"])
async def test_another_word_for_it_is_refused(said: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="tools: expected"):
        async with kernel(monkeypatch, MockContextManager(), Module(), tools=said):
            pass


async def test_tools_that_the_plan_does_not_name_are_refused_at_the_first_execute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def mount(coordinator: Any, _: Any = None) -> None:
        await coordinator.mount("tools", Writes(), name="write")

    brings = ModuleType("brings")
    brings.mount = mount  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "amplifier_module_hooks_brings", brings)
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        plan = {"tools": [], "hooks": [{"module": "hooks-brings"}]}
        async with kernel(monkeypatch, ctx, Module(), loop="basic", plan=plan) as session:
            with pytest.raises(RuntimeError, match=r"InvalidSetting.*found write: "):
                await session.execute("hi")
        assert activity(await records(engine)) == []


@pytest.mark.parametrize("loop", ["streaming", "events"])
async def test_the_others_run_tools(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tool, module = Writes(), Module(calls("c1", "write", text="x"), says("done"))
    async with kernel(monkeypatch, MockContextManager(), module, tool, loop) as session:
        assert await session.execute("go") == "done"
    assert tool.inputs == [{"text": "x"}]


async def test_an_id_that_the_app_leaves_names_the_next_turn_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        module = Module(says("a"), says("b"))
        async with kernel(monkeypatch, ctx, module) as session:
            submitted = hear(session, "prompt:submit")
            session.coordinator.session_state["turn_id"] = "order-17-1"
            await session.execute("first")
            await session.execute("second")
        turns = {one.turn_id for one in await records(engine) if one.type == "prompt:submit"}
    assert submitted[0]["turn_id"] == "order-17-1"
    assert submitted[1]["turn_id"] not in (None, "order-17-1")
    assert turns == {one["turn_id"] for one in submitted}
    assert module.requests[0].metadata["turn_id"] == "order-17-1"  # type: ignore[index]


async def test_an_id_given_to_execute_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    async with kernel(monkeypatch, MockContextManager(), Module(says("a"))) as session:
        mounted = session.coordinator.get("orchestrator")
        session.coordinator.session_state["turn_id"] = "left"
        await mounted.execute(
            prompt="go",
            context=session.coordinator.get("context"),
            providers=session.coordinator.get("providers"),
            tools={},
            hooks=session.coordinator.hooks,
            coordinator=session.coordinator,
            turn_id="given",
        )
        assert mounted.last.turn_id == "given"
        assert "turn_id" not in session.coordinator.session_state


@pytest.mark.parametrize("wrong", ["", 7, "x" * 257, "a\nb"])
async def test_an_id_that_is_none_is_refused_before_the_turn_and_forgotten(
    wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        async with kernel(monkeypatch, ctx, Module(says("a"))) as session:
            session.coordinator.session_state["turn_id"] = wrong
            with pytest.raises(RuntimeError, match="turn_id: expected"):
                await session.execute("go")
            assert activity(await records(engine)) == []
            assert await session.execute("go") == "a"
