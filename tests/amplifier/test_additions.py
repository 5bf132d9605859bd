"""What a host adds to requests and does not tell, what newer loops tell of it, how it is found."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from amplifier_core import HookResult
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from eventctx.adapters.amplifier.event_listener import error_of
from eventctx.adapters.amplifier.sent import compare, messages_of
from eventctx.cli.main import cli
from eventctx.log.usage import Usage, read_host_usage
from eventctx.messages.encoding import decode_body
from eventctx.testing import Reply, ScriptedAmplifierProvider
from tests.amplifier.given import audited, events, records_of, spans
from tests.amplifier.hosts import LikeBasic, Telling, session, tool


class Counting(Telling):
    """A provider that says how many messages it sends, as Amplifier's do without raw payloads."""

    def asked(self, request: Any) -> dict[str, Any]:
        return {"message_count": len(request.messages), "has_instructions": False}


class Prompting(Telling):
    """A provider with a system prompt of its own."""

    def asked(self, request: Any) -> dict[str, Any]:
        told = super().asked(request) or {}
        return {"raw": {**told["raw"], "system": "Be brief."}}


def reminder(event: str, data: dict[str, Any]) -> Any:
    return HookResult(
        action="inject_context",
        context_injection=f"<system-reminder>Iteration {data['iteration'] // 2}.</system-reminder>",
        context_injection_role="user",
        ephemeral=True,
    )


REMINDING = {"provider:request": reminder}


async def shown(*arguments: str) -> str:
    result = await asyncio.to_thread(CliRunner().invoke, cli, [*arguments])
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


async def run(path: Path, provider: Any, *tools: Any, **host: Any) -> list[Any]:
    """The records of a session of one prompt, with their bodies."""
    async with session(provider, *tools or [tool("read")], store=path, **host) as running:
        await running.execute("Read.")
    return await records_of(path, bodies=True)


def prepared_in(records: list[Any]) -> list[int]:
    return [one.position for one in spans(records, "context:request_prepared")]


def script(rounds: int = 1) -> list[Any]:
    return [*[Reply(calls=[("read", {"n": n})]) for n in range(rounds)], "Done."]


@pytest.mark.parametrize("loop", ["basic", "streaming"])
@pytest.mark.parametrize("adds", [True, False])
async def test_a_count_tells_that_messages_were_added_not_which(
    adds: bool, loop: str, path: Path
) -> None:
    records = await run(path, Counting(*script()), hooks=REMINDING if adds else {}, loop=loop)
    told = events(records, "context:request_sent")
    assert [one.prepared for one in told] == prepared_in(records)
    expected = [(2, 1), (4, 1)] if adds else [(1, 0), (3, 0)]
    assert [(one.messages, one.untold) for one in told] == expected
    # What comes with every request is a part of what usage teaches.
    assert [one.difference for one in told] == [0, 0]
    rows = (await audited(path)).requests
    assert [(row.additions, row.untold) for row in rows] == [(0, int(adds))] * 2


async def test_audit_and_view_say_what_is_not_known_of_the_hosts_additions(path: Path) -> None:
    await run(path, Counting(*script()), hooks=REMINDING)
    said = await shown("audit", "session-1", "--store", str(path))
    assert "What the host added to 2 requests is not known" in said
    assert "to 2 of them it added messages, by its count" in said
    assert "`raw: true`" in said
    said = await shown("view", "session-1", "--turn", "1", "--store", str(path))
    assert "the host added at least 1 message, whose texts are not known" in said
    assert "`raw: true`" in said
    said = await shown("log", "session-1", "--store", str(path))
    assert "the host added at least 1 message" in said


@pytest.mark.parametrize("provider", [Prompting, Counting, ScriptedAmplifierProvider])
async def test_what_is_known_has_no_such_mark(provider: type[Any], path: Path) -> None:
    """Raw payloads tell everything, and our own loops record what they add."""
    loop = "basic" if provider is Prompting else "loop-eventctx-events"
    records = await run(path, provider(*script()), hooks=REMINDING, loop=loop)
    assert {one.untold for one in events(records, "context:request_sent")} == {None}
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


