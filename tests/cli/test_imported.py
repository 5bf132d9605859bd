"""What screens say of an imported file is true of it: what it lacks, sizes, times, raw parts."""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path

import pytest

from eventctx.errors import DecodeError
from eventctx.log.codec import encode_event, unpacked
from eventctx.log.events import ImportRaw
from eventctx.log.record import Draft, Record, make_body
from eventctx.log.store import ANY
from eventctx.stores.memory import MemoryStore
from tests.cli.conftest import Run, imported
from tests.importers.agents import openhands_talk
from tests.importers.given import SESSION, ClaudeCode, call, jsonl, text
from tests.importers.recorded_http import CHAT, Tape, completion, request, user

SYSTEM = {"role": "system", "content": "be good"}
ROWS = [
    {"role": "user", "content": "Count the tests."},
    {"role": "assistant", "content": "There are forty."},
]


def kept_tools(run: Run) -> bool:
    """Whether the log still has the tools that the file named."""
    return '"tools"' in run("log", "talk", "--type", "import:raw", "--bodies").out


def test_a_file_that_holds_its_requests_is_not_said_to_lack_them(run: Run, tmp_path: Path) -> None:
    tape = Tape(CHAT)
    asked = request(SYSTEM, user("go"), tools=[{"type": "function", "function": {"name": "f"}}])
    tape.exchange(asked, completion("done"))
    imported(run, tmp_path, tape.json(), "--complete")
    for command in (["audit", "talk"], ["view", "talk", "--turn", "1.1"], ["why", "talk", 0]):
        out = run(*command).ok(
            "rebuilt from requests in the imported file",
            "Not among these messages: what was sent beside them, such as tool def",
        )
        assert "Not in the file" not in out and "does not hold what was sent" not in out
    assert kept_tools(run)


def test_a_system_prompt_in_the_transcript_is_not_called_missing(run: Run, tmp_path: Path) -> None:
    imported(run, tmp_path, openhands_talk().data(), "--session", "talk", "--complete")
    out = run("audit", "talk").ok("such as tool definitions (as far as the file has it, ")
    assert "such as system prompt" not in out and kept_tools(run)


def test_what_is_missing_is_measured_at_the_fewest_messages(run: Run, tmp_path: Path) -> None:
    log = ClaudeCode().user("go").answer("m1", text("x"))
    log.user("Say it again. " * 900).answer("m2", text("y"))
    imported(run, tmp_path, log.data(), "--complete")
    first, last = run("audit", SESSION, "--json").document["requests"]
    assert first["figures"]["beside"] > last["figures"]["beside"]
    share = f"about {first['figures']['beside']:,} tokens of {first['tokens']:,}"
    run("audit", SESSION).ok(f"{share} in the first one.")


def test_no_screen_gives_a_file_the_time_of_its_import(run: Run, tmp_path: Path) -> None:
    imported(run, tmp_path, jsonl(ROWS), "--complete")
    listed = run("sessions").ok("Requests of 1 session were reconstructed from imported files")
    (row,) = run("sessions", "--json").document
    assert (row["requests"], row["observed"], row["reconstructed"]) == (1, 0, 1)
    assert (row["started"], row["last"], "–" in listed) == (None, None, True)
    day = run("log", "talk", "--json", "--to", 0).document["time"][:10]
    why, found = run("why", "talk", 1).ok(), run("search", "forty").ok()
    assert re.search(r"^added +@\d+ in 1.1, not dated$", why, re.M)
    assert found.startswith("talk #1 assistant, not dated\n")
    records = run("log", "talk").ok().splitlines()[1:]
    assert all(re.match(r" +@\d+  not dated  ", line) for line in records)
    assert day not in why + found
    run("trace", "talk").ok("invoke_agent  duration not recorded", "turn 1 · not dated · trace")
    assert run("search", "forty", "--json").document[0]["time"] is None
    assert run("why", "talk", 1, "--json").document["added"]["time"] is None
    audit = run("audit", "talk", "--json").document
    assert [row["time"] for row in [*audit["requests"], *audit["turns"]]] == [None, None]


def test_the_view_does_not_shrink_before_its_size_is_reported(run: Run, tmp_path: Path) -> None:
    log = ClaudeCode().user("go").answer("m1", text("x" * 400)).user("Again.")
    imported(run, tmp_path, log.answer("m2", text("y")).data(), "--complete")
    out = run("replay", SESSION).ok()
    sizes = [int(one.replace(",", "")) for one in re.findall(r"view .*/ +~?([\d,]+) tokens", out)]
    asked = sizes.index(543)
    assert 543 < sizes[asked + 1] < 900


def test_a_compaction_of_another_program_is_called_that_programs(run: Run, tmp_path: Path) -> None:
    log = ClaudeCode().user("go").answer("m1", text("x"))
    log.system("compact_boundary", compactMetadata={"trigger": "auto", "preTokens": 900})
    log.user("This session is being continued: all was well.", isCompactSummary=True)
    log.answer("m2", text("y")).user("Bye.")
    imported(run, tmp_path, log.data(), "--complete")
    out = run("why", SESSION, 0).ok("made by claude-code (auto); ")
    assert "policy imported" not in out and "asked for by" not in out


