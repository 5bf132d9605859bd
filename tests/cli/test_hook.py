"""``eventctx hook`` with payloads as Claude Code 2.1.330 sent them, but for paths.

Those of Codex 0.169 have the same fields of which we read any.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import eventctx
from eventctx.adapters.command_hooks.hook import hook_answer
from eventctx.adapters.command_hooks.hosts import CLAUDE_CODE, CODEX, HookHost, read_payload
from eventctx.adapters.command_hooks.reminder import (
    MOST,
    Words,
    lost_words,
    reminder,
    words_that_hold,
)
from eventctx.cli.main import cli
from eventctx.engine import Engine
from eventctx.errors import WrongExpectedVersion
from eventctx.messages.extracts import words_of_person
from tests.cli.conftest import Outcome
from tests.importers.agents import Copilot, Cursor
from tests.importers.given import SESSION, ClaudeCode, Codex, text
from tests.importers.terminal_agents import Gemini

KEY = "sk-ant-" + "api03-" + "Zx9Qw7Er5Ty3Ui1Op" * 3

_PAYLOADS = {
    "startup": '"hook_event_name": "SessionStart", "source": "startup"',
    "resume": '"hook_event_name": "SessionStart", "source": "resume", "context_tokens": 1220, '
    '"seconds_since_last_response": 5, "prompt_cache_likely_expired": false, '
    '"estimated_cache_write_usd": 0.0061',
    "stop": '"prompt_id": "915a5d50-b0c5-4c11-bace-13e0836f91df", "permission_mode": "default", '
    '"effort": {"level": "medium"}, "hook_event_name": "Stop", "stop_hook_active": false, '
    '"last_assistant_message": "Understood.", "background_tasks": [], "session_crons": []',
    "before": '"prompt_id": "042360bc-6549-4bb9-8804-2302cd7581a2", "hook_event_name": '
    '"PreCompact", "trigger": "manual", "custom_instructions": null',
    "compact": '"prompt_id": "042360bc-6549-4bb9-8804-2302cd7581a2", "hook_event_name": '
    '"SessionStart", "source": "compact", "model": "claude-opus-5-5"',
    "after": '"prompt_id": "042360bc-6549-4bb9-8804-2302cd7581a2", "hook_event_name": '
    '"PostCompact", "trigger": "manual", "compact_summary": "<summary>A parser.</summary>"',
}


def payload(name: str, transcript: Path) -> bytes:
    common = {"session_id": SESSION, "transcript_path": str(transcript), "cwd": "/project"}
    return f"{json.dumps(common)[:-1]}, {_PAYLOADS[name]}}}\n".encode()


async def answered(engine: Engine, name: str, path: Path, host: HookHost = CLAUDE_CODE) -> Any:
    """What the hook answers to the host, in words for its model, or None."""
    given = read_payload(payload(name, path))
    answer = await hook_answer(engine, host, given)
    return None if answer is None else answer["hookSpecificOutput"]["additionalContext"]


@pytest.fixture
def transcript(tmp_path: Path) -> Path:
    rows = ClaudeCode()
    rows.user(f"Write a parser with the key {KEY}.").answer("m1", {"type": "text", "text": "Yes."})
    rows.user("Never touch the file legacy.py.").answer("m2", {"type": "text", "text": "I see."})
    path = tmp_path / f"{SESSION}.jsonl"
    path.write_bytes(rows.data())
    return path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "hooks.db"


def hook(store: Path, given: str | bytes, *arguments: str) -> Outcome:
    line = ["hook", *(arguments or ("claude-code",)), "--store", str(store)]
    return Outcome(CliRunner().invoke(cli, line, input=given))


def test_after_a_compaction_the_model_is_told_the_demands(transcript: Path, store: Path) -> None:
    done = hook(store, payload("compact", transcript))
    assert (done.code, done.err) == (0, "")
    told = done.document["hookSpecificOutput"]
    assert told["hookEventName"] == "SessionStart"
    assert "#0: Write a parser with the key [redacted:api-key]" in told["additionalContext"]
    assert "#2: Never touch the file legacy.py." in told["additionalContext"]
    assert f"eventctx instructions {SESSION}" in told["additionalContext"]
    assert "Zx9Qw7" not in done.out


@pytest.mark.parametrize("name", ["resume", "stop", "before", "after"])
async def test_other_events_import_and_answer_nothing(name: str, transcript: Path) -> None:
    async with eventctx.open("memory://") as engine:
        assert await answered(engine, name, transcript) is None
        assert len(await engine.transcript(SESSION)) == 3  # the last answer may still grow


async def codex_told(engine: Engine, folder: Path, *kept: str) -> str | None:
    """What Codex tells its model after a compaction that kept the messages with these words."""
    log = Codex()
    for one in CODEX_WORDS:
        log.says("user", one).says("assistant", "Yes.").counted(20, 30)
    texts = [[{"type": "input_text", "text": one}] for one in kept]
    rest = [{"type": "message", "role": "user", "content": one} for one in texts]
    log.line("compacted", message="in short", replacement_history=rest)
    path = folder / "rollout-2026-01-01T10-00-00-codex-1.jsonl"
    path.write_bytes(log.data())
    told: str | None = await answered(engine, "compact", path, CODEX)
    return told


CODEX_WORDS = ("Write a parser.", f"Never use the key {KEY}.", "Always answer in French.")


async def test_codex_is_told_the_words_that_its_compaction_took_alone(tmp_path: Path) -> None:
    async with eventctx.open("memory://") as engine:
        told = await codex_told(engine, tmp_path, "Always answer in French.") or ""
    assert "are no longer, word by word, in what is left" in told
    assert told.splitlines()[1:3] == [
        "- #1: Write a parser.",
        "- #3: Never use the key [redacted:api-key].",
    ]
    assert "French" not in told
    async with eventctx.open("memory://") as engine:
        assert await codex_told(engine, tmp_path, *CODEX_WORDS) is None
        assert (await engine.lost("codex-1")).compactions == 1


@pytest.mark.parametrize(
    ("host", "event", "name", "data"),
    [
        ("copilot", "PreCompact", "events.jsonl", Copilot().user("Go.").answer("Yes.").data()),
        ("cursor", "preCompact", "c.jsonl", Cursor().user("Go.").answer(text("Yes.")).data()),
        ("gemini-cli", "PreCompress", "session-1.jsonl", Gemini().user("Go.").answer("Y").data()),
    ],
)
def test_other_programs_have_their_session_imported_and_get_no_answer(
    host: str, event: str, name: str, data: bytes, tmp_path: Path, store: Path
) -> None:
    path = tmp_path / "one" / name
    path.parent.mkdir()
    path.write_bytes(data)
    given = {"hook_event_name": event, "transcript_path": str(path), "trigger": "manual"}
    done = hook(store, json.dumps(given), host)
    assert (done.code, done.out, done.err) == (0, "", "")
    assert asyncio.run(said_in(store)) == ["Go."]


def test_copilot_names_no_file_before_a_tool_so_it_is_found_by_the_sessions_id(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COPILOT_HOME", str(tmp_path))
    path = tmp_path / "session-state" / "cp-1" / "events.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(Copilot().user("Go.").answer("Yes.").data())
    for session in ("other", "../../cp-1", "cp-1"):
        given = {"hook_event_name": "PreToolUse", "session_id": session}
        assert hook(store, json.dumps(given), "copilot").err == ""
    assert asyncio.run(said_in(store)) == ["Go."]


async def said_in(store: Path) -> list[str]:
    """What a person said in the one session of a store."""
    async with eventctx.open(store, create=False) as engine:
        (session,) = await engine.sessions()
        rows = [one.message for one in await engine.transcript(session.stream)]
        return [words_of_person(row).strip() for row in rows if row and row["role"] == "user"]


def test_a_session_without_a_file_yet_is_no_error(tmp_path: Path, store: Path) -> None:
    done = hook(store, payload("startup", tmp_path / "none.jsonl"))
    assert (done.code, done.out, done.err) == (0, "", "")


@pytest.mark.parametrize(
    "given", ["", "{", "[]", "{}", '{"hook_event_name": 3}', b"\xff\xfe", "null"]
)
def test_what_is_no_payload_is_a_line_on_stderr(given: str | bytes, store: Path) -> None:
    done = hook(store, given)
    assert (done.code, done.out, done.err.count("\n")) == (0, "", 1)
    assert done.err.startswith("eventctx: hook: payload: expected the JSON of a hook")


def test_no_failure_is_more_than_a_line_on_stderr(transcript: Path, tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is no store, but a text of some length" * 100)
    (tmp_path / "other.jsonl").write_text('{"type":"what is this"}\n')
    assert hook(tmp_path / "half.db", payload("stop", transcript)).err == ""
    whole = (tmp_path / "half.db").read_bytes()
    (tmp_path / "half.db").write_bytes(whole[: len(whole) // 2])
    for store, file in [
        (tmp_path / "text.db", transcript),
        (tmp_path / "half.db", transcript),
        (tmp_path / "hooks.db", tmp_path / ("x" * 5_000)),
        (tmp_path / "no" / "such" / "folder" / "x.db", transcript),
        (tmp_path / "hooks.db", tmp_path / "other.jsonl"),
    ]:
        done = hook(store, payload("compact", file))
        assert (done.code, done.out) == (0, ""), store
        assert done.err.count("\n") <= 1 and "bug" not in done.err, done.err


def test_neither_wrong_usage_nor_a_bug_of_ours_stops_a_host(
    transcript: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments in (("claude",), ("claude-code", "--color"), ("claude-code", "more")):
        done = hook(store, "{}", *arguments)
        assert (done.code, done.out) == (0, "")
        assert done.err.startswith("eventctx: hook: ")

    def broken(*_: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("eventctx.adapters.command_hooks.hosts._decode", broken)
    done = hook(store, payload("compact", transcript))
    assert (done.code, done.out) == (0, "")
    assert "this is a bug in eventctx" in done.err


async def test_hooks_that_are_called_at_once_all_answer(transcript: Path, store: Path) -> None:
    async def called() -> Any:
        async with eventctx.open(store) as engine:
            return await answered(engine, "compact", transcript)

    answers = await asyncio.gather(*[called() for _ in range(4)])
    assert len(set(answers)) == 1 and "Never touch the file legacy.py." in answers[0]
    async with eventctx.open(store, read_only=True) as engine:
        assert len(await engine.transcript(SESSION)) == 3


async def test_the_task_is_the_first_sentence_of_a_person_that_holds(tmp_path: Path) -> None:
    rows = ClaudeCode().user("Read this first.", isMeta=True)
    rows.user("<command-name>/x</command-name>")
    rows.user("Never touch a.py. Be quick.").answer("m1", {"type": "text", "text": "Yes."})
    path = tmp_path / f"{SESSION}.jsonl"
    path.write_bytes(rows.data())
    async with eventctx.open("memory://") as engine:
        await answered(engine, "stop", path)
        assert await words_that_hold(engine, SESSION) == [Words(2, "Never touch a.py.")]
        ctx = await engine.session("s")
        await ctx.add_message({"role": "user", "content": "Never touch a.py. Be quick."})
        assert await lost_words(engine, "s") == []  # all of it is in view
        await ctx.withdraw_instruction(0, 1)
        assert await words_that_hold(engine, "s") == [Words(0, "Be quick.")]


def test_a_reminder_keeps_the_task_and_the_last_demands(store: Path) -> None:
    words = [Words(number, f"Never do thing {number}, " + "really " * 30) for number in range(200)]
    text = reminder("s", words) or ""
    assert len(text) <= MOST
    lines = text.splitlines()
    assert lines[1].startswith("- #0: ")
    assert lines[-2].startswith("- #199: ")
    left = 200 - sum(line.startswith("- #") for line in lines)
    assert f"- … {left} more between these" in lines
    assert reminder("s", []) is None


async def test_an_import_that_another_process_overtook_is_repeated(transcript: Path) -> None:
    async with eventctx.open("memory://") as engine:
        left = overtaken(engine, times=2)
        assert await answered(engine, "stop", transcript) is None
        assert left == []
        assert len(await engine.transcript(SESSION)) == 3
        overtaken(engine, times=9)
        with transcript.open("ab") as file:
            file.write(ClaudeCode().user("More.", uuid="u9").data())
        with pytest.raises(WrongExpectedVersion):
            await answered(engine, "stop", transcript)


def overtaken(engine: Engine, times: int) -> list[int]:
    """Let the store's first appends fail as those of a process that comes second; those left."""
    left, append = [*range(times)], engine.store.append

    def late(stream: str, drafts: Any, expected: Any) -> Any:
        if left:
            left.pop()
            raise WrongExpectedVersion(stream, expected, 7)
        return append(stream, drafts, expected)

    engine.store.append = late  # type: ignore[method-assign]
    return left
