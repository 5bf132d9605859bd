"""What left a view: of sessions made here, and of imported ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eventctx.engine import Engine
from eventctx.errors import InvalidSetting, StreamNotFound
from eventctx.importers.load import import_file
from eventctx.log.plan import Run
from eventctx.queries.lost.answers import STATES, CommandUse, FileUse, Left, Lost, StateCounts
from eventctx.stores.memory import MemoryStore
from tests.importers.given import ClaudeCode, Codex, text
from tests.importers.given import call as use
from tests.queries.lost.given import (
    AFTER,
    BEFORE,
    ERROR,
    call,
    compact,
    item,
    model,
    result,
    session,
    states,
    user,
)

TASK, RULE = "Clean up the models of the shop.", "Never touch the migrations."
SUMMARY = "Edited shop/models.py. The user wants: clean up the models of the shop."
GONE = (Run(0, 8, "summarised", "imported"), Run(9, 9, "kept", "recent"))


async def summarised() -> tuple[Engine, Lost]:
    engine, ctx = await session(*BEFORE)
    await compact(engine, GONE, SUMMARY)
    async with ctx.turn():
        await ctx.add_messages(AFTER)
    return engine, await engine.lost("s", compaction=1)


async def test_it_says_which_words_files_commands_and_results_left_and_came_again() -> None:
    engine, found = await summarised()
    assert states(found, "instruction") == {RULE: "gone", TASK: "summary"}
    assert [one.kind for one in found.items][:2] == ["instruction", "instruction"]
    one = item(found, "instruction", "Never touch")
    assert (one.number, one.turn, one.in_view, one.messages) == (0, 1, 0, 1)
    assert one.left == Left("compaction", found.at or "", found.position or 0, 1)
    one = item(found, "file", "models.py")
    assert (one.state, one.file, one.number) == ("summary", FileUse(1, 0, 1, 1, 5), 5)
    assert (one.used_again, item(found, "file", "views.py").state) == (1, "gone")
    one = item(found, "command", "pytest tests/shop")
    assert one.command == CommandUse(1, True, 1, ERROR)
    assert (one.state, one.text) == ("gone", "pytest tests/shop")
    assert item(found, "decision", "I'll use").state == "gone"
    one = item(found, "result", "views.py")
    assert (one.state, one.quoted, one.used_again) == ("gone", ("show_invoice",), 1)
    assert item(found, "result", "models.py").quoted == ("balance_in_cents",)
    # The counts add up.
    about = (found.about, found.compaction, found.compactions, found.turn)
    assert about == ("compaction", 1, 1, None)
    counts = found.messages
    assert (counts.total, counts.whole, counts.shortened, counts.left) == (10, 1, 0, 9)
    assert counts.left_by == {"compaction": 9}
    assert counts.left_of == {"person": 1, "model": 4, "tool": 4}
    assert StateCounts("instruction", 2, 0, 0, 1, 1) in found.counts
    assert (found.summaries, found.sealed) == (1, 0)
    # What was fetched again is in view now.
    found = await engine.lost("s")
    one = item(found, "file", "models.py")
    assert (one.state, one.in_view, one.messages, one.used_again) == ("whole", 1, 3, 1)
    assert found.messages.total == 16
    assert not [one for one in found.items if one.kind == "result" and "models" in one.text]


async def test_what_was_read_of_a_file_is_out_of_date_from_the_next_change_on() -> None:
    engine, _ = await session(
        user("Look."),
        call(1, "Write", {"file_path": "/a.py", "content": "1"}),
        call(2, "Read", {"file_path": "/a.py"}),
        call(3, "Bash", {"command": "rm /a.py"}),
        call(4, "Edit", {"file_path": "/a.py", "old_string": "1"}),
        call(5, "Write", {"file_path": "/b.py", "content": "1"}),
        call(6, "Read", {"file_path": "/b.py"}),
        call(7, "Read", {"file_path": "/repo/shop/models.py"}),
        *(result(7, "x"), call(8, "Bash", {"command": "cd /repo && cat shop/models.py"})),
        result(8, "x"),
    )
    found = await engine.lost("s")
    first = item(found, "file", "a.py").file
    assert first is not None
    assert (first.last_read, first.changed_after) in ((2, 3), (2, 4))
    assert item(found, "file", "b.py").file == FileUse(1, 1, 0, 6, None)
    # A relative path and the absolute one are one file.
    one = item(found, "file", "models.py")
    assert (one.text, one.file, one.messages) == ("/repo/shop/models.py", FileUse(2, 0, 0, 9), 2)


async def test_a_shortened_message_holds_an_item_only_if_it_is_still_in_it() -> None:
    engine, _ = await session(*BEFORE)
    runs = (Run(0, 0, "shortened", "old_words"), Run(1, 9, "kept", "recent"))
    await compact(engine, runs, shortened={0: user(f"{TASK} […]")})
    found = await engine.lost("s", compaction=1)
    assert states(found, "instruction") == {RULE: "gone", TASK: "shortened"}
    assert (found.messages.shortened, found.messages.left) == (1, 0)


async def test_a_second_compaction_loses_what_the_first_summary_still_had() -> None:
    engine, _ = await summarised()
    await compact(engine, (Run(9, 15, "summarised", "imported"),), "All is well.")
    found = await engine.lost("s", compaction=2)
    assert (states(found, "instruction"), found.messages.total) == ({TASK: "gone"}, 7)
    assert "gone" in {one.state for one in (await engine.lost("s", compaction=1)).items}


async def test_sets_clears_and_erasures_are_named_as_the_cause() -> None:
    engine, ctx = await session(user("First task."), model("ok"), user("Second task."))
    await ctx.set_messages([user("Second task.")])
    left = (await engine.lost("s")).messages
    assert (left.left, left.left_by) == (2, {"set": 2})
    await engine.erase("s", [2])
    left = (await engine.lost("s")).messages
    assert (left.left_by, left.erased) == ({"set": 2, "erased": 1}, 1)
    await ctx.clear()
    assert (await engine.lost("s")).messages.left_by == {"set": 2, "clear": 1}
    one = item(await engine.lost("s"), "instruction", "First")
    assert one.left and (one.state, one.left.by, one.left.compaction) == ("gone", "set", None)


async def test_a_hosts_prompt_replaces_a_message_and_a_set_may_summarise_it() -> None:
    engine, ctx = await session({"role": "system", "content": "You help."}, user(RULE), model("ok"))
    await ctx.set_system_prompt("You help well.", replaces_stored=True)
    left = (await engine.lost("s")).messages
    assert (left.left, left.left_by) == (1, {"replaced": 1})
    await ctx.set_system_prompt(None)
    assert (await engine.lost("s")).messages.left == 0
    await ctx.set_messages([user("Summary: never touch the migrations!"), model("ok")])
    assert item(await engine.lost("s"), "instruction", "Never touch").state == "summary"


async def test_what_is_asked_for_must_be_there() -> None:
    engine, _ = await summarised()
    with pytest.raises(InvalidSetting, match=r"has compactions 1 to 1, found 2"):
        await engine.lost("s", compaction=2)
    with pytest.raises(InvalidSetting, match="at most one of compaction and turn"):
        await engine.lost("s", compaction=1, turn=1)
    with pytest.raises(InvalidSetting, match="has turns 1 to 2, found 9"):
        await engine.lost("s", turn=9)
    with pytest.raises(StreamNotFound):
        await Engine(MemoryStore()).lost("s")


async def test_a_result_that_came_back_without_its_call_is_blamed_on_no_compaction() -> None:
    engine, ctx = await session(*BEFORE)
    await compact(engine, (Run(0, 0, "kept", "task"), Run(1, 8, "dropped", "old_round")))
    await ctx.add_message(user("Go on."))
    await ctx.set_messages([BEFORE[0], BEFORE[2], *BEFORE[9:], user("Go on.")])
    await ctx.restore(2)
    assert (await engine.why("s", 2)).standing == "omitted"
    found = await engine.lost("s")
    assert found.messages.left_by["unanswered"] == 1
    assert sum(found.messages.left_by.values()) == found.messages.left


# -- imported compactions --------------------------------------------------------------------------

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
    log.answer("m1", use("t1", "Read", file_path="/r/shop/models.py")).result("t1", "x")
    log.answer("m2", use("t2", command="make test")).result("t2", "Exit code 2\nfatal: no rule")
    log.answer("m3", text("Done."))
    log.system("compact_boundary", compactMetadata={"trigger": "auto", "preTokens": 9})
    summary = "This session is being continued… Read shop/models.py; keep the old base class."
    log.user(summary, isCompactSummary=True)
    log.answer("m4", use("t3", "Edit", file_path="/r/shop/models.py")).result("t3", "ok")
    found = await lost(tmp_path, "s.jsonl", log.data())
    assert (found.messages.left, found.messages.total) == (6, 6)
    assert states(found, "instruction") == {RULE: "gone", "Keep the old base class.": "summary"}
    assert item(found, "file", "models.py").used_again == 1
    one = item(found, "command", "make test")
    assert one.command and (one.state, one.command.error) == ("gone", "fatal: no rule")


async def test_codex_keeps_a_persons_words_beside_an_encrypted_summary(tmp_path: Path) -> None:
    log = Codex().says("user", SAID).says("assistant", "ok")
    arguments = json.dumps({"command": ["bash", "-lc", "make test"], "workdir": "/r"})
    log.item("function_call", name="shell", arguments=arguments, call_id="c1")
    output = '{"output":"no","metadata":{"exit_code":2}}'
    log.item("function_call_output", call_id="c1", output=output)
    kept = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": SAID}]}
    sealed = {"type": "compaction", "encrypted_content": "gAAA"}
    log.line("compacted", message="", replacement_history=[kept, sealed])
    log.says("user", "on").says("assistant", "yes")
    found = await lost(tmp_path, "rollout-x.jsonl", log.data())
    assert (found.summaries, found.sealed) == (2, 1)
    assert set(states(found, "instruction").values()) == {"summary"}
    one = item(found, "command", "make test")
    assert one.command and (one.state, one.command.status) == ("gone", 2)


async def test_of_a_recorded_session_all_that_left_is_counted(recorded_sessions: Path) -> None:
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
