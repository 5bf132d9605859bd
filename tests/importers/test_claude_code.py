"""Claude Code's format, trap by trap (reference/formats.md 3.1 and 4)."""

from __future__ import annotations

import json

import pytest

from eventctx.importers.formats.claude_code import parse
from eventctx.importers.source.items import (
    CallEnded,
    CompactionItem,
    Linked,
    MessageItem,
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
    prompts,
    raw_kinds,
    roles,
    text,
    texts,
    thinking,
)


def test_blocks_of_one_id_become_one_message_with_its_results_after_it() -> None:
    log = (
        ClaudeCode()
        .user("go")
        .answer("m1", text("\n"))
        .answer("m1", call("t1"))
        .progress()
        .result("t1", "one")
        .answer("m1", call("t2"))
        .result("t2", "two")
        .answer("m2", text("done"))
        .system("turn_duration")
    )
    found = items_of(parse, log.data())
    assert roles(found) == ["user", "assistant", "user", "user", "assistant"]
    grouped = texts(found)[1]
    assert [block["type"] for block in grouped["content"]] == ["text", "tool_use", "tool_use"]
    assert list(grouped)[:4] == ["model", "id", "type", "role"]
    assert [m["content"][0]["tool_use_id"] for m in texts(found)[2:4]] == ["t1", "t2"]
    assert len(of_type(found, ModelCall)) == len(of_type(found, CallEnded)) == 2


def test_usage_is_the_sum_of_three_and_counted_once_per_id() -> None:
    log = ClaudeCode().user("go").answer("m1", text("a"), output=1)
    log.answer("m1", text("b"), output=99).user("next")
    found = items_of(parse, log.data())
    assert prompts(found) == [543]
    call = of_type(found, ModelCall)[0]
    usage = call.usage
    assert (usage.output, usage.cache_read, usage.cache_write) == (99, 500, 40)
    assert call.output_exact


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


def test_an_output_count_is_exact_with_a_stop_reason() -> None:
    log = ClaudeCode().user("go").answer("m1", text("a"), stop_reason="end_turn", output=42)
    call = of_type(items_of(parse, log.data()), ModelCall)[0]
    assert call.usage.output == 42
    assert call.output_exact


def test_an_output_count_is_exact_where_it_rose_on_a_later_line() -> None:
    log = ClaudeCode().user("go")
    for output in (3, 3, 410):
        log.answer("m1", text("a"), output=output)
    for _ in range(2):
        log.answer("m2", text("b"), output=8)
    found = of_type(items_of(parse, log.user("next").data()), ModelCall)
    assert [(one.usage.output, one.output_exact) for one in found] == [(410, True), (8, False)]


def test_what_a_later_line_of_an_id_replaces_is_kept_raw() -> None:
    log = ClaudeCode().user("go").answer("m1", text("a"), output=1)
    log.answer("m1", text("b"), output=99).user("next")
    found = items_of(parse, log.data())
    replaced = next(i for i in of_type(found, Raw) if i.kind == "assistant.replaced")
    assert json.loads(replaced.data)["usage"]["output_tokens"] == 1
    assert texts(found)[1]["usage"]["output_tokens"] == 99


def test_thinking_and_its_signature_survive_byte_for_byte() -> None:
    signature = "Ep+/4AZ==" * 50
    log = ClaudeCode().user("go").answer("m1", thinking("hm…", signature)).user("next")
    assert texts(items_of(parse, log.data()))[1]["content"] == [thinking("hm…", signature)]


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


def test_a_boundary_and_its_summary_are_a_compaction_and_no_message() -> None:
    meta = {"trigger": "auto", "preTokens": 167_000}
    log = ClaudeCode().user("go").answer("m1", text("a"))
    log.system("compact_boundary", compactMetadata=meta, logicalParentUuid="u2")
    log.user("This session is being continued…", isCompactSummary=True).answer("m2", text("b"))
    log.user("next")
    found = items_of(parse, log.data())
    compaction = of_type(found, CompactionItem)[0]
    assert (compaction.trigger, compaction.tokens_before) == ("auto", 167_000)
    assert [m["content"] for m in compaction.messages] == ["This session is being continued…"]
    assert roles(found) == ["user", "assistant", "assistant", "user"]
    assert len(of_type(found, TurnBegan)) == 2


