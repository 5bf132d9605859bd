"""What a host adds to requests and does not tell, and what newer loops tell of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import eventctx
from eventctx.cli.main import cli
from eventctx.messages.encoding import decode_body
from eventctx.orchestrators.protocol import Usage
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


class Counting(ScriptedAmplifierProvider):
    """A provider that says how many messages it sends, as Amplifier's do without raw payloads."""

    hooks: Any = None

    async def complete(self, request: Any, **options: Any) -> Any:
        told = {"provider": self.name, "model": self.model, "message_count": len(request.messages)}
        await self.hooks.emit("llm:request", {**told, "has_instructions": False})
        return await super().complete(request, **options)


async def shown(*arguments: str) -> str:
    result = await asyncio.to_thread(CliRunner().invoke, cli, [*arguments])
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


async def run(
    path: Path, provider: Any, *, adds: bool, loop: Any = "basic", **config: Any
) -> list[Any]:
    """The records of a session of two requests; with ``adds``, a hook adds a message to each."""
    hooks = {"provider:request": reminder} if adds else {}
    settings = {"store": str(path), **config}
    async with session(provider, tool("read"), loop=loop, hooks=hooks, config=settings) as host:
        provider.hooks = host.coordinator.hooks
        await host.execute("Read.")
    return await records_of(path)


def script() -> list[Any]:
    return [Reply(calls=[("read", {"n": 1})]), "Done."]


@pytest.mark.parametrize("loop", ["basic", "streaming"])
@pytest.mark.parametrize("adds", [True, False])
async def test_a_count_alone_tells_that_messages_were_added_and_not_which(
    adds: bool, loop: str, path: Path
) -> None:
    records = await run(path, Counting(*script()), adds=adds, loop=loop)
    told = events(records, "context:request_sent")
    prepared = [one.position for one in spans(records, "context:request_prepared")]
    assert [one.prepared for one in told] == prepared
    assert [(one.messages, one.untold) for one in told] == (
        [(2, 1), (4, 1)] if adds else [(1, 0), (3, 0)]
    )
    # What comes with every request is a part of what usage teaches.
    assert [one.difference for one in told] == [0, 0]
    async with eventctx.open(path) as engine:
        rows = (await engine.audit("session-1")).requests
        assert [(row.additions, row.untold) for row in rows] == [(0, int(adds))] * 2
        assert (await engine.verify("session-1")).ok


async def test_audit_and_view_say_what_is_not_known_of_the_hosts_additions(path: Path) -> None:
    await run(path, Counting(*script()), adds=True)
    said = await shown("audit", "session-1", "--store", str(path))
    assert "What the host added to 2 requests is not known" in said
    assert "to 2 of them it added messages, by its count" in said
    assert "`raw: true`" in said
    said = await shown("view", "session-1", "--turn", "1", "--store", str(path))
    assert "the host added at least 1 message, whose texts are not known" in said
    assert "`raw: true`" in said
    said = await shown("log", "session-1", "--store", str(path))
    assert "the host added at least 1 message" in said


@pytest.mark.parametrize("provider", [Telling, Counting, ScriptedAmplifierProvider])
async def test_what_is_known_has_no_such_mark(provider: type[Any], path: Path) -> None:
    """Raw payloads tell everything, and our own loops record what they add."""
    loop = "basic" if provider is Telling else "loop-eventctx-events"
    records = await run(path, provider(*script()), adds=True, loop=loop)
    told = events(records, "context:request_sent")
    assert told
    assert {one.untold for one in told} == {None}
    assert "is not known" not in await shown("audit", "session-1", "--store", str(path))


# -- what newer loops tell -----------------------------------------------------------------------


class Newer(LikeBasic):
    """A loop that hands its final request to the context, as loop-streaming of 2026-09 does."""

    async def _rows(self, turn: Any, answer: Any) -> list[dict[str, Any]]:
        self._turn = turn
        return await super()._rows(turn, answer)

    def _request(self, turn: Any, rows: list[dict[str, Any]]) -> Any:
        request = super()._request(turn, rows)
        find = turn.coordinator.get_capability
        record, bind = find("context.final_request_record"), find("context.signed_replay")
        if record is not None and bind is not None:
            self._ticket = record(request)
        return request

    def _answer_row(self, response: Any, calls: list[Any]) -> dict[str, Any]:
        self._turn.coordinator.get_capability("context.signed_replay")(self._ticket)
        return super()._answer_row(response, calls)


@pytest.mark.parametrize("provider", [Counting, ScriptedAmplifierProvider, Telling])
async def test_a_final_request_tells_the_texts_that_were_added_without_raw_payloads(
    provider: type[Any], path: Path
) -> None:
    records = await run(path, provider(*script()), adds=True, loop=Newer())
    told = events(records, "context:request_sent")
    prepared = [one.position for one in spans(records, "context:request_prepared")]
    assert sorted({one.prepared for one in told}) == prepared
    assert {one.untold for one in told} == {None}
    async with eventctx.open(path) as engine:
        carriers = [one async for one in engine.records("session-1", bodies=True)]
    bodies = [body for one in spans(carriers, "context:request_sent") for body in one.bodies]
    texts = [decode_body(body.data)["content"] for body in bodies if body.data is not None]
    assert len([text for text in texts if "Iteration" in text]) == 1
    assert len(texts) == len(set(texts))
    # Raw payloads tell the provider's system prompt besides.
    assert ("Be brief." in texts) is (provider is Telling)


