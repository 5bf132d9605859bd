"""The extractor: from a message, in any dialect, the pieces of the kinds that are wanted."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from eventctx.messages.extracts import CallExtract, ExtractKind, MessageExtracts, extract
from eventctx.messages.mentions import Mentions
from tests.transcripts import DIALECTS, human, result

ALL = get_args(ExtractKind)
ASKED = "Never touch main.py. The login fails."
MODEL = {
    "role": "assistant",
    "content": [
        {"type": "text", "text": "I'll use the retry_decorator here. Reading it first."},
        {"type": "tool_use", "id": "a", "name": "Read", "input": {"file_path": "./core/view.py"}},
        {"type": "tool_use", "id": "b", "name": "Bash", "input": {"command": "cd x && make test"}},
    ],
}


def test_of_a_models_message_come_decisions_calls_and_identifiers() -> None:
    found = extract(MODEL, ALL, number=7)
    assert (found.number, found.speaker) == (7, "assistant")
    assert found.decisions == ("I'll use the retry_decorator here.",)
    assert found.calls == (
        CallExtract(("a",), "Read", (("core/view.py", "read"),), None),
        CallExtract(("b",), "Bash", (), "make test"),
    )
    assert [call.source for call in found.calls] == ["Read core/view.py", "Bash make test"]
    assert "retry_decorator" in found.identifiers
    assert (found.demands, found.instructions, found.lines) == ((), (), ())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_of_a_persons_message_come_demands_instructions_and_lines(dialect: str) -> None:
    found = extract(human(dialect, ASKED), ALL)
    assert found.speaker == "user"
    assert found.demands == ("Never touch main.py.",)
    assert found.instructions == ("The login fails.", "Never touch main.py.")
    assert found.lines == (ASKED,)
    assert (found.decisions, found.calls, found.identifiers) == ((), (), frozenset())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_of_a_result_come_its_outcome_and_its_lines_without_their_numbers(dialect: str) -> None:
    text = "Exit code 2\n   12\u2192def first_line():\nshort\nValueError: no port"
    found = extract(result(dialect, "c", text), ALL)
    assert (found.outcomes["c"].status, found.outcomes["c"].failed) == (2, True)
    assert found.outcomes["c"].error == "ValueError: no port"
    assert found.lines == ("def first_line():", "ValueError: no port")


@pytest.mark.parametrize("message", [MODEL, human("anthropic", ASKED), result("openai", "c", "x")])
def test_what_is_not_wanted_is_not_there(message: dict[str, Any]) -> None:
    bare = extract(message, ())
    assert bare == MessageExtracts(0, bare.speaker)
    files = extract(MODEL, ("file",)).calls
    assert [(one.files, one.command) for one in files] == [
        ((("core/view.py", "read"),), None),
        ((), None),
    ]


def test_a_text_is_asked_for_every_kind_in_one_way() -> None:
    summary = Mentions(
        ["Do not touch main.py; `make test` fails: ValueError: no port. See core/view.py."]
    )
    assert summary.holds("demand", "Never touch main.py.") is False
    assert summary.holds("demand", "Do not touch main.py")
    assert summary.holds("command", "cd x && make test")
    assert summary.holds("failure", "ValueError: no port")
    assert summary.holds("file", "/a/core/view.py")
    assert summary.holds("file_alone", "/other/view.py")
    assert not summary.holds("file", "/other/view.py")
    assert summary.holds("name", "core/view.py")
    assert not summary.holds("line", "no such line")
