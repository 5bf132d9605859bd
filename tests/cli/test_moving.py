"""Import, export and fork."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

CHAT = [
    {"role": "user", "content": "hello"},
    {"role": "assistant", "content": "hi"},
    {"role": "user", "content": "and now?"},
    {"role": "assistant", "content": "bye"},
]


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    path = tmp_path / "chat.json"
    path.write_text(json.dumps(CHAT))
    return path


def test_what_was_exported_imports_back_equal(run, store, tmp_path):
    whole = run("export", "work", "--store", store).out
    file = tmp_path / "work.jsonl"
    written = run("export", "work", "-o", file, "--store", store)
    assert (written.code, written.out) == (0, "")
    assert file.read_text() == whole
    other = tmp_path / "other.db"
    [imported] = run("import", file, "--json", "--store", other).document["sessions"]
    assert (imported["session"], imported["format"], imported["messages"]) == (
        "work",
        "eventctx",
        25,
    )
    assert imported["turns"] == 3
    assert run("export", "work", "--store", other).out == whole
    assert (
        run("verify", "--json", "--store", other).document
        == run("verify", "--json", "--store", store).document
    )
    assert (
        run("audit", "work", "--json", "--store", other).document
        == run("audit", "work", "--json", "--store", store).document
    )


def test_a_trajectory_is_a_file_or_one_document_on_stdout(run, store, tmp_path):
    file = tmp_path / "work.json"
    written = run("export", "--atif", "work", "-o", file, "--store", store)
    assert (written.code, written.out) == (0, "")
    assert "wrote " in written.err
    assert " known exactly" in written.err
    one = run("export", "--atif", "work", "--store", store).document
    assert one["schema_version"] == json.loads(file.read_bytes())["schema_version"] == "ATIF-v1.8"
    for place, path in enumerate((file, tmp_path / "one.json")):
        other = tmp_path / f"{place}.db"
        assert run("import", path, "--store", other).code == 0
        rows = run("transcript", "work", "--json", "--store", other).document
        assert [row["message"] for row in rows] == [
            row["message"] for row in run("transcript", "work", "--json", "--store", store).document
        ]
        (tmp_path / "one.json").write_text(json.dumps(one))


def test_a_trajectory_that_holds_what_is_erased_is_found_and_destroyed(run, store, tmp_path):
    file = tmp_path / "work.json"
    run("export", "--atif", "work", "-o", file, "--store", store)
    erased = run("erase", "work", "0", "--exports", "--yes", "--store", store)
    assert erased.code == 0
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
    file = tmp_path / "work.jsonl"
    run("export", "work", "-o", file, "--store", store)
    file.write_text(spoilt(file.read_text()))
    done = run("import", file, "--store", tmp_path / "other.db")
    assert (done.code, words in done.out) == (2, True)


def test_a_failed_export_leaves_no_file(run, store, tmp_path):
    assert run("export", "nobody", "-o", tmp_path / "x.jsonl", "--store", store).code == 2
    assert not (tmp_path / "x.jsonl").exists()


def test_a_folder_is_searched_and_what_is_no_transcript_in_it_named(run, chat, tmp_path):
    (tmp_path / "settings.json").write_text('{"theme": "dark"}')
    done = run("import", tmp_path, "--complete", "--store", tmp_path / "new.db")
    assert done.code == 0
    session, passed_over, total = done.out.splitlines()
    counts = "4 messages, 2 turns, 2 requests, 0 compactions"
    assert session == f"chat  messages  {counts}, 15 new records"
    assert passed_over.startswith("passed over: ") and "settings.json: no transcript" in passed_over
    assert total == f"total: 1 session, {counts}, 15 new records; 1 file passed over"


def test_a_file_that_cannot_be_read_does_not_stop_the_others(run, chat, tmp_path):
    bad = tmp_path / "bad.bin"
    bad.write_bytes(b"\0\1\2")
    deep = tmp_path / "deep.json"
    deep.write_bytes(b"[" * 100_000)
    done = run("import", bad, deep, chat, "--store", tmp_path / "new.db")
    assert (done.code, done.err) == (2, "")
    session, first, second, total = done.out.splitlines()
    assert session.startswith("chat  messages")
    assert f"{bad}: expected text" in first
    assert f"{deep}: expected one whole JSON document" in second
    assert total.endswith("; 2 files passed over, 2 of them for an error")


def test_an_import_is_one_document_of_sessions_files_passed_over_and_a_total(run, chat, tmp_path):
    (tmp_path / "b\udcff.jsonl").write_bytes(b"{half")
    done = run("import", tmp_path, "--json", "--complete", "--store", tmp_path / "new.db")
    assert done.code == 2
    answer = done.document
    assert [one["session"] for one in answer["sessions"]] == ["chat"]
    (bad,) = answer["passed_over"]
    assert (bad["path"], bad["error"]) == (str(tmp_path / "b") + "\\udcff.jsonl", "UnknownFormat")
    assert answer["total"] == {
        "sessions": 1,
        "added": 15,
        "messages": 4,
        "observed": 0,
        "turns": 2,
        "calls": 2,
        "compactions": 0,
        "warned": 0,
        "passed_over": 1,
        "failed": 1,
        "bytes": chat.stat().st_size,
    }


def test_what_waits_and_each_warning_is_told_on_request(run, tmp_path):
    file = tmp_path / "odd.jsonl"
    file.write_text('{"role": "user", "content": "x"}\nbroken\n{"role": "user", "con')
    done = run("import", file, "--verbose", "--store", tmp_path / "new.db")
    assert "warning: line 2: not readable as JSON" in done.out
    assert "waits for the next import: line 3" in done.out


def test_a_folder_without_a_transcript_leaves_no_store(run, tmp_path):
    (tmp_path / "empty").mkdir()
    done = run("import", tmp_path / "empty", "--store", tmp_path / "new.db")
    assert (done.code, "in this folder" in done.err) == (2, True)
    assert not (tmp_path / "new.db").exists()


def test_a_fork_shares_what_was_before(run, store):
    done = run("fork", "work", "other", "--at", 10, "--json", "--store", store)
    assert done.code == 0
    assert done.document["receipt"].startswith("other@11:")
    mine = run("transcript", "other", "--json", "--store", store).document
    theirs = run("transcript", "work", "--at", 10, "--json", "--store", store).document
    assert mine == theirs
    assert run("verify", "other", "--store", store).code == 0
    assert "fork of work @10" in run("sessions", "--store", store).out


def test_a_fork_needs_a_free_name_and_a_position_that_exists(run, store):
    taken = run("fork", "work", "work", "--at", 3, "--store", store)
    assert (taken.code, "exists already" in taken.err) == (2, True)
    outside = run("fork", "work", "new", "--at", 10_000, "--store", store)
    assert outside.code == 2
    assert run("fork", "work", "a/b", "--at", 3, "--store", store).code == 2


def test_a_name_with_a_line_break_breaks_no_line(run, tmp_path: Path) -> None:
    folder = tmp_path / "two\nlines"
    folder.mkdir()
    (folder / "no\nsense.jsonl").write_text("nonsense", encoding="utf-8")
    done = run("import", folder, "--store", tmp_path / "s.db")
    assert len(done.out.splitlines()) == 2
    assert "two\\nlines" in done.out
    missing = run("sessions", "--store", folder / "s.db")
    assert len(missing.err.splitlines()) == 1


def test_a_format_that_there_is_not_is_refused(run, chat):
    assert run("import", chat, "--format", "nonsense").code == 2


def test_the_audit_of_a_fork_is_its_own(run, store):
    run("fork", "work", "other", "--at", 10, "--store", store)
    assert "No request" in run("audit", "other", "--store", store).out
    assert run("audit", "other", "--json", "--store", store).document["requests"] == []


def test_importing_an_export_twice_adds_nothing(run, store, tmp_path):
    file = tmp_path / "work.jsonl"
    run("export", "work", "-o", file, "--store", store)
    [again] = run("import", file, "--json", "--store", store).document["sessions"]
    assert again["added"] == 0
