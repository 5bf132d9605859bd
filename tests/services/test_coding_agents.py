"""Real coding agents against a scripted server: their sessions, our hooks and our MCP server.

Opt-in, see tests/services/programs.py; what is not named there: ``npm install @google/gemini-cli
opencode-ai @github/copilot`` installs them (650 MB), ``$EVENTCTX_GEMINI``, ``$EVENTCTX_OPENCODE``
and ``$EVENTCTX_COPILOT`` are the paths of their programs. Copilot alone asks the server.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx.importers.load import import_file
from eventctx.queries.requests import request_at
from eventctx.stores.memory import MemoryStore
from tests.scripted_http import serving
from tests.services.programs import (
    Body,
    Claude,
    ClaudeScript,
    Item,
    Turn,
    asked_of,
    claude,
    claude_api,
    code,
    codex,
    program_of,
    ran,
    said,
    said_by_persons,
    set_up,
)

MODEL = ("--model", "claude-sonnet-4-5")


@pytest.fixture
def binary() -> Path:
    return program_of("EVENTCTX_CLAUDE_CODE", "360 MB")


def answered(body: Body) -> int:
    return sum(one["role"] == "assistant" for one in body["messages"])


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(call: str, tool: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": tool, "input": arguments}


def scripted(*steps: list[dict[str, Any]]) -> ClaudeScript:
    """Answers by how many answers a request holds already; behind the last step, the end."""

    def script(body: Body) -> Turn:
        done = answered(body)
        if not body.get("tools") or done >= len(steps):
            return [text(f"Done, {done}.")], "end_turn"
        return steps[done], "tool_use"

    return script


SUMMARY = [text("<summary>We talked about a parser.</summary>")], "end_turn"


def understanding(body: Body) -> Turn:
    if "TEXT ONLY" in str(body["messages"][-1]["content"]):
        return SUMMARY
    return [text(f"Understood, {answered(body)}.")], "end_turn"


async def compared(program: Claude) -> list[tuple[str, bool, bool]]:
    """For each imported request how it is known, whether it verifies and whether it was received.

    The requests of subagents are in sessions of their own.
    """
    store = MemoryStore()
    engine = eventctx.Engine(store)
    found = []
    for summary in await import_file(store, program.session):
        session = summary.session or ""
        for row in (await engine.audit(session)).requests:
            view = await request_at(store, session, row.position)
            rebuilt = {} if view.sent is None else view.sent.body()
            rebuilt.pop("betas", None)
            found.append((view.known, view.verified, rebuilt in program.received))
    return found


async def test_thinking_parallel_tools_and_a_resumed_session(binary: Path, tmp_path: Path) -> None:
    steps = (
        [
            {"type": "thinking", "thinking": "Let me see.", "signature": "c2lnbmF0dXJl"},
            text("Two at once: ünïcode."),
            use("toolu_1", "Bash", command="echo one; echo ü", timeout=1000.5),
            use("toolu_2", "Read", file_path=str(tmp_path / "project" / "a.txt")),
        ],
        [use("toolu_3", "Bash", command="false")],
    )
    with claude(binary, tmp_path, scripted(*steps)) as program:
        (program.project / "a.txt").write_text("alpha\n")
        (program.project / "CLAUDE.md").write_text("# Rules\nBe nice.\n")
        program.run(*MODEL, "Go\nthere")
        program.run(*MODEL, "-c", "again")
        assert await compared(program) == [("observed", True, True)] * 4


async def test_a_subagent_beside_another_tool(binary: Path, tmp_path: Path) -> None:
    agent = {"description": "find", "prompt": "find it", "subagent_type": "general-purpose"}

    def script(body: Body) -> Turn:
        if "Ask an agent" in str(body["messages"]):
            steps = [use("toolu_1", "Agent", **agent), use("toolu_2", "Bash", command="echo main")]
            return scripted(steps)(body)
        return scripted([use("toolu_s", "Bash", command="echo sub")])(body)

    with claude(binary, tmp_path, script) as program:
        program.run(*MODEL, "Ask an agent")
        found = await compared(program)
        assert len(found) >= 4
        assert set(found) == {("observed", True, True)}


async def test_a_session_that_the_program_compacted(binary: Path, tmp_path: Path) -> None:
    def script(body: Body) -> Turn:
        if "summary" in str(body["messages"][-1]["content"]).lower():
            return SUMMARY
        return scripted([use(f"toolu_{answered(body)}", "Bash", command="echo")])(body)

    with claude(binary, tmp_path, script) as program:
        program.run(*MODEL, "first")
        program.run(*MODEL, "-c", "/compact")
        program.run(*MODEL, "-c", "third")
        found = await compared(program)
        assert len(found) >= 3
        assert set(found) == {("observed", True, True)}


async def test_hooks_commands_and_a_denied_permission(binary: Path, tmp_path: Path) -> None:
    steps = (
        [use("toolu_1", "Bash", command="echo one")],
        [use("toolu_2", "Bash", command="rm -rf zzz")],
    )
    once = "test -f .stopped || { touch .stopped; echo again >&2; exit 2; }"
    commands = {
        "UserPromptSubmit": "echo hook says hi",
        "PostToolUse": "echo nope >&2; exit 2",
        "Stop": once,
    }
    hooks = {
        event: [{"hooks": [{"type": "command", "command": command}]}]
        for event, command in commands.items()
    }
    settings = {"permissions": {"deny": ["Bash(rm:*)"]}, "hooks": hooks}
    with claude(binary, tmp_path, scripted(*steps)) as program:
        folder = program.project / ".claude"
        (folder / "commands").mkdir(parents=True)
        (folder / "commands" / "greet.md").write_text("Greet $ARGUMENTS loudly.\n")
        (folder / "settings.json").write_text(json.dumps(settings))
        program.run(*MODEL, "first")
        program.run(*MODEL, "-c", "/greet world")
        found = await compared(program)
        assert len(found) >= 5
        assert set(found) == {("observed", True, True)}


SERVER = "mcp__plugin_eventctx_eventctx__"
"""What Claude Code calls the tools of our plugin's server."""


