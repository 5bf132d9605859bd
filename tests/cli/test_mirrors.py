"""Imported sessions on the command line: they are forked or taken over, and never changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.conftest import imported as imported_into
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
    return tmp_path / "talk.jsonl"


@pytest.fixture
def imported(run: Run, tmp_path: Path) -> Path:
    return imported_into(run, tmp_path, session().data())


def types(run: Run, name: str = SESSION) -> list[str]:
    return [row["type"] for row in run("log", name, "--json").lines]


def test_restore_and_compact_refuse_a_mirror_and_offer_a_fork(
    run: Run, imported: Path, file: Path
) -> None:
    before = types(run)
    offered = ("is a mirror of talk.jsonl", "--fork NAME", "import --take-over FILE")
    for command in (("restore", 0), ("restore", 0, "--pin"), ("compact",)):
        run(command[0], SESSION, *command[1:]).fails(*offered)
    assert types(run) == before
    run("import", file).ok("nothing new")


def test_restore_on_a_fork_is_one_step_and_leaves_the_mirror_as_it_is(
    run: Run, imported: Path
) -> None:
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


def test_a_session_that_is_taken_over_is_ours_and_not_imported_again(
    run: Run, imported: Path, file: Path
) -> None:
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
