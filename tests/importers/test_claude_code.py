"""Claude Code's format, trap by trap (reference/formats.md 3.1 and 4), and what it queued."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eventctx.importers.formats.claude_code import parse
from eventctx.importers.source.items import (
    CompactionItem,
    Item,
    MessageItem,
    ModelCall,
    Raw,
    Session,
    TurnBegan,
    Waiting,
    Warned,
)
from eventctx.stores.memory import MemoryStore
from tests.importers.given import (
    SESSION,
    ClaudeCode,
    as_lines,
    call,
    items_of,
    load,
    messages,
    of_type,
    raw_kinds,
    roles,
    text,
    texts,
    thinking,
)


def test_a_part_of_what_was_cached_lives_an_hour() -> None:
    log = ClaudeCode().user("go").answer("m1", text("a"))
    log.rows[-1]["message"]["usage"]["cache_creation"] = {"ephemeral_1h_input_tokens": 30}
    call = of_type(items_of(parse, log.user("next").data()), ModelCall)[0]
    assert (call.usage.cache_write, call.usage.cache_write_1h) == (40, 30)


OWN = "99999999-2222-4333-8444-555555555555"


def begun_with(lines: int) -> bytes:
    """A session whose first lines bear the id of the one before it."""
    log = ClaudeCode().user("[Request interrupted by user]").user("the plan")
    log.answer("m1", text("a")).user("b").answer("m2", text("c")).user("d")
    log.rows[lines:] = [{**row, "sessionId": OWN} for row in log.rows[lines:]]
    return log.data()


@pytest.mark.parametrize(
    ("name", "lines", "session"),
    [
        (f"{OWN}.jsonl", 1, OWN),
        (f"claude-{OWN}.full.jsonl", 2, OWN),
        (f"{OWN}.jsonl", 6, SESSION),
        ("other.jsonl", 1, SESSION),
    ],
)
def test_the_files_name_tells_a_session_from_the_one_that_its_first_lines_name(
    name: str, lines: int, session: str
) -> None:
    found = list(parse(as_lines(begun_with(lines)), name))
    assert [one.session_id for one in of_type(found, Session)] == [session]
    assert len(texts(found)) >= 4


def test_the_first_lines_wait_for_the_files_own_session() -> None:
    rows = as_lines(begun_with(1))[:1]
    assert of_type(list(parse(rows, f"{OWN}.jsonl")), Waiting, Session) == [
        Waiting(1, "no line names the file's own session yet")
    ]
    (session,) = of_type(list(parse(rows, f"{OWN}.jsonl", lambda: True)), Session)
    assert session.session_id == SESSION


def test_harness_text_in_the_users_role_begins_no_turn() -> None:
    log = ClaudeCode().user("real")
    harness = (
        "<command-name>/ide</command-name>",
        "<command-message>x</command-message>",
        "<local-command-stdout>ok</local-command-stdout>",
        "<task-notification>x</task-notification>",
        "<system-reminder>x</system-reminder>",
        "[Request interrupted by user]",
    )
    for words in harness:
        log.user(words)
    log.user("Base directory for this skill", isMeta=True)
    log.user([text("[Request interrupted by user for tool use]")])
    found = items_of(parse, log.data())
    assert len(of_type(found, TurnBegan)) == 1
    assert len(texts(found)) == 9


def test_results_begin_no_turn_and_images_do() -> None:
    image = {"type": "image", "source": {"type": "base64", "data": "AAAA"}}
    log = ClaudeCode().result("t0").user([image]).user("")
    assert [item.line for item in of_type(items_of(parse, log.data()), TurnBegan)] == [2]


def test_synthetic_model_lines_are_no_calls() -> None:
    log = ClaudeCode().user("go")
    log.answer("s1", text("No response requested."), model="<synthetic>")
    log.line(
        "assistant",
        message={"role": "assistant", "model": "<synthetic>", "content": [text("API Error")]},
        isApiErrorMessage=True,
    )
    found = items_of(parse, log.data())
    assert of_type(found, ModelCall) == []
    assert roles(found) == ["user", "assistant"]
    assert "assistant.api_error" in raw_kinds(found)


def test_summary_lines_are_titles_and_no_compaction() -> None:
    rows = [{"type": "summary", "summary": "Title", "leafUuid": "x"}]
    log = ClaudeCode().user("go")
    log.rows = rows + log.rows
    found = items_of(parse, log.data())
    assert of_type(found, CompactionItem) == []
    assert raw_kinds(found) == ["summary", "user.envelope"]
    assert of_type(found, Session)[0] is found[0]


def test_a_rest_is_kept_whatever_the_spacing_of_the_line() -> None:
    log = ClaudeCode().user("go")
    spaced = json.dumps(log.rows[0]).encode() + b"\n"
    raw = of_type(items_of(parse, spaced), Raw)[0]
    assert json.loads(raw.data) == {**log.rows[0], "message": None}


def test_an_answer_is_complete_at_the_end_of_its_turn_or_with_a_final_stop_reason() -> None:
    for closed in (
        ClaudeCode().user("go").answer("m1", text("x")).system("turn_duration"),
        ClaudeCode().user("go").answer("m1", text("x")).system("stop_hook_summary"),
        ClaudeCode().user("go").answer("m1", text("x"), stop_reason="end_turn"),
        ClaudeCode().user("go").answer("m1", call("t1")).user("[Request interrupted by user]"),
    ):
        assert "assistant" in roles(items_of(parse, closed.data()))
    for open_ in (
        ClaudeCode().user("go").answer("m1", text("x")),
        ClaudeCode().user("go").answer("m1", call("t"), stop_reason="tool_use").result("t"),
        ClaudeCode().user("go").answer("m1", thinking("x", "s"), stop_reason="end_turn"),
        ClaudeCode().user("go").answer("m1", text("\n\n"), stop_reason="end_turn"),
    ):
        assert roles(items_of(parse, open_.data())) == ["user"]


def test_half_of_a_character_pair_is_replaced_and_the_line_kept() -> None:
    data = ClaudeCode().user("cut HERE").data().replace(b"HERE", b"\\ud83d")
    found = items_of(parse, data)
    assert texts(found)[0]["content"] == "cut �"
    assert raw_kinds(found) == ["user.repaired"]
    assert len(of_type(found, Warned)) == 1


def test_a_line_without_a_message_is_kept_and_not_understood() -> None:
    log = ClaudeCode().line("user", message=...).line("assistant", message="text").user("go")
    found = items_of(parse, log.data())
    assert [i.kind for i in of_type(found, Raw) if not i.understood] == ["user", "assistant"]
    assert roles(found) == ["user"]


def test_a_file_that_names_no_session_yet_waits() -> None:
    snapshot = b'{"type":"file-history-snapshot","messageId":"m","snapshot":{}}\n'
    assert [type(i) for i in items_of(parse, snapshot)] == [Waiting]
    named = items_of(parse, snapshot, lambda: True)
    assert isinstance(named[0], Session)
    assert named[0].session_id == "file"


# -- queued messages, where the model saw them -----------------------------------------------------

NOTICE = "<task-notification>\n<status>completed</status>\n</task-notification>"


class Queue(ClaudeCode):
    def queue(self, operation: str, **fields: Any) -> Queue:
        self.line("queue-operation", operation=operation, uuid=..., isSidechain=..., **fields)
        return self

    def enqueue(self, words: str) -> Queue:
        return self.queue("enqueue", content=words)

    def absorbed(self, words: Any, mode: str = "prompt", **fields: Any) -> Queue:
        attachment = {"type": "queued_command", "prompt": words, "commandMode": mode, **fields}
        self.line("attachment", attachment=attachment)
        return self

    def at_work(self) -> Queue:
        self.user("go").answer("m1", call("t1"))
        return self

    def answered(self) -> list[Item]:
        """The items when the call has its result and the model its next answer."""
        self.result("t1").answer("m2", text("done"), stop_reason="end_turn")
        return items_of(parse, self.data())


def told(found: list[Item]) -> list[str]:
    """What people and the model said, and where a request began, in order."""
    story: list[str] = []
    for item in found:
        if isinstance(item, ModelCall):
            story.append("request")
        elif isinstance(item, TurnBegan):
            story.append("turn")
        elif isinstance(item, MessageItem):
            content = item.message["content"]
            kind = content if isinstance(content, str) else content[0]["type"]
            story.append("notice" if item.by_harness else kind)
    return story


WITH_IT = ["turn", "go", "request", "tool_use", "tool_result", "no", "request", "text"]
WITHOUT = [one for one in WITH_IT if one != "no"]


def test_a_message_of_mid_turn_is_after_the_results_and_before_the_answer_to_it() -> None:
    log = Queue().at_work().enqueue("no").queue("remove")
    assert told(log.answered()) == WITH_IT


def test_a_line_of_the_same_answer_after_the_remove_is_still_before_the_message() -> None:
    log = Queue().user("go").answer("m1", text("I will"))
    assert isinstance(log, Queue)
    log.enqueue("no").queue("remove").answer("m1", call("t1"))
    found = log.answered()
    assert told(found) == ["turn", "go", "request", "text", "tool_result", "no", "request", "text"]
    assert of_type(found, MessageItem)[3].time == of_type(found, MessageItem)[0].time + 3 * 10**9


@pytest.mark.parametrize("reason", [None, "absorbed_mid_turn"])
@pytest.mark.parametrize("first", ["remove", "attachment"])
def test_a_remove_and_an_attachment_are_one_message(first: str, reason: str | None) -> None:
    log = Queue().at_work().enqueue("no")
    for one in (first, "remove" if first == "attachment" else "attachment"):
        if one == "attachment":
            log.absorbed("no", origin={"kind": "human"})
        else:
            log.queue("remove", content="no", **({"reason": reason} if reason else {}))
    assert told(log.answered()) == WITH_IT


def test_blocks_of_a_queued_message_are_kept_and_it_is_known_by_its_uuid() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}
    log = Queue().at_work().enqueue("see [Image #1]")
    log.queue("remove", content="see [Image #1]", reason="absorbed_mid_turn", commandUuid="c1")
    log.absorbed([text("see"), image], source_uuid="c1")
    found = [m.message for m in of_type(log.answered(), MessageItem)]
    assert found[3] == {"role": "user", "content": [text("see"), image]}
    assert len(found) == 5


@pytest.mark.parametrize(
    "fate",
    [
        lambda log: log.queue("popAll"),
        lambda log: log.queue("popAll", content="no"),
        lambda log: log.queue("dequeue"),
        lambda log: log.queue("remove", content="no", reason="delivered_to_agent"),
        lambda log: log.queue("horoscope"),
        lambda log: log,
    ],
    ids=["taken back", "taken back by its words", "interrupted", "elsewhere", "unknown", "waiting"],
)
def test_a_message_that_the_model_never_saw_is_not_there(fate: Any) -> None:
    log = Queue().at_work().enqueue("no")
    fate(log)
    assert told(log.answered()) == WITHOUT


def test_a_user_line_with_the_words_of_a_message_that_waits_is_that_message() -> None:
    log = Queue().at_work().enqueue("no").queue("remove")
    log.result("t1").user([text("no")]).answer("m2", text("ok"), stop_reason="end_turn")
    assert told(items_of(parse, log.data())).count("no") == 0
    assert len(of_type(items_of(parse, log.data()), TurnBegan)) == 2


def test_two_messages_of_the_same_words_are_two() -> None:
    log = Queue().at_work()
    for _ in range(2):
        log.enqueue("no").queue("remove", content="no").absorbed("no")
    assert told(log.answered()).count("no") == 2


def test_a_message_of_the_next_turn_is_its_user_line_alone() -> None:
    log = Queue().at_work().enqueue("no")
    log.answered()
    log.queue("dequeue").user("no").answer("m3", text("ok"), stop_reason="end_turn")
    assert told(items_of(parse, log.data())) == [*WITHOUT, "turn", "no", "request", "text"]


def test_a_person_is_served_before_a_notification_that_waits() -> None:
    log = Queue().at_work().enqueue(NOTICE).enqueue("no").queue("remove")
    assert told(log.answered()) == WITH_IT


def test_a_notification_that_left_without_a_line_leaves_nothing_behind() -> None:
    log = Queue().at_work().enqueue(NOTICE).user(NOTICE).enqueue("no").queue("remove")
    assert told(log.answered()).count("no") == 1


def test_a_notification_in_mid_turn_is_there_and_no_persons() -> None:
    log = Queue().at_work().absorbed("done: b0", "task-notification").absorbed("hi", isMeta=True)
    log.absorbed("a peer", origin={"kind": "peer"})
    assert told(log.answered()).count("notice") == 3


async def test_a_message_that_no_request_has_sent_yet_waits(tmp_path: Path) -> None:
    log = Queue().user("go").answer("m1", text("x"), stop_reason="end_turn")
    assert isinstance(log, Queue)
    log.enqueue("no").queue("remove")
    found = items_of(parse, log.data())
    assert [one.reason for one in of_type(found, Waiting)]
    assert "no" not in told(found)
    assert told(items_of(parse, log.data(), lambda: True))[-1] == "no"
    store, path = MemoryStore(), tmp_path / "file.jsonl"
    path.write_bytes(log.data())
    summary = await load(store, path)
    path.write_bytes(log.answer("m2", text("y")).user("next").data())
    await load(store, path)
    assert [m["content"] for m in await messages(store, summary.session or "")][2] == "no"


def test_what_one_turn_absorbed_completes_nothing_in_the_next() -> None:
    log = (
        Queue()
        .at_work()
        .enqueue("more")
        .queue("remove", content="more", reason="absorbed_mid_turn")
    )
    log.result("t1").answer("m2", text("done"), stop_reason="end_turn")
    log.user("again").answer("m3", call("t2")).absorbed("more").result("t2")
    log.answer("m4", text("done again"), stop_reason="end_turn")
    items = [one for one in items_of(parse, log.data()) if isinstance(one, MessageItem)]
    said = [one.message["content"] for one in items]
    assert said.count("more") == 2