async def test_in_a_tool_loop_the_next_request_has_the_demands(
    binary: Path, tmp_path: Path
) -> None:
    def script(body: Body) -> Turn:
        first = "toolu_1" not in str(body["messages"])
        if "Look" in str(body["messages"][-1]["content"]) and first:
            return [use("toolu_1", "Bash", command="echo hi")], "tool_use", 190_000
        return understanding(body)

    with claude(binary, tmp_path, script) as program:
        set_up("claude-code", program.home, "--store", str(tmp_path / "agent.db"))
        program.run(*MODEL, "Never touch the file legacy.py, please.")
        program.run(*MODEL, "-c", "Look.", CLAUDE_CODE_AUTO_COMPACT_WINDOW="100000")
        sent = str(program.received[-1]["messages"])
    assert "We talked about a parser." in sent
    assert "Never touch the file legacy.py, please." in sent
    assert "eventctx instructions" in sent


async def test_after_a_compaction_the_model_hears_the_demands(binary: Path, tmp_path: Path) -> None:
    store = tmp_path / "agent.db"

    with claude(binary, tmp_path, understanding) as program:
        set_up("claude-code", program.home, "--store", str(store))
        program.run(*MODEL, "Write a parser.")
        program.run(*MODEL, "-c", "Never touch the file legacy.py, please.")
        program.run(*MODEL, "-c", "/compact")
        program.run(*MODEL, "-c", "Go on.")
        sent = str(program.received[-1]["messages"])
        session = program.session.stem
    assert "We talked about a parser." in sent
    assert "Never touch the file legacy.py, please." in sent
    assert f"eventctx instructions {session}" in sent
    async with eventctx.open(store, create=False) as engine:
        found = await engine.lost(session, compaction=1)
    assert "Never touch the file legacy.py, please." in [one.text for one in found.items]


async def test_the_model_asks_for_what_was_said(binary: Path, tmp_path: Path) -> None:
    store = tmp_path / "agent.db"
    async with eventctx.open(store) as engine:
        ctx = await engine.session("earlier")
        await ctx.add_message({"role": "user", "content": "Never touch the file legacy.py."})
    steps = (
        [use("toolu_1", f"{SERVER}recall", session="earlier", query="legacy")],
        [use("toolu_2", f"{SERVER}why", session="earlier", message=77)],
    )
    with claude(binary, tmp_path, scripted(*steps)) as program:
        set_up("claude-code", program.home, "--store", str(store))
        program.run(*MODEL, "What was I to leave?")
        skills = str(program.received[0]["messages"])
        blocks = [block for one in program.received[-1]["messages"] for block in one["content"]]
        results = [one for one in blocks if isinstance(one, dict) and one["type"] == "tool_result"]
    assert "eventctx: Get back what left the context" in skills
    assert "Never touch the file legacy.py." in str(results[0]["content"])
    assert results[1]["is_error"] is True
    assert "InvalidSetting" in str(results[1]["content"])


