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
THEIRS = [{"id": "c", "function": {"name": "n", "arguments": '{"a": 1}'}}]
TEXT = {"type": "text", "text": "and?"}
BYTES = {"type": "base64", "media_type": "image/png", "data": "AAAA"}


@pytest.mark.parametrize(
    ("role", "content", "more", "expected"),
    [
        ("assistant", None, {"tool_calls": THEIRS}, [{"content": [CALL], "tool_calls": CALLS}]),
        (
            "assistant",
            "so",
            {"tool_calls": THEIRS},
            [{"content": [{"type": "text", "text": "so"}, CALL], "tool_calls": CALLS}],
        ),
        (
            "user",
            [
                {"type": "tool_result", "tool_use_id": "c", "content": "one"},
                {"type": "tool_result", "tool_use_id": "d", "content": [{"text": "two"}]},
                TEXT,
            ],
            {},
            [
                {"role": "tool", "tool_call_id": "c", "content": "one"},
                {"role": "tool", "tool_call_id": "d", "content": "two"},
                {"content": [TEXT]},
            ],
        ),
        (
            "user",
            [
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                {"type": "input_text", "text": "and?"},
            ],
            {},
            [{"content": [{"type": "image", "source": BYTES}, TEXT]}],
        ),
        ("critic", "no", {}, [{"role": "user", "content": "no"}]),
        ("assistant", None, {}, [{"content": ""}]),
        (
            "user",
            [{"type": "video", "id": 3}],
            {},
            [{"content": [{"type": "text", "text": '{"type":"video","id":3}'}]}],
        ),
    ],
    ids=range(7),
)
def test_other_dialects_are_put_into_amplifiers_words(
    role: str, content: Any, more: dict[str, Any], expected: list[dict[str, Any]]
) -> None:
    made = as_messages([{"role": role, "content": content, **more}])
    assert [one.model_dump(exclude_none=True) for one in made] == [
        {"role": role, **one} for one in expected
    ]
