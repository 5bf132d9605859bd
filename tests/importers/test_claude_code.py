"""Claude Code's files and its stream, trap by trap (reference/formats.md 3.1 and 4)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

from eventctx.importers.formats.claude_code import parse
from eventctx.importers.formats.claude_stream import parse as parse_stream
from eventctx.importers.load import import_file
from eventctx.importers.source.items import (
    CallEnded,
    CompactionItem,
    Item,
    Linked,
    MessageItem,
    ModelCall,
    Raw,
    Session,
    TurnBegan,
    TurnEnded,
    Undone,
    Waiting,
    Warned,
)
from eventctx.stores.memory import MemoryStore
from tests.importers.given import SESSION, ClaudeCode, call, put, text, thinking
from tests.importers.items import always, as_lines, items_of, of_type, raw_kinds, roles, texts
from tests.importers.outputs import ClaudeStream
from tests.importers.taken import load, messages


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


def test_a_session_is_named_by_its_own_lines_as_soon_as_there_is_one() -> None:
    rows = as_lines(begun_with(1))[:1]
    (waiting,) = of_type(list(parse(rows, f"{OWN}.jsonl")), Waiting, Session)
    assert waiting == Waiting(1, "no line names the file's own session yet")
    (session,) = of_type(list(parse(rows, f"{OWN}.jsonl", always)), Session)
    assert session.session_id == SESSION
    snapshot = b'{"type":"file-history-snapshot","messageId":"m","snapshot":{}}\n'
    assert [type(i) for i in items_of(parse, snapshot)] == [Waiting]
    (session,) = of_type(items_of(parse, snapshot, always)[:1], Session)
    assert session.session_id == "file"


def test_words_of_the_harness_and_results_begin_no_turn_and_images_do() -> None:
    log = ClaudeCode().user("real").user("[Request interrupted by user]")
    for kind in ("command-name", "command-message", "local-command-stdout"):
        log.user(f"<{kind}>x</{kind}>")
    log.user("<task-notification>x").user("<system-reminder>x</system-reminder>")
    log.user("Base directory for this skill", isMeta=True)
    log.user([text("[Request interrupted by user for tool use]")]).result("t0")
    log.user([{"type": "image", "source": {"type": "base64", "data": "AAAA"}}]).user("")
    found = items_of(parse, log.data())
    assert [item.line for item in of_type(found, TurnBegan)] == [1, 11]
    assert len(texts(found)) == 12


def test_synthetic_lines_titles_and_lines_without_a_message_are_no_calls() -> None:
    log = ClaudeCode().user("go")
    log.answer("s1", text("No response requested."), model="<synthetic>")
    error = {"role": "assistant", "model": "<synthetic>", "content": [text("API Error")]}
    found = items_of(parse, log.line("assistant", message=error, isApiErrorMessage=True).data())
    assert of_type(found, ModelCall) == []
    assert roles(found) == ["user", "assistant"]
    assert "assistant.api_error" in raw_kinds(found)
    log = ClaudeCode().line("user", message=...).line("assistant", message="text").user("go")
    log.rows.insert(0, {"type": "summary", "summary": "Title", "leafUuid": "x"})
    found = items_of(parse, log.data())
    assert of_type(found, Session)[0] is found[0]
    assert of_type(found, CompactionItem) == []
    kept = [(raw.kind, raw.understood) for raw in of_type(found, Raw)]
    odd = [("user", False), ("assistant", False)]
    assert (kept, roles(found)) == ([("summary", True), *odd, ("user.envelope", True)], ["user"])


def test_a_rest_is_kept_whatever_the_line_is_like() -> None:
    (row,) = ClaudeCode().user("go").rows
    raw = of_type(items_of(parse, json.dumps(row).encode() + b"\n"), Raw)[0]
    assert json.loads(raw.data) == {**row, "message": None}
    data = ClaudeCode().user("cut HERE").data().replace(b"HERE", b"\\ud83d")
    found = items_of(parse, data)
    assert texts(found)[0]["content"] == "cut �"
    assert raw_kinds(found) == ["user.repaired"]
    assert len(of_type(found, Warned)) == 1


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


# -- queued messages, where the model saw them -----------------------------------------------------

NOTICE = "<task-notification>\n<status>completed</status>\n</task-notification>"


class Queue(ClaudeCode):
    def queue(self, operation: str, **fields: Any) -> Self:
        fields |= {"operation": operation, "uuid": ..., "isSidechain": ...}
        return self.line("queue-operation", **fields)

    def enqueue(self, words: str) -> Self:
        return self.queue("enqueue", content=words)

    def absorbed(self, words: Any, mode: str = "prompt", **fields: Any) -> Self:
        attachment = {"type": "queued_command", "prompt": words, "commandMode": mode, **fields}
        return self.line("attachment", attachment=attachment)

    def at_work(self) -> Self:
        return self.user("go").answer("m1", call("t1"))

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


def test_a_line_of_the_same_answer_after_the_remove_is_still_before_the_message() -> None:
    log = Queue().user("go").answer("m1", text("I will"))
    found = log.enqueue("no").queue("remove").answer("m1", call("t1")).answered()
    assert told(found) == ["turn", "go", "request", "text", "tool_result", "no", "request", "text"]
    assert of_type(found, MessageItem)[3].time == of_type(found, MessageItem)[0].time + 3 * 10**9


def test_blocks_of_a_queued_message_are_kept_and_it_is_known_by_its_uuid() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}
    log = Queue().at_work().enqueue("see [Image #1]")
    log.queue("remove", content="see [Image #1]", reason="absorbed_mid_turn", commandUuid="c1")
    log.absorbed([text("see"), image], source_uuid="c1")
    found = [m.message for m in of_type(log.answered(), MessageItem)]
    assert found[3] == {"role": "user", "content": [text("see"), image]}
    assert len(found) == 5


GONE = {"content": "no", "reason": "absorbed_mid_turn"}
HUMAN = {"kind": "human"}
Fate = Callable[[Queue], object]
SEEN: list[Fate] = [
    lambda log: log.queue("remove"),
    lambda log: log.queue("remove", content="no").absorbed("no", origin=HUMAN),
    lambda log: log.absorbed("no", origin=HUMAN).queue("remove", content="no"),
    lambda log: log.queue("remove", **GONE).absorbed("no"),
    lambda log: log.absorbed("no").queue("remove", **GONE),
]
NEVER_SEEN: list[Fate] = [
    lambda log: log.queue("popAll"),
    lambda log: log.queue("popAll", content="no"),
    lambda log: log.queue("dequeue"),
    lambda log: log.queue("remove", content="no", reason="delivered_to_agent"),
    lambda log: log.queue("horoscope"),
    lambda log: log,
]


@pytest.mark.parametrize(
    ("happens", "expected"),
    [*((one, WITH_IT) for one in SEEN), *((one, WITHOUT) for one in NEVER_SEEN)],
)
def test_a_queued_message_is_there_once_where_the_model_saw_it(
    happens: Fate, expected: list[str]
) -> None:
    log = Queue().at_work().enqueue("no")
    happens(log)
    assert told(log.answered()) == expected


def test_a_user_line_with_the_words_of_a_queued_message_is_that_message() -> None:
    log = Queue().at_work().enqueue("no").queue("remove")
    log.result("t1").user([text("no")]).answer("m2", text("ok"), stop_reason="end_turn")
    assert told(items_of(parse, log.data())).count("no") == 0
    assert len(of_type(items_of(parse, log.data()), TurnBegan)) == 2
    log = Queue().at_work().enqueue("no")
    log.answered()
    log.queue("dequeue").user("no").answer("m3", text("ok"), stop_reason="end_turn")
    assert told(items_of(parse, log.data())) == [*WITHOUT, "turn", "no", "request", "text"]


def test_two_queued_messages_of_the_same_words_are_two() -> None:
    log = Queue().at_work()
    for _ in range(2):
        log.enqueue("no").queue("remove", content="no").absorbed("no")
    assert told(log.answered()).count("no") == 2
    log = Queue().at_work().enqueue("more")
    log.queue("remove", content="more", reason="absorbed_mid_turn").answered()
    log.user("again").answer("m3", call("t2")).absorbed("more").result("t2")
    log.answer("m4", text("done again"), stop_reason="end_turn")
    assert told(items_of(parse, log.data())).count("more") == 2


def test_a_person_is_served_before_notifications_which_are_no_persons_words() -> None:
    log = Queue().at_work().enqueue(NOTICE).enqueue("no").queue("remove")
    assert told(log.answered()) == WITH_IT
    log = Queue().at_work().enqueue(NOTICE).user(NOTICE).enqueue("no").queue("remove")
    assert told(log.answered()).count("no") == 1
    log = Queue().at_work().absorbed("done: b0", "task-notification").absorbed("hi", isMeta=True)
    assert told(log.absorbed("a peer", origin={"kind": "peer"}).answered()).count("notice") == 3


async def test_a_message_that_no_request_has_sent_yet_waits(tmp_path: Path) -> None:
    log = Queue().user("go").answer("m1", text("x"), stop_reason="end_turn")
    log.enqueue("no").queue("remove")
    found = items_of(parse, log.data())
    assert of_type(found, Waiting)[0].reason
    assert "no" not in told(found)
    assert told(items_of(parse, log.data(), always))[-1] == "no"
    store, path = MemoryStore(), put(tmp_path / "file.jsonl", log.data())
    await load(store, path)
    await load(store, put(path, log.answer("m2", text("y")).user("next").data()))
    assert [m["content"] for m in await messages(store, SESSION)][2] == "no"


# -- the output of ``claude -p --output-format stream-json`` ---------------------------------------


def streamed(log: ClaudeStream) -> list[Any]:
    return items_of(parse_stream, log.data(), always)


@pytest.mark.parametrize(
    ("fields", "status", "error"),
    [
        ({}, "ok", None),
        ({"subtype": "error_max_turns", "errors": ["too many"]}, "error", "too many"),
        ({"subtype": "error_during_execution", "result": None}, "error", "error_during_execution"),
        ({"is_error": True, "result": "API Error: 529"}, "error", "API Error: 529"),
        ({"terminal_reason": "aborted_streaming"}, "cancelled", None),
    ],
)
def test_a_result_says_how_the_turn_ended(
    fields: dict[str, Any], status: str, error: str | None
) -> None:
    (ended,) = of_type(streamed(ClaudeStream().answer("m", text("a")).over(**fields)), TurnEnded)
    assert (ended.status, ended.error) == (status, error)


def test_retracted_answers_are_taken_back_and_an_error_of_the_api_is_none() -> None:
    log = ClaudeStream().user("go").answer("m", text("refused"))
    log.system("model_refusal_fallback", retracted_message_uuids=["u3"]).answer("n", text("b"))
    log.answer("o", text("API Error"), error="rate_limit")
    log.rows[-1]["message"]["model"] = "<synthetic>"
    items = streamed(log)
    assert [one.places for one in of_type(items, Undone)] == [{1}]
    assert roles(items) == ["user", "assistant", "assistant"]
    assert len(of_type(items, CallEnded)) == 2


async def test_lines_of_a_subagent_are_a_session_of_its_own(tmp_path: Path) -> None:
    log = ClaudeStream().user("go").answer("m", call("t1", "Task"))
    log.user("look", "t1").answer("a", call("t9"), agent="t1").result("t9", agent="t1")
    log.answer("b", text("seen"), agent="t1", agent_id="task-7")
    log.result("t1", "seen").answer("n", text("end")).over()
    path = put(tmp_path / "run.jsonl", log.data())
    done = await import_file(MemoryStore(), path, complete=True)
    counts = [(one.session, one.messages, one.calls) for one in done]
    assert counts == [("run", 4, 2), ("run.agent-t1", 3, 1), ("run.agent-task-7", 1, 1)]
    assert done[0].links == ("run.agent-t1", "run.agent-task-7")
    (first, _) = of_type(streamed(log), Linked)
    assert first.call_id == "t1"


async def test_a_list_of_lines_is_read_as_they_are_named_after_its_file(tmp_path: Path) -> None:
    """As a resumed session has its id again."""
    log = ClaudeStream().answer("m", call("t1")).user("look", "t1").result("t1")
    log.answer("n", text("end")).over()
    store = MemoryStore()
    for name, data in (
        ("a.jsonl", log.data()),
        ("b.json", json.dumps(log.rows, indent=1).encode()),
    ):
        done = await import_file(store, put(tmp_path / name, data), complete=True)
        assert [one.messages for one in done] == [3, 1]
        assert (done[0].session, done[0].format) == (name[0], "claude-stream")