async def test_after_a_compaction_the_model_asks_what_it_lost(binary: Path, tmp_path: Path) -> None:
    def script(body: Body) -> Turn:
        last = str(body["messages"][-1]["content"])
        if "Go on" in last and "TEXT ONLY" not in last:
            return [use("toolu_1", f"{SERVER}lost")], "tool_use"
        return understanding(body)

    with claude(binary, tmp_path, script) as program:
        set_up("claude-code", program.home, "--store", str(tmp_path / "agent.db"))
        program.run(*MODEL, "Never touch the file legacy.py, please.")
        program.run(*MODEL, "-c", "/compact")
        program.run(*MODEL, "-c", "Go on.")
        sent = str(program.received[-1]["messages"][-1]["content"])
    # The program wrote its summary after its hooks: the one before the call read it.
    assert '"compactions":1' in sent
    assert '"state":"gone","text":"Never touch the file legacy.py, please."' in sent


LARGE = 30_000
"""Tokens said of a request, so that the next turn begins with a compaction."""

FILLER = "The report has these lines. " * 3_500
"""More than the 20,000 tokens of a person's words that Codex keeps in a compaction."""


@pytest.fixture
def codex_binary() -> Path:
    return program_of("EVENTCTX_CODEX", "300 MB")


def understood(body: Body) -> Item:
    """The answer to a request, which is said to be large where a report was to be read."""
    return said("Understood.", LARGE if "report" in said_by_persons(body)[-1] else 10)


async def test_after_a_compaction_the_model_hears_what_it_lost(
    codex_binary: Path, tmp_path: Path
) -> None:
    store = tmp_path / "agent.db"

    def script(body: Body) -> Item:
        if "CONTEXT CHECKPOINT" in said_by_persons(body)[-1]:
            return said("We talked about a parser.")
        return understood(body)

    with codex(codex_binary, tmp_path, script) as program:
        set_up("codex", program.home, "--store", str(store))
        program.ask("Never touch the file legacy.py, please.")
        program.ask("resume", "--last", "Always answer in French.")
        program.ask("resume", "--last", f"Read this report. {FILLER}")
        printed = program.ask("resume", "--last", "Go on, and never ask.")
        sent = program.received[-1]
        session = program.session.stem[-36:]
    assert "hook: PostCompact Completed" in printed
    assert "Failed" not in printed
    told = [one for one in sent["input"] if "(eventctx)" in str(one)]
    assert [one["role"] for one in told] == ["developer"]
    assert "Never touch the file legacy.py, please." in str(told)
    assert "Never touch the file legacy.py" not in "".join(said_by_persons(sent))
    assert "never ask" not in str(told)  # it was said after the compaction
    async with eventctx.open(store, create=False) as engine:
        found = (await engine.instructions(session)).instructions
    assert [one.text for one in found][:1] == ["Never touch the file legacy.py, please."]


async def test_after_one_by_openais_servers_the_model_hears_them_too(
    codex_binary: Path, tmp_path: Path
) -> None:
    def script(body: Body) -> Item:
        if body["input"][-1]["type"] == "compaction_trigger":
            return Item({"type": "compaction", "id": "cmp_1", "encrypted_content": "c2VjcmV0"})
        return understood(body)

    with codex(codex_binary, tmp_path, script) as program:
        set_up("codex", program.home, "--store", str(tmp_path / "agent.db"))
        program.ask("Never touch the file legacy.py, please.", openai=True)
        for _ in range(2):  # more than the about 64,000 tokens of a person's words that are kept
            words = f"Read this report. {FILLER} {FILLER[:31_000]}"
            program.ask("resume", "--last", words, openai=True)
        program.ask("resume", "--last", "Go on.", openai=True)
        sent = program.received[-1]
    assert "compaction" in [one["type"] for one in sent["input"]]
    told = [one for one in sent["input"] if "(eventctx)" in str(one)]
    assert "Never touch the file legacy.py, please." in str(told)
    assert "Never touch the file legacy.py" not in "".join(said_by_persons(sent))


