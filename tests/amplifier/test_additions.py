"""What is sent besides the prepared request: by hooks, hosts and loops of ours; what is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx.messages.encoding import decode_body
from eventctx.testing import Reply, ScriptedAmplifierProvider
from tests.amplifier.given import events, records_of, spans, unended
from tests.amplifier.hosts import LikeBasic, hook_result, session, tool


class Telling(ScriptedAmplifierProvider):
    """A provider that says what it sends, as Amplifier's do when asked for raw payloads."""

    hooks: Any = None
    system = "Be brief."

    async def complete(self, request: Any, **options: Any) -> Any:
        rows = [message.model_dump(exclude_none=True) for message in request.messages]
        raw = {"model": self.model, "messages": rows, "system": self.system}
        told = {"provider": self.name, "model": self.model, "raw": raw}
        await self.hooks.emit("llm:request", told)
        return await super().complete(request, **options)


def reminder(event: str, data: dict[str, Any]) -> Any:
    return hook_result(
        action="inject_context",
        context_injection=f"<system-reminder>Iteration {data['iteration'] // 2}.</system-reminder>",
        context_injection_role="user",
        ephemeral=True,
    )


async def test_ephemeral_additions_are_recorded_once_each(tmp_path: Path) -> None:
    path = tmp_path / "contexts.db"
    provider = Telling(*[Reply(calls=[("read", {"n": n})]) for n in range(3)], "Done.")
    async with session(
        provider, tool("read"), hooks={"provider:request": reminder}, config={"store": str(path)}
    ) as host:
        provider.hooks = host.coordinator.hooks
        await host.execute("Read three times.")
    records = await records_of(path)
    told = events(records, "context:request_sent")
    carriers = spans(records, "context:request_sent")
    assert len(told) == 4
    assert [len(one.additions) for one in told] == [2, 2, 2, 2]
    assert [one.missing for one in told] == [0, 0, 0, 0]
    # The prompt with the messages and two different reminders: three bodies for eight additions.
    assert sum(len(record.bodies) for record in carriers) == 3
    prepared = [one.position for one in spans(records, "context:request_prepared")]
    assert [one.prepared for one in told] == prepared
    assert unended(records) == []


async def test_what_is_added_under_our_own_loop_is_recorded_too(tmp_path: Path) -> None:
    path = tmp_path / "contexts.db"
    provider = Telling(Reply(calls=[("read", {"n": 1})]), "Done.")
    async with session(
        provider,
        tool("read"),
        loop="loop-eventctx-events",
        hooks={"provider:request": reminder},
        config={"store": str(path)},
    ) as host:
        provider.hooks = host.coordinator.hooks
        await host.execute("Read.")
    records = await records_of(path)
    told = events(records, "context:request_sent")
    prepared = [one.position for one in spans(records, "context:request_prepared")]
    # The loop says what a hook added, the provider what is with the messages.
    assert [one.prepared for one in told] == [at for at in prepared for _ in range(2)]
    assert [len(one.additions) for one in told] == [1, 1, 1, 1]
    async with eventctx.open(path) as engine:
        carriers = [one async for one in engine.records("session-1", bodies=True)]
    bodies = [body for one in spans(carriers, "context:request_sent") for body in one.bodies]
    texts = [decode_body(body.data)["content"] for body in bodies if body.data is not None]
    assert "Be brief." in texts
    assert len(texts) == len(set(texts))


class TellingLater(Telling):
    """Says nothing of its first request, and sends each of the others twice, as after a failure."""

    async def complete(self, request: Any, **options: Any) -> Any:
        if not self.requests:
            return await ScriptedAmplifierProvider.complete(self, request, **options)
        rows = [message.model_dump(exclude_none=True) for message in request.messages]
        raw = {"model": self.model, "messages": rows, "system": self.system}
        await self.hooks.emit("llm:request", {"provider": self.name, "raw": raw})
        return await super().complete(request, **options)


@pytest.mark.parametrize("loop", ["basic", "loop-eventctx-events"])
async def test_a_provider_that_begins_to_tell_in_mid_session_makes_nothing_an_addition(
    loop: str, tmp_path: Path
) -> None:
    path = tmp_path / "contexts.db"
    calls = [Reply(calls=[("read", {"n": number})]) for number in range(3)]
    provider = TellingLater(*calls, "Done.")
    async with session(
        provider,
        tool("read"),
        loop=loop,
        hooks={"provider:request": reminder},
        config={"store": str(path)},
    ) as host:
        provider.hooks = host.coordinator.hooks
        await host.execute("Read.")
    async with eventctx.open(path) as engine:
        carriers = [one async for one in engine.records("session-1", bodies=True)]
    told = [body for one in spans(carriers, "context:request_sent") for body in one.bodies]
    texts = {decode_body(body.data)["content"] for body in told if body.data is not None}
    added = {text for text in texts if "Iteration" not in text}
    assert added == {"Be brief."}
    assert {one.missing for one in events(carriers, "context:request_sent")} == {0}


@pytest.mark.parametrize("loop", ["basic", "streaming", "loop-eventctx-events"])
async def test_what_a_tool_or_a_hook_asks_a_model_is_no_request_of_the_session(
    loop: str, tmp_path: Path
) -> None:
    path = tmp_path / "contexts.db"
    provider = Telling(Reply(calls=[("name", {"n": 1})]), "Done.")
    provider.system = ""

    async def ask(*_: Any) -> Any:
        raw = {"messages": [{"role": "user", "content": "Name this conversation."}]}
        await provider.hooks.emit("llm:request", {"provider": "other", "raw": raw})
        await provider.hooks.emit("llm:response", {"usage": {"input": 999, "output": 1}})
        return "named"

    async with session(
        provider,
        tool("name", ask),
        loop=loop,
        hooks={"orchestrator:complete": ask},
        config={"store": str(path)},
    ) as host:
        provider.hooks = host.coordinator.hooks
        await host.execute("Go.")
    records = await records_of(path)
    assert events(records, "context:request_sent") == []
    assert 999 not in [one.prompt for one in events(records, "usage:reported")]
    assert unended(records) == []


async def test_what_a_host_writes_into_the_prepared_messages_is_an_addition(
    tmp_path: Path,
) -> None:
    class Appending(LikeBasic):
        """Appends to the messages that it was given, in place."""

        async def _sending(self, rows: list[dict[str, Any]]) -> None:
            rows[0]["content"] += "\n\nMind the tabs."
            if isinstance(rows[1]["content"], list):
                rows[1]["content"][0]["text"] += "\n\nMind the gap."

    path = tmp_path / "contexts.db"
    provider = Telling("Hi.", "Hi again.")
    provider.system = ""
    async with session(provider, loop=Appending(), config={"store": str(path)}) as host:
        provider.hooks = host.coordinator.hooks
        context = host.coordinator.get("context")
        await context.add_message({"role": "user", "content": "Hello"})
        block = {"type": "text", "text": "Hello yourself."}
        await context.add_message({"role": "assistant", "content": [block]})
        await host.execute("Hello?")
    async with eventctx.open(path) as engine:
        (record,) = spans(
            [one async for one in engine.records("session-1", bodies=True)],
            "context:request_sent",
        )
    added = [decode_body(body.data)["content"] for body in record.bodies if body.data]
    assert added == ["Mind the tabs.", "Mind the gap."]