def test_summary_lines_are_titles_and_no_compaction() -> None:
    rows = [{"type": "summary", "summary": "Title", "leafUuid": "x"}]
    log = ClaudeCode().user("go")
    log.rows = rows + log.rows
    found = items_of(parse, log.data())
    assert of_type(found, CompactionItem) == []
    assert raw_kinds(found) == ["summary", "user.envelope"]
    assert of_type(found, Session)[0] is found[0]


def test_the_rest_of_a_line_that_became_a_message_is_kept() -> None:
    log = ClaudeCode().result("t1", "text of the result")
    found = items_of(parse, log.data())
    raw = of_type(found, Raw)[0]
    rest, row = json.loads(raw.data), log.rows[0]
    assert rest == {**row, "message": None}
    assert list(rest) == list(row)
    assert texts(found) == [row["message"]]


def test_a_rest_is_kept_whatever_the_spacing_of_the_line() -> None:
    log = ClaudeCode().user("go")
    spaced = json.dumps(log.rows[0]).encode() + b"\n"
    raw = of_type(items_of(parse, spaced), Raw)[0]
    assert json.loads(raw.data) == {**log.rows[0], "message": None}


def test_kinds_never_heard_of_are_kept_and_not_understood() -> None:
    log = ClaudeCode().line("hologram", payload=1).user("go").system("hyperspace")
    found = items_of(parse, log.data())
    unknown = [i.kind for i in of_type(found, Raw) if not i.understood]
    assert unknown == ["hologram", "system/hyperspace"]


def test_a_subagents_file_is_a_session_of_its_own_with_a_parent() -> None:
    log = ClaudeCode(isSidechain=True, agentId="a1").user("task").answer("m1", text("x"))
    session = items_of(parse, log.data())[0]
    assert isinstance(session, Session)
    assert session.session_id == f"{SESSION}.agent-a1"
    assert (session.parent, session.agent) == (SESSION, "a1")


def test_sidechain_lines_inside_a_session_stay_out_of_its_conversation() -> None:
    log = ClaudeCode().user("go").user("task for the agent", isSidechain=True).user("more")
    found = items_of(parse, log.data())
    assert [m["content"] for m in texts(found)] == ["go", "more"]
    assert raw_kinds(found) == ["user.envelope", "sidechain", "user.envelope"]


def test_a_progress_line_links_the_call_with_its_agent_once() -> None:
    log = ClaudeCode().user("go").progress(agentId="a1").progress(agentId="a1").progress()
    links = of_type(items_of(parse, log.data()), Linked)
    assert [(link.session_id, link.call_id) for link in links] == [(f"{SESSION}.agent-a1", "t1")]


def test_an_answer_at_the_end_waits_and_is_imported_when_the_file_is_complete() -> None:
    log = ClaudeCode().user("go").answer("m1", text("half"))
    waiting = items_of(parse, log.data())
    assert roles(waiting) == ["user"]
    assert len(of_type(waiting, Waiting)) == 1
    whole = items_of(parse, log.data(), lambda: True)
    assert roles(whole) == ["user", "assistant"]
    assert of_type(whole, Waiting) == []


def test_a_result_does_not_prove_that_an_answer_is_complete() -> None:
    log = ClaudeCode().user("go").answer("m1", call("t1")).result("t1")
    assert roles(items_of(parse, log.data())) == ["user"]


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
        ClaudeCode().user("go").answer("m1", call("t"), stop_reason="tool_use"),
        ClaudeCode().user("go").answer("m1", thinking("x", "s"), stop_reason="end_turn"),
        ClaudeCode().user("go").answer("m1", text("\n\n"), stop_reason="end_turn"),
    ):
        assert roles(items_of(parse, open_.data())) == ["user"]


def test_more_of_a_message_that_looked_complete_is_no_second_call() -> None:
    log = ClaudeCode().user("go").answer("m1", text("x"), stop_reason="end_turn")
    log.answer("m1", text("y"), stop_reason="end_turn")
    found = items_of(parse, log.data())
    assert roles(found) == ["user", "assistant", "assistant"]
    assert len(of_type(found, ModelCall)) == 1