async def test_a_reminder_that_the_loop_retains_is_in_the_request_whole(tmp_path: Path) -> None:
    config = {"store": str(tmp_path / "contexts.db"), "max_tokens": 2_000}
    async with session(ScriptedAmplifierProvider("Done."), config=config) as host:
        context = host.coordinator.get("context")
        retaining = host.coordinator.get_capability("context.request_retention")
        body = f"<system-reminders>{'policy ' * 400}</system-reminders>"
        marks = {"ephemeral": True, "persisted": True}
        await context.add_message({"role": "user", "content": "The task."})
        await context.add_message({"role": "user", "content": body, "metadata": marks})
        for n in range(30):
            row = {"role": "assistant", "content": f"Work {n}: " + "x " * 200}
            await context.add_message(row)
        await context.add_message({"role": "user", "content": "Go on."})
        dropped = [row["content"] for row in await context.get_messages_for_request()]
        kept = [row["content"] for row in await retaining(retain_contents=[body])]
        await retaining(retain_contents=[])
        later = [row["content"] for row in await context.get_messages_for_request()]
    assert body not in dropped
    assert body in kept
    assert {"The task.", "Go on."} <= set(kept)
    records = await records_of(tmp_path / "contexts.db")
    assert len(events(records, "context:pinned")) == len(events(records, "context:unpinned")) == 1
    assert "The task." in later


class Measuring(Counting):
    """Reports a prompt by the characters of the request, as a provider counts all that it got."""

    async def complete(self, request: Any, **options: Any) -> Any:
        answer = await super().complete(request, **options)
        characters = len("".join([str(message.content) for message in request.messages]))
        counts = {"input_tokens": characters // 4, "output_tokens": 5}
        await self.hooks.emit("llm:response", {"usage": counts})
        return answer


async def test_a_reminder_that_is_gone_is_no_suspected_loss(path: Path) -> None:

    def once(event: str, data: dict[str, Any]) -> Any:
        text = "Mind the tabs. " * 2_000
        adds = hook_result(action="inject_context", context_injection=text, ephemeral=True)
        return adds if data["iteration"] == 3 else hook_result(action="continue")

    provider = Measuring(*[Reply(calls=[("read", {"n": n})]) for n in range(6)], "Done.")
    hooks = {"provider:request": once}
    config = {"store": str(path)}
    async with session(provider, tool("read"), hooks=hooks, config=config) as host:
        provider.hooks = host.coordinator.hooks
        await host.execute("Read.")
    records = await records_of(path)
    told = events(records, "context:request_sent")
    assert [one.untold for one in told] == [0, 0, 0, 1, 0, 0, 0]
    assert [one.difference for one in told] == [0, 0, 0, None, 0, 0, 0]
    prompts = [one.prompt for one in events(records, "usage:reported")]
    assert prompts[4] < prompts[3] - 5_000
    assert events(records, "context:loss_suspected") == []
    async with eventctx.open(path) as engine:
        assert (await engine.audit("session-1")).losses == ()


# -- what providers, hooks and hosts tell of it ----------------------------------------------------


async def test_ephemeral_additions_are_recorded_once_each(path: Path) -> None:
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


@pytest.mark.parametrize("loop", ["basic", "streaming", "loop-eventctx-events"])
async def test_what_a_tool_or_a_hook_asks_a_model_is_no_request_of_the_session(
    loop: str, path: Path
) -> None:
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


async def test_what_a_host_writes_into_the_prepared_messages_is_an_addition(path: Path) -> None:
    class Appending(LikeBasic):
        """Appends to the messages that it was given, in place."""

        async def _sending(self, rows: list[dict[str, Any]]) -> None:
            rows[0]["content"] += "\n\nMind the tabs."
            if isinstance(rows[1]["content"], list):
                rows[1]["content"][0]["text"] += "\n\nMind the gap."

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


async def test_with_the_setting_off_nothing_is_compared(path: Path) -> None:
    records = await run(path, Counting(*script()), adds=True, record_sent=False)
    assert events(records, "context:request_sent") == []


async def test_a_loop_gets_a_view_of_the_budget_that_its_provider_asks_for(tmp_path: Path) -> None:
    config = {"store": str(tmp_path / "contexts.db")}
    async with session(ScriptedAmplifierProvider("Done."), config=config) as host:
        context = host.coordinator.get("context")
        await context.add_message({"role": "user", "content": "The task."})
        for n in range(40):
            row = {"role": "assistant", "content": f"Work {n}: " + "x " * 200}
            await context.add_message(row)
        whole = await context.get_messages_for_request()
        retaining = host.coordinator.get_capability("context.request_retention")
        fitted = await retaining(retain_contents=[], token_budget=1_500, hard_fit=True)
    assert len(fitted) < len(whole) == 41
    assert fitted[0]["content"] == "The task."


class AskingTwice(LikeBasic):
    """Puts a reminder into the transcript and asks again, as loop-streaming does to keep it."""

    async def _rows(self, turn: Any, answer: Any) -> list[dict[str, Any]]:
        await turn.context.get_messages_for_request(provider=turn.provider)
        marks = {"ephemeral": True, "persisted": True}
        row = {"role": "user", "content": answer.context_injection, "metadata": marks}
        await turn.context.add_message(row)
        rows: list[dict[str, Any]] = await turn.context.get_messages_for_request(
            provider=turn.provider
        )
        return rows


async def test_an_answer_is_to_the_request_that_was_prepared_last(path: Path) -> None:
    provider = Counting(Reply("Done.", usage=Usage(70, 3)))
    records = await run(path, provider, adds=True, loop=AskingTwice())
    first, last = [one.position for one in spans(records, "context:request_prepared")]
    (usage,) = events(records, "usage:reported")
    assert (usage.prompt, usage.prepared) == (70, last)
    assert [(one.prepared, one.untold) for one in events(records, "context:request_sent")] == [
        (last, 0)
    ]
    async with eventctx.open(path) as engine:
        reported = {
            row.position: row.reported for row in (await engine.audit("session-1")).requests
        }
    assert reported == {first: None, last: 70}
