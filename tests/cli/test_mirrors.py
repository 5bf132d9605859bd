"""Imported sessions on the command line: they are forked or taken over, and never changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.importers.given import SESSION, ClaudeCode, call, text

LONG = "a long result. " * 400


def session() -> ClaudeCode:
    """A session that was compacted: #0 to #2 are in a summary."""
    one = ClaudeCode().user("Fix the test.").answer("m1", text("I look."), call("t1"))
    one.result("t1", LONG).system("compact_boundary", compactMetadata={"preTokens": 900})
    one.user("A summary of it all.", isCompactSummary=True)
    return one.user("Go on.").answer("m2", text("Done.")).user("Thanks.").user("Bye.")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "talk.jsonl"
    path.write_bytes(session().data())
    return path


@pytest.fixture
def imported(run: Any, tmp_path: Path, file: Path) -> Path:
    store = tmp_path / "s.db"
    assert run("import", file, "--store", store).code == 0
    return store


def types(run: Any, store: Path, name: str = SESSION) -> list[str]:
    return [row["type"] for row in run("log", name, "--json", "--store", store).lines]


def test_restore_and_compact_refuse_a_mirror_and_offer_a_fork(
    run: Any, imported: Path, file: Path
) -> None:
    before = types(run, imported)
    for command in (("restore", 0), ("restore", 0, "--pin"), ("compact",)):
        done = run(command[0], SESSION, *command[1:], "--store", imported)
        assert done.code == 2
        assert "is a mirror of talk.jsonl" in done.err
        assert "--fork NAME" in done.err
        assert "import --take-over FILE" in done.err
    assert types(run, imported) == before
    again = run("import", file, "--store", imported)
    assert "nothing new" in again.out


def test_restore_on_a_fork_is_one_step_and_leaves_the_mirror_as_it_is(
    run: Any, imported: Path
) -> None:
    before = types(run, imported)
    done = run("restore", SESSION, 0, "--fork", "mine", "--store", imported)
    assert done.code == 0, done.err
    assert f"forked {SESSION} as it is now as mine" in done.out
    assert "back in view, whole: #0" in done.out
    assert types(run, imported) == before
    assert types(run, imported, "mine")[-2:] == ["session:fork", "context:restored"]
    done = run("restore", SESSION, 1, "--pin", "--fork", "two", "--json", "--store", imported)
    assert done.document["session"] == "two"
    assert done.document["pinned"] == [1]
    # A fork is ours, so it needs no other.
    assert run("restore", "mine", 1, "--store", imported).code == 0


def test_no_fork_is_left_of_a_restore_that_cannot_be_done(run: Any, imported: Path) -> None:
    done = run("restore", SESSION, 99, "--fork", "mine", "--store", imported)
    assert done.code == 2
    assert "expected message numbers of the transcript, found [99]" in done.err
    named = [row["session"] for row in run("sessions", "--json", "--store", imported).document]
    assert named == [SESSION]


def test_why_suggests_what_can_be_done(run: Any, imported: Path) -> None:
    done = run("why", SESSION, 0, "--store", imported)
    assert "in a fork, since this session is a mirror of talk.jsonl:" in done.out
    assert f"restore {SESSION} 0 --fork NAME --store" in done.out
    assert run("restore", SESSION, 0, "--fork", "mine", "--store", imported).code == 0
    ours = run("why", "mine", 1, "--store", imported)
    assert "restore mine 1 --store" in ours.out
    assert "--fork" not in ours.out


def test_a_session_that_is_taken_over_is_ours_and_not_imported_again(
    run: Any, imported: Path, file: Path
) -> None:
    done = run("import", "--take-over", file, "--store", imported)
    assert done.code == 0
    assert "taken over: it is yours, and its file is not imported again" in done.out
    assert run("restore", SESSION, 0, "--store", imported).code == 0
    assert "--fork" not in run("why", SESSION, 1, "--store", imported).out
    again = run("import", file, "--store", imported)
    assert again.code == 2
    assert "was taken over at" in again.out
    assert "--session NEW" in again.out
    assert run("import", file, "--session", "new", "--store", imported).code == 0


def test_compact_on_a_fork_and_a_dry_run_without(run: Any, imported: Path) -> None:
    dry = run("compact", SESSION, "--dry-run", "--policy", "simple", "--store", imported)
    assert dry.code == 0
    done = run(
        *("compact", SESSION, "--policy", "simple", "--set", "keep_recent=1"),
        *("--fork", "mine", "--store", imported),
    )
    assert done.code == 0, done.err
    assert f"forked {SESSION} as it is now as mine" in done.out
    assert "context:post_compact" in types(run, imported, "mine")[-1:]
    both = run("compact", SESSION, "--dry-run", "--fork", "x", "--store", imported)
    assert both.code == 2
    taken = run("compact", SESSION, "--policy", "simple", "--fork", "mine", "--store", imported)
    assert "exists already" in taken.err
