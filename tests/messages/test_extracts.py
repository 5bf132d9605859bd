"""What is read from a message in any dialect: the wanted pieces, copies, whether a tool failed."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from amplifier_core.models import ToolResult
from hypothesis import given
from hypothesis import strategies as st

from eventctx.messages.extracts import CallExtract, ExtractKind, MessageExtracts, extract
from eventctx.messages.mentions import Mentions
from eventctx.messages.overlap import LEAST_SHARED, Overlap, texts_in, words_in
from eventctx.messages.recall_text import QUOTED
from eventctx.messages.tool_results import (
    KIND,
    NO_REASON,
    ToolFailure,
    answer_of_copy,
    failure_of,
    failure_of_copy,
    failure_of_row,
)
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
    assert (found.demands, found.instructions) == ((), ())
    assert found.lines == ("I'll use the retry_decorator here. Reading it first.",)


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
    assert found.answers == ("c",)


def test_what_a_harness_puts_around_a_result_and_what_was_recalled_are_no_lines() -> None:
    text = "Chunk ID: 4fd9a1\nWall time: 0.0521 seconds\nProcess exited with code 0\nport = 8080"
    assert extract(result("openai", "c", f"{text} here"), ALL).lines == ("port = 8080 here",)
    assert extract(result("openai", "c", f"{QUOTED}\nthe port is 8081"), ALL).lines == ()


OPENHANDS_EDIT = (
    "<function=str_replace_editor>\n<parameter=command>str_replace</parameter>\n"
    "<parameter=path>b.py</parameter>\n<parameter=old_str>x</parameter>\n</function>"
)


def test_an_action_in_a_models_text_is_a_call() -> None:
    for text, files, command in [
        ("THOUGHT: look\n```bash\ncat src/a.py\n```", (("src/a.py", "read"),), None),
        ("```mswea_bash_command\nmake test\n```", (), "make test"),
        (OPENHANDS_EDIT, (("b.py", "edited"),), None),
    ]:
        (call,) = extract({"role": "assistant", "content": text}, ALL).calls
        assert (call.files, call.command) == (files, command)


def called(name: str, arguments: dict[str, Any]) -> CallExtract:
    block = {"type": "tool_use", "id": "c", "name": name, "input": arguments}
    (call,) = extract({"role": "assistant", "content": [block]}, ALL).calls
    return call


def test_a_call_tells_its_file_and_an_edit_or_a_patch_the_lines_out_and_in() -> None:
    for key in ("file_path", "filePath", "path", "absolutePath"):
        assert called("read", {key: "src/a.py"}).files == (("src/a.py", "read"),)
    edits: list[dict[str, Any]] = [
        {"path": "a.py", "old_string": "x = 1\n  y = 2", "new_string": "y = 2\nz = 3"},
        {"filePath": "a.py", "oldString": "x = 1\ny = 2", "newString": "y = 2\nz = 3"},
        {"path": "a.py", "edits": [{"oldText": "x = 1\ny = 2", "newText": "y = 2\nz = 3"}]},
    ]
    for arguments in edits:
        call = called("edit", arguments)
        assert (call.removed, call.added) == ({"x = 1"}, {"y = 2", "z = 3"})
    patch = "*** Begin Patch\n*** {} File: a.py{}\n*** End Patch"
    call = called("apply_patch", {"input": patch.format("Update", "\n-x = 1\n+z = 3\n y = 2")})
    assert (call.removed, call.added) == ({"x = 1"}, {"z = 3"})
    call = called("apply_patch", {"input": patch.format("Delete", "")})
    assert (call.files, call.deleted) == ((("a.py", "edited"),), ("a.py",))


def test_a_command_tells_the_files_that_it_removes() -> None:
    for command, deleted in [
        ("rm ~/.pi/nord.json && ls", ("~/.pi/nord.json",)),
        ("cd /r; git rm -q a.py b.py", ("a.py", "b.py")),
        ("mv old.py new.py", ("old.py",)),
        ("rm -rf build/ dist/*", ("build",)),
        ("npm run rm", ()),
        ("cat <<'EOF' > a.sh\nrm b.py\nEOF", ()),
    ]:
        assert called("bash", {"command": command}).deleted == deleted


def test_a_poll_names_the_process_that_a_result_told_and_others_short_arguments() -> None:
    text = "Chunk ID: 60a5a7\nProcess running with session ID 58192\nOutput:\n"
    found = extract(result("openai", "c", text), ALL)
    assert (dict(found.running), found.lines) == ({"c": "58192"}, ())
    assert called("write_stdin", {"session_id": 58192, "chars": ""}).process == "58192"
    arguments = {"pattern": "class Shop", "multiline": True, "n": 4, "body": "x" * 200}
    call = called("Grep", arguments)
    assert (call.told, call.source) == ("class Shop 4", "Grep")


@pytest.mark.parametrize("message", [MODEL, human("anthropic", ASKED), result("openai", "c", "x")])
def test_what_is_not_wanted_is_not_there(message: dict[str, Any]) -> None:
    bare = extract(message, ())
    assert bare == MessageExtracts(0, bare.speaker)
    read, run = extract(MODEL, ("file",)).calls
    assert (read.files, run.files) == ((("core/view.py", "read"),), ())
    assert (read.command, run.command) == (None, None)


def test_a_text_is_asked_for_every_kind_in_one_way() -> None:
    text = "Do not touch main.py; `make test` fails: ValueError: no port. See core/view.py."
    summary = Mentions([text])
    held: dict[tuple[Any, str], bool] = {
        ("instruction", "Never touch main.py."): False,
        ("instruction", "do not touch main.py."): True,
        ("command", "cd x && make test"): True,
        ("failure", "ValueError: no port"): True,
        ("file", "/a/core/view.py"): True,
        ("file_alone", "/other/view.py"): True,
        ("file", "/other/view.py"): False,
        ("name", "core/view.py"): True,
        ("line", "no such line"): False,
    }
    assert {asked: summary.holds(*asked) for asked in held} == held


# -- copies of a text ------------------------------------------------------------------------------


WORDS = "the launch code is 0042 alpha zulu tango foxtrot and nobody may ever know it"


@given(
    text=st.text("abcdefghij ", min_size=80, max_size=300),
    start=st.integers(0, 300),
    around=st.text("XYZ", max_size=50),
)
def test_any_part_of_the_least_length_is_found_anywhere(text: str, start: int, around: str) -> None:
    text = " ".join(text.split())
    start = min(start, max(0, len(text) - LEAST_SHARED))
    part = text[start : start + LEAST_SHARED]
    if len(part) < LEAST_SHARED or part != part.strip() or " " not in text:
        return
    assert Overlap([text]).shares(f"{around}{part}{around}")


TOKEN = "k" + "0123456789abcdef" * 3


def test_a_text_shares_what_is_long_enough_for_a_copy() -> None:
    for text, other, shared in [
        # Case, white space and what stands around do not matter.
        *((WORDS, other, True) for other in (WORDS.upper(), WORDS.replace(" ", "\n  "))),
        *((WORDS, other, True) for other in (f"He said: {WORDS}!", WORDS[10:50])),
        # What shares too little is no copy.
        *((WORDS, other, False) for other in ("", "the launch code is", WORDS[:23])),
        (WORDS, "something else " * 50, False),
        # A short text and a token are only found as a whole.
        ("my pin: 4711", "My PIN: 4711", True),
        ("src/a.py", "open src/a.py and read it", False),
        ("ok", "ok", False),
        (TOKEN, f"curl -H 'X-Key: {TOKEN}' somewhere", True),
        (TOKEN, TOKEN[:-1], False),
    ]:
        assert Overlap([text]).shares(other) is shared


def test_a_repeated_text_is_one_that_holds_it_as_a_whole() -> None:
    assert Overlap([WORDS]).holds(f"She wrote: {WORDS}")
    assert not Overlap([WORDS]).holds(WORDS[:-3])
    short = Overlap(["my pin: 4711", "src/a.py", "ok"])
    assert short.holds(" my pin:  4711 ")
    assert not short.holds("open src/a.py and read it")


def test_what_was_said_is_looked_for_and_the_names_of_files_ids_and_types_are_not() -> None:
    call = {"path": "/home/somebody/projects/thing/lib/a.py", "tier": "standard", "key": "x" * 40}
    blocks = [{"type": "text", "text": "hi"}, {"type": "tool_use", "name": "read", "input": call}]
    assert list(words_in({"role": "assistant", "content": blocks})) == ["hi", "x" * 40]
    assert list(words_in({"role": "user", "content": "hunter2"})) == ["hunter2"]
    use = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a.py", "id": 3}}
    assert list(texts_in({"role": "assistant", "content": [blocks[0], use]})) == ["hi", "a.py"]


# -- whether a tool's result failed ----------------------------------------------------------------


SUCCESSES: list[ToolResult] = [
    *(ToolResult(), ToolResult(output="fine"), ToolResult(output={"stdout": "x", "returncode": 1})),
    ToolResult(output="fine", error={"message": "a warning"}),
    ToolResult(output=["Error: a line of a file"]),
]
FAILURES: list[tuple[ToolResult, str, str]] = [
    (ToolResult(success=False), KIND, NO_REASON),
    (ToolResult(success=False, error={"message": "no such file"}), KIND, "no such file"),
    (ToolResult(success=False, output="half", error={"message": "died"}), KIND, "died"),
    (ToolResult(success=False, error={"message": "gone", "type": "OSError"}), "OSError", "gone"),
    (ToolResult(success=False, error={"code": "E1"}), KIND, '{"code": "E1"}'),
    (ToolResult(success=False, output="it broke"), KIND, "it broke"),
    (ToolResult(success=False, output={"returncode": 1}), KIND, '{"returncode": 1}'),
]


def test_a_success_is_none_in_every_form_and_anything_else_reports_no_failure() -> None:
    for told in SUCCESSES:
        assert failure_of(told) is None
        for copy in (told, told.model_dump(), json.dumps(told.model_dump()), str(told)):
            assert failure_of_copy(copy) is None
    others: list[Any] = [
        *(None, True, 0, 1.5, b"Error: x", [], [{"success": False}], {}, {"success": 0}),
        *({"success": "false"}, {"output": {"success": False}}, {"error": "nope"}),
        *("", "error: x", "Errors: 3", "Failed: 3 tests", "Failed\n", "{", '{"success": false'),
        *('{"output": {"success": false}}', "{'output': {'success': False}}"),
        '{"success": ' + "[" * 100_000,
    ]
    for other in others:
        assert failure_of_copy(other) is None


def test_a_failure_is_one_with_its_type_and_reason_as_value_as_fields_and_as_a_loops_row() -> None:
    for told, kind, message in FAILURES:
        fields = told.model_dump()
        copies = [failure_of_copy(copy) for copy in (fields, json.dumps(fields))]
        whole = [failure_of(told), failure_of(fields), failure_of_row(json.dumps(fields))]
        assert [*copies, *whole] == [ToolFailure(kind, message)] * 5
        assert failure_of_row(str(told)) is not None


def test_a_dict_or_object_that_says_it_failed_is_a_failure_but_a_tools_text_is_none() -> None:
    plain = {"success": False, "error": "nope"}
    assert failure_of(plain) == ToolFailure(KIND, "nope")
    assert failure_of_copy(str(plain)) == ToolFailure(KIND, str(plain))
    assert failure_of_copy(str({"error": "nope", "success": False})) is not None
    for text in ("Error: in line 3", "Failed", '{"success": false}'):
        assert failure_of(text) is None
    endless: list[Any] = []
    endless.append(endless)
    odd = SimpleNamespace(success=False, error=endless, output=7)
    assert failure_of(odd) == ToolFailure(KIND, "7")
    assert failure_of(SimpleNamespace(success=False)) == ToolFailure(KIND, NO_REASON)
    assert failure_of(SimpleNamespace(error="nope")) is None


def test_the_words_of_loops_for_a_call_without_a_result_tell_a_failure_and_others_none() -> None:
    for row, message in [
        ("Error executing tool: x", "x"),
        ("Internal error executing tool: x", "x"),
        ("Error executing tool: ", NO_REASON),
        ("Denied by hook: x", "Denied by hook: x"),
        *((row, None) for row in ("fine", '{"success": true, "output": 1}', "{", "")),
        ('{"success": false, "tests": 3}', None),
    ]:
        assert failure_of_row(row) == (None if message is None else ToolFailure(KIND, message))


def test_the_answer_of_a_tool_is_the_text_of_its_output() -> None:
    answers: list[tuple[Any, str | None]] = [
        ("text", "text"),
        (None, None),
        ({"success": True, "output": "text", "error": None}, "text"),
        ({"success": False, "output": {"stderr": "é"}, "error": None}, '{"stderr": "é"}'),
        ({"success": False, "output": None, "error": None}, None),
        ({"files": ["a"]}, '{"files": ["a"]}'),
        ([1, 2], "[1, 2]"),
        ({"odd": {1}}, None),
    ]
    for copy, answer in answers:
        assert answer_of_copy(copy) == answer
