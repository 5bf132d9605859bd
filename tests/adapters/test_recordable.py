"""Rows of hosts that the log could not hold as they are."""

from __future__ import annotations

import math
from datetime import date
from typing import Any

from eventctx.adapters.kit.recordable import recordable
from eventctx.messages.encoding import MAX_DEPTH, decode_body, encode_message


def test_a_row_that_the_log_can_hold_is_the_row_itself() -> None:
    row = {"role": "user", "content": [{"type": "text", "text": "zażółć"}], "n": 1.5, "no": None}
    assert recordable(row) is row


def test_what_is_no_json_stands_as_a_text_and_all_else_as_it_was() -> None:
    given: dict[Any, Any] = {
        "role": "user",
        "content": "half \ud800 of a pair",
        "arguments": {"nan": math.nan, "large": 2**70, "day": date(2026, 1, 2), 3: "three"},
        "parts": ({"data": b"\xff"}, [1, True, None, math.inf]),
    }
    told = recordable(given)
    assert told == {
        "role": "user",
        "content": "half \\ud800 of a pair",
        "arguments": {"nan": "nan", "large": str(2**70), "day": "2026-01-02", "3": "three"},
        "parts": [{"data": "b'\\xff'"}, [1, True, None, "inf"]],
    }
    assert decode_body(encode_message(told)) == told


def test_what_is_nested_too_deeply_stands_as_a_text() -> None:
    deep: Any = "bottom"
    for _ in range(2 * MAX_DEPTH):
        deep = [deep]
    told = recordable({"role": "user", "content": deep})
    assert "bottom" in encode_message(told).decode()
