"""The real Codex with our hooks and our MCP server, against a scripted server."""

from __future__ import annotations

from pathlib import Path

import pytest

import eventctx
from tests.services.codex import Answer, Body, code, installed, said, said_by_persons
from tests.services.programs import program_of, set_up

LARGE = 30_000
"""Tokens said of a request, so that the next turn begins with a compaction."""

FILLER = "The report has these lines. " * 3_500
"""More than the 20,000 tokens of a person's words that Codex keeps in a compaction."""


@pytest.fixture
def binary() -> Path:
    return program_of("EVENTCTX_CODEX", "300 MB")


def understood(body: Body) -> Answer:
    """The answer to a request, which is said to be large where a report was to be read."""
    return said("Understood.", LARGE if "report" in said_by_persons(body)[-1] else 10)


async def test_after_a_compaction_the_model_hears_what_it_lost(
    binary: Path, tmp_path: Path
) -> None:
    store = tmp_path / "agent.db"

    def script(body: Body) -> Answer:
        if "CONTEXT CHECKPOINT" in said_by_persons(body)[-1]:
            return said("We talked about a parser.")
        return understood(body)

    with installed(binary, tmp_path, script) as program:
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
    binary: Path, tmp_path: Path
) -> None:
    def script(body: Body) -> Answer:
        if body["input"][-1]["type"] == "compaction_trigger":
            return Answer({"type": "compaction", "id": "cmp_1", "encrypted_content": "c2VjcmV0"})
        return understood(body)

    with installed(binary, tmp_path, script) as program:
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
    binary: Path, tmp_path: Path
) -> None:
    def script(body: Body) -> Answer:
        last = said_by_persons(body)[-1]
        if "CONTEXT CHECKPOINT" in last:
            return said("We talked about a parser.")
        if "report" in last and len(program.received) == 2:
            return Answer(code("call_1", "1 + 1").item, LARGE)
        return said("Understood.")

    with installed(binary, tmp_path, script) as program:
        set_up("codex", program.home, "--store", str(tmp_path / "agent.db"))
        program.ask("Never touch the file legacy.py, please.")
        program.ask("resume", "--last", f"Read this report. {FILLER}")
        kinds = [one["type"] for one in program.received[2]["input"]]
        told = [one for one in program.received[3]["input"] if "(eventctx)" in str(one)]
    assert "custom_tool_call_output" in kinds  # of the request for a summary
    assert "Never touch the file legacy.py, please." in str(told)


async def test_the_model_asks_for_what_was_said(binary: Path, tmp_path: Path) -> None:
    store = tmp_path / "agent.db"
    async with eventctx.open(store) as engine:
        ctx = await engine.session("earlier")
        await ctx.add_message({"role": "user", "content": "Never touch the file legacy.py."})
    asked = 'await tools.mcp__eventctx__recall({session: "earlier", query: "legacy"})'
    wrong = 'await tools.mcp__eventctx__why({session: "earlier", message: 77})'
    steps = [code("call_1", asked), code("call_2", wrong), said("Understood.")]

    with installed(binary, tmp_path, lambda _: steps.pop(0)) as program:
        set_up("codex", program.home, "--store", str(store))
        # Without `required`, a session's first request may leave before the server is up.
        program.ask("-c", "mcp_servers.eventctx.required=true", "What was I to leave?")
        rows = [one for one in program.received[-1]["input"] if "output" in one]
    assert "Never touch the file legacy.py." in str(rows[0]["output"])
    assert "InvalidSetting" in str(rows[1]["output"])
