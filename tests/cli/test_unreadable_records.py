"""Records that this release cannot read: listings go on, and say what they left out."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import apsw
import pytest

import eventctx
from eventctx.log.record import Draft
from eventctx.log.store import ANY
from eventctx.projections import session_sums
from tests.cli.conftest import say

OF_ANY_TYPE = (
    "context:messages_set",
    "context:post_compact",
    "context:request_prepared",
    "prompt:submit",
    "session:linked",
    "usage:reported",
)


def _append(store: Path, kind: str, payload: bytes, version: int) -> None:
    """Write a record into the session ``odd`` as another release, or a broken program, would."""
    time = 1_700_000_000 * 10**9
    draft = Draft(uuid.uuid4().bytes, kind, version, time, payload, turn_id="t-9")

    async def written() -> None:
        async with eventctx.open(store) as engine:
            await engine.store.append("odd", [draft], ANY)

    say(store, "odd", "hello")
    asyncio.run(written())


@pytest.mark.parametrize("kind", OF_ANY_TYPE)
def test_a_record_of_a_later_version_is_passed_over_with_a_word(run, store, kind):
    _append(store, kind, b'{"new":1}', 99)
    listed = run("sessions", "--sort", "made", "--json")
    counted, shown = run("stats", "--json"), run("log", "odd")
    assert [listed.code, counted.code, shown.code] == [0, 0, 0]
    assert [row["session"] for row in listed.document] == ["work", "odd"]
    assert listed.document[1]["messages"] == 1
    assert counted.document["types"][kind] >= 1
    assert f"{kind}  version 99, written by a later release" in shown.out
    said = "".join([done.err for done in (listed, counted, shown)])
    assert "Traceback" not in said
    if kind in ("context:post_compact", "prompt:submit", "usage:reported"):
        assert f"1 record passed over: {kind} of version 99" in said
        assert "update eventctx" in said


@pytest.mark.parametrize("kind", OF_ANY_TYPE)
def test_a_damaged_payload_hides_nothing_else_and_is_told(run, store, kind):
    _append(store, kind, b'{"outcome":7,"number":"x","prompt":null,"order":5}', 1)
    listed, shown = run("sessions", "--sort", "made", "--json"), run("log", "odd")
    assert [row["session"] for row in listed.document] == ["work", "odd"]
    assert f"the payload is no {kind}" in shown.out
    for done in (listed, shown, run("stats", "--json")):
        assert done.code in (0, 1) and done.out and "Traceback" not in done.err
        if done.code:
            assert "position 2" in done.err and "eventctx verify" in done.err


@pytest.mark.parametrize("kind", ["context:message_added", "context:messages_set"])
@pytest.mark.parametrize("version", [1, 99])
def test_a_message_without_its_content_is_no_internal_error(run, store, kind, version):
    payload = b'{"order":[[1,1]]}' if kind.endswith("set") else b"{}"
    _append(store, kind, payload, version)
    for command in (
        *("sessions", "stats", "log odd", "audit odd", "transcript odd", "why odd 0", "lost odd"),
        *("trace odd", "replay odd", "compact odd --dry-run"),
    ):
        done = run(*command.split())
        assert done.code in (0, 1, 2) and "Traceback" not in done.err, (command, done.err)


@pytest.mark.parametrize("command", ["view odd --position 2", "why odd 0 --position 2"])
def test_a_request_of_a_later_version_is_no_internal_error(run, store, command):
    _append(store, "context:request_prepared", b'{"new":1}', 99)
    done = run(*command.split())
    assert done.code in (1, 2) and "Traceback" not in done.err, done.err


def test_a_session_that_breaks_the_listing_does_not_hide_the_others(run, store, monkeypatch):
    run("fork", "work", "other", "--at", 2)
    real = session_sums.count_record

    def broken(state, record):
        if record.stream == "work" and record.position == 7:
            raise IndexError("odd")
        return real(state, record)

    monkeypatch.setattr(session_sums, "count_record", broken)
    done = run("sessions", "--sort", "made", "--json")
    assert [row["session"] for row in done.document] == ["work", "other"]
    assert done.code == 4  # still a bug to report, after the list
    assert "IndexError: odd" in done.err and "while reading session 'work'" in done.err


@pytest.mark.parametrize("edited", [b"[1,2]", b"7", b'"text"', b"null"])
def test_a_message_that_was_edited_into_something_else_is_a_line_of_a_replay(run, tmp_path, edited):
    with apsw.Connection(str(say(tmp_path / "s.db", "odd", "hello"))) as connection:
        connection.execute("UPDATE records SET data = ? WHERE position = 1", (edited,))
        assert connection.changes() == 1
    done = run("replay", "odd")
    assert "Traceback" not in done.err and done.code in (0, 1), done.err
