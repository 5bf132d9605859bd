"""pi sessions, trap by trap (reference/formats.md 3.6)."""

from __future__ import annotations

import json
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
    ModelCall,
    Raw,
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
    prompts,
    raw_kinds,
    roles,
    salt,
    text,
    texts,
)


def test_blocks_and_roles_are_told_in_anthropics_words() -> None:
    thought = {"type": "thinking", "thinking": "hm", "thinkingSignature": "sig="}
    log = Pi().user("go").answer(thought, text("on it"), pi_call("c1", path="x"), stop="toolUse")
    log.result("c1", "listing", details={"diff": "-a"})
    assert texts(items_of(parse, log.data())) == [
        {"role": "user", "content": [text("go")]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sig="},
                text("on it"),
                {"type": "tool_use", "id": "c1", "name": "bash", "input": {"path": "x"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c1",
                    "content": [text("listing")],
                    "is_error": False,
                }
            ],
        },
    ]


def test_the_rest_of_a_line_besides_its_content_is_kept() -> None:
    log = Pi().user("go").answer(text("x"), responseId="r").result("c", details={"diff": "-a"})
    kept = [json.loads(raw.data) for raw in of_type(items_of(parse, log.data()), Raw)]
    without = []
    for row in log.rows:
        message = {k: v for k, v in row.get("message", {}).items() if k != "content"}
        without.append({**row, "message": message} if "message" in row else row)
    assert kept == without


def test_images_and_sealed_thoughts_are_told_in_anthropics_words() -> None:
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    sealed = {"type": "thinking", "thinking": "", "thinkingSignature": "X", "redacted": True}
    log = Pi().says("user", [image]).answer(sealed, {**pi_call("c"), "partialJson": "{"})
    user, answer = texts(items_of(parse, log.data()))
    source = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    assert user["content"] == [{"type": "image", "source": source}]
    assert answer["content"][0]["data"] == "X"
    assert answer["content"][1]["partialJson"] == "{"


def test_a_prompt_is_the_sum_of_three_and_zeros_are_no_usage() -> None:
    log = Pi().user("go").answer(text("a"), prompt=25).user("more")
    log.answer(stop="aborted", usage={"input": 0, "output": 0}).user("x").answer(usage="?")
    found = items_of(parse, log.data())
    assert prompts(found) == [100, None, None]
    call = of_type(found, ModelCall)[0]
    usage = call.usage
    assert (usage.output, usage.cache_read, usage.cache_write) == (7, 50, 25)
    assert call.output_exact


def test_an_aborted_answer_is_a_message_and_cancels_its_turn() -> None:
    log = Pi().user("go").answer(text("I"), stop="aborted", errorMessage="aborted").user("again")
    found = items_of(parse, log.data())
    assert texts(found)[1] == {"role": "assistant", "content": [text("I")]}
    assert [(e.line, e.status) for e in of_type(found, TurnEnded)] == [(3, "cancelled")]
    assert len(of_type(found, TurnBegan)) == 2


@pytest.mark.parametrize("blocks", [[], [text(" \n")], [{"type": "thinking", "thinking": ""}]])
@pytest.mark.parametrize("stop", ["aborted", "error"])
def test_an_answer_without_words_is_a_call_and_no_message(blocks: list[Any], stop: str) -> None:
    log = Pi().user("go").answer(*blocks, stop=stop, errorMessage="x").user("again")
    found = items_of(parse, log.data())
    assert roles(found) == ["user", "user"]
    assert [call.finish_reason for call in of_type(found, ModelCall)] == [stop]
    assert len(of_type(found, TurnEnded)) == 1
    kept = next(raw for raw in of_type(found, Raw) if raw.line == 3)
    assert json.loads(kept.data) == log.rows[2]
    assert kept.understood


def test_a_signature_is_sent_even_without_words() -> None:
    sealed = {"type": "thinking", "thinking": "", "thinkingSignature": "X"}
    assert roles(items_of(parse, Pi().user("go").answer(sealed).data())) == ["user", "assistant"]


async def test_an_answer_without_words_is_in_no_request_and_counts_for_no_place(
    tmp_path: Path,
) -> None:
    log = Pi(tree=True).user("one").answer(stop="aborted").user("two").answer(text("2"))
    log.back_to("e2").user("three").answer(text("3"))
    requests = await requests_of(log, tmp_path)
    assert requests[-1] == ["one", "three"]


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


def test_changes_of_model_and_thinking_are_kept_and_new_kinds_are_not_understood() -> None:
    log = Pi().entry("model_change", modelId="x").entry("thinking_level_change", thinkingLevel="x")
    found = items_of(parse, log.entry("horoscope").data())
    assert raw_kinds(found) == ["session", "model_change", "thinking_level_change", "horoscope"]
    assert [raw.kind for raw in of_type(found, Raw) if not raw.understood] == ["horoscope"]


def test_a_fork_names_the_session_that_it_came_from() -> None:
    log = Pi(parentSession="C:\\x\\2026-01-01T10-00-00_old-id.jsonl").user("x")
    session = of_type(items_of(parse, log.data()), Session)[0]
    assert (session.parent, session.link, session.agent) == ("old-id", "branch", None)


