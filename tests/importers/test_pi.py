"""pi sessions, trap by trap (reference/formats.md 3.6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eventctx.engine import Engine
from eventctx.importers.formats.pi import parse
from eventctx.importers.load import import_file
from eventctx.importers.source.items import (
    Branched,
    CompactionItem,
    MessageItem,
    Session,
    TurnBegan,
    TurnEnded,
    Warned,
)
from eventctx.stores.memory import MemoryStore
from tests.importers.agents import Pi, pi_call
from tests.importers.given import (
    events,
    items_of,
    load,
    of_type,
    raw_kinds,
    roles,
    salt,
    text,
    texts,
)


def test_images_and_sealed_thoughts_are_told_in_anthropics_words() -> None:
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    sealed = {"type": "thinking", "thinking": "", "thinkingSignature": "X", "redacted": True}
    log = Pi().says("user", [image]).answer(sealed, {**pi_call("c"), "partialJson": "{"})
    user, answer = texts(items_of(parse, log.data()))
    source = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    assert user["content"] == [{"type": "image", "source": source}]
    assert answer["content"][0]["data"] == "X"
    assert answer["content"][1]["partialJson"] == "{"


def test_a_signature_is_sent_even_without_words() -> None:
    sealed = {"type": "thinking", "thinking": "", "thinkingSignature": "X"}
    assert roles(items_of(parse, Pi().user("go").answer(sealed).data())) == ["user", "assistant"]


def test_commands_extensions_and_summaries_of_branches_are_no_persons_words() -> None:
    log = Pi(tree=True).user("go").answer(text("x"))
    ran = {"role": "bashExecution", "command": "ls", "output": "a", "exitCode": 0}
    log.entry("message", message=ran).entry("custom_message", customType="x", content="hello")
    log.says("hookMessage", "hello").entry("branch_summary", summary="tried", fromId="e1")
    found = of_type(items_of(parse, log.user('<skill name="s">x</skill>').data()), MessageItem)
    assert [m.by_harness for m in found] == [False, False, True, True, True, True, False]


async def test_who_spoke_is_known_when_a_branch_is_taken_up_again(tmp_path: Path) -> None:
    log = long_talk(Pi(tree=True)).entry("custom_message", customType="x", content="hello")
    log.entry("compaction", summary="S", firstKeptEntryId="e7").back_to("e7").user("on")
    store, path = MemoryStore(), tmp_path / "file.jsonl"
    path.write_bytes(log.answer(text("y")).data())
    session = (await load(store, path)).session or ""
    last = (await events(store, session, "context:messages_set"))[-1]
    assert last.harness == (6,)
    async with Engine(store) as engine:
        assert (await engine.verify(session)).ok
        assert [m.origin for m in await engine.transcript(session)][-3:] == ["harness", None, None]


def test_an_error_ends_the_turn_only_if_it_was_not_tried_again() -> None:
    log = Pi().user("go").answer(stop="error", errorMessage="overloaded").answer(text("ok"))
    log.user("more").answer(stop="error", errorMessage="terminated").user("hm")
    ends = of_type(items_of(parse, log.data()), TurnEnded)
    assert [(e.line, e.status, e.error) for e in ends] == [(7, "error", "terminated")]


def test_a_command_of_the_person_is_told_to_the_model_and_begins_no_turn() -> None:
    ran = {"command": "ls", "output": "a\nb", "exitCode": 2, "cancelled": False}
    log = Pi().entry("message", message={"role": "bashExecution", **ran})
    quiet = {"role": "bashExecution", "command": "pwd", "output": "", "excludeFromContext": True}
    log.entry("message", message={**ran, "role": "bashExecution", "output": "", "cancelled": True})
    found = items_of(parse, log.entry("message", message=quiet).data())
    told = [message["content"][0]["text"] for message in texts(found)]
    assert told == [
        "Ran `ls`\n```\na\nb\n```\n\nCommand exited with code 2",
        "Ran `ls`\n(no output)\n\n(command cancelled)",
    ]
    assert of_type(found, TurnBegan) == []
    assert raw_kinds(found).count("message/bashExecution") == 3


def test_a_fork_names_the_session_that_it_came_from() -> None:
    log = Pi(parentSession="C:\\x\\2026-01-01T10-00-00_old-id.jsonl").user("x")
    session = of_type(items_of(parse, log.data()), Session)[0]
    assert (session.parent, session.link, session.agent) == ("old-id", "branch", None)


# -- compactions ---------------------------------------------------------------------------------


def long_talk(log: Pi) -> Pi:
    for number in range(1, 4):
        log.user(f"question {number}").answer(text(f"answer {number}"))
    return log


@pytest.mark.parametrize(
    "kept",
    [{}, {"firstKeptEntryIndex": 99}, {"firstKeptEntryIndex": "2"}, {"firstKeptEntryId": "gone"}],
)
def test_a_compaction_whose_first_kept_entry_is_missing_keeps_none(kept: dict[str, Any]) -> None:
    found = items_of(parse, long_talk(Pi()).entry("compaction", summary="S", **kept).data())
    assert of_type(found, CompactionItem)[0].kept_from is None
    assert "not in the file" in of_type(found, Warned)[0].text


async def requests_of(log: Pi, tmp_path: Path) -> list[list[Any]]:
    """What each reconstructed request shows, as texts."""
    path = tmp_path / "file.jsonl"
    path.write_bytes(log.data())
    engine = Engine(MemoryStore())
    (summary,) = await import_file(engine.store, path, complete=True, salt=salt)
    assert summary.session is not None
    assert (await engine.verify(summary.session)).ok
    shown = []
    for row in (await engine.audit(summary.session)).requests:
        view = await engine.request_view(summary.session, position=row.position)
        assert view.consistent
        shown.append([message["content"][0]["text"] for message in view.messages])
    return shown


async def test_the_request_after_a_compaction_is_the_summary_and_the_kept_tail(
    tmp_path: Path,
) -> None:
    log = long_talk(Pi()).entry("compaction", summary="S", firstKeptEntryIndex=5)
    last = (await requests_of(log.user("on").answer(text("x")), tmp_path))[-1]
    assert "S" in last[0]
    assert last[1:] == ["question 3", "answer 3", "on"]


# -- branches ------------------------------------------------------------------------------------


async def test_after_going_back_the_branch_that_was_left_is_not_sent(tmp_path: Path) -> None:
    log = (
        long_talk(Pi(tree=True)).back_to("e2").entry("branch_summary", summary="tried", fromId="x")
    )
    requests = await requests_of(log.user("other").answer(text("y")), tmp_path)
    last = requests[-1]
    assert last[:2] == ["question 1", "answer 1"]
    assert "tried" in last[2]
    assert last[3:] == ["other"]


async def test_going_back_before_a_compaction_brings_back_what_it_took_out(tmp_path: Path) -> None:
    log = long_talk(Pi(tree=True)).entry("compaction", summary="S", firstKeptEntryId="e5")
    log.user("on").answer(text("x")).back_to("e4").user("other").answer(text("y"))
    log.back_to("e9").user("more").answer(text("z"))
    requests = await requests_of(log, tmp_path)
    talk = ["question 1", "answer 1", "question 2", "answer 2"]
    assert requests[-2] == [*talk, "other"]
    assert "S" in requests[-1][0]
    assert requests[-1][1:] == ["question 3", "answer 3", "on", "x", "more"]


async def test_going_back_within_what_a_compaction_kept_leaves_it_in_force(tmp_path: Path) -> None:
    log = long_talk(Pi(tree=True)).entry("compaction", summary="S", firstKeptEntryId="e5")
    log.user("on").answer(text("x")).back_to("e8").user("other").answer(text("y"))
    last = (await requests_of(log, tmp_path))[-1]
    assert "S" in last[0]
    assert last[1:] == ["question 3", "answer 3", "on", "other"]


def test_a_parent_that_is_not_in_the_file_is_no_branch() -> None:
    log = Pi(tree=True).user("a").back_to("lost").user("b")
    found = items_of(parse, log.data())
    assert of_type(found, Branched) == []
    assert len(of_type(found, Warned)) == 1


def test_parents_in_a_circle_and_ids_that_are_used_twice_end_somewhere() -> None:
    again, own = {"role": "user", "content": "b"}, {"role": "user", "content": "c"}
    log = Pi(tree=True).user("a").entry("message", id="e1", message=again)
    log.entry("message", id="e9", parentId="e9", message=own).back_to("e1").user("d")
    found = items_of(parse, log.data())
    assert roles(found) == ["user"] * 4
    assert len(of_type(found, Warned)) >= 1


# -- bad input -----------------------------------------------------------------------------------
