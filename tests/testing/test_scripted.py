"""Scripted providers and tools: what they answer, and what they refuse as a real API would."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from eventctx.errors import InvalidSetting, ProviderFailed
from eventctx.messages.facts_reader import read_facts
from eventctx.orchestrators.protocol import (
    Answer,
    Chunk,
    Ids,
    Provider,
    Request,
    StreamingProvider,
    Tool,
    ToolDefinition,
    ToolOutcome,
    Usage,
)
from eventctx.testing import (
    Hang,
    Reply,
    ScriptedAmplifierProvider,
    ScriptedProvider,
    ScriptedTool,
    ServerCall,
    check_request,
)
from tests.transcripts import DIALECTS, answer, calls, human, result

ASKED = {"role": "user", "content": "Read x."}
DIALECTS_OF_PROVIDERS = ("anthropic", "chat", "amplifier")


def request(*messages: dict[str, Any]) -> Request:
    return Request(messages, Ids("s"))


@pytest.mark.parametrize("dialect", DIALECTS_OF_PROVIDERS)
async def test_a_round_in_any_dialect_is_one_that_the_engine_and_the_checks_understand(dialect):
    looks = Reply("Look:", calls=[("read", {"path": "x"}), ("grep", {})], thinking="hm")
    provider = ScriptedProvider(looks, "Done.", dialect=dialect)
    first = await provider.complete(request(ASKED))
    facts = read_facts(first.message)
    assert facts.calls == ("call_1", "call_2") == tuple(call.id for call in first.calls)
    assert facts.thinking > 0
    rows = [provider.result_message(ToolOutcome(call, "text")) for call in first.calls]
    assert [read_facts(row).results for row in rows] == [("call_1",), ("call_2",)]
    last = await provider.complete(request(ASKED, first.message, *rows))
    assert (last.text, last.calls, provider.remaining) == ("Done.", (), 0)
    assert first.finish_reason == ("tool_calls" if dialect == "chat" else "tool_use")


async def test_a_tool_of_the_provider_itself_is_answered_with_its_result_and_pauses_without():
    provider = ScriptedProvider(
        Reply(server_calls=[ServerCall("web_search", {"query": "x"})]),
        Reply("Two.", server_calls=[ServerCall("web_search", None, [], "srvtoolu_1")]),
    )
    paused, rest = [await provider.complete(request(ASKED)) for _ in range(2)]
    call = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search"}
    assert paused.message["content"] == [{**call, "input": {"query": "x"}}]
    assert (paused.finish_reason, rest.finish_reason) == ("pause_turn", "end_turn")
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    assert rest.message["content"] == [found, {"type": "text", "text": "Two."}]
    other = ScriptedProvider(Reply(server_calls=[ServerCall("web_search", {})]), dialect="chat")
    with pytest.raises(InvalidSetting, match="server_calls: expected none in the dialect 'chat'"):
        await other.complete(request(ASKED))


async def test_a_script_may_raise_report_usage_and_look_at_the_request():
    def echo(asked: Request) -> Reply:
        return Reply(str(len(asked.messages)), usage=Usage(10, 2))

    async def later(asked: Request) -> str:
        return "async"

    failing = ProviderFailed("scripted", "overloaded", status=529, retryable=True)
    provider = ScriptedProvider(failing, TimeoutError, echo, later)
    for error in (ProviderFailed, TimeoutError):
        with pytest.raises(error):
            await provider.complete(request(ASKED))
    found = await provider.complete(request(ASKED, {"role": "assistant", "content": "?"}))
    assert (found.text, found.usage) == ("2", Usage(10, 2))
    assert (await provider.complete(request(ASKED))).text == "async"
    assert len(provider.requests) == 4


async def test_a_stream_adds_up_to_the_answer_that_comes_last():
    provider = ScriptedProvider(Reply("one  two three", thinking="let me think"))
    *chunks, last = [piece async for piece in provider.stream(request(ASKED))]
    assert len(chunks) > 3 and {type(one) for one in chunks} == {Chunk}
    for kind, block, text in (("thinking", 0, "let me think"), ("text", 1, "one  two three")):
        said = [one.text for one in chunks if (one.kind, one.block) == (kind, block)]
        assert "".join(said) == text
    assert isinstance(last, Answer) and last.text == "one  two three"


async def test_a_request_is_recorded_as_it_was_and_one_more_than_the_script_has_steps_fails():
    provider = ScriptedProvider("only this")
    row = {"role": "user", "content": [{"type": "text", "text": "before"}]}
    await provider.complete(request(row))
    row["content"][0]["text"] = "after"  # type: ignore[index]
    assert provider.requests[0].messages[0]["content"][0]["text"] == "before"
    with pytest.raises(AssertionError, match="script has 1 steps, and request 2 came"):
        await provider.complete(request(ASKED))


def test_it_is_a_provider_and_says_its_models_limits():
    provider = ScriptedProvider(context_window=8_000, max_output_tokens=1_000)
    assert isinstance(provider, Provider) and isinstance(provider, StreamingProvider)
    assert provider.get_info().defaults == {"context_window": 8_000, "max_output_tokens": 1_000}
    assert ScriptedProvider().get_info().defaults == {}
    tool = ToolDefinition("read", "Reads.", {"type": "object"})
    providers: Any = [ScriptedProvider(dialect=one) for one in DIALECTS_OF_PROVIDERS]  # type: ignore[arg-type]
    names = {str(one.definitions([tool])) for one in providers}
    assert len(names) == 3
    assert all("'read'" in name and "'Reads.'" in name for name in names)
    with pytest.raises(InvalidSetting, match="found 7"):
        ScriptedProvider(7)  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match="latin"):
        ScriptedProvider(dialect="latin")  # type: ignore[arg-type]


# -- what a provider refuses ---------------------------------------------------------------------


def talk(dialect: str) -> list[dict[str, Any]]:
    """A person, a round of two calls, an answer."""
    opening = [{"role": "system", "content": "Be brief."}, human(dialect, "go")]
    results = [result(dialect, "a", "1"), result(dialect, "b", "2")]
    return [*opening, *calls(dialect, ["a", "b"], "hm", 1), *results, *answer(dialect, "done")]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_sound_conversation_is_accepted_and_one_without_a_row_of_its_round_is_refused(dialect):
    whole = talk(dialect)
    check_request(whole)
    first_result = len(whole) - 3
    facts = [read_facts(row) for row in whole]
    parts = [place for place, one in enumerate(facts) if one.calls or one.results]
    for broken in (
        [row for row, one in zip(whole, facts, strict=True) if not one.calls],
        *(whole[:place] + whole[place + 1 :] for place in parts),
        [*whole[:first_result], human(dialect, "wait"), *whole[first_result:]],
        [*whole[:first_result], whole[-1]],
        whole[: first_result + 1],
    ):
        with pytest.raises(AssertionError, match="a provider refuses"):
            check_request(broken)


async def test_a_refused_request_names_the_message_and_lists_all():
    provider = ScriptedProvider("never said")
    rows = [ASKED, *calls("anthropic", ["a"], "hm", 1), {"role": "user", "content": "And?"}]
    with pytest.raises(AssertionError) as caught:
        await provider.complete(request(*rows))
    first, *lines = str(caught.value).splitlines()
    assert first.startswith("a provider refuses request 1: message 2: calls 'a' of message 1 must")
    assert first.endswith(" be answered before it, found user, 'And?'")
    assert lines == ["  0  user, 'Read x.'", "  1  assistant, calls 'a'", "  2  user, 'And?'"]
    assert provider.remaining == 1
    lenient = ScriptedProvider("said", strict=False)
    assert (await lenient.complete(request(*rows))).text == "said"


# -- tools ---------------------------------------------------------------------------------------


async def test_a_tool_returns_raises_and_computes_and_repeats_its_last_step():
    tool = ScriptedTool("read", "one", OSError("no"), lambda given: given["path"])
    assert isinstance(tool, Tool)
    assert await tool.execute({}) == "one"
    with pytest.raises(OSError, match="no"):
        await tool.execute({})
    assert await tool.execute({"path": "x"}) == "x"
    assert await tool.execute({"path": "y"}) == "y"
    assert tool.inputs == [{}, {}, {"path": "x"}, {"path": "y"}]


async def test_a_hanging_tool_goes_on_when_it_is_released_and_says_so_if_it_is_cancelled():
    hangs = [Hang(), Hang()]
    running, cancelled = [
        asyncio.create_task(ScriptedTool("slow", hang).execute({})) for hang in hangs
    ]
    for hang in hangs:
        await hang.reached()
    assert not running.done()
    hangs[0].release("at last")
    assert await running == "at last"
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert hangs[1].cancelled


# -- Amplifier -----------------------------------------------------------------------------------


def chat_request(*rows: dict[str, Any]) -> Any:
    models = pytest.importorskip("amplifier_core.message_models")
    return models.ChatRequest(messages=[models.Message(**row) for row in rows])


async def test_an_amplifier_provider_answers_with_amplifiers_own_models():
    asked = chat_request(ASKED)
    provider = ScriptedAmplifierProvider(
        Reply("Look:", calls=[("read", {"path": "x"})], thinking="hm", usage=Usage(7, 3)), "Done."
    )
    found = await provider.complete(asked)
    assert [block.type for block in found.content] == ["thinking", "text", "tool_call"]
    (call,) = provider.parse_tool_calls(found)
    assert (call.id, call.name, call.arguments) == ("call_1", "read", {"path": "x"})
    assert (found.usage.input_tokens, found.usage.total_tokens) == (7, 10)
    calls = [{"id": call.id, "tool": call.name, "arguments": call.arguments}]
    blocks = [block.model_dump() for block in found.content]
    stored = {"role": "assistant", "content": blocks, "tool_calls": calls}
    told = {"role": "tool", "tool_call_id": call.id, "content": "text"}
    last = await provider.complete(chat_request(ASKED, stored, told))
    assert (last.content[0].text, provider.parse_tool_calls(last)) == ("Done.", [])
    assert [len(rows) for rows in provider.messages] == [1, 3]


async def test_an_amplifier_provider_is_as_strict_and_has_what_amplifiers_validator_looks_for():
    validation = pytest.importorskip("amplifier_core.validation.provider")
    provider = ScriptedAmplifierProvider("never", context_window=9_000, max_output_tokens=100)
    assert validation._implements_provider_interface(provider)
    assert provider.get_info().defaults["context_window"] == 9_000
    orphan = {"role": "tool", "tool_call_id": "call_9", "content": "text"}
    with pytest.raises(AssertionError, match="message 1: result 'call_9'"):
        await provider.complete(chat_request(ASKED, orphan))


async def test_a_tool_for_amplifier_returns_its_tool_results():
    core = pytest.importorskip("amplifier_core")
    tool = ScriptedTool("read", {"lines": 3}, OSError("no such file"), amplifier=True)
    good, bad = await tool.execute({}), await tool.execute({})
    assert isinstance(good, core.ToolResult)
    assert (good.success, good.output) == (True, {"lines": 3})
    assert (bad.success, bad.error) == (False, {"type": "OSError", "message": "no such file"})