# -- compactions ---------------------------------------------------------------------------------


def long_talk(log: Pi) -> Pi:
    for number in range(1, 4):
        log.user(f"question {number}").answer(text(f"answer {number}"))
    return log


def test_a_compaction_keeps_the_tail_from_a_line_on() -> None:
    log = long_talk(Pi()).entry("compaction", summary="S", tokensBefore=9, firstKeptEntryIndex=5)
    found = items_of(parse, log.user("on").data())
    (compaction,) = of_type(found, CompactionItem)
    assert (compaction.kept_from, compaction.tokens_before) == (4, 9)
    assert "<summary>\nS\n</summary>" in compaction.messages[0]["content"][0]["text"]


def test_lines_that_are_no_messages_count_in_the_index_but_are_not_kept() -> None:
    log = Pi().user("a").entry("model_change").entry("model_change").answer(text("b"))
    log.entry("compaction", summary="S", firstKeptEntryIndex=3)
    assert of_type(items_of(parse, log.data()), CompactionItem)[0].kept_from == 1


def test_a_compaction_in_a_tree_keeps_the_tail_from_an_entry_on() -> None:
    log = long_talk(Pi(tree=True)).entry("compaction", summary="S", firstKeptEntryId="e5")
    assert of_type(items_of(parse, log.data()), CompactionItem)[0].kept_from == 4


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


async def test_the_numbers_of_a_compaction_count_what_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "file.jsonl"
    log = long_talk(Pi()).entry("compaction", summary="S", firstKeptEntryIndex=5)
    path.write_bytes(log.data())
    store = MemoryStore()
    await load(store, path)
    (post,) = await events(store, "pi-1", "context:post_compact")
    assert (post.messages_before, post.messages_after) == (6, 3)
    assert [(r.first, r.last, r.disposition) for r in post.plan.runs] == [
        (0, 3, "summarised"),
        (4, 5, "kept"),
    ]
    assert post.plan.insertions[0].stands_for == ((0, 3),)


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


async def test_a_branch_that_was_left_can_be_taken_up_again(tmp_path: Path) -> None:
    log = long_talk(Pi(tree=True)).back_to("e2").user("other").answer(text("y"))
    log.back_to("e4").user("again").answer(text("z")).back_to("e8").user("more").answer(text("w"))
    requests = await requests_of(log, tmp_path)
    begin = ["question 1", "answer 1"]
    assert requests[-3] == [*begin, "other"]
    assert requests[-2] == [*begin, "question 2", "answer 2", "again"]
    assert requests[-1] == [*begin, "other", "y", "more"]


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


def test_a_file_without_its_header_is_named_by_the_file() -> None:
    log = Pi().user("a")
    found = items_of(parse, b"".join(log.data().splitlines(keepends=True)[1:]))
    assert of_type(found, Session)[0].session_id == "file"
    assert roles(found) == ["user"]


def test_a_result_without_its_call_is_a_message_all_the_same() -> None:
    assert roles(items_of(parse, Pi().result("nobody").data())) == ["user"]


@pytest.mark.parametrize(
    "row",
    [
        {"type": "message"},
        {"type": "message", "message": 3},
        {"type": "message", "message": {"role": "user"}},
        {"type": "message", "message": {"role": "user", "content": None}},
        {"type": "message", "message": {"role": ["user"], "content": "x"}},
        {"type": "message", "message": {"role": "wizard", "content": "x"}},
        {"type": "message", "message": {"role": "toolResult", "content": [], "toolCallId": 3}},
        {"type": "message", "message": {"role": "bashExecution", "command": 3}},
        {"type": "compaction"},
        {"type": "compaction", "summary": {}},
        {"type": "branch_summary", "summary": 3},
        {"type": "custom_message", "content": {}},
        {"type": 3},
        {"no": "type"},
        [1],
        "text",
    ],
)
def test_an_entry_of_a_wrong_shape_is_kept_and_warned_about(row: Any) -> None:
    log = Pi().user("before")
    log.rows.append(row)
    found = items_of(parse, log.user("after").data())
    assert roles(found) == ["user", "user"]
    assert [json.loads(raw.data) for raw in of_type(found, Raw) if not raw.understood] == [row]
    assert len(of_type(found, Warned)) == 1


@pytest.mark.parametrize("wrong", [None, 3, "x", [], {}, True])
def test_wrong_types_in_the_fields_of_an_answer_do_no_harm(wrong: Any) -> None:
    fields = ("provider", "model", "usage", "stopReason", "responseId", "errorMessage")
    log = Pi(tree=True).user("a").answer({"type": "toolCall"}, 3, **dict.fromkeys(fields, wrong))
    log.rows[1]["timestamp"] = log.rows[2]["timestamp"] = wrong
    log.rows[2]["parentId"] = wrong if wrong != "x" else "e1"
    found = items_of(parse, log.data())
    assert roles(found) == ["user", "assistant"]
    assert prompts(found) == [None]
