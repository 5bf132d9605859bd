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


def test_anthropic_blocks_are_counted_by_kind() -> None:
    facts = read_facts(
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hmm" * 10, "signature": "x" * 500},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t1", "name": "ls", "input": {"p": "."}},
                {"type": "tool_use", "id": "t2", "name": "ls", "input": {}},
            ],
        }
    )
    assert (facts.kind, facts.dialect, facts.calls) == ("assistant", "anthropic", ("t1", "t2"))
    assert (facts.thinking, facts.prose) == (30, 7)
    assert facts.arguments == len('{"p":"."}') + len("{}") + 2 * len("ls")


def test_an_amplifier_row_that_holds_each_call_twice_counts_it_once() -> None:
    row = {
        "role": "assistant",
        "content": [{"type": "tool_call", "id": "c1", "name": "read", "input": {"a": 1}}],
        "tool_calls": [{"id": "c1", "tool": "read", "arguments": {"a": 1}}],
    }
    facts = read_facts(row)
    assert (facts.dialect, facts.calls) == ("amplifier", ("c1",))
    assert facts.arguments == len('{"a":1}') + len("read")
    assert call_names(row) == {"c1": "read"}


@pytest.mark.parametrize(
    ("message", "kind", "results"),
    [
        ({"role": "tool", "tool_call_id": "c", "content": "out"}, "result", ("c",)),
        ({"role": "tool", "tool_call_ids": ["c", "d"], "content": "out"}, "result", ("c", "d")),
        ({"role": "function", "name": "f", "content": "out"}, "result", ("function:f",)),
        (
            {
                "role": "function",
                "tool_call_id": "c",
                "content": [{"type": "tool_result", "output": "x"}],
            },
            "result",
            ("c",),
        ),
        (
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c", "content": "out"}],
            },
            "result",
            ("c",),
        ),
        ({"type": "function_call_output", "call_id": "c", "output": "out"}, "result", ("c",)),
        ({"role": "user", "content": "hello"}, "human", ()),
        ({"role": "user", "content": ""}, "user", ()),
        ({"role": "user", "content": None}, "user", ()),
        ({"role": "user", "content": []}, "user", ()),
        ({"role": "user", "content": "<system-reminder>x</system-reminder>"}, "user", ()),
        ({"role": "user", "content": "hi", "metadata": {"source": "hook"}}, "user", ()),
        ({"role": "developer", "content": "rules"}, "system", ()),
        ({"role": "model", "content": "ok"}, "assistant", ()),
        ({"role": "exit", "content": "done"}, "other", ()),
        ({"type": "reasoning", "summary": [], "encrypted_content": "gAAA"}, "assistant", ()),
        ({"type": "web_search_call", "status": "completed"}, "assistant", ()),
    ],
)
def test_each_row_has_its_kind(message: dict[str, Any], kind: str, results: Any) -> None:
    facts = read_facts(message)
    assert (facts.kind, facts.results) == (kind, results)


@pytest.mark.parametrize(
    "message",
    [{}, {"content": "x"}, {"role": None}, {"role": ""}, {"role": 3}, {"role": 3, "type": "x"}],
)
def test_a_row_without_a_role_is_refused_with_what_was_expected(message: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessage, match="expected a role"):
        read_facts(message)
    with pytest.raises(ValueError, match="role"):  # the context contract asks for a ValueError
        read_facts(message)


def test_facts_survive_their_stored_form() -> None:
    facts = read_facts({"role": "tool", "tool_call_id": "c", "content": "é" * 10})
    assert decode_facts(encode_facts(facts)) == facts
    assert facts.outcome == 10


def test_a_person_who_speaks_between_results_is_heard() -> None:
    row = {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "c", "content": "x"},
            {"type": "text", "text": "stop that"},
        ],
    }
    assert read_facts(row).human
    assert read_facts(row).kind == "result"


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "source": {"type": "url", "url": "https://example.org/x.png"}},
        {"type": "image", "source": {"type": "base64", "data": "not base64 at all"}},
        {"type": "image_url", "image_url": "data:,"},
        {"type": "image"},
    ],
)
def test_an_image_that_cannot_be_read_counts_as_the_largest(block: dict[str, Any]) -> None:
    assert image_medium(block) == Medium("image")
    assert BY_KIND.tokens(read_facts({"role": "user", "content": [block]})) == 1_600 + 4


def _row(**known: Any) -> Facts:
    return read_facts(known)


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
    rows = [
        _row(type="reasoning", summary=[]),
        _row(type="function_call", call_id="a", name="f", arguments="{}"),
        _row(type="function_call", call_id="b", name="f", arguments="{}"),
        _row(type="function_call_output", call_id="b", output="1"),
        _row(type="function_call_output", call_id="a", output="2"),
        _row(type="reasoning", summary=[]),
    ]
    assert [group.rows for group in group_rows(rows)] == [(0, 1, 2, 3, 4), (5,)]


