"""Every reading command: as text, as JSON, and on screens of any width."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import eventctx
from eventctx.cli.main import cli
from eventctx.hooks.hook_failures import HookFailures
from eventctx.hooks.registry import Hooks
from eventctx.log.record import Record
from eventctx.projections.timeline import fold
from eventctx.projections.timeline.fold import TimelineState
from eventctx.queries.key_frames import KEY_FRAME
from tests.cli.conftest import say
from tests.queries.lost.given import call, result

READING = """
sessions; stats; log work; transcript work; transcript work --turn 1; transcript work --at 10;
view work --turn 2; view work --turn 2 --iteration 1; audit work; replay work; verify; verify work;
why work #2 --turn 3; why work 0; why work 24 --turn 1; diff work 1.2 3.4; diff work 2 2;
lost work; lost work --turn 2; lost work --compaction 1 --all
"""


@pytest.mark.parametrize("command", [one.strip() for one in READING.split(";")])
def test_it_writes_nothing_and_steers_no_terminal_and_fits_it(run, store, command, monkeypatch):
    command = command.split()
    [before] = run("verify", "--json").document
    steering = {chr(code) for code in (*range(9), *range(11, 32), 127, 0x9B)}
    for more in ((), ("--json",)):
        out = run(*command, *more).ok()
        assert out.strip() and steering.isdisjoint(out)
    [after] = run("verify", "--json").document
    assert before == after
    monkeypatch.setenv("FORCE_COLOR", "1")
    # Receipts, paths and commands are for copying: never broken.
    copied = ("work@", "digest ", "store  ")
    for width in (80, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        done = run(*command)
        assert done.code == 0 and "\x1b[" in done.out, "colours, so it was taken for a terminal"
        lines = re.sub(r"\x1b\[[0-9;]*m", "", done.out).splitlines()
        wide = [line for line in lines if len(line) > width]
        assert [one for one in wide if not one.startswith(copied) and " restore w" not in one] == []


def test_the_store_may_be_named_before_or_behind_the_command_or_outside(run, store, monkeypatch):
    before = run("--store", store, "sessions", "--json").document
    assert run("sessions", "--json", "--store", store).document == before
    monkeypatch.chdir(store.parent)
    for relative in ("s.db", "sqlite:///s.db"):
        assert run("sessions", "--json", "--store", relative).document == before
    monkeypatch.setenv("EVENTCTX_STORE", f"sqlite:///{store}")
    assert run("sessions", "--json").document == before


def test_stats_sum_the_store_and_say_what_keeps_it_and_what_an_append_survives(run, store):
    stats = run("stats", "--json").document
    assert (stats["sessions"], stats["messages"], stats["requests"]) == (1, 25, 12)
    rows = run("audit", "work", "--json").document["compactions"]
    saved = sum(row["tokens_before"] - row["tokens_after"] for row in rows if row["figures"])
    assert stats["tokens_saved"] == saved
    assert stats["calls_without_usage"] == stats["tool_calls_without_end"] == 0
    assert stats["file_bytes"] > stats["message_bytes"] > 1_000
    assert stats["usage"]["model-1"]["calls"] == 9
    assert sum(stats["types"].values()) == stats["records"]
    found = stats["description"]
    assert (found["kind"], found["place"]) == ("sqlite", str(store))
    assert found["server"].startswith("SQLite 3.") and found["survives"] == "power cut"
    assert found["facts"] == {"durability": "full", "journal_mode": "wal"}
    run("stats").ok(
        f"\nkept by      {found['server']}\n",
        "\nsurvives     the end of the process, and a power cut\n",
        "\nsettings     durability=full, journal_mode=wal\n",
    )


def test_a_transcript_is_whole_in_a_pipe_and_escaped_or_for_users_alone(run, store):
    escaped = (r"\x1b[31mred\x1b[0m", r"\x03", r"\u202e", "[bold]not bold[/bold]")
    run("transcript", "work").ok("contents of 8 " * 60, *escaped)
    everything = run("transcript", "work", "--json").document
    done = run("transcript", "work", "--audience", "user", "--json")
    assert done.code == 0
    hidden = {"tool_use", "tool_result", "thinking"}
    assert hidden.isdisjoint(re.findall(r'"type": "(\w+)"', done.out))
    assert {one["number"] for one in done.document} < {one["number"] for one in everything}
    text = run("transcript", "work", "--audience", "user").ok("Task 0: look around.")
    assert "Be brief." not in text


async def test_a_transcript_says_where_no_person_spoke_in_the_role_user(run, tmp_path) -> None:
    async with eventctx.open(tmp_path / "s.db") as engine:
        ctx = await engine.session("s")
        await ctx.add_message({"role": "user", "content": "Read it."})
        await ctx.add_message(call(1, "Read", {"file_path": "a.py"}))
        await ctx.add_message(result(1, "x = 1"))
        reminder = "<system-reminder>The file changed.</system-reminder>"
        await ctx.add_message({"role": "user", "content": reminder})
    lines = run("transcript", "s").ok().splitlines()
    assert [line.split("  @")[0] for line in lines if line.startswith("#")] == [
        "#0 user",
        "#1 assistant",
        "#2 user (a tool's result)",
        "#3 user (a program's words)",
    ]
    run("why", "s", 3).ok("user (a program's words)  ")


def test_a_view_says_what_was_sent_and_that_it_verifies_and_is_named_by_number(run, store):
    view = run("view", "work", "--turn", 3, "--json").document
    assert view["verified"] is True and view["left_out"]
    assert view["tokens"] <= view["budget"] == 3_000
    assert view["entries"][0]["message"] == {"role": "system", "content": "Be brief."}
    run("view", "work", "--turn", 3).ok(f"digest {view['digest']} verified", "dropped")
    position = run("audit", "work", "--json").document["requests"][4]["position"]
    assert run("view", "work", "--request", 5, "--json").document["position"] == position
    for command in (("why", "work", 3), ("instructions", "work")):
        named = run(*command, "--request", 5, "--json").document
        assert named == run(*command, "--position", position, "--json").document


REMINDER = {"role": "user", "content": "<reminder>now</reminder>"}


@pytest.fixture
async def hosted(tmp_path: Path) -> None:
    """A session whose host sent a reminder along, and left a message out; and one that is full."""
    async with eventctx.open(tmp_path / "s.db") as engine:
        ctx = await engine.session("hosted")
        await ctx.set_system_prompt("You help.")
        for number in range(2):
            await ctx.add_message({"role": "user", "content": f"question {number}"})
            await ctx.get_messages_for_request()
            prepared = [one async for one in engine.records("hosted")][-1].position
            for _ in range(2):
                await ctx.record_sent(prepared, 2, [(2, REMINDER)], missing=number)
        await ctx.add_message({"role": "user", "content": "question 2"})
        await ctx.get_messages_for_request()
        await ctx.set_system_prompt(None)
        full = await engine.session("full", max_tokens=2_000)
        await full.set_system_prompt("You help. " * 540)
        await full.add_message({"role": "user", "content": "question 0"})
        await full.get_messages_for_request()


def test_a_view_ends_with_what_the_host_sent_besides(run, hosted: None) -> None:
    rows = run("audit", "hosted", "--json").document["requests"]
    assert [(row["additions"], row["missing"]) for row in rows] == [(1, 0), (1, 1), (0, 0)]
    views = [run("view", "hosted", "--position", row["position"]).ok() for row in rows]
    assert views[0].count("<reminder>now</reminder>") == 1
    assert "added by the host behind [1]" in views[0] and "not among them" not in views[0]
    assert "1 message of the view not among them" in views[1]
    assert "Not sent quite so" not in views[2]
    told = run("view", "hosted", "--position", rows[1]["position"], "--json").document
    (sent,) = told["sent"]
    assert (sent["messages"], sent["missing"]) == (2, 1)
    assert sent["additions"] == [{"behind": 2, "message": REMINDER}]
    audit = run("audit", "hosted").ok("2 requests did not leave as prepared")
    assert "little room" not in audit


def test_an_audit_tells_that_a_budget_leaves_little_for_the_conversation(run, hosted: None) -> None:
    room = run("audit", "full", "--json").document["little_room"]
    assert room["budget"] == 2_000 and 0 < room["left"] < 500
    audit = " ".join(run("audit", "full").ok().split())
    assert f"There is little room: a budget of 2,000 tokens leaves {room['left']}" in audit


def test_the_audit_has_a_row_for_every_request_and_compactions_between(run, store):
    audit = run("audit", "work", "--json").document
    named = [(row["turn"], row["iteration"]) for row in audit["requests"]]
    assert named == list(itertools.product((1, 2, 3), (1, 2, 3, 4)))
    assert audit["compactions"]
    for row in audit["requests"]:
        assert row["tokens"] <= row["budget"] and sum(row["counts"].values()) <= 25
    text = run("audit", "work").ok().splitlines()
    rows = [line for line in text if audit["requests"][0]["digest"][:6] in line]
    assert rows and rows[0].split()[-1] == audit["requests"][0]["digest"], "whole in a pipe"
    place = next(number for number, line in enumerate(text) if "compaction" in line)
    assert 1 < place < len(text) - 3


def test_verify_prints_a_receipt_that_verifies(run, store):
    [checked] = run("verify", "--json").document
    assert checked["ok"] and checked["receipt"].startswith("work@")
    for session in ("work",), ():
        run("verify", *session, "--receipt", checked["receipt"]).ok()


@pytest.mark.parametrize(
    "question", [("why", "long", 3), ("instructions", "long"), ("lost", "long")]
)
def test_a_long_session_saves_key_frames_for_the_next(run, tmp_path, question, monkeypatch) -> None:
    path = say(tmp_path / "s.db", "long", *["Never do it."] * KEY_FRAME)
    folded: list[int] = []
    evolve = fold.evolve

    def counted(state: TimelineState, record: Record) -> TimelineState:
        folded.append(record.position)
        return evolve(state, record)

    monkeypatch.setattr(fold, "evolve", counted)
    before = path.read_bytes()
    first = run(*question, "--json").ok()
    assert len(folded) >= KEY_FRAME
    folded.clear()
    assert run(*question, "--json").out == first
    assert len(folded) < 10
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "command",
    [
        "transcript work --at 9",
        "log work --from 3 --to 9",
        "replay work --to 9",
        "view work --position 4",
        "why work 1 --position 4",
    ],
)
def test_a_position_is_taken_as_it_is_printed(run, store, command):
    named = re.sub(r"(--\w+ )", r"\1@", command)
    assert run(*named.split()).ok() == run(*command.split()).ok()


@pytest.mark.parametrize("command", ["log", "replay"])
def test_the_log_tells_system_prompts_and_additions_in_words(run, hosted: None, command) -> None:
    lines = run(command, "hosted").ok().splitlines()
    prompts = [line for line in lines if "system_prompt_set" in line]
    assert "system: You help." in prompts[0]
    assert "none from here on" in prompts[1]
    sent = [line for line in lines if "context:request_sent" in line]
    assert "1 text added by the host" in sent[0]
    assert "1 text added by the host, 1 message not sent" in sent[2]


def test_diff_of_two_sessions_says_what_only_one_has(run, store):
    at = run("audit", "work", "--json").document["requests"][5]["position"]
    run("fork", "work", "other", "--at", at).ok()
    found = run("diff", "work", "other", "--json").document
    assert (found["first_session"], found["second_session"]) == ("work", "other")
    run("diff", "work:3.1", "other").ok("only in work", "never added to other")


def test_stats_show_which_hooks_failed_or_dropped_where_that_is_known(run, store):
    assert "hooks that" not in run("stats").out
    assert not store.with_name("s.db-losses.jsonl").exists(), "a reader makes no file"
    failures = HookFailures(store, Hooks().on_loss, clock=lambda: 10**18)
    failures.note("app.on_tool", "error", 1200)
    failures.note("app.Sink", "dropped", 3)
    failures.read()
    table = run("stats").out.partition("hooks that failed or dropped")[2]
    rows = [line.split() for line in table.splitlines()[1:] if line.startswith("app.")]
    assert rows == [
        ["app.Sink", "dropped", "3", "2001-09-09T01:46:40"],
        ["app.on_tool", "errors", "1,200", "2001-09-09T01:46:40"],
    ]
    store.with_name("s.db-losses.jsonl").write_bytes(b"not a database at all " * 50)
    done = run("stats", "--json")
    assert (done.code, done.document["losses"], done.document["sessions"]) == (0, None, 1)
    assert "s.db-losses.jsonl" in done.err


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a command shows on a terminal of some width."""

    def shown(width: int, *arguments: object) -> str:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("COLUMNS", str(width))
        out = CliRunner().invoke(cli, [str(one) for one in arguments]).output
        return re.sub(r"\x1b\[[0-9;]*m", "", out)

    return shown


