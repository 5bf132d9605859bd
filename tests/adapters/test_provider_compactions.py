"""What a provider takes out by itself, compactions and cleared tool uses, and what the log says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

import eventctx
from eventctx import Engine
from eventctx.cli.commands.lost import answer
from eventctx.cli.output.reasons import facts_of, presence_in_words
from eventctx.log.events import ToolUseClearing
from eventctx.log.naming import RequestName
from eventctx.log.turn_recorder import read_settings
from eventctx.messages.parts import brings_compaction
from eventctx.orchestrators import (
    AnthropicProvider,
    OpenAIResponsesProvider,
    StreamingOrchestrator,
    tool,
)
from eventctx.queries.explain_answers import Explanation
from eventctx.queries.view import view_answer, view_of
from eventctx.testing import Reply
from eventctx.testing.strict_provider import StrictServer, strict_provider
from eventctx.testing.strict_provider.answering import clear_tool_uses
from tests.adapters.logs import count
from tests.orchestrators.providers.server import claude_client, openai_client

Rows = list[dict[str, Any]]

NAME = "Name the parts of the recipe app, and never rename the table Zutaten."
QUESTIONS = (NAME, "Which of them comes first?", "And what after that?", "Is that all?")
SUMMARY = f"A recipe app. They said: {NAME}"
SCRIPT = ["A table.", Reply("Recipe first.", compaction=SUMMARY), "Then Step.", "Yes."]
BEFORE = 3
"""Messages before the answer with the summary; before OpenAI's item a person's words stay."""

Ask = Callable[[Rows], Any]


def asking(api: str, client: Any, streamed: bool = False) -> Ask:
    """A call of a client with which the API summarises what was said."""
    if api == "claude":
        edits = {"edits": [{"type": "compact_20260112"}]}
        calls, given = client.beta.messages, {"max_tokens": 900, "betas": ["compact-2026-01-12"]}
        given |= {"model": "claude-opus-5-5", "context_management": edits}
    else:
        managed = [{"type": "compaction", "compact_threshold": 1_000}]
        calls, given = client.responses, {"model": "gpt-6-sol", "context_management": managed}
        given["store"] = False

    async def ask(rows: Rows) -> Rows:
        asked: Any = {**given, "messages" if api == "claude" else "input": rows}
        if streamed:
            async with calls.stream(**asked) as stream:
                final = stream.get_final_message if api == "claude" else stream.get_final_response
                answer: Any = await final()
        else:
            answer = await calls.create(**asked)
        if api == "claude":
            return [{"role": "assistant", "content": [one.to_dict() for one in answer.content]}]
        return [one.to_dict(warnings=False) for one in answer.output]

    return ask


@asynccontextmanager
async def asked_of(api: str, script: Sequence[Any]) -> AsyncIterator[tuple[StrictServer, Any]]:
    """A server that refuses nothing until the block ends, and its SDK's client."""
    async with strict_provider(script) as server:
        made, path = (claude_client, "") if api == "claude" else (openai_client, "/v1")
        async with made(f"{server.url}{path}", max_retries=0) as client:
            yield server, client
        assert server.refusals == []


async def talk(ask: Ask, *, drops: bool = False) -> None:
    """A conversation; ``drops``: the caller leaves out what the API summarised."""
    rows: Rows = []
    for question in QUESTIONS:
        rows.append({"role": "user", "content": question})
        said = await ask(rows)
        rows = said if drops and brings_compaction(said[0]) else rows + said


async def questions_of(engine: Engine) -> tuple[str, ...]:
    """A person's words in the transcript."""
    rows = [one.message for one in await engine.transcript("s")]
    return tuple(one["content"] for one in rows if one.get("role") == "user")


def sent(server: StrictServer) -> list[Rows]:
    return [one.body.get("messages") or one.body["input"] for one in server.requests]


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("api", ["claude", "openai"])
async def test_what_an_api_sums_up_is_out_of_view(engine: Engine, api: str, streamed: bool) -> None:
    async with asked_of(api, SCRIPT) as (server, client):
        await talk(asking(api, eventctx.wrap(client, engine, "s"), streamed))
    assert await questions_of(engine) == QUESTIONS
    gone = await engine.why("s", 1)
    assert (gone.standing, gone.ruling and gone.ruling.reason) == ("summarised", "provider")
    assert (gone.into, gone.into_in_view) == (BEFORE, True)
    held = await engine.why("s", BEFORE)
    assert held.in_view and held.stays and held.stays.reason == "provider_summary"
    # The caller sends all of it again, as the API allows; the log knows what is read of that.
    assert (await engine.request_view("s", turn=3)).messages == sent(server)[2]
    assert sent(server)[2][0] == {"role": "user", "content": QUESTIONS[0]}
    audit = await engine.audit("s")
    read = audit.requests[2].counts
    assert (read.summarised, read.kept) == ((3, 2) if api == "claude" else (1, 5))
    assert [row.trigger for row in audit.compactions] == ["provider"]
    assert (await engine.verify("s")).ok


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("api", ["claude", "openai"])
async def test_the_log_keeps_what_a_caller_left(engine: Engine, api: str, compact: bool) -> None:
    async with asked_of(api, SCRIPT) as (_, client):
        await talk(asking(api, eventctx.wrap(client, engine, "s", compact=compact)), drops=True)
    assert await questions_of(engine) == QUESTIONS
    assert (await engine.why("s", 1)).standing == "summarised"
    assert await count(engine, "context:messages_set") == [0]
    assert await engine.hook_failures() == ()