@pytest.mark.parametrize("provider", [Counting, ScriptedAmplifierProvider, Prompting])
async def test_a_final_request_tells_the_texts_that_were_added_without_raw_payloads(
    provider: type[Any], path: Path
) -> None:
    records = await run(path, provider(*script()), hooks=REMINDING, loop=Newer())
    told = events(records, "context:request_sent")
    assert sorted({one.prepared for one in told}) == prepared_in(records)
    assert {one.untold for one in told} == {None}
    bodies = [body for one in spans(records, "context:request_sent") for body in one.bodies]
    texts = [decode_body(body.data)["content"] for body in bodies if body.data is not None]
    assert len([text for text in texts if "Iteration" in text]) == 1
    assert len(texts) == len(set(texts))
    # Raw payloads tell the provider's system prompt besides.
    assert ("Be brief." in texts) is (provider is Prompting)


async def worked(context: Any, *first: dict[str, Any]) -> None:
    """A task, and work for pages that no small budget holds."""
    work = [{"role": "assistant", "content": f"Work {n}: " + "x " * 200} for n in range(40)]
    for row in ({"role": "user", "content": "The task."}, *first, *work):
        await context.add_message(row)


async def contents(rows: Awaitable[list[dict[str, Any]]]) -> list[Any]:
    return [row["content"] for row in await rows]


async def test_a_reminder_that_the_loop_retains_is_in_the_request_whole(path: Path) -> None:
    config = {"max_tokens": 2_000}
    async with session(ScriptedAmplifierProvider("Done."), store=path, config=config) as host:
        context = host.coordinator.get("context")
        retaining = host.coordinator.get_capability("context.request_retention")
        body = f"<system-reminders>{'policy ' * 400}</system-reminders>"
        marks = {"ephemeral": True, "persisted": True}
        await worked(context, {"role": "user", "content": body, "metadata": marks})
        await context.add_message({"role": "user", "content": "Go on."})
        assert body not in await contents(context.get_messages_for_request())
        kept = await contents(retaining(retain_contents=[body]))
        assert {body, "The task.", "Go on."} <= set(kept)
        await retaining(retain_contents=[])
        assert "The task." in await contents(context.get_messages_for_request())
    records = await records_of(path)
    assert len(events(records, "context:pinned")) == len(events(records, "context:unpinned")) == 1


async def test_a_loop_gets_a_view_of_the_budget_that_its_provider_asks_for(path: Path) -> None:
    async with session(ScriptedAmplifierProvider("Done."), store=path) as host:
        context = host.coordinator.get("context")
        await worked(context)
        whole = await context.get_messages_for_request()
        retaining = host.coordinator.get_capability("context.request_retention")
        fitted = await retaining(retain_contents=[], token_budget=1_500, hard_fit=True)
    assert len(fitted) < len(whole) == 41
    assert fitted[0]["content"] == "The task."


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
        adds = HookResult(action="inject_context", context_injection=text, ephemeral=True)
        return adds if data["iteration"] == 3 else HookResult(action="continue")

    records = await run(path, Measuring(*script(6)), hooks={"provider:request": once})
    told = events(records, "context:request_sent")
    assert [one.untold for one in told] == [0, 0, 0, 1, 0, 0, 0]
    assert [one.difference for one in told] == [0, 0, 0, None, 0, 0, 0]
    prompts = [one.prompt for one in events(records, "usage:reported")]
    assert prompts[4] < prompts[3] - 5_000
    assert events(records, "context:loss_suspected") == []
    assert (await audited(path)).losses == ()


# -- what providers, hooks and hosts tell of it ----------------------------------------------------


async def test_ephemeral_additions_are_recorded_once_each(path: Path) -> None:
    records = await run(path, Prompting(*script(3)), hooks=REMINDING)
    told = events(records, "context:request_sent")
    assert [(len(one.additions), one.missing) for one in told] == [(2, 0)] * 4
    # The prompt with the messages and two different reminders: three bodies for eight additions.
    assert sum(len(one.bodies) for one in spans(records, "context:request_sent")) == 3
    assert [one.prepared for one in told] == prepared_in(records)