def test_two_records_on_one_line_are_both_read() -> None:
    data = ClaudeCode().user("one").user("two").data().replace(b"}\n{", b"}{")
    found = items_of(parse, data)
    assert [m["content"] for m in texts(found)] == ["one", "two"]
    assert {item.line for item in found} == {1}


def test_half_a_last_line_waits() -> None:
    data = ClaudeCode().user("one").user("two").data()[:-20]
    found = items_of(parse, data)
    assert [m["content"] for m in texts(found)] == ["one"]
    assert of_type(found, Waiting)[0].line == 2


def test_a_broken_line_in_the_middle_is_kept_and_warned_about() -> None:
    first, second = ClaudeCode().user("one").user("two").data().splitlines()
    found = items_of(parse, b"\n".join((first, b'{"type":"user", oops', second, b"")))
    assert [m["content"] for m in texts(found)] == ["one", "two"]
    broken = [i for i in of_type(found, Raw) if not i.understood]
    assert [(i.line, i.data) for i in broken] == [(2, b'{"type":"user", oops')]
    assert [i.line for i in of_type(found, Warned)] == [2]


def test_half_of_a_character_pair_is_replaced_and_the_line_kept() -> None:
    data = ClaudeCode().user("cut HERE").data().replace(b"HERE", b"\\ud83d")
    found = items_of(parse, data)
    assert texts(found)[0]["content"] == "cut �"
    assert raw_kinds(found) == ["user.repaired"]
    assert len(of_type(found, Warned)) == 1


def test_half_of_a_character_pair_outside_the_message_leaves_the_message_alone() -> None:
    log = ClaudeCode().result("t1", "HERE")
    place = (data := log.data()).rindex(b"HERE")
    data = data[:place] + b"\\ud83d" + data[place + 4 :]
    found = items_of(parse, data)
    assert texts(found)[0]["content"][0]["content"] == "HERE"
    assert of_type(found, Raw)[0].data == data.rstrip()


def test_bytes_that_are_no_utf8_are_replaced_and_the_line_kept() -> None:
    data = ClaudeCode().user("cut HERE").data().replace(b"HERE", b"\xff\xfe")
    found = items_of(parse, data)
    assert texts(found)[0]["content"] == "cut \ufffd\ufffd"
    assert [raw.data for raw in of_type(found, Raw)] == [data.rstrip()]


def test_a_number_too_large_for_a_float_becomes_null_and_the_line_is_kept() -> None:
    data = ClaudeCode().user("x", extra=1).data().replace(b'"role"', b'"n":1e999,"role"')
    found = items_of(parse, data)
    assert texts(found)[0] == {"n": None, "role": "user", "content": "x"}
    assert [raw.data for raw in of_type(found, Raw)] == [data.rstrip()]


def test_a_line_without_a_message_is_kept_and_not_understood() -> None:
    log = ClaudeCode().line("user", message=...).line("assistant", message="text").user("go")
    found = items_of(parse, log.data())
    assert [i.kind for i in of_type(found, Raw) if not i.understood] == ["user", "assistant"]
    assert roles(found) == ["user"]


def test_a_redacted_or_broken_time_is_no_time() -> None:
    log = ClaudeCode().user("go")
    log.rows[0]["timestamp"] = "[REDACTED:PII]T17:03:36Z"
    assert of_type(items_of(parse, log.data()), MessageItem)[0].time is None


def test_windows_paths_escapes_and_control_characters_come_out_equal() -> None:
    words = "C:\\Users\\x \x1b[31mred\x1b[0m \x03 \ud83d\ude00 é"
    words = words.encode("utf-16", "surrogatepass").decode("utf-16")
    assert texts(items_of(parse, ClaudeCode().user(words).data()))[0]["content"] == words


def test_a_file_that_names_no_session_yet_waits() -> None:
    snapshot = b'{"type":"file-history-snapshot","messageId":"m","snapshot":{}}\n'
    assert [type(i) for i in items_of(parse, snapshot)] == [Waiting]
    named = items_of(parse, snapshot, lambda: True)
    assert isinstance(named[0], Session)
    assert named[0].session_id == "file"