async def test_a_compaction_that_the_caller_asks_for_is_known(engine: Engine) -> None:
    rows: Any = [{"role": "user", "content": QUESTIONS[0]}]
    given: Any = {"model": "claude-opus-5-5", "max_tokens": 900, "betas": ["compact-2026-09-04"]}
    script = ["A table.", Reply(SUMMARY), "Then Step."]
    async with asked_of("claude", script) as (_, client):
        messages = eventctx.wrap(client, engine, "s").beta.messages

        async def ask(rows: Any, **more: Any) -> Any:
            answer = await messages.create(messages=rows, **given, **more)
            return {"role": "assistant", "content": [one.to_dict() for one in answer.content]}

        rows.append(await ask(rows))
        block = await ask(rows, compaction={"type": "summarize"})
        await ask([block, {"role": "user", "content": QUESTIONS[1]}])
    told = [(await engine.why("s", number)).standing for number in range(5)]
    assert told == ["summarised", "summarised", "whole", "whole", "whole"]
    assert len(await engine.transcript("s")) == 5


@pytest.mark.parametrize("api", ["claude", "openai"])
async def test_our_provider_sends_a_summary_back_as_its_api_asks(engine: Engine, api: str) -> None:
    ctx, of_claude = await engine.session("s"), api == "claude"
    async with asked_of(api, SCRIPT) as (server, client):
        provider: Any = AnthropicProvider if of_claude else OpenAIResponsesProvider
        asked = {"api": provider(client, "claude-opus-5-5" if of_claude else "gpt-6-sol")}
        for question in QUESTIONS:
            await StreamingOrchestrator().execute(question, ctx, asked)
    later = [2, 4] if of_claude else [5, 7]
    assert [len(one) for one in sent(server)] == [1, 3, *later]
    assert (await engine.why("s", 1)).standing == "summarised"


# -- tool uses that the provider cleared ----------------------------------------------------------


MODEL = "claude-sonnet-4-6"
BETA = "context-management-2025-06-27"
FILES = ("a.py", "notes.md", "b.py", "c.py", "d.py")


def provider_of(why: Explanation) -> str:
    """What an explanation says of the provider."""
    (parts,) = [one.parts for one in facts_of(why) if one.label == "provider"]
    return "".join(map(str, parts))


def clearing(**fields: Any) -> dict[str, Any]:
    few = {"trigger": {"type": "tool_uses", "value": 2}, "keep": {"type": "tool_uses", "value": 2}}
    return {"edits": [{"type": "clear_tool_uses_20250919", **few, **fields}]}


def rounds(files: Iterable[str] = FILES) -> Rows:
    """One round of tool use for each file; notes are read by a tool of their own."""
    rows: Rows = [{"role": "user", "content": "Read all files."}]
    for number, file in enumerate(files):
        name = "read_notes" if file.endswith(".md") else "read_file"
        call = {"type": "tool_use", "id": f"call_{number}", "name": name, "input": {"path": file}}
        said = f"Error: {file} fails at line {number}7, in def of_{file[0]}()"
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": said}
        rows += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return rows


async def cleared(
    engine: Engine, *asked: tuple[Rows, Any], says: Any = "Done.", **options: Any
) -> StrictServer:
    """The server, after it was asked with these messages under these rules."""
    async with asked_of("claude", [says] * len(asked)) as (server, client):
        for rows, managed in asked:
            calls: Any = eventctx.wrap(client, engine, "s", **options).beta.messages
            given: Any = {"model": MODEL, "max_tokens": 900, "messages": rows, "betas": [BETA]}
            await calls.create(**given, context_management=managed)
    return server


def cleared_by(server: StrictServer) -> set[str]:
    """The calls whose results the model did not read, as the server did it."""
    body = server.requests[-1].body
    read, _ = clear_tool_uses(body)
    changed = [(a, b) for a, b in zip(body["messages"], read["messages"], strict=True) if a != b]
    blocks = [block for one, _ in changed for block in one["content"]]
    return {one["tool_use_id"] for one in blocks if one["type"] == "tool_result"}


async def told_by(engine: Engine, turn: int | None = None) -> set[str]:
    """The calls whose results the model did not read, as ``why`` says."""
    found = set[str]()
    for number in range(len(await engine.transcript("s"))):
        why = await engine.why("s", number, turn=turn)
        if why.cleared and why.cleared.message and why.message:
            blocks = zip(why.message["content"], why.cleared.message["content"], strict=True)
            changed = [one for one, read in blocks if one != read]
            found |= {one["tool_use_id"] for one in changed if "tool_use_id" in one}
    return found


