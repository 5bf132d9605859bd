"""Reading rows of every dialect: roles, calls, results, and what counts as a person's words."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from eventctx.errors import InvalidMessage
from eventctx.messages.facts import Facts, Medium, decode_facts, encode_facts
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.media import image_medium
from eventctx.messages.parts import call_names
from eventctx.messages.tokens import BY_KIND, FAMILIES
from eventctx.messages.tool_rounds import group_rows


def test_blocks_are_counted_by_kind_and_a_call_that_a_row_holds_twice_once() -> None:
    content = [
        {"type": "thinking", "thinking": "hmm" * 10, "signature": "x" * 500},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "t1", "name": "ls", "input": {"p": "."}},
        {"type": "tool_use", "id": "t2", "name": "ls", "input": {}},
    ]
    facts = _row(role="assistant", content=content)
    assert (facts.kind, facts.dialect, facts.calls) == ("assistant", "anthropic", ("t1", "t2"))
    assert (facts.thinking, facts.prose) == (30, 7)
    assert facts.arguments == len('{"p":"."}') + len("{}") + 2 * len("ls")
    row = {
        "role": "assistant",
        "content": [{"type": "tool_call", "id": "c1", "name": "read", "input": {"a": 1}}],
        "tool_calls": [{"id": "c1", "tool": "read", "arguments": {"a": 1}}],
    }
    facts = read_facts(row)
    assert (facts.dialect, facts.calls) == ("amplifier", ("c1",))
    assert facts.arguments == len('{"a":1}') + len("read")
    assert call_names(row) == {"c1": "read"}


def _row(**known: Any) -> Facts:
    return read_facts(known)


ANSWER = {"type": "tool_result", "tool_use_id": "c", "content": "out"}


def test_each_row_has_its_kind() -> None:
    rows: list[tuple[dict[str, Any], str, Any]] = [
        ({"role": "tool", "tool_call_id": "c", "content": "out"}, "result", ("c",)),
        ({"role": "tool", "tool_call_ids": ["c", "d"], "content": "out"}, "result", ("c", "d")),
        ({"role": "function", "name": "f", "content": "out"}, "result", ("function:f",)),
        ({"role": "function", "tool_call_id": "c", "content": [ANSWER]}, "result", ("c",)),
        ({"role": "user", "content": [ANSWER]}, "result", ("c",)),
        ({"type": "function_call_output", "call_id": "c", "output": "out"}, "result", ("c",)),
        ({"role": "user", "content": "hello"}, "human", ()),
        *(
            ({"role": "user", "content": content}, "user", ())
            for content in ("", None, list[Any]())
        ),
        ({"role": "user", "content": "<system-reminder>x</system-reminder>"}, "user", ()),
        ({"role": "user", "content": "hi", "metadata": {"source": "hook"}}, "user", ()),
        ({"role": "developer", "content": "rules"}, "system", ()),
        ({"role": "model", "content": "ok"}, "assistant", ()),
        ({"role": "exit", "content": "done"}, "other", ()),
        ({"type": "reasoning", "summary": [], "encrypted_content": "gAAA"}, "assistant", ()),
        ({"type": "web_search_call", "status": "completed"}, "assistant", ()),
    ]
    for message, kind, results in rows:
        facts = read_facts(message)
        assert (facts.kind, facts.results) == (kind, results)


def test_a_row_without_a_role_is_refused_with_what_was_expected() -> None:
    no_role: list[dict[str, Any]] = [{"role": role} for role in (None, "", 3)]
    for message in ({}, {"content": "x"}, *no_role, {"role": 3, "type": "x"}):
        with pytest.raises(InvalidMessage, match="expected a role"):
            read_facts(message)
        with pytest.raises(ValueError, match="role"):  # the context contract asks for a ValueError
            read_facts(message)


def test_a_person_who_speaks_between_results_is_heard() -> None:
    facts = _row(role="user", content=[ANSWER, {"type": "text", "text": "stop that"}])
    assert (facts.human, facts.kind) == (True, "result")


def test_facts_survive_their_stored_form_and_count_near_three_characters_a_token() -> None:
    facts = _row(role="tool", tool_call_id="c", content="é" * 10)
    assert decode_facts(encode_facts(facts)) == facts
    assert facts.outcome == 10
    assert BY_KIND.tokens(_row(role="user", content="x" * 33_000)) == 10_000 + 4
    call = {"id": "c", "function": {"name": "", "arguments": ""}}
    assert BY_KIND.tokens(_row(role="assistant", tool_calls=[call])) == 95 + 4


def test_an_image_that_cannot_be_read_counts_as_the_largest() -> None:
    unreadable: list[dict[str, Any]] = [
        {"type": "image", "source": {"type": "url", "url": "https://example.org/x.png"}},
        {"type": "image", "source": {"type": "base64", "data": "not base64 at all"}},
        {"type": "image_url", "image_url": "data:,"},
        {"type": "image"},
    ]
    for block in unreadable:
        assert image_medium(block) == Medium("image")
        assert BY_KIND.tokens(read_facts({"role": "user", "content": [block]})) == 1_600 + 4


def test_a_result_belongs_to_the_latest_open_call_with_its_id() -> None:
    def ask(call_id: str) -> Facts:
        function = {"name": "f", "arguments": "{}"}
        return _row(role="assistant", tool_calls=[{"id": call_id, "function": function}])

    def tell(call_id: str) -> Facts:
        return _row(role="tool", tool_call_id=call_id, content="x")

    again = group_rows([ask("c"), tell("c"), ask("c"), tell("c"), tell("c")])
    assert [group.rows for group in again] == [(0, 1), (2, 3), (4,)]
    assert again[2].orphan
    late = group_rows([ask("a"), ask("b"), tell("b"), tell("a")])
    assert [group.rows for group in late] == [(0, 3), (1, 2)]
    assert group_rows([ask("a")])[0].pending == ("a",)


def test_items_of_one_answer_of_the_responses_api_are_one_round() -> None:
    thought = _row(type="reasoning", summary=[])
    asks = [_row(type="function_call", call_id=i, name="f", arguments="{}") for i in "ab"]
    tells = [_row(type="function_call_output", call_id=i, output="1") for i in "ba"]
    rows = [thought, *asks, *tells, thought]
    assert [group.rows for group in group_rows(rows)] == [(0, 1, 2, 3, 4), (5,)]


NOTICE = (
    "<task-notification>\n<task-id>b0</task-id>\n<status>completed</status>\n</task-notification>\n"
    "Read the output file to retrieve the result: /tmp/tasks/b0.output"
)
CAVEAT = (
    "Caveat: The messages below were generated by the user while running local commands. DO NOT "
    "respond to these messages or otherwise consider them in your response unless the user "
    "explicitly asks you to."
)
COMMAND = (
    "<command-message>plan</command-message>\n<command-name>/plan</command-name>\n"
    "<command-args>{}</command-args>"
)


OF_A_HARNESS: list[Any] = [
    *("<system-reminder>be brief</system-reminder>", "<system-reminder>never closed. Fix it."),
    '<system-reminder source="hook">be brief</system-reminder>',
    "<command-name>/x</command-name>\n<command-args>y</command-args>",
    *(COMMAND.format(""), COMMAND.format("\n "), NOTICE, NOTICE.replace("task-", "agent-")),
    "# AGENTS.md instructions\nFix it.",
    "# AGENTS.md instructions for /w\n\n<INSTRUCTIONS>\nx\n</INSTRUCTIONS>",
    *([{"type": "text", "text": "<skill>s</skill>"}], '<skill name="x" location="/y">s</skill>'),
    *("", "[Summary: depth 1, 3 messages]", "System: Please continue."),
    "<task-notification>\n<status>done</status>\n</task-notification>",
    '{"task_id":"b1","task_type":"local_bash","status":"completed"}',
    '{"hookSpecificOutput":{"additionalContext":"lint"}',
    "# Context from my IDE setup:\n- a.py\n",
    "<ide_opened_file>The user opened /x.</ide_opened_file>",
    *("<bash-input>git push</bash-input>", "[Request interrupted by user for tool use]"),
    "<bash-stdout>ok</bash-stdout><bash-stderr></bash-stderr>",
    *(CAVEAT, f"<local-command-caveat>{CAVEAT}</local-command-caveat>"),
    "This session is being continued from a previous conversation that ran out.",
    "Stop hook feedback:\n- [lint]: 2 errors",
    "<user-prompt-submit-hook>x</user-prompt-submit-hook>",
    "<environment_context>\n<cwd>/w</cwd>\n</environment_context>",
    *(
        "<turn_aborted>\nstopped\n</turn_aborted>",
        "<subagent_notification>{}</subagent_notification>",
    ),
    "The following is a summary of a branch that this conversation came back from:",
    "The task appears incomplete (iteration 1/3, likelihood: 37.8%).",
]
OF_A_PERSON: list[Any] = [
    *("<system-reminder>be brief</system-reminder>\nFix the login bug.", "<task>mine</task>"),
    *("<command-name>/x</command-name> and then?", COMMAND.format("keep each commit small")),
    [{"type": "text", "text": "<skill>s</skill>"}, {"type": "text", "text": "why?"}],
    *('<skill name="x" location="/y">s</skill>\n\nwhy?', "<skills> are what I want"),
    '{"task_id":"b1","status":"completed"}\nNow deploy.',
    "# Context from my IDE setup:\n- a.py\n\n## My request for Codex:\nFix it.",
    *("<ide_selection>line 200</ide_selection>\nWhat is this?", f"{NOTICE}\nNow deploy."),
    *("[Request interrupted by user]\nNo, the other file.", f"{CAVEAT}\nWhat does it say?"),
    "Why do I see <system-reminder>x</system-reminder> and <bash-input>?",
    "It said [Request interrupted by user], why?",
]


@pytest.mark.parametrize(
    ("content", "human"),
    [*((one, False) for one in OF_A_HARNESS), *((one, True) for one in OF_A_PERSON)],
)
def test_what_follows_a_harness_element_is_a_persons_words(content: Any, human: bool) -> None:
    assert _row(role="user", content=content).human is human


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_facts_of_an_older_reader_count_about_the_same(family: str) -> None:
    line = "    for number in range(10, 40):  # count the open orders of 2024\n"
    facts = read_facts({"role": "tool", "tool_call_id": "c", "content": line * 100})
    old = msgspec.structs.replace(facts, reader=3, digits=0, spaces=0)
    rates = FAMILIES[family]
    assert rates.tokens(old) == pytest.approx(rates.tokens(facts), rel=0.35)
    assert rates.tokens(old) > 0
