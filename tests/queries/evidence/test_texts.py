"""The text of a message as the metric reads it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventctx.projections.evidence import normalise, normalise_text
from tests.queries.evidence.given import asks, calls, returns

EDIT = {"old": "first line", "new": "second\nthird"}
ARGUMENTS = {"path": "src/a.py", "edits": [EDIT, "last"], "n": 3}
LEAVES = "src/a.py\nfirst line\nsecond\nthird\nlast"


@pytest.mark.parametrize(
    "message",
    [
        calls(**ARGUMENTS),
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c", "function": {"name": "edit", "arguments": json.dumps(ARGUMENTS)}}
            ],
        },
    ],
    ids=["anthropic", "chat"],
)
def test_of_a_calls_arguments_the_strings_are_read_without_keys_and_numbers(
    message: dict[str, Any],
) -> None:
    assert normalise(message) == LEAVES


@pytest.mark.parametrize(
    "message",
    [
        returns("found it"),
        {"role": "tool", "tool_call_id": "c", "content": {"success": True, "output": "found it"}},
        asks("found it"),
    ],
    ids=["anthropic", "amplifier", "person"],
)
def test_a_result_and_a_text_are_read_as_they_are(message: dict[str, Any]) -> None:
    assert normalise(message) == "found it"


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "I saw a.py"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I saw a.py"}]},
    ],
    ids=["anthropic", "responses"],
)
def test_thinking_is_not_read(message: dict[str, Any]) -> None:
    assert normalise(message) == ""


def test_escapes_are_opened() -> None:
    assert normalise_text(r"one\ntwo\t\"three\" src\/a.py") == 'one\ntwo "three" src/a.py'


def test_blanks_are_one_blank_lines_are_stripped_and_empty_lines_go() -> None:
    assert normalise_text("  a \t b\r\n\n   \n\tc\u00a0d  ") == "a b\nc d"


def test_deep_arguments_are_read_to_the_end() -> None:
    value: Any = "bottom"
    for _ in range(5_000):
        value = [value]
    assert normalise(calls(deep=value)) == "bottom"


@given(st.text(alphabet='ab \n\t\\n"/.'))
def test_a_text_that_was_made_alike_holds_no_empty_line_and_no_two_blanks(text: str) -> None:
    made = normalise_text(text)
    assert all(line == " ".join(line.split()) and line for line in made.split("\n") if made)


def test_a_search_of_the_provider_is_read_with_what_it_found() -> None:
    query = {
        "type": "server_tool_use",
        "id": "s",
        "name": "web_search",
        "input": {"query": "the weather"},
    }
    found = {
        "type": "web_search_tool_result",
        "tool_use_id": "s",
        "content": [{"type": "text", "text": "rain"}],
    }
    assert normalise({"role": "assistant", "content": [query, found]}) == "the weather\nrain"
