"""Condensations of OpenHands: the messages they forget, and the requests after them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eventctx.engine import Engine
from eventctx.importers.formats.openhands import parse
from eventctx.importers.load import import_file
from eventctx.importers.source.items import CompactionItem
from eventctx.stores.memory import MemoryStore
from tests.importers.agents import OpenHands, openhands_talk
from tests.importers.given import items_of, of_type, salt


def test_an_answer_is_forgotten_when_all_its_calls_are() -> None:
    log = OpenHands().user("go").action("c1", "r1").action("c2", "r1").seen("c1").seen("c2")
    first, second = (
        of_type(items_of(parse, log.condensed(*ids).data()), CompactionItem)[-1]
        for ids in (("e1", "e3"), ("e2", "e4"))
    )
    assert first.forgotten == {2}
    assert second.forgotten == {1, 3}


def test_the_reason_of_a_request_is_the_condensations_trigger() -> None:
    log = (
        openhands_talk()
        .event("CondensationRequest", reason="manual")
        .condensed("e2")
        .condensed("e3")
    )
    found = of_type(items_of(parse, log.data()), CompactionItem)
    assert [item.trigger for item in found] == ["manual", None]


def test_older_releases_forget_summaries_under_ids_of_their_own() -> None:
    log = openhands_talk().condensed("e2", summary="one", summary_offset=2)
    log.condensed("some-other-id", "e3", summary="two", summary_offset=2)
    assert of_type(items_of(parse, log.data()), CompactionItem)[-1].standing == ()


async def shown(log: OpenHands, tmp_path: Path) -> list[list[Any]]:
    path = tmp_path / "run.jsonl"
    path.write_bytes(log.data())
    engine = Engine(MemoryStore())
    (summary,) = await import_file(engine.store, path, complete=True, salt=salt)
    assert summary.session is not None
    assert (await engine.verify(summary.session)).ok
    requests = []
    for row in (await engine.audit(summary.session)).requests:
        view = await engine.request_view(summary.session, position=row.position)
        assert view.consistent
        requests.append([message["content"][0]["text"] for message in view.messages])
    return requests


async def test_the_request_after_a_condensation_shows_what_was_left(tmp_path: Path) -> None:
    log = OpenHands().system()
    for number in range(1, 4):
        log.user(f"question {number}").says(f"answer {number}")
    log.condensed("e3", "e4", summary="S", summary_offset=3).user("on").says("x")
    kept = ["be good", "question 1", "answer 1"]
    assert (await shown(log, tmp_path))[-1] == [*kept, "S", "question 3", "answer 3", "on"]
    log.condensed("e7-summary", "e1", "e2", summary="T", summary_offset=1).user("and").says("y")
    last = (await shown(log, tmp_path / ".."))[-1]
    assert last == ["be good", "T", "question 3", "answer 3", "on", "x", "and"]


async def test_two_summaries_can_follow_each_other(tmp_path: Path) -> None:
    log = OpenHands().system()
    for number in range(1, 4):
        log.user(f"question {number}").says(f"answer {number}")
    log.condensed("e1", "e2", summary="S", summary_offset=1).user("on").says("x")
    log.condensed("e5", summary="T", summary_offset=4).user("and").says("y")
    log.condensed("e8", summary="U", summary_offset=5).user("last").says("z")
    last = (await shown(log, tmp_path))[-1]
    begin = ["be good", "S", "question 2", "answer 2", "T", "U"]
    assert last == [*begin, "answer 3", "x", "and", "y", "last"]


async def test_a_summary_that_no_message_follows_is_the_last_entry(tmp_path: Path) -> None:
    log = OpenHands().system().user("go").says("ok").condensed("e2", summary="S", summary_offset=2)
    assert (await shown(log.says("x"), tmp_path))[-1] == ["be good", "go", "S"]
    last = (await shown(log.user("on").says("y"), tmp_path / ".."))[-1]
    assert last == ["be good", "go", "S", "x", "on"]
