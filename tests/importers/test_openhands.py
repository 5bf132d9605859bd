"""OpenHands' events, trap by trap (reference/formats.md 3.5)."""

from __future__ import annotations

from eventctx.importers.formats.openhands import parse
from eventctx.importers.source.items import (
    MessageItem,
    TurnBegan,
    Warned,
)
from tests.importers.agents import OpenHands, openhands_talk
from tests.importers.given import (
    items_of,
    of_type,
    raw_kinds,
    roles,
    text,
    texts,
)


def test_thoughts_and_their_signatures_come_along_once() -> None:
    block = {"type": "thinking", "thinking": "hm", "signature": "sig="}
    more = {"type": "thinking", "thinking": "so", "signature": "two="}
    log = OpenHands().action("c1", "r1", reasoning_content="hm", thinking_blocks=[block])
    log.action("c2", "r1", reasoning_content="hm", thinking_blocks=[block, more]).seen("c1")
    answer = texts(items_of(parse, log.data()))[0]
    assert answer["reasoning_content"] == "hm"
    assert answer["thinking_blocks"] == [block, more]


def test_errors_and_refusals_are_failed_results() -> None:
    log = OpenHands().action("c1", "r1").action("c2", "r1").action("c3", "r1")
    log.event("AgentErrorEvent", tool_call_id="c1", tool_name="run", error="no such tool")
    log.event("UserRejectObservation", tool_call_id="c2", rejection_reason="not that")
    results = of_type(items_of(parse, log.seen("c3", is_error=True).data()), MessageItem)[1:]
    assert [result.failed for result in results] == [True, True, True]
    contents = [result.message["content"] for result in results]
    heading = text("[An error occurred during execution.]\n")
    assert contents == ["no such tool", "Action rejected: not that", [heading, text("done")]]


def test_skills_are_told_after_the_words_and_images_one_by_one() -> None:
    message = {"role": "user", "content": [{"type": "image", "image_urls": ["u1", "u2"]}]}
    fields = {"llm_message": message, "extended_content": [text("s")]}
    log = OpenHands().event("MessageEvent", "user", **fields)
    urls = [{"type": "image_url", "image_url": {"url": url}} for url in ("u1", "u2")]
    assert texts(items_of(parse, log.data()))[0]["content"] == [*urls, text("s")]


def test_only_a_persons_messages_begin_turns() -> None:
    note = {"role": "user", "content": "a hook says"}
    log = openhands_talk().event("MessageEvent", "environment", llm_message=note).user("more")
    found = items_of(parse, log.data())
    assert [item.line for item in of_type(found, TurnBegan)] == [2, 7]
    assert [item.line for item in of_type(found, MessageItem) if item.by_harness] == [6]


# -- bad input -----------------------------------------------------------------------------------


def test_an_event_whose_id_is_there_already_is_kept_and_warned_about() -> None:
    log = openhands_talk()
    log.rows.append(log.rows[1])
    found = items_of(parse, log.data())
    assert roles(found) == roles(items_of(parse, openhands_talk().data()))
    assert "MessageEvent.duplicate" in raw_kinds(found)
    assert len(of_type(found, Warned)) == 1