def test_estimates_are_near_three_characters_a_token_and_95_for_a_call() -> None:
    prose = read_facts({"role": "user", "content": "x" * 33_000})
    assert BY_KIND.tokens(prose) == 10_000 + 4
    call = read_facts(
        {
            "role": "assistant",
            "tool_calls": [{"id": "c", "function": {"name": "", "arguments": ""}}],
        }
    )
    assert BY_KIND.tokens(call) == 95 + 4


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


@pytest.mark.parametrize(
    ("content", "human"),
    [
        ("<system-reminder>be brief</system-reminder>", False),
        ("<system-reminder>be brief</system-reminder>\nFix the login bug.", True),
        ("<command-name>/x</command-name>\n<command-args>y</command-args>", False),
        ("<command-name>/x</command-name> and then?", True),
        ("<system-reminder>never closed. Fix it.", False),
        ("<task>mine</task>", True),
        ("# AGENTS.md instructions\nFix it.", False),
        ([{"type": "text", "text": "<skill>s</skill>"}, {"type": "text", "text": "why?"}], True),
        ([{"type": "text", "text": "<skill>s</skill>"}], False),
        ("", False),
        ("[Summary: depth 1, 3 messages]", False),
        ("<task-notification>\n<status>done</status>\n</task-notification>", False),
        ('{"task_id":"b1","task_type":"local_bash","status":"completed"}', False),
        ('{"task_id":"b1","status":"completed"}\nNow deploy.', True),
        ('{"hookSpecificOutput":{"additionalContext":"lint"}', False),
        ("# Context from my IDE setup:\n- a.py\n\n## My request for Codex:\nFix it.", True),
        ("# Context from my IDE setup:\n- a.py\n", False),
        ("System: Please continue.", False),
        (NOTICE, False),
        (NOTICE.replace("task-", "agent-"), False),
        ("<ide_opened_file>The user opened /x.</ide_opened_file>", False),
        ("<ide_selection>line 200</ide_selection>\nWhat is this?", True),
        (f"{NOTICE}\nNow deploy.", True),
        ('<system-reminder source="hook">be brief</system-reminder>', False),
        ('<skill name="x" location="/y">s</skill>', False),
        ('<skill name="x" location="/y">s</skill>\n\nwhy?', True),
        ("<skills> are what I want", True),
        (COMMAND.format(""), False),
        (COMMAND.format("\n "), False),
        (COMMAND.format("keep each commit small"), True),
        ("<bash-input>git push</bash-input>", False),
        ("<bash-stdout>ok</bash-stdout><bash-stderr></bash-stderr>", False),
        ("[Request interrupted by user for tool use]", False),
        ("[Request interrupted by user]\nNo, the other file.", True),
        (CAVEAT, False),
        (f"<local-command-caveat>{CAVEAT}</local-command-caveat>", False),
        (f"{CAVEAT}\nWhat does it say?", True),
        ("This session is being continued from a previous conversation that ran out.", False),
        ("Stop hook feedback:\n- [lint]: 2 errors", False),
        ("<user-prompt-submit-hook>x</user-prompt-submit-hook>", False),
        ("<environment_context>\n<cwd>/w</cwd>\n</environment_context>", False),
        ("# AGENTS.md instructions for /w\n\n<INSTRUCTIONS>\nx\n</INSTRUCTIONS>", False),
        ("<turn_aborted>\nstopped\n</turn_aborted>", False),
        ("<subagent_notification>{}</subagent_notification>", False),
        ("The following is a summary of a branch that this conversation came back from:", False),
        ("The task appears incomplete (iteration 1/3, likelihood: 37.8%).", False),
        ("Why do I see <system-reminder>x</system-reminder> and <bash-input>?", True),
        ("It said [Request interrupted by user], why?", True),
    ],
)
def test_what_follows_a_harness_element_is_a_persons_words(content: Any, human: bool) -> None:
    assert read_facts({"role": "user", "content": content}).human is human


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_facts_of_an_older_reader_count_about_the_same(family: str) -> None:
    line = "    for number in range(10, 40):  # count the open orders of 2024\n"
    facts = read_facts({"role": "tool", "tool_call_id": "c", "content": line * 100})
    old = msgspec.structs.replace(facts, reader=3, digits=0, spaces=0)
    rates = FAMILIES[family]
    assert rates.tokens(old) == pytest.approx(rates.tokens(facts), rel=0.35)
    assert rates.tokens(old) > 0