@pytest.mark.parametrize("loop", ["basic", "streaming", "loop-eventctx-events"])
async def test_what_a_tool_or_a_hook_asks_a_model_is_no_request_of_ours(
    loop: str, path: Path
) -> None:
    provider = Telling(Reply(calls=[("name", {"n": 1})]), "Done.")

    async def ask(*_: Any) -> Any:
        raw = {"messages": [{"role": "user", "content": "Name this conversation."}]}
        await provider.hooks.emit("llm:request", {"provider": "other", "raw": raw})
        await provider.hooks.emit("llm:response", {"usage": {"input": 999, "output": 1}})
        return "named"

    hooks = {"orchestrator:complete": ask}
    records = await run(path, provider, tool("name", ask), loop=loop, hooks=hooks)
    assert events(records, "context:request_sent") == []
    assert 999 not in [one.prompt for one in events(records, "usage:reported")]


async def test_what_a_host_writes_into_the_prepared_messages_is_an_addition(path: Path) -> None:
    class Appending(LikeBasic):
        async def _sending(self, rows: list[dict[str, Any]]) -> None:
            rows[0]["content"] += "\n\nMind the tabs."
            if isinstance(rows[1]["content"], list):
                rows[1]["content"][0]["text"] += "\n\nMind the gap."

    provider = Telling("Hi.", "Hi again.")
    async with session(provider, loop=Appending(), store=path) as host:
        context = host.coordinator.get("context")
        await context.add_message({"role": "user", "content": "Hello"})
        block = {"type": "text", "text": "Hello yourself."}
        await context.add_message({"role": "assistant", "content": [block]})
        await host.execute("Hello?")
    (record,) = spans(await records_of(path, bodies=True), "context:request_sent")
    added = [decode_body(body.data)["content"] for body in record.bodies if body.data]
    assert added == ["Mind the tabs.", "Mind the gap."]


async def test_with_the_setting_off_nothing_is_compared(path: Path) -> None:
    config = {"record_sent": False}
    records = await run(path, Counting(*script()), hooks=REMINDING, config=config)
    assert events(records, "context:request_sent") == []


class AskingTwice(LikeBasic):
    """Puts a reminder into the transcript and asks again, as loop-streaming does to keep it."""

    async def _rows(self, turn: Any, answer: Any) -> list[dict[str, Any]]:
        await turn.context.get_messages_for_request(provider=turn.provider)
        marks = {"ephemeral": True, "persisted": True}
        row = {"role": "user", "content": answer.context_injection, "metadata": marks}
        await turn.context.add_message(row)
        return list(await turn.context.get_messages_for_request(provider=turn.provider))


async def test_an_answer_is_to_the_request_that_was_prepared_last(path: Path) -> None:
    provider = Counting(Reply("Done.", usage=Usage(70, 3)))
    records = await run(path, provider, hooks=REMINDING, loop=AskingTwice())
    first, last = prepared_in(records)
    (usage,) = events(records, "usage:reported")
    assert (usage.prompt, usage.prepared) == (70, last)
    told = events(records, "context:request_sent")
    assert [(one.prepared, one.untold) for one in told] == [(last, 0)]
    rows = (await audited(path)).requests
    assert {row.position: row.reported for row in rows} == {first: None, last: 70}


# -- what was sent, compared with what was prepared ------------------------------------------------


PREPARED: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Read a."},
    {"role": "assistant", "content": [{"type": "tool_call", "id": "c", "name": "r", "input": {}}]},
    {"role": "tool", "tool_call_id": "c", "content": "text of a"},
]


def text(said: str) -> dict[str, str]:
    return {"type": "text", "text": said}