def test_first_and_last_are_the_files_whatever_was_written_later(run: Run, tmp_path: Path) -> None:
    log = ClaudeCode().user("go").answer("m1", text("x")).user("Thanks.").user("Bye.")
    imported(run, tmp_path, log.data())
    run("erase", SESSION, 0, "--yes")
    (row,) = run("sessions", "--json").document
    assert row["started"] == "2026-01-01T10:00:01.500000000Z"
    assert row["last"] == "2026-01-01T10:00:04.500000000Z"


def test_a_tree_shows_what_a_turns_program_measured(run: Run, tmp_path: Path) -> None:
    log = ClaudeCode().user("go").answer("m1", text("x"), call("t1")).result("t1")
    log.answer("m2", text("y")).system("turn_duration", durationMs=3_500)
    log.user("Wait for me.").answer("m3", text("x"), call("t2")).result("t2")
    log.answer("m4", text("y")).system("turn_duration", durationMs=1_200)
    # The last turn stays open, as the file may go on, and was measured all the same.
    log.user("Bye.").answer("m5", text("z")).system("turn_duration", durationMs=2_250)
    imported(run, tmp_path, log.data())
    lines = run("trace", SESSION).ok().splitlines()
    turns = [line for line in lines if line.startswith("invoke_agent")]
    assert turns[0].startswith("invoke_agent  3.5 s  ")
    assert turns[1].startswith("invoke_agent  3.0 s (1.2 s by its program's measure)")
    assert turns[2].startswith("invoke_agent  2.2 s  ") and turns[2].endswith("unfinished")


def line(kind: str, number: int, **more) -> str:
    row = {"type": kind, "uuid": f"u{number}", "parentUuid": None, "sessionId": "s-1"}
    return json.dumps({**row, "timestamp": f"2026-01-02T03:04:{number:02}.000Z", **more})


@pytest.fixture
def with_raw(run, tmp_path):
    """A Claude Code session of two messages, with forty lines that became none."""
    note = {"data": {"note": "spinning é \x1b[31m" + "z" * 600}}
    rows = [line("user", 1, message={"role": "user", "content": "hello"})]
    rows += [line("progress", number, **note) for number in range(2, 42)]
    return imported(run, tmp_path, ("\n".join(rows) + "\n").encode())


def test_the_log_shows_kept_parts_as_text_and_names_both_lengths(run, with_raw):
    shown = run("log", "s-1")
    (row,) = [one for one in shown.out.splitlines() if "import:raw" in one and "progress" in one]
    assert "lines " in row and "progress 40" in row and " in a zlib container" in row
    out = run("log", "s-1", "--type", "import:raw", "--bodies").ok(
        '"note": "spinning ', "characters more", "lines more; --json has all"
    )
    assert max(map(len, out.splitlines())) < 500 and len(out.splitlines()) < 60
    assert "\x1b" not in out and "\ufffd" not in out


def test_json_has_the_whole_text_of_kept_parts(run, with_raw):
    rows = run("log", "s-1", "--type", "import:raw", "--bodies", "--json").lines
    bodies = [body for row in rows for body in row["bodies"]]
    assert any(body["container_bytes"] < body["content_bytes"] for body in bodies)
    for body in bodies:
        assert len(body["content"].encode()) == body["content_bytes"]
    texts = "\n".join(body["content"] for body in bodies).splitlines()
    notes = [json.loads(one) for one in texts if '"progress"' in one]
    assert len(notes) == 40 and notes[0]["data"]["note"].startswith("spinning é \x1b[31m")


async def record_of(data: bytes, encoding: str) -> Record:
    event = ImportRaw(source="x", lines=(1, 2), kinds={"x": 1}, imported_at=0, encoding=encoding)
    name, version, payload = encode_event(event)
    body = make_body(data, b"", lambda size: b"s" * size)
    store = MemoryStore()
    draft = Draft(b"i" * 16, name, version, 1, payload, (body,))
    await store.append("s", [draft], ANY)
    (stored,) = [record async for record in store.read("s", bodies=True)]
    return stored


async def test_a_container_is_unpacked_as_far_as_it_is_shown_and_damage_is_named():
    bomb = await record_of(zlib.compress(b"\0" * 50_000_000), "zlib")
    found = unpacked(bomb, 1_000)
    assert found is not None
    assert (found.data, found.length) == (b"\0" * 1_000, None)
    assert found.stored == len(bomb.bodies[0].data or b"") < 100_000
    for damaged in (b"no zlib", zlib.compress(b"x" * 9_000)[:-8]):
        with pytest.raises(DecodeError, match="packed with zlib"):
            unpacked(await record_of(damaged, "zlib"), 10_000)
