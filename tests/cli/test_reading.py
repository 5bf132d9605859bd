"""Every reading command, as text and as JSON."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx.hooks.hook_failures import HookFailures
from eventctx.hooks.registry import Hooks
from eventctx.log.record import Record
from eventctx.projections.timeline import fold
from eventctx.projections.timeline.fold import TimelineState
from eventctx.queries.key_frames import KEY_FRAME
from tests.queries.lost.given import call, result

READING = [
    ("sessions",),
    ("stats",),
    ("log", "work"),
    ("transcript", "work"),
    ("transcript", "work", "--turn", 1),
    ("transcript", "work", "--at", 10),
    ("view", "work", "--turn", 2),
    ("view", "work", "--turn", 2, "--iteration", 1),
    ("audit", "work"),
    ("replay", "work"),
    ("verify",),
    ("verify", "work"),
    ("why", "work", "#2", "--turn", 3),
    ("why", "work", 0),
    ("why", "work", 24, "--turn", 1),
    ("diff", "work", "1.2", "3.4"),
    ("diff", "work", 2, 2),
    ("lost", "work"),
    ("lost", "work", "--turn", 2),
    ("lost", "work", "--compaction", 1, "--all"),
]


@pytest.mark.parametrize("command", READING, ids=lambda c: " ".join(map(str, c)))
def test_it_writes_nothing_into_the_log_and_nothing_that_steers_a_terminal(run, store, command):
    [before] = run("verify", "--json", "--store", store).document
    steering = {chr(code) for code in (*range(9), *range(11, 32), 127, 0x9B)}
    for more in ((), ("--json",)):
        done = run(*command, "--store", store, *more)
        assert (done.code, done.err) == (0, "")
        assert done.out.strip()
        assert steering.isdisjoint(done.out)
    [after] = run("verify", "--json", "--store", store).document
    assert before == after


@pytest.mark.parametrize("command", READING, ids=lambda c: " ".join(map(str, c)))
def test_on_a_terminal_no_line_is_wider_than_it(run, store, command, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    # Receipts, paths and commands are for copying: never broken.
    copied = ("work@", "digest ", "store  ")
    for width in (80, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        done = run("--store", store, *command)
        assert done.code == 0
        plain = [_without_colours(line) for line in done.out.splitlines()]
        assert "\x1b[" in done.out, "colours, so it was taken for a terminal"
        kept = [
            line for line in plain if not line.startswith(copied) and " restore work" not in line
        ]
        assert [line for line in kept if len(line) > width] == []


def _without_colours(line: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", line)


def test_the_store_may_be_named_before_or_behind_the_command_or_by_the_environment(
    run, store, monkeypatch
):
    before = run("--store", store, "sessions", "--json")
    behind = run("sessions", "--json", "--store", store)
    monkeypatch.setenv("EVENTCTX_STORE", f"sqlite:///{store}")
    environment = run("sessions", "--json")
    assert before.document == behind.document == environment.document


def test_stats_sum_the_store(run, store):
    stats = run("stats", "--json", "--store", store).document
    assert (stats["sessions"], stats["messages"], stats["requests"]) == (1, 25, 12)
    rows = run("audit", "work", "--json", "--store", store).document["compactions"]
    saved = sum(row["tokens_before"] - row["tokens_after"] for row in rows if row["figures"])
    assert stats["tokens_saved"] == saved
    assert stats["calls_without_usage"] == stats["tool_calls_without_end"] == 0
    assert stats["file_bytes"] > stats["message_bytes"] > 1_000
    assert stats["usage"]["model-1"]["calls"] == 9
    assert sum(stats["types"].values()) == stats["records"]


def test_stats_say_what_keeps_the_store_and_what_an_append_survives(run, store):
    found = run("stats", "--json", "--store", store).document["description"]
    assert (found["kind"], found["place"]) == ("sqlite", str(store))
    assert found["server"].startswith("SQLite 3.") and found["survives"] == "power cut"
    assert found["facts"] == {"durability": "full", "journal_mode": "wal"}
    lines = run("stats", "--store", store).out.splitlines()
    assert f"kept by      {found['server']}" in lines
    assert "survives     the end of the process, and a power cut" in lines
    assert "settings     durability=full, journal_mode=wal" in lines


def test_the_transcript_is_whole_in_a_pipe_and_escaped(run, store):
    out = run("transcript", "work", "--store", store).out
    assert "contents of 8 " * 60 in out
    assert r"\x1b[31mred\x1b[0m" in out
    assert r"\x03" in out
    assert r"\u202e" in out
    assert "[bold]not bold[/bold]" in out


async def _spoken(path: Path) -> None:
    async with eventctx.open(path) as engine:
        ctx = await engine.session("s")
        await ctx.add_message({"role": "user", "content": "Read it."})
        await ctx.add_message(call(1, "Read", {"file_path": "a.py"}))
        await ctx.add_message(result(1, "x = 1"))
        reminder = "<system-reminder>The file changed.</system-reminder>"
        await ctx.add_message({"role": "user", "content": reminder})


def test_a_transcript_says_where_no_person_spoke_in_the_role_user(run, tmp_path) -> None:
    path = tmp_path / "spoken.db"
    asyncio.run(_spoken(path))
    lines = run("transcript", "s", "--store", path).out.splitlines()
    assert [line.split("  @")[0] for line in lines if line.startswith("#")] == [
        "#0 user",
        "#1 assistant",
        "#2 user (a tool's result)",
        "#3 user (a program's words)",
    ]
    assert "user (a program's words)  " in run("why", "s", 3, "--store", path).out


def test_a_view_says_what_was_sent_and_that_it_verifies(run, store):
    view = run("view", "work", "--turn", 3, "--json", "--store", store).document
    assert view["verified"] is True
    assert view["tokens"] <= view["budget"] == 3_000
    assert view["left_out"]
    assert view["entries"][0]["message"] == {"role": "system", "content": "Be brief."}
    text = run("view", "work", "--turn", 3, "--store", store).out
    assert f"digest {view['digest']} verified" in text
    assert "dropped" in text


@pytest.fixture
def hosted(tmp_path: Path) -> Path:
    """A session whose host sent a reminder along, and left a message out."""
    path = tmp_path / "hosted.db"

    async def fill() -> None:
        async with eventctx.open(path) as engine:
            ctx = await engine.session("hosted")
            await ctx.set_system_prompt("You help.")
            reminder = {"role": "user", "content": "<reminder>now</reminder>"}
            for number in range(2):
                await ctx.add_message({"role": "user", "content": f"question {number}"})
                await ctx.get_messages_for_request()
                prepared = [one async for one in engine.records("hosted")][-1].position
                for _ in range(2):
                    await ctx.record_sent(prepared, 2, [(2, reminder)], missing=number)
            await ctx.add_message({"role": "user", "content": "question 2"})
            await ctx.get_messages_for_request()
            await ctx.set_system_prompt(None)
            full = await engine.session("full", max_tokens=2_000)
            await full.set_system_prompt("You help. " * 540)
            await full.add_message({"role": "user", "content": "question 0"})
            await full.get_messages_for_request()

    asyncio.run(fill())
    return path


def test_a_view_ends_with_what_the_host_sent_besides(run, hosted: Path) -> None:
    rows = run("audit", "hosted", "--store", hosted, "--json").document["requests"]
    assert [(row["additions"], row["missing"]) for row in rows] == [(1, 0), (1, 1), (0, 0)]
    views = [
        run("view", "hosted", "--position", row["position"], "--store", hosted) for row in rows
    ]
    assert views[0].out.count("<reminder>now</reminder>") == 1
    assert "added by the host behind [1]" in views[0].out
    assert "not among them" not in views[0].out
    assert "1 message of the view not among them" in views[1].out
    assert "Not sent quite so" not in views[2].out
    position = rows[1]["position"]
    told = run("view", "hosted", "--position", position, "--store", hosted, "--json").document
    (sent,) = told["sent"]
    assert (sent["messages"], sent["missing"]) == (2, 1)
    reminder = {"role": "user", "content": "<reminder>now</reminder>"}
    assert sent["additions"] == [{"behind": 2, "message": reminder}]
    audit = run("audit", "hosted", "--store", hosted).out
    assert "2 requests did not leave as prepared" in audit
    assert "little room" not in audit


def test_an_audit_tells_that_a_budget_leaves_little_for_the_conversation(run, hosted: Path) -> None:
    room = run("audit", "full", "--store", hosted, "--json").document["little_room"]
    assert room["budget"] == 2_000 and 0 < room["left"] < 500
    audit = " ".join(run("audit", "full", "--store", hosted).out.split())
    assert f"There is little room: a budget of 2,000 tokens leaves {room['left']}" in audit


def test_the_audit_has_a_row_for_every_request_and_compactions_between(run, store):
    audit = run("audit", "work", "--json", "--store", store).document
    assert [(row["turn"], row["iteration"]) for row in audit["requests"]] == [
        (turn, iteration) for turn in (1, 2, 3) for iteration in (1, 2, 3, 4)
    ]
    assert audit["compactions"]
    for row in audit["requests"]:
        counts: dict[str, Any] = row["counts"]
        assert row["tokens"] <= row["budget"]
        assert sum(counts.values()) <= 25
    text = run("audit", "work", "--store", store).out.splitlines()
    rows = [line for line in text if audit["requests"][0]["digest"][:6] in line]
    assert rows and rows[0].split()[-1] == audit["requests"][0]["digest"], "whole in a pipe"
    place = next(number for number, line in enumerate(text) if "compaction" in line)
    assert 1 < place < len(text) - 3


def test_verify_prints_a_receipt_that_verifies(run, store):
    [checked] = run("verify", "--json", "--store", store).document
    assert checked["ok"] and checked["receipt"].startswith("work@")
    assert run("verify", "work", "--receipt", checked["receipt"], "--store", store).code == 0
    assert run("verify", "--receipt", checked["receipt"], "--store", store).code == 0


@pytest.mark.parametrize(
    "question", [("why", "long", 3), ("instructions", "long"), ("lost", "long")]
)
def test_a_question_of_a_long_session_saves_key_frames_for_the_next(
    run, tmp_path, question, monkeypatch
) -> None:
    path = tmp_path / "long.db"

    async def write() -> None:
        async with eventctx.open(path, receipts=False) as engine:
            ctx = await engine.session("long")
            await ctx.add_messages([{"role": "user", "content": "Never do it."}] * KEY_FRAME)

    folded: list[int] = []
    evolve = fold.evolve

    def counted(state: TimelineState, record: Record) -> TimelineState:
        folded.append(record.position)
        return evolve(state, record)

    asyncio.run(write())
    monkeypatch.setattr(fold, "evolve", counted)
    before = path.read_bytes()
    first = run(*question, "--json", "--store", path)
    assert (first.code, len(folded) >= KEY_FRAME) == (0, True)
    folded.clear()
    assert run(*question, "--json", "--store", path).out == first.out
    assert len(folded) < 10
    assert path.read_bytes() == before


def test_a_path_in_the_store_option_may_be_relative(run, store: Path, monkeypatch):
    monkeypatch.chdir(store.parent)
    assert run("sessions", "--store", "s.db").code == 0
    assert run("sessions", "--store", "sqlite:///s.db").code == 0


def test_counts_that_cannot_be_read_do_not_keep_stats_from_telling_the_rest(run, store):
    store.with_name("s.db-losses.jsonl").write_bytes(b"not a database at all " * 50)
    done = run("stats", "--json", "--store", store)
    assert (done.code, done.document["losses"], done.document["sessions"]) == (0, None, 1)
    assert "s.db-losses.jsonl" in done.err


def test_a_transcript_for_users_has_no_calls_results_or_thinking(run, store) -> None:
    everything = run("transcript", "work", "--json", "--store", store).document
    done = run("transcript", "work", "--audience", "user", "--json", "--store", store)
    shown = done.document
    assert done.code == 0
    assert 0 < len(shown) < len(everything)
    assert not {"tool_use", "tool_result", "thinking"} & set(
        re.findall(r'"type": "(\w+)"', done.out)
    )
    assert {one["number"] for one in shown} < {one["number"] for one in everything}
    text = run("transcript", "work", "--audience", "user", "--store", store).out
    assert "Task 0: look around." in text
    assert "Be brief." not in text


@pytest.mark.parametrize(
    "command",
    [
        ("transcript", "work", "--at", 9),
        ("log", "work", "--from", 3, "--to", 9),
        ("replay", "work", "--to", 9),
        ("view", "work", "--position", 4),
        ("why", "work", 1, "--position", 4),
    ],
    ids=lambda command: command[0],
)
def test_a_position_is_taken_as_it_is_printed(run, store, command):
    plain = run(*command, "--store", store)
    options = ("--at", "--from", "--to", "--position")
    named = [
        f"@{word}" if before in options else word
        for before, word in zip(("", *command), command, strict=False)
    ]
    assert named != list(command)
    assert (plain.code, run(*named, "--store", store).out) == (0, plain.out)


def test_a_request_is_named_by_its_number_too(run, store):
    rows = run("audit", "work", "--json", "--store", store).document["requests"]
    by_number = run("view", "work", "--request", 5, "--json", "--store", store).document
    assert by_number["position"] == rows[4]["position"]
    for command in (("why", "work", 3), ("instructions", "work")):
        named = run(*command, "--request", 5, "--json", "--store", store).document
        at = run(*command, "--position", rows[4]["position"], "--json", "--store", store)
        assert named == at.document
    over = run("view", "work", "--request", 99, "--store", store)
    assert over.code == 2 and "has requests 1 to 12, found 99" in over.err


@pytest.mark.parametrize("command", ["log", "replay"])
def test_the_log_tells_system_prompts_and_additions_in_words(run, hosted: Path, command) -> None:
    lines = run(command, "hosted", "--store", hosted).out.splitlines()
    prompts = [line for line in lines if "system_prompt_set" in line]
    assert "system: You help." in prompts[0]
    assert "none from here on" in prompts[1]
    sent = [line for line in lines if "context:request_sent" in line]
    assert "1 text added by the host" in sent[0]
    assert "1 text added by the host, 1 message not sent" in sent[2]


def test_diff_of_two_sessions_says_what_only_one_has(run, store):
    at = run("audit", "work", "--json", "--store", store).document["requests"][5]["position"]
    assert run("fork", "work", "other", "--at", at, "--store", store).code == 0
    found = run("diff", "work", "other", "--json", "--store", store).document
    assert (found["first_session"], found["second_session"]) == ("work", "other")
    text = run("diff", "work:3.1", "other", "--store", store).out
    assert "only in work" in text and "never added to other" in text


def test_stats_show_which_hooks_failed_or_dropped_and_only_then(run, store):
    assert "hooks that" not in run("stats", "--store", store).out
    assert not store.with_name("s.db-losses.jsonl").exists(), "a reader makes no file"
    failures = HookFailures(store, Hooks().on_loss, clock=lambda: 10**18)
    failures.note("app.on_tool", "error", 1200)
    failures.note("app.Sink", "dropped", 3)
    failures.read()
    table = run("stats", "--store", store).out.partition("hooks that failed or dropped")[2]
    rows = [line.split() for line in table.splitlines()[1:] if line.startswith("app.")]
    assert rows == [
        ["app.Sink", "dropped", "3", "2001-09-09T01:46:40"],
        ["app.on_tool", "errors", "1,200", "2001-09-09T01:46:40"],
    ]
