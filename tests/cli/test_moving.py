"""Import, export and fork; what is imported is forked or taken over, and never changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.conftest import imported as imported_into
from tests.importers.given import SESSION, ClaudeCode, call, text
from tests.sessions import model, user

CHAT = [user("hello"), model("hi"), user("and now?"), model("bye")]


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    path = tmp_path / "chat.json"
    path.write_text(json.dumps(CHAT))
    return path


def test_what_was_exported_imports_back_equal_and_a_second_time_adds_nothing(run, store, tmp_path):
    whole = run("export", "work").ok()
    file, other = tmp_path / "work.jsonl", ("--store", tmp_path / "other.db")
    written = run("export", "work", "-o", file)
    assert (written.code, written.out, file.read_text()) == (0, "", whole)
    [row] = run("import", file, "--json", *other).document["sessions"]
    counts = [row[name] for name in ("session", "format", "messages", "turns")]
    assert counts == ["work", "eventctx", 25, 3]
    assert run("export", "work", *other).out == whole
    for command in (("verify",), ("audit", "work")):
        assert run(*command, "--json", *other).document == run(*command, "--json").document
    [again] = run("import", file, "--json").document["sessions"]
    assert again["added"] == 0


def test_a_trajectory_is_a_file_or_one_document_on_stdout(run, store, tmp_path):
    file = tmp_path / "work.json"
    written = run("export", "--atif", "work", "-o", file)
    assert (written.code, written.out) == (0, "")
    assert "wrote " in written.err and " known exactly" in written.err
    one = run("export", "--atif", "work").document
    assert one["schema_version"] == json.loads(file.read_bytes())["schema_version"] == "ATIF-v1.8"
    (tmp_path / "one.json").write_text(json.dumps(one))
    ours = [row["message"] for row in run("transcript", "work", "--json").document]
    for path in (file, tmp_path / "one.json"):
        other = ("--store", tmp_path / f"{path.stem}-2.db")
        run("import", path, "--session", "work", *other)
        rows = run("transcript", "work", "--json", *other).document
        assert [row["message"] for row in rows] == ours
    assert run("erase", "work", "0", "--exports", "--yes").code == 0
    assert not file.exists()


@pytest.mark.parametrize(
    ("spoilt", "words"),
    [
        (lambda text: text.replace("Task 1", "Task 9"), "digest"),
        (lambda text: "".join(text.splitlines(keepends=True)[:-2]), "ends after"),
    ],
    ids=["a line was edited", "it ends early"],
)
def test_an_export_that_is_not_as_it_was_is_refused(run, store, tmp_path, spoilt, words):
    done = run("import", _written(tmp_path, spoilt(run("export", "work").out)), "--json")
    assert (done.code, words in done.out) == (2, True)


def _written(folder: Path, text: str) -> Path:
    path = folder / "work.jsonl"
    path.write_text(text)
    return path


def test_a_folder_is_searched_and_what_is_no_transcript_in_it_named(run, chat, tmp_path):
    (tmp_path / "settings.json").write_text('{"theme": "dark"}')
    session, passed_over, total = run("import", tmp_path, "--complete").ok().splitlines()
    counts = "4 messages, 2 turns, 2 requests, 0 compactions"
    assert session == f"chat  messages  {counts}, 15 new records"
    assert passed_over.startswith("passed over: ") and "settings.json: no transcript" in passed_over
    assert total == f"total: 1 session, {counts}, 15 new records; 1 file passed over"


def test_a_file_that_cannot_be_read_does_not_stop_the_others(run, chat, tmp_path):
    bad, deep = tmp_path / "bad.bin", tmp_path / "deep.json"
    bad.write_bytes(b"\0\1\2")
    deep.write_bytes(b"[" * 100_000)
    done = run("import", bad, deep, chat)
    assert (done.code, done.err) == (2, "")
    session, first, second, total = done.out.splitlines()
    assert session.startswith("chat  messages")
    assert f"{bad}: expected text" in first
    assert f"{deep}: expected one whole JSON document" in second
    assert total.endswith("; 2 files passed over, 2 of them for an error")


def test_an_import_is_one_document_of_sessions_files_passed_over_and_a_total(run, chat, tmp_path):
    (tmp_path / "b\udcff.jsonl").write_bytes(b"{half")
    done = run("import", tmp_path, "--json", "--complete")
    assert done.code == 2
    answer = done.document
    assert [one["session"] for one in answer["sessions"]] == ["chat"]
    (bad,) = answer["passed_over"]
    assert (bad["path"], bad["error"]) == (str(tmp_path / "b") + "\\udcff.jsonl", "UnknownFormat")
    total = answer["total"]
    assert total.pop("bytes") == chat.stat().st_size
    counted = [f"{name} {count}" for name, count in total.items() if count]
    said = "sessions 1, added 15, messages 4, turns 2, calls 2, passed_over 1, failed 1"
    assert ", ".join(counted) == said


def test_what_waits_and_each_warning_is_told_on_request(run, tmp_path):
    file = _written(tmp_path, '{"role": "user", "content": "x"}\nbroken\n{"role": "user", "con')
    done = run("import", file, "--verbose")
    assert "warning: line 2: not readable as JSON" in done.out
    assert "waits for the next import: line 3" in done.out


def test_an_import_or_export_that_fails_leaves_no_file(run, chat, tmp_path):
    (tmp_path / "empty").mkdir()
    run("import", tmp_path / "empty").fails("in this folder")
    run("import", chat, "--format", "nonsense").fails()
    assert not (tmp_path / "s.db").exists()
    run("import", chat)
    run("export", "nobody", "-o", tmp_path / "x.jsonl").fails()
    assert not (tmp_path / "x.jsonl").exists()


def test_a_fork_shares_what_was_before_and_its_audit_is_its_own(run, store):
    done = run("fork", "work", "other", "--at", 10, "--json").document
    assert done["receipt"].startswith("other@11:")
    mine = run("transcript", "other", "--json").document
    assert mine == run("transcript", "work", "--at", 10, "--json").document
    run("verify", "other").ok()
    run("sessions").ok("fork of work @10")
    run("audit", "other").ok("No request")
    assert run("audit", "other", "--json").document["requests"] == []


def test_a_name_with_a_line_break_breaks_no_line(run, tmp_path: Path) -> None:
    folder = tmp_path / "two\nlines"
    folder.mkdir()
    (folder / "no\nsense.jsonl").write_text("nonsense", encoding="utf-8")
    done = run("import", folder)
    assert (len(done.out.splitlines()), "two\\nlines" in done.out) == (2, True)
    assert len(run("sessions", "--store", folder / "s.db").err.splitlines()) == 1


LONG = "a long result. " * 400


def session() -> ClaudeCode:
    """A session that was compacted: #0 to #2 are in a summary."""
    one = ClaudeCode().user("Fix the test.").answer("m1", text("I look."), call("t1"))
    one.result("t1", LONG).system("compact_boundary", compactMetadata={"preTokens": 900})
    one.user("A summary of it all.", isCompactSummary=True)
    return one.user("Go on.").answer("m2", text("Done.")).user("Thanks.").user("Bye.")


