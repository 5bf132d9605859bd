"""A factory of the system prompt: what it leads, what it replaces, and what if it fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx.testing import ScriptedAmplifierProvider
from tests.amplifier.given import events, records_of
from tests.amplifier.hosts import hook_result, mounted, session

QUESTION = {"role": "user", "content": "a"}


async def test_the_factorys_text_leads_every_request_and_is_in_no_transcript(
    tmp_path: Path,
) -> None:
    path = tmp_path / "contexts.db"
    texts = iter(["You help.", "You help.", "You help more."])

    async def factory() -> str:
        return next(texts)

    provider = ScriptedAmplifierProvider("a", "b", "c")
    async with session(provider, config={"store": str(path)}) as host:
        context = host.coordinator.get("context")
        await context.set_system_prompt_factory(factory)
        for _ in range(3):
            await host.execute("Hello")
        assert [row["role"] for row in await context.get_messages()] == ["user", "assistant"] * 3
    led = [rows[0] for rows in provider.messages]
    assert [row["role"] for row in led] == ["system"] * 3
    assert [row["content"] for row in led] == ["You help.", "You help.", "You help more."]
    assert len(events(await records_of(path), "context:system_prompt_set")) == 2


async def test_the_factorys_text_takes_the_place_of_stored_system_messages_but_a_hooks(
    tmp_path: Path,
) -> None:
    path = tmp_path / "contexts.db"

    async def factory() -> str:
        return "You help."

    def inject(event: str, data: dict[str, Any]) -> Any:
        return hook_result(
            action="inject_context", context_injection="Mind the tabs.", suppress_output=True
        )

    provider = ScriptedAmplifierProvider("a", "b")
    hooks = {"prompt:submit": inject}
    async with session(provider, config={"store": str(path)}, hooks=hooks) as host:
        context = host.coordinator.get("context")
        await context.add_message({"role": "system", "content": "stored"})
        await host.execute("Hello")
        await context.set_system_prompt_factory(factory)
        await host.execute("Hello")
        transcript = [row["content"] for row in await context.get_messages()]
    assert transcript[:2] == ["stored", "Mind the tabs."]
    before, after = ([row["content"] for row in rows] for rows in provider.messages)
    assert before == ["stored", "Mind the tabs.", "Hello"]
    assert after[:3] == ["You help.", "Mind the tabs.", "Hello"]
    assert "stored" not in after
    async with eventctx.open(path) as engine:
        for row in (await engine.audit("session-1")).requests:
            assert (await engine.request_view("session-1", position=row.position)).verified


async def test_a_factory_that_fails_leaves_the_last_prompt_and_a_word_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given: list[Any] = ["You help.", ValueError("no file"), 7, None]

    async def factory() -> Any:
        found = given.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    context, cleanup = await mounted({"store": "memory://"})
    await context.set_system_prompt_factory(factory)
    await context.add_message(QUESTION)
    for _ in range(4):
        rows = await context.get_messages_for_request()
        assert [row["content"] for row in rows] == ["You help.", "a"]
    assert "no file" in caplog.text
    assert "expected a text" in caplog.text
    with pytest.raises(eventctx.InvalidSetting):
        await context.set_system_prompt_factory("You help.")
    await cleanup()


class Rendered(str):
    """A text as a template engine gives it."""


@pytest.mark.parametrize(
    ("text", "led"), [(Rendered("You help."), "You help."), ("\ud800 You help.", "? You help.")]
)
async def test_a_factory_may_give_any_kind_of_text(text: str, led: str) -> None:
    async def factory() -> str:
        return text

    context, cleanup = await mounted({"store": "memory://"})
    await context.set_system_prompt_factory(factory)
    assert (await context.get_messages_for_request())[0] == {"role": "system", "content": led}
    await cleanup()