@pytest.fixture
async def long(tmp_path: Path) -> Path:
    """Two turns of 15 requests; the view is compacted behind the sixth."""
    path = tmp_path / "s.db"
    options: Any = {"policy": "truncate", "max_tokens": 100_000, "auto_compact": False}
    async with eventctx.open(path) as engine:
        ctx = await engine.session("long", **options)
        for turn in range(2):
            async with ctx.turn() as block:
                await ctx.add_message({"role": "user", "content": f"Task {turn}"})
                for step in range(15):
                    async with block.iteration():
                        await ctx.get_messages_for_request()
                        words = {"role": "assistant", "content": f"Step {step} " * 50}
                        await ctx.add_message(words)
                    if (turn, step) == (0, 5):
                        await ctx.compact(reason="now")
    return path


def requests(text: str) -> list[str]:
    return re.findall(r"^ *(\d+\.\d+) ", text, re.MULTILINE)


def test_a_terminal_shows_requests_that_tell_or_all(on_terminal: Any, run: Any, long: Path) -> None:
    audit = run("audit", "long", "--json").document
    names = [row["request"] for row in audit["requests"]]
    assert len(names) == 30
    assert requests(run("audit", "long").out) == names, "a pipe gets every request"
    shown = on_terminal(100, "audit", "long")
    assert len(audit["compactions"]) == 1
    assert requests(shown) == ["1.1", "1.6", "1.7", "1.15", "2.15"]
    assert "--all shows the rest" in shown
    every = on_terminal(100, "audit", "long", "--all")
    assert requests(every) == names and "--all" not in every
    assert requests(on_terminal(100, "audit", "long", "--turn", 2)) == names[15:]
    last = run("view", "long").out
    assert f"request {names[-1]} " in last.splitlines()[0]
    assert last == run("view", "long", "--turn", names[-1]).out


@pytest.mark.parametrize("width", [30, 60])
def test_no_figure_of_a_row_is_broken(width: int, on_terminal: Any, run: Any, store: Path) -> None:
    rows = run("audit", "work", "--json").document["requests"]
    tokens = [f"{row['tokens']:,}" for row in rows]
    narrow = on_terminal(width, "audit", "work")
    assert tokens and all(one in narrow for one in tokens)
    assert max(map(len, narrow.splitlines())) <= width


def test_base64_is_cut_in_a_pipe_and_whole_where_it_is_asked_for(run: Any, tmp_path: Path) -> None:
    data = base64.b64encode(hashlib.shake_256(b"noise").digest(3000)).decode()
    say(tmp_path / "s.db", "one", f"Look: {data} there.")
    cut = run("transcript", "one").ok("(4,000 characters of base64) there.")
    assert data[100:200] not in cut
    run("transcript", "one", "--full").ok(data)
    run("transcript", "one", "--json").ok(data)
    run("view", "one").fails("has no request; `eventctx transcript`")