def test_the_same_messages_in_another_dialect_differ_in_nothing() -> None:
    result = {"type": "tool_result", "tool_use_id": "c", "content": [text("text of a")]}
    rows = [
        {"role": "user", "content": [text("Read a.")]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c"}]},
        {"role": "user", "content": [result]},
    ]
    wire = messages_of({"raw": {"system": [text("Be brief.")], "messages": rows}})
    assert wire is not None
    found = compare(PREPARED, wire)
    assert (found.additions, found.missing) == ((), 0)


LINES = st.text("ab \n\t\r", max_size=8)


@given(texts=st.lists(LINES, min_size=1, max_size=6), at=st.integers(0, 5), reminder=LINES)
def test_of_any_text_with_any_reminder_behind_it_the_reminder_alone_is_the_addition(
    texts: list[str], at: int, reminder: str
) -> None:
    prepared = [
        {"role": "tool", "tool_call_id": str(n), "content": text} for n, text in enumerate(texts)
    ]
    sent = list(prepared)
    at %= len(sent)
    sent[at] = {**sent[at], "content": f"{texts[at]}\n\n{reminder}"}
    found = compare(prepared, sent)
    added = [("tool", one) for one in [reminder.strip()] if one]
    assert [one for _, one in found.additions] == added
    assert found.missing == 0


def test_an_addition_is_recorded_as_it_was_sent_whatever_words_of_it_were_said_before() -> None:
    prepared = [{"role": "user", "content": "a"}, {"role": "user", "content": "go on"}]
    reminder = {"role": "user", "content": "Mind a tab:\n\n  go on."}
    found = compare(prepared, [prepared[0], reminder])
    assert found.additions == ((1, ("user", "Mind a tab:\n\n  go on.")),)
    assert found.missing == 1


def test_a_reminder_between_two_messages_that_a_provider_joins_is_the_addition_alone() -> None:
    prepared = [{"role": "user", "content": "one\ntwo"}, {"role": "user", "content": "one"}]
    joined = {"role": "user", "content": "one\ntwo\n\nMind the tabs.\nAll.\n\none"}
    found = compare(prepared, [joined])
    assert found.additions == ((2, ("user", "Mind the tabs.\nAll.")),)
    assert found.missing == 0


def test_the_requests_of_a_responses_api_are_read_too() -> None:
    item = {"type": "function_call_output", "call_id": "c", "output": "text of a"}
    found = messages_of({"raw": {"instructions": "Be brief.", "input": [item, "odd"]}})
    assert found == [{"role": "system", "content": "Be brief."}, item]
    assert compare(PREPARED, found).additions == ()


def test_a_payload_without_messages_says_nothing() -> None:
    assert messages_of({"provider": "p", "message_count": 3}) is None
    assert messages_of({"raw": "redacted"}) is None
    assert messages_of({"messages": "none"}) is None


def test_usage_is_read_in_the_forms_in_which_hosts_tell_it() -> None:
    kernel = {"input_tokens": 100, "output_tokens": 5, "cache_read_tokens": 60}
    assert read_host_usage({**kernel, "cache_write_tokens": 30}) == Usage(130, 5, 60, 30)
    assert read_host_usage({"input": 7, "output": 1, "cache_write": 3}) == Usage(10, 1, 0, 3)
    wire = {"input_tokens": 10, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 30}
    assert read_host_usage(wire) == Usage(100, 0, 60, 30)
    text = "input_tokens=100 output_tokens=5 total_tokens=105 cache_read_tokens=60 cost_usd=None"
    assert read_host_usage(text) == Usage(100, 5, 60)
    for nothing in (None, "no usage", "", {}, {"input_tokens": True}, {"input": -4}):
        assert read_host_usage(nothing) is None


def test_errors_are_read_in_the_forms_in_which_hosts_tell_them() -> None:
    assert error_of({"type": "ValueError", "msg": "bad"}, {}) == ("ValueError", "bad")
    assert error_of(None, {"error_type": "T", "error_message": "slow"}) == ("T", "slow")
    assert error_of("broken", {}) == ("Error", "broken")
    assert error_of(None, {}) == ("Error", "")
