"""Reading from a tool's result whether it failed, in every form that loops report it in."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_core.models import ToolResult

from eventctx.messages.tool_results import (
    KIND,
    NO_REASON,
    ToolFailure,
    answer_of_copy,
    failure_of,
    failure_of_copy,
    failure_of_row,
)

SUCCESSES: list[ToolResult] = [
    ToolResult(),
    ToolResult(output="fine"),
    ToolResult(output={"stdout": "x", "returncode": 1}),
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


@pytest.mark.parametrize("result", SUCCESSES)
def test_a_success_is_none_in_every_form(result: ToolResult) -> None:
    assert failure_of(result) is None
    for copy in (result, result.model_dump(), json.dumps(result.model_dump()), str(result)):
        assert failure_of_copy(copy) is None


@pytest.mark.parametrize(("result", "kind", "message"), FAILURES)
def test_a_failure_is_one_with_its_type_and_reason_as_value_as_fields_and_as_a_loops_row(
    result: ToolResult, kind: str, message: str
) -> None:
    fields = result.model_dump()
    copies = [failure_of_copy(copy) for copy in (fields, json.dumps(fields))]
    whole = [failure_of(result), failure_of(fields), failure_of_row(json.dumps(fields))]
    assert [*copies, *whole] == [ToolFailure(kind, message)] * 5
    assert failure_of_row(str(result)) is not None


def test_a_dict_that_says_it_failed_is_a_failure_also_as_text_but_a_tools_text_is_none() -> None:
    plain = {"success": False, "error": "nope"}
    assert failure_of(plain) == ToolFailure(KIND, "nope")
    assert failure_of_copy(str(plain)) == ToolFailure(KIND, str(plain))
    assert failure_of_copy(str({"error": "nope", "success": False})) is not None
    for text in ("Error: in line 3", "Failed", '{"success": false}'):
        assert failure_of(text) is None


@pytest.mark.parametrize(
    "copy",
    [
        *(None, True, 0, 1.5, b"Error: x", [], [{"success": False}], {}, {"success": 0}),
        *({"success": "false"}, {"output": {"success": False}}, {"error": "nope"}),
        *("", "error: x", "Errors: 3", "Failed: 3 tests", "Failed\n", "{", '{"success": false'),
        *('{"output": {"success": false}}', "{'output': {'success': False}}"),
        '{"success": ' + "[" * 100_000,
    ],
)
def test_anything_else_reports_no_failure(copy: Any) -> None:
    assert failure_of_copy(copy) is None


def test_an_object_with_odd_fields_is_read_all_the_same() -> None:
    endless: list[Any] = []
    endless.append(endless)
    odd = SimpleNamespace(success=False, error=endless, output=7)
    assert failure_of(odd) == ToolFailure(KIND, "7")
    assert failure_of(SimpleNamespace(success=False)) == ToolFailure(KIND, NO_REASON)
    assert failure_of(SimpleNamespace(error="nope")) is None


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("Error executing tool: x", "x"),
        ("Internal error executing tool: x", "x"),
        ("Error executing tool: ", NO_REASON),
        ("Denied by hook: x", "Denied by hook: x"),
        *((row, None) for row in ("fine", '{"success": true, "output": 1}', "{", "")),
        ('{"success": false, "tests": 3}', None),
    ],
)
def test_the_words_of_loops_for_a_call_without_a_result_tell_a_failure_and_others_none(
    row: str, message: str | None
) -> None:
    assert failure_of_row(row) == (None if message is None else ToolFailure(KIND, message))


@pytest.mark.parametrize(
    ("copy", "answer"),
    [
        ("text", "text"),
        (None, None),
        ({"success": True, "output": "text", "error": None}, "text"),
        ({"success": False, "output": {"stderr": "é"}, "error": None}, '{"stderr": "é"}'),
        ({"success": False, "output": None, "error": None}, None),
        ({"files": ["a"]}, '{"files": ["a"]}'),
        ([1, 2], "[1, 2]"),
        ({"odd": {1}}, None),
    ],
)
def test_the_answer_of_a_tool_is_the_text_of_its_output(copy: Any, answer: str | None) -> None:
    assert answer_of_copy(copy) == answer