async def test_in_a_tool_loop_the_next_request_has_the_lost_demands(
    codex_binary: Path, tmp_path: Path
) -> None:
    def script(body: Body) -> Item:
        last = said_by_persons(body)[-1]
        if "CONTEXT CHECKPOINT" in last:
            return said("We talked about a parser.")
        if "report" in last and len(program.received) == 2:
            return Item(code("call_1", "1 + 1").item, LARGE)
        return said("Understood.")

    with codex(codex_binary, tmp_path, script) as program:
        set_up("codex", program.home, "--store", str(tmp_path / "agent.db"))
        program.ask("Never touch the file legacy.py, please.")
        program.ask("resume", "--last", f"Read this report. {FILLER}")
        kinds = [one["type"] for one in program.received[2]["input"]]
        told = [one for one in program.received[3]["input"] if "(eventctx)" in str(one)]
    assert "custom_tool_call_output" in kinds  # of the request for a summary
    assert "Never touch the file legacy.py, please." in str(told)


async def test_codex_asks_for_what_was_said(codex_binary: Path, tmp_path: Path) -> None:
    store = tmp_path / "agent.db"
    async with eventctx.open(store) as engine:
        ctx = await engine.session("earlier")
        await ctx.add_message({"role": "user", "content": "Never touch the file legacy.py."})
    asked = 'await tools.mcp__eventctx__recall({session: "earlier", query: "legacy"})'
    wrong = 'await tools.mcp__eventctx__why({session: "earlier", message: 77})'
    steps = [code("call_1", asked), code("call_2", wrong), said("Understood.")]

    with codex(codex_binary, tmp_path, lambda _: steps.pop(0)) as program:
        set_up("codex", program.home, "--store", str(store))
        # Without `required`, a session's first request may leave before the server is up.
        program.ask("-c", "mcp_servers.eventctx.required=true", "What was I to leave?")
        rows = [one for one in program.received[-1]["input"] if "output" in one]
    assert "Never touch the file legacy.py." in str(rows[0]["output"])
    assert "InvalidSetting" in str(rows[1]["output"])


SIZE = "650 MB"


def test_gemini_connects(tmp_path: Path) -> None:
    program = program_of("EVENTCTX_GEMINI", SIZE)
    set_up("gemini-cli", tmp_path)
    trusted = {str(tmp_path): "TRUST_FOLDER"}
    (tmp_path / ".gemini" / "trustedFolders.json").write_text(json.dumps(trusted))
    listed = ran(program, tmp_path, tmp_path, "mcp", "list", NO_COLOR="1")
    (line,) = [one for one in listed.splitlines() if "eventctx:" in one]
    assert line.endswith("Connected")


def test_opencode_connects(tmp_path: Path) -> None:
    program = program_of("EVENTCTX_OPENCODE", SIZE)
    set_up("opencode", tmp_path)
    listed = ran(program, tmp_path, tmp_path, "mcp", "list", NO_COLOR="1")
    (line,) = [one for one in listed.splitlines() if "✓ eventctx" in one]
    assert "connected" in line


async def test_copilot_asks_right_after_a_compaction(tmp_path: Path) -> None:
    program = program_of("EVENTCTX_COPILOT", SIZE)

    def script(body: Body) -> Turn:
        last = str(body["messages"][-1]["content"])
        if "detailed summary of the conversation" in last:
            return [{"type": "text", "text": "<summary>A parser.</summary>"}], "end_turn"
        if "What is lost?" in last and "tool_result" not in last:
            call = {"type": "tool_use", "id": "toolu_1", "name": "eventctx-lost", "input": {}}
            return [call], "tool_use"
        return [{"type": "text", "text": "Understood."}], "end_turn"

    store = tmp_path / "agent.db"
    with serving(claude_api(script)) as api:
        set_up("copilot", tmp_path, "--store", str(store))
        variables = {
            "NO_COLOR": "1",
            "COPILOT_OFFLINE": "true",
            "COPILOT_MODEL": "claude-sonnet-4.6",
            "COPILOT_PROVIDER_TYPE": "anthropic",
            "COPILOT_PROVIDER_BASE_URL": api.url,
            "COPILOT_PROVIDER_API_KEY": "no-key",
        }
        ask = partial(ran, program, tmp_path, tmp_path, "--allow-all-tools", "-p", **variables)
        ask("Never touch legacy.py.")
        for words in ("Go on.", "/compact", "What is lost?"):
            ask(words, "--continue")
    assert '"compactions":1' in str(asked_of(api)[-1]["messages"][-1]["content"])
    async with eventctx.open(store, create=False) as engine:
        (session,) = await engine.sessions()
        first = (await engine.instructions(session.stream)).instructions[0]
    assert first.text == "Never touch legacy.py."
