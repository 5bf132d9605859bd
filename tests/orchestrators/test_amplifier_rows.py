"""Rows of any dialect become messages that Amplifier's providers accept."""

from __future__ import annotations

from typing import Any

import pytest
from amplifier_core.message_models import Message

from eventctx.orchestrators.providers.amplifier import as_messages

AMPLIFIER: list[dict[str, Any]] = [
    {"role": "user", "content": "hi", "metadata": {"timestamp": "x"}},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "sig==", "visibility": None},
            {"type": "tool_call", "id": "c", "name": "n", "input": {}, "visibility": None},
        ],
        "tool_calls": [{"id": "c", "tool": "n", "arguments": {}}],
    },
    {"role": "tool", "tool_call_id": "c", "name": "n", "content": "done"},
]


def test_amplifiers_own_rows_pass_as_they_are() -> None:
    assert as_messages(AMPLIFIER) == [Message(**row) for row in AMPLIFIER]


CALL = {"type": "tool_call", "id": "c", "name": "n", "input": {"a": 1}}
CALLS = [{"id": "c", "tool": "n", "arguments": {"a": 1}}]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "function": {"name": "n", "arguments": '{"a": 1}'}}],
            },
            [{"role": "assistant", "content": [CALL], "tool_calls": CALLS}],
        ),
        (
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c", "content": "one"},
                    {"type": "tool_result", "tool_use_id": "d", "content": [{"text": "two"}]},
                    {"type": "text", "text": "and?"},
                ],
            },
            [
                {"role": "tool", "tool_call_id": "c", "content": "one"},
                {"role": "tool", "tool_call_id": "d", "content": "two"},
                {"role": "user", "content": [{"type": "text", "text": "and?"}]},
            ],
        ),
        (
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                    {"type": "input_text", "text": "what is it?"},
                ],
            },
            [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "image",
                            "source": {
                                "type": "base64",
                                "media_type": "image/png",
                                "data": "AAAA",
                            },
                        },
                        {"type": "text", "text": "what is it?"},
                    ],
                }
            ],
        ),
        (
            {
                "role": "assistant",
                "content": "so",
                "tool_calls": [{"id": "c", "function": {"name": "n", "arguments": '{"a": 1}'}}],
            },
            [
                {
                    "role": "assistant",
                    "content": [{"type": "text", "text": "so"}, CALL],
                    "tool_calls": CALLS,
                }
            ],
        ),
        ({"role": "critic", "content": "no"}, [{"role": "user", "content": "no"}]),
        ({"role": "assistant", "content": None}, [{"role": "assistant", "content": ""}]),
        (
            {"role": "user", "content": [{"type": "video", "id": 3}]},
            [{"role": "user", "content": [{"type": "text", "text": '{"type":"video","id":3}'}]}],
        ),
    ],
    ids=range(7),
)
def test_other_dialects_are_put_into_amplifiers_words(
    row: dict[str, Any], expected: list[dict[str, Any]]
) -> None:
    made = [one.model_dump(exclude_none=True) for one in as_messages([row])]
    assert made == expected
