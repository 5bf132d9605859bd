"""What one mounted context has to do with another, and what is left when it lets go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from eventctx.adapters.amplifier import mount
from eventctx.adapters.amplifier.module import MAX_OWNED
from tests.amplifier.given import events, records_of, unended
from tests.amplifier.hosts import Named

ROW = {"role": "user", "content": "Go on."}


async def mounted(
    path: Path, session: str, parent: str | None = None, **config: Any
) -> tuple[Any, list[str], Callable[[], Awaitable[None]], Any]:
    """A context, the compactions that its host hears of, its cleanup, and its hooks."""
    coordinator = Named(session, parent)
    heard: list[str] = []

    async def hear(event: str, data: dict[str, Any]) -> None:
        heard.append(event.removeprefix("context:"))

    for event in ("context:pre_compact", "context:post_compact"):
        coordinator.hooks.register(event, hear)
    cleanup = await mount(coordinator, {"store": str(path), **config})
    return coordinator.get("context"), heard, cleanup, coordinator.hooks


async def filled(context: Any) -> None:
    for number in range(20):
        await context.add_message({"role": "user", "content": f"question {number} " * 20})
        await context.add_message({"role": "assistant", "content": f"answer {number} " * 20})


async def test_a_host_hears_of_the_compactions_of_its_own_session_alone(tmp_path: Path) -> None:
    path = tmp_path / "contexts.db"
    one, of_one, end_one, _ = await mounted(path, "one", max_tokens=1_000)
    other, of_other, end_other, _ = await mounted(path, "other", max_tokens=1_000)
    await other.add_message(ROW)
    await filled(one)
    assert await one.compact() > 0
    assert of_one == ["pre_compact", "post_compact"]
    await end_one()
    await filled(other)
    await other.get_messages_for_request()
    assert of_one == of_other == ["pre_compact", "post_compact"]
    await end_other()


async def test_a_host_that_let_go_is_asked_nothing_more(tmp_path: Path) -> None:
    path = tmp_path / "contexts.db"
    gone, of_gone, end_gone, _ = await mounted(path, "one", max_tokens=1_000)
    here, of_here, end_here, _ = await mounted(path, "one", max_tokens=1_000)
    await filled(gone)
    await here.get_messages()
    await end_gone()
    await here.compact()
    assert (of_gone, of_here) == ([], ["pre_compact", "post_compact"])
    await end_here()


async def test_a_turn_that_is_open_is_ended_also_where_no_session_end_is_told(
    tmp_path: Path,
) -> None:
    path = tmp_path / "contexts.db"
    _, _, cleanup, hooks = await mounted(path, "one")
    await hooks.emit("prompt:submit", {})
    await cleanup()
    records = await records_of(path, "one")
    assert unended(records) == []
    assert [one.status for one in events(records, "prompt:complete")] == ["cancelled"]


async def test_the_turns_of_a_long_session_are_not_all_remembered(tmp_path: Path) -> None:
    context, _, cleanup, _ = await mounted(tmp_path / "contexts.db", "one")
    for number in range(MAX_OWNED + 10):
        context.turn(f"turn-{number}")
    assert not context._owns("turn-0")
    assert context._owns(f"turn-{MAX_OWNED + 9}")
    assert not context._owns(["turn-0"])
    await cleanup()


async def test_a_child_that_was_asked_or_cleared_takes_the_same_words_for_new(
    tmp_path: Path,
) -> None:
    path = tmp_path / "contexts.db"
    for call, expected in (("get_messages_for_request", 2), ("clear", 1)):
        context, _, cleanup, _ = await mounted(path, call, "parent")
        await context.add_message(ROW)
        await cleanup()
        context, _, cleanup, _ = await mounted(path, call, "parent")
        await getattr(context, call)()
        await context.add_message(ROW)
        assert len(await context.get_messages()) == expected
        await cleanup()
