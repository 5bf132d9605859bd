"""Claude Code's format, trap by trap (reference/formats.md 3.1 and 4)."""

from __future__ import annotations

import json

import pytest

from eventctx.importers.formats.claude_code import parse
from eventctx.importers.source.items import (
    CompactionItem,
    ModelCall,
    Raw,
    Session,
    TurnBegan,
    Waiting,
    Warned,
)
from tests.importers.given import (
    SESSION,
    ClaudeCode,
    as_lines,
    call,
    items_of,
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