@pytest.fixture
def imported(run: Run, tmp_path: Path) -> Path:
    return imported_into(run, tmp_path, session().data())


def types(run: Run, name: str = SESSION) -> list[str]:
    return [row["type"] for row in run("log", name, "--json").lines]


def test_a_mirror_is_not_changed_but_a_fork_offered(run: Run, imported: Path) -> None:
    before = types(run)
    offered = ("is a mirror of talk.jsonl", "--fork NAME", "import --take-over FILE")
    for command in (("restore", 0), ("restore", 0, "--pin"), ("compact",)):
        run(command[0], SESSION, *command[1:]).fails(*offered)
    assert types(run) == before
    run("import", imported.with_name("talk.jsonl")).ok("nothing new")


def test_restore_on_a_fork_is_one_step_and_changes_no_mirror(run: Run, imported: Path) -> None:
    before = types(run)
    missing = "expected message numbers of the transcript, found [99]"
    run("restore", SESSION, 99, "--fork", "mine").fails(missing)
    assert [row["session"] for row in run("sessions", "--json").document] == [SESSION]
    run("why", SESSION, 0, "--store", imported).ok(
        "in a fork, since this session is a mirror of talk.jsonl:",
        f"restore {SESSION} 0 --fork NAME --store",
    )
    done = run("restore", SESSION, 0, "--fork", "mine")
    done.ok(f"forked {SESSION} as it is now as mine", "back in view, whole: #0")
    assert types(run) == before
    assert types(run, "mine")[-2:] == ["session:fork", "context:restored"]
    done = run("restore", SESSION, 1, "--pin", "--fork", "two", "--json").document
    assert (done["session"], done["pinned"]) == ("two", [1])
    # A fork is ours, so it needs no other.
    ours = run("why", "mine", 1, "--store", imported).ok("restore mine 1 --store")
    assert "--fork" not in ours
    run("restore", "mine", 1).ok()


def test_what_is_taken_over_is_not_imported_again(run: Run, imported: Path) -> None:
    file = imported.with_name("talk.jsonl")
    taken = "taken over: it is yours, and its file is not imported again"
    run("import", "--take-over", file).ok(taken)
    run("restore", SESSION, 0).ok()
    assert "--fork" not in run("why", SESSION, 1).out
    again = run("import", file)
    assert again.code == 2
    assert "was taken over at" in again.out and "--session NEW" in again.out
    run("import", file, "--session", "new").ok()


def test_compact_on_a_fork_and_a_dry_run_without(run: Run, imported: Path) -> None:
    simple = ("compact", SESSION, "--policy", "simple", "--set", "keep_recent=1")
    run(*simple, "--dry-run").ok()
    run(*simple, "--fork", "mine").ok(f"forked {SESSION} as it is now as mine")
    assert types(run, "mine")[-1] == "context:post_compact"
    run(*simple, "--dry-run", "--fork", "x").fails()
    run(*simple, "--fork", "mine").fails("exists already")
