"""Amplifier's transcripts and stored contexts, and the compactions of its event logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eventctx.importers.formats.amplifier_log import parse
from eventctx.importers.source.items import (
    CompactionItem,
    Waiting,
    Warned,
)
from eventctx.stores.memory import MemoryStore
from tests.importers.agents import AmplifierLog, amplifier_talk
from tests.importers.given import (
    always,
    items_of,
    jsonl,
    load,
    messages,
    of_type,
    text,
    texts,
)

# -- the transcript, and context-persistent ------------------------------------------------------


def rows() -> list[dict[str, Any]]:
    arguments = {"path": "x"}
    return [
        {"role": "user", "content": "go", "metadata": {"timestamp": "2026-01-01T10:00:00+00:00"}},
        {
            "role": "assistant",
            "content": [{"type": "tool_call", "id": "t1", "name": "read", "input": arguments}],
            "tool_calls": [{"id": "t1", "tool": "read", "arguments": arguments}],
        },
        {"role": "tool", "tool_call_id": "t1", "name": "read", "content": '{"success": true}'},
        {"role": "assistant", "content": [text("done")]},
    ]


async def test_a_log_that_does_not_name_its_session_is_named_by_its_folder(tmp_path: Path) -> None:
    log = amplifier_talk()
    for row in log.rows:
        del row["session_id"]
    path = tmp_path / "amp-9" / "context-intelligence" / "events.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(log.data())
    assert (await load(MemoryStore(), path)).session == "amp-9"


def stored() -> list[dict[str, Any]]:
    stamps = [f"2026-01-01T10:00:0{number}.000+00:00" for number in range(5)]
    system = {"role": "system", "content": "be good"}
    plain = [{k: v for k, v in row.items() if k != "metadata"} for row in rows()]
    return [
        {**row, "timestamp": stamp} for row, stamp in zip([system, *plain], stamps, strict=True)
    ]


async def test_context_persistents_rows_are_taken_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "amp-1" / "context-messages.jsonl"
    path.parent.mkdir()
    path.write_bytes(jsonl(stored()))
    store = MemoryStore()
    summary = await load(store, path)
    assert (summary.format, summary.session) == ("context-persistent", "amp-1.context")
    assert await messages(store, "amp-1.context") == stored()
    assert (summary.turns, summary.calls) == (1, 2)
    assert (await load(store, path)).added == 0


# -- compactions ---------------------------------------------------------------------------------


def compacted(log: AmplifierLog) -> AmplifierLog:
    """A talk of three turns, of which the request after a compaction has the last one."""
    for number in range(3):
        log.prompt(f"question {number}").request().response(text(f"answer {number}"))
    log.prompt("now").event("context:compaction", before_messages=8, after_messages=4)
    log.talk = [*log.talk[4:]]
    return log.request().response(text("fine"))


def test_a_compaction_without_its_request_keeps_as_many_as_it_says() -> None:
    log = compacted(AmplifierLog())
    for row in log.rows[-2:]:
        row["data"].pop("raw", None)
    (compaction,) = of_type(items_of(parse, log.data()), CompactionItem)
    assert (compaction.forgotten, compaction.kept_from) == (None, 4)


def test_a_compaction_that_says_nothing_is_counted() -> None:
    log = AmplifierLog().event("context:compaction").event("context:compaction")
    found = of_type(items_of(parse, log.data(), always), CompactionItem)
    assert [item.forgotten for item in found] == [frozenset(), frozenset()]
    assert len(of_type(items_of(parse, log.data()), Waiting)) == 1


def test_a_text_that_a_compaction_shortened_is_no_new_message() -> None:
    log = compacted(AmplifierLog())
    log.talk[0] = {"role": "user", "content": "question…"}
    found = items_of(parse, log.prompt("and").request().data())
    assert [m["content"] for m in texts(found)].count("question…") == 0


def test_messages_that_vanish_without_a_word_are_warned_about_once() -> None:
    log = AmplifierLog().prompt("a").request().response(text("b"))
    log.talk = []
    log.prompt("c").request().response(text("d")).prompt("e").request()
    assert len(of_type(items_of(parse, log.data()), Warned)) == 1
