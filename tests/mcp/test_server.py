"""The MCP server, asked by the real client: in this process, and once over stdio."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="an extra: eventctx[mcp]")

from mcp import Client, StdioServerParameters
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import eventctx
from eventctx.engine import Engine
from eventctx.errors import InvalidSetting
from eventctx.hooks.trace import TraceSink
from eventctx.importers.load import import_file
from eventctx.mcp.server import mcp_server
from tests.importers.given import jsonl
from tests.importers.terminal_agents import CHAT, Gemini
from tests.services.received import ReceivedSpan
from tests.services.receiver import Receiver

KEY = "sk-ant-" + "api03-" + "Zx9Qw7Er5Ty3Ui1Op" * 3
LONG = "".join(f"line {number} of the report\n" for number in range(2_000))
NOWHERE = Path("/nowhere")


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    """A session of 40 demands with a secret and a long result, of which most left the view."""
    async with eventctx.open("memory://") as opened:
        ctx = await opened.session("talk", max_tokens=3_000, reserve_tokens=0)
        await ctx.add_message({"role": "user", "content": f"Use the key {KEY} and be quick."})
        for number in range(40):
            said = f"Never touch the file module{number}.py, please." + " It is old." * 20
            await ctx.add_message({"role": "user", "content": said})
            answer = LONG if number == 3 else f"I leave module{number}.py alone."
            await ctx.add_message({"role": "assistant", "content": answer})
        await ctx.get_messages_for_request()
        yield opened


def served(engine: Engine, **settings: Any) -> Client:
    def opened() -> AbstractAsyncContextManager[Engine]:
        return nullcontext(engine)

    return Client(mcp_server(opened, project=settings.pop("project", NOWHERE), **settings))


async def ask(client: Client, tool: str, **arguments: Any) -> Any:
    answer = await client.call_tool(tool, arguments)
    assert not answer.is_error, answer.content
    return json.loads(answer.content[0].text)


async def failure(client: Client, tool: str, **arguments: Any) -> tuple[str, str]:
    answer = await client.call_tool(tool, arguments)
    assert answer.is_error, answer.content
    found = json.loads(answer.content[0].text)
    return found["error"], found["message"]


async def test_four_tools_only_read_and_answer_about_a_session(engine: Engine) -> None:
    async with served(engine) as client:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == ["recall", "lost", "why", "view"]
        assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools)
        assert all(tool.input_schema["type"] == "object" for tool in tools)
        assert tools[2].input_schema["required"] == ["message"]
        why = await ask(client, "why", session="talk", message=2)
        shown = await ask(client, "view", session="talk")
        found = await ask(client, "recall", session="talk", query="module7.py old")
        assert found["found"][0]["number"] == 15
        assert "message" not in found["found"][0]
        whole = await ask(client, "recall", session="ta", message="#15")
        assert whole["text"].startswith("Never touch the file module7.py")
        assert whole["left_out"] is None
    assert (why["in_view"], why["standing"], why["ruling"] is None) == (False, "dropped", False)
    assert why["message"]["content"] == "I leave module0.py alone."
    view = await engine.request_view("talk", position=shown["position"])
    assert len(shown["entries"]) == len(view.derived)
    assert shown["known"] == "prepared" and shown["not_in_view"] and "as_sent" not in shown


@pytest.mark.parametrize("words", [LONG, '"\n' * 3_000], ids=["long", "what JSON escapes"])
async def test_a_long_message_is_read_by_pages_within_the_limit(engine: Engine, words: str) -> None:
    await (await engine.session("long")).add_message({"role": "user", "content": words})
    text, left = "", ""
    async with served(engine, most=2_000) as client:
        while left is not None:
            assert left in ("", f"call again with `start`: {len(text)}")
            asked = {"session": "long", "message": 0, "start": len(text)}
            (answer,) = (await client.call_tool("recall", asked)).content
            assert len(answer.text) <= 2_000
            page = json.loads(answer.text)
            text, left = text + page["text"], page["left_out"]
            assert page["end"] == len(text)
    assert text == words


async def test_no_answer_holds_a_control_character(engine: Engine) -> None:
    text = "red \x07, back \u202e, and \x9b bell\nnext line"
    await (await engine.session("odd")).add_message({"role": "user", "content": text})
    shown = "red \\x07, back \\u202e, and \\x9b bell"
    async with served(engine) as client:
        page = await ask(client, "recall", session="odd", message=0)
        assert page["text"] == shown + "\nnext line"
        found = await ask(client, "recall", session="odd", query="bell")
        assert "\\x07" in json.dumps(found["found"][0]).replace("\\\\", "\\")
        failed = await client.call_tool("recall", {"session": "no\x1b[31m", "query": "x"})
        assert "\x1b" not in json.loads(failed.content[0].text)["message"]


@pytest.mark.slow
async def test_the_lost_demands_are_told_page_by_page(engine: Engine) -> None:
    await (await engine.session("talk")).clear()
    whole = await engine.lost("talk")
    gone = [one.text for one in whole.items if one.kind == "instruction" and one.state == "gone"]
    assert len(gone) > 20
    texts: list[str] = []
    pages = 0
    async with served(engine, most=3_000) as client:
        while True:
            asked = {"session": "talk", "kind": "instruction", "state": "gone"}
            answer = await client.call_tool("lost", {**asked, "skip": len(texts)})
            assert len(answer.content[0].text) <= 3_000
            page = json.loads(answer.content[0].text)
            texts += [one["text"] for one in page["items"]]
            pages += 1
            left = page["left_out"] or {}
            if "after" not in left:
                break
            assert left["more"] == f"call again with `skip`: {len(texts)}"
            assert left["after"] == len(gone) - len(texts)
    assert pages > 3
    assert texts == [one.replace(KEY, "[redacted:api-key]") for one in gone]


async def test_no_answer_is_longer_than_the_limit_and_none_has_the_secret(engine: Engine) -> None:
    questions: dict[str, list[dict[str, Any]]] = {
        "recall": [{"query": "key quick"}, {"query": KEY}, {"message": 0}],
        "lost": [{}, {"state": "whole"}],
        "why": [{"message": 0}, {"message": 8}],
        "view": [{}, {"characters": 4_000}],
    }
    async with served(engine, most=2_000) as client:
        for tool, arguments in [(name, one) for name, many in questions.items() for one in many]:
            answer = await client.call_tool(tool, {"session": "talk", **arguments})
            text = answer.content[0].text
            assert not answer.is_error
            assert len(text) <= 2_000 and "Zx9Qw7" not in text, tool
            assert "left_out" in json.loads(text)
    async with served(engine, reveal=True) as client:
        assert KEY in (await ask(client, "recall", session="talk", message=0))["text"]


async def test_errors_are_the_tools_and_say_what_to_do(engine: Engine) -> None:
    async with served(engine) as client:
        assert await failure(client, "why", session="talc", message=1) == (
            "StreamNotFound",
            "no session 'talc' in this store; did you mean 'talk'?",
        )
        assert (await failure(client, "why", session="talk"))[0] == "InvalidSetting"
        asked: list[tuple[str, dict[str, Any], str]] = [
            ("why", {}, "`message`"),
            ("lost", {"colour": "red"}, "colour"),
            ("lost", {"kind": "files"}, "(command, decision, file, instruction, result)"),
            ("recall", {}, "`query` or a `message`"),
            ("recall", {"message": 8, "start": 10**9}, "start: expected less"),
            ("forget", {}, "recall, lost, why, view"),
        ]
        for tool, arguments, words in asked:
            assert words in (await failure(client, tool, session="talk", **arguments))[1]
        _, message = await failure(client, "lost")
        assert "/nowhere" in message and "'talk'" in message
    with pytest.raises(InvalidSetting, match="2000 characters or more"):
        served(engine, most=10)


def transcript(path: Path, session: str, folder: Path, day: int, words: str, **fields: Any) -> Path:
    row = {"type": "user", "sessionId": session, "cwd": str(folder), "uuid": session, **fields}
    row["message"] = {"role": "user", "content": words}
    row |= {"isSidechain": bool(fields), "timestamp": f"2026-11-{day:02}T10:00:00.000Z"}
    path.write_bytes(jsonl([row]))
    return path


async def test_without_a_name_the_last_session_of_the_folder_is_meant(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "part").mkdir(parents=True)
    there.mkdir()
    agents = tmp_path / "new" / "subagents"
    agents.mkdir(parents=True)
    async with eventctx.open("memory://") as engine:
        for name, folder, day in [("old", here, 1), ("new", here, 2), ("other", there, 3)]:
            path = transcript(tmp_path / f"{name}.jsonl", name, folder, day, f"Be {name}.")
            await import_file(engine.store, path)
        transcript(agents / "agent-a1.jsonl", "new", here, 4, "Be an agent.", agentId="a1")
        await import_file(engine.store, tmp_path / "new.jsonl")
        for project, expected in [(here, "new"), (here / "part", "new"), (there, "other")]:
            async with served(engine, project=project) as client:
                assert (await ask(client, "recall", query="be"))["session"] == expected
        async with served(engine, project=tmp_path) as client:
            kind, message = await failure(client, "recall", query="be")
    assert kind == "StreamNotFound" and "'other' or 'new' or 'old'" in message


async def test_a_session_of_gemini_cli_is_found_by_its_folders_digest(tmp_path: Path) -> None:
    here = tmp_path / "here"
    (here / "part").mkdir(parents=True)
    digest = hashlib.sha256(bytes(here)).hexdigest()
    chat = tmp_path / "session-1.jsonl"
    chat.write_bytes(Gemini(projectHash=digest).user("Be brief.").answer("Yes.").data())
    async with eventctx.open("memory://") as engine:
        await import_file(engine.store, chat)
        async with served(engine, project=here / "part") as client:
            assert (await ask(client, "recall", query="be"))["session"] == CHAT
        async with served(engine, project=tmp_path) as client:
            assert (await failure(client, "recall", query="be"))[0] == "StreamNotFound"


async def test_a_call_that_says_where_it_comes_from_is_about_that_session(tmp_path: Path) -> None:
    async with eventctx.open("memory://") as engine:
        for name, day in [("asking", 1), ("latest", 2)]:
            path = transcript(tmp_path / f"{name}.jsonl", name, tmp_path, day, f"Be {name}.")
            await import_file(engine.store, path)
        async with served(engine, project=tmp_path) as client:

            async def answer(meta: Any, **arguments: Any) -> Any:
                found = await client.call_tool("recall", {"query": "be", **arguments}, meta=meta)
                return json.loads(found.content[0].text)

            assert (await answer({"threadId": "asking"}))["session"] == "asking"
            assert (await answer({"threadId": "asking"}, session="latest"))["session"] == "latest"
            for unusable in ({}, {"threadId": 7}, {"threadId": "a/b"}):
                assert (await answer(unusable))["session"] == "latest"
            failed = await answer({"threadId": "new"})
    assert failed["error"] == "StreamNotFound"
    assert "'new'" in failed["message"] and "name it as `session`" in failed["message"]


async def written(path: Path, words: str) -> Path:
    async with eventctx.open(path) as engine:
        await (await engine.session("s")).add_message({"role": "user", "content": words})
    return path


async def test_a_search_goes_on_from_the_last_and_notices_another_store(tmp_path: Path) -> None:
    store = await written(tmp_path / "agent.db", "hello there")
    begun: list[int] = []

    @asynccontextmanager
    async def opened() -> AsyncIterator[Engine]:
        async with eventctx.open(store, read_only=True) as engine:
            read_all = engine.store.read_all

            def noted(**asked: Any) -> Any:
                begun.append(asked["after"])
                return read_all(**asked)

            engine.store.read_all = noted  # type: ignore[method-assign]
            yield engine

    async with Client(mcp_server(opened, project=NOWHERE)) as client:
        first = await ask(client, "recall", session="s", query="hello")
        assert begun[0] == -1  # from the first record on
        begun.clear()
        assert await ask(client, "recall", session="s", query="hello") == first
        assert -1 not in begun
        (await written(tmp_path / "other.db", "good morning")).rename(store)
        for suffix in ("-wal", "-shm"):
            store.with_name(store.name + suffix).unlink(missing_ok=True)
        assert not (await ask(client, "recall", session="s", query="hello"))["found"]
        assert (await ask(client, "recall", session="s", query="morning"))["found"]


@pytest.mark.slow
async def test_it_serves_over_stdio_before_and_after_its_store_is_made(tmp_path: Path) -> None:
    store = tmp_path / "agent.db"
    arguments = ["-m", "eventctx.cli", "mcp", "--store", str(store)]
    async with Client(StdioServerParameters(command=sys.executable, args=arguments)) as client:
        kind, message = await failure(client, "recall", session="s", query="hello")
        assert kind == "StoreUnavailable" and "eventctx import" in message
        await written(store, "hello there")
        found = await ask(client, "recall", session="s", query="hello")
    assert [row["number"] for row in found["found"]] == [0]


# -- traces --------------------------------------------------------------------------------------


@asynccontextmanager
async def traced_server(store: Path) -> AsyncIterator[tuple[Client, Receiver]]:
    """The program as a host starts it, and the collector that it sends its spans to."""
    with Receiver() as receiver:
        started = StdioServerParameters(
            command=sys.executable,
            args=["-m", "eventctx.cli", "mcp", "--store", str(store), "--otlp", receiver.http],
            env={"OTEL_BSP_SCHEDULE_DELAY": "20"},
        )
        async with Client(started) as client:
            yield client, receiver


@pytest.mark.slow
async def test_an_answers_span_hangs_below_what_asked_or_is_a_trace(tmp_path: Path) -> None:
    store, exporter = await written(tmp_path / "agent.db", "hello there"), InMemorySpanExporter()
    asked = {"session": "s", "query": "hello"}
    trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    meta: Any = {"traceparent": f"00-{trace}-{parent}-01"}
    nobody: list[Any] = [None, {}, {"traceparent": "00-nonsense-01"}, {"traceparent": 7}]
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    async with (
        traced_server(store) as (client, receiver),
        eventctx.open(tmp_path / "asking.db", sinks=[TraceSink(provider)]) as engine,
    ):
        assert not (await client.call_tool("recall", asked, meta=meta)).is_error
        assert (await client.call_tool("why", {"session": "s"}, meta=meta)).is_error
        ctx = await engine.session("asking")
        async with ctx.turn() as turn, turn.iteration() as cycle, cycle.tool_call("recall", "c1"):
            await ask(client, "recall", **asked)
        for one in nobody:
            assert not (await client.call_tool("recall", asked, meta=one)).is_error
        answers: list[ReceivedSpan] = []
        for at_least in itertools.count(3 + len(nobody)):
            spans = await asyncio.to_thread(receiver.wait_for_spans, at_least, 30.0)
            answers = [span for span in spans if span.name.startswith("tools/call")]
            if len(answers) >= 3 + len(nobody):
                break
    recall, why, traced, *alone = answers
    for span in (recall, why):
        assert (span.trace_id, span.parent_span_id, span.kind) == (trace, parent, "server")
        assert span.attributes["mcp.method.name"] == "tools/call"
        assert span.attributes["gen_ai.operation.name"] == "execute_tool"
        assert span.resource["service.name"] == "eventctx"
        assert "hello" not in json.dumps(span.attributes)
    assert (recall.name, recall.status) == ("tools/call recall", "unset")
    assert (why.status, why.attributes["error.type"]) == ("error", "tool_error")
    (tool,) = [span for span in exporter.get_finished_spans() if span.name == "execute_tool recall"]
    assert tool.context is not None
    assert traced.trace_id == f"{tool.context.trace_id:032x}"
    assert traced.parent_span_id == f"{tool.context.span_id:016x}"
    assert [span.parent_span_id for span in alone] == [None] * len(nobody)
    assert len({span.trace_id for span in alone}) == len(nobody)
