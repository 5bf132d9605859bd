"""What imported compactions took out: Claude Code, Codex, pi, OpenHands; a recorded session."""

from __future__ import annotations

import json
from pathlib import Path

from eventctx.engine import Engine
from eventctx.importers.load import import_file
from eventctx.queries.lost.answers import STATES, Lost
from eventctx.stores.memory import MemoryStore
from tests.importers.given import ClaudeCode, Codex, call, text
from tests.queries.lost.given import item, states

SAID = "Never touch the migrations. Keep the old base class."
RECORDED = "claude-code/spotter-258c7280/258c7280-ae70-4798-800f-63464d01a85d.jsonl"


async def imported(path: Path) -> tuple[Engine, str]:
    engine = Engine(MemoryStore())
    summaries = await import_file(engine.store, path, complete=True)
    return engine, summaries[0].session or ""


async def lost(tmp_path: Path, name: str, data: bytes) -> Lost:
    path = tmp_path / name
    path.write_bytes(data)
    engine, session = await imported(path)
    found = await engine.lost(session, compaction=1)
    assert (found.about, found.compaction) == ("compaction", 1)
    return found


async def test_claude_code_replaces_everything_by_a_summary(tmp_path: Path) -> None:
    log = ClaudeCode().user(SAID)
    log.answer("m1", call("t1", "Read", file_path="/r/shop/models.py")).result("t1", "x")
    log.answer("m2", call("t2", command="make test")).result("t2", "Exit code 2\nfatal: no rule")
    log.answer("m3", text("Done."))
    log.system("compact_boundary", compactMetadata={"trigger": "auto", "preTokens": 9})
    summary = "This session is being continued… Read shop/models.py; keep the old base class."
    log.user(summary, isCompactSummary=True)
    log.answer("m4", call("t3", "Edit", file_path="/r/shop/models.py")).result("t3", "ok")
    found = await lost(tmp_path, "s.jsonl", log.data())
    assert (found.messages.left, found.messages.total) == (6, 6)
    assert states(found, "instruction") == {
        "Never touch the migrations.": "gone",
        "Keep the old base class.": "summary",
    }
    assert item(found, "file", "models.py").used_again == 1
    one = item(found, "command", "make test")
    assert one.command is not None
    assert (one.state, one.command.error) == ("gone", "fatal: no rule")


async def test_codex_keeps_a_persons_words_beside_an_encrypted_summary(tmp_path: Path) -> None:
    log = Codex().says("user", SAID).says("assistant", "ok")
    arguments = json.dumps({"command": ["bash", "-lc", "make test"], "workdir": "/r"})
    log.item("function_call", name="shell", arguments=arguments, call_id="c1")
    log.item(
        "function_call_output", call_id="c1", output='{"output":"no","metadata":{"exit_code":2}}'
    )
    kept = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": SAID}]}
    sealed = {"type": "compaction", "encrypted_content": "gAAA"}
    log.line("compacted", message="", replacement_history=[kept, sealed])
    log.says("user", "on").says("assistant", "yes")
    found = await lost(tmp_path, "rollout-x.jsonl", log.data())
    assert (found.summaries, found.sealed) == (2, 1)
    assert set(states(found, "instruction").values()) == {"summary"}
    one = item(found, "command", "make test")
    assert one.command is not None
    assert (one.state, one.command.status) == ("gone", 2)


async def test_of_a_recorded_session_every_message_that_left_is_counted(
    recorded_sessions: Path,
) -> None:
    engine, session = await imported(recorded_sessions / RECORDED)
    for compaction in (1, None):
        found = await engine.lost(session, compaction=compaction)
        messages = found.messages
        assert messages.left >= 225
        assert messages.total == messages.whole + messages.shortened + messages.left
        assert sum(messages.left_by.values()) == sum(messages.left_of.values()) == messages.left
        assert all(one.total == sum(getattr(one, name) for name in STATES) for one in found.counts)
        assert states(found, "instruction")["Implement spotter-gqc"] == "summary"
        files = {one.text.rsplit("/", 1)[-1]: one for one in found.items if one.kind == "file"}
        assert files["layouts.ex"].state == "gone"
        pushed = [one for one in found.items if one.text == "git push"]
        assert [one.command.error for one in pushed if one.command and one.command.failed] == [
            "fatal: The current branch spotter-gqc has no upstream branch."
        ]