@pytest.mark.parametrize(
    "managed",
    [
        clearing(),
        clearing(keep={"type": "tool_uses", "value": 1}),
        clearing(exclude_tools=["read_notes"]),
        clearing(exclude_tools=["read_file"], keep={"type": "tool_uses", "value": 0}),
        clearing(clear_tool_inputs=True),
    ],
)
@pytest.mark.parametrize("options", [{}, {"compact": True, "policy": "workset"}])
async def test_why_names_what_the_api_cleared(engine: Engine, managed: Any, options: Any) -> None:
    gone = cleared_by(await cleared(engine, (rounds(), managed), **options))
    assert await told_by(engine) == await told_by(engine, turn=1) == gone != set()


async def test_what_is_sent_stays_whole_and_is_cleared_anew(engine: Engine) -> None:
    first = rounds(FILES[:4])
    more = [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "Again."}]
    server = await cleared(engine, (first, clearing()), ([*first, *more], {"edits": []}))
    assert [len(one) for one in sent(server)] == [9, 11]
    assert await told_by(engine, turn=1) == {"call_0", "call_1"}
    assert await told_by(engine, turn=2) == await told_by(engine) == set()
    why = await engine.why("s", 2, turn=1)
    assert why.standing == "whole"
    assert presence_in_words(why).endswith("cleared by the provider before the model read it")
    assert provider_of(why).startswith("cleared 2 tool uses of the request at @")
    assert (await engine.request_view("s", 1)).verified


async def test_lost_and_view_say_what_the_model_did_not_read(engine: Engine) -> None:
    rows = rounds()
    run = {"type": "tool_use", "id": "call_0", "name": "bash", "input": {"command": "pytest"}}
    rows[1]["content"] = [run]
    rows[2]["content"][0]["is_error"] = True
    await cleared(engine, (rows, clearing(exclude_tools=["read_notes"])))
    view = view_answer(await view_of(engine.store, "s", RequestName(1)))
    assert view.cleared and (view.cleared.uses, view.cleared.messages) == (2, "#2, #6")
    lost = await engine.lost("s")
    counts = lost.messages
    assert (counts.shortened, counts.provider_cleared, counts.left) == (2, 2, 0)
    assert "2 are shortened (2 by the provider, inferred from its count)" in answer(lost)
    (ran,) = [one for one in lost.items if one.kind == "command"]
    assert (ran.text, ran.state) == ("pytest", "gone")  # how it failed is in the result alone
    assert ran.left and ran.left.by == "provider"


async def test_a_count_that_the_rules_do_not_explain_blames_no_message(engine: Engine) -> None:
    told = {"type": "clear_tool_uses_20250919", "cleared_tool_uses": 4, "cleared_input_tokens": 9}
    await cleared(engine, (rounds(), {"edits": []}), says=Reply("Done.", edits=[told]))
    why = await engine.why("s", 2)
    assert why.cleared and (why.cleared.uses, why.cleared.message) == (4, None)
    assert presence_in_words(why) == "in view, whole"
    assert "this may be one" in provider_of(why)
    assert (await engine.why("s", 0)).cleared is None
    assert (await engine.lost("s")).messages.provider_cleared == 0
    view = view_answer(await view_of(engine.store, "s", RequestName(1)))
    assert view.cleared and view.cleared.messages is None


async def test_an_agent_s_provider_tells_it_too_of_its_last_attempt(engine: Engine) -> None:
    async def read_file(path: str) -> str:
        """Read a file."""
        return f"All of {path}. " * 40

    calls = [Reply(calls=[("read_file", {"path": one})]) for one in FILES]
    overloaded = type("Overloaded", (Exception,), {"status": 529})()
    options: Any = {"extra_headers": {"anthropic-beta": BETA}}
    options["extra_body"] = {"context_management": clearing()}
    async with asked_of("claude", [*calls, overloaded, "Done."]) as (server, client):
        claude = {"api": AnthropicProvider(client, MODEL, **options)}
        ctx, tools = await engine.session("s"), {"read_file": tool(read_file)}
        loop = StreamingOrchestrator(jitter=lambda: 0.0)
        await loop.execute("Read all.", ctx, claude, tools)
    assert len(server.requests) == 7
    assert cleared_by(server) == await told_by(engine) == {"call_1", "call_2", "call_3"}


EDIT = {"type": "clear_tool_uses_20250919"}


@pytest.mark.parametrize(
    ("edits", "clears"),
    [
        ([EDIT], ToolUseClearing(keep=3)),
        ([{**EDIT, "keep": None, "exclude_tools": ["x"]}], ToolUseClearing(exclude=("x",))),
        ([{**EDIT, "clear_tool_inputs": ["x"]}], ToolUseClearing(inputs=("x",))),
        ([{**EDIT, "keep": {"type": "tool_uses", "value": "all"}}], None),
        ([{**EDIT, "exclude_tools": "x"}], None),
        ([EDIT, EDIT], None),
        ([{"type": "clear_thinking_20251015"}, "odd"], None),
        ("odd", None),
    ],
)
def test_an_edit_that_cannot_be_read_is_not_known(edits: Any, clears: Any) -> None:
    assert read_settings(managed={"edits": edits}).clears == clears
