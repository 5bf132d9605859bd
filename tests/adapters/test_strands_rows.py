"""Strands' messages come back from the log as they were."""

from __future__ import annotations

import base64
import json
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings

pytest.importorskip("strands", reason="an extra that is not in dev: eventctx[strands]")

from eventctx.adapters.strands import rows
from eventctx.messages.encoding import decode_body, encode_plain
from eventctx.messages.parts import read_parts
from eventctx.testing import check_dialect
from tests.adapters.test_dialects import ROUNDS, Round, called, texts_of

Row = dict[str, Any]


class Strands:
    def rows_of(self, messages: Sequence[Row]) -> list[Row]:
        return [rows.row_of(one) for one in messages]

    def messages_of(self, given: Sequence[Row]) -> list[Row]:
        return rows.messages_of(given, [], [])

    def identity(self, row: Mapping[str, Any]) -> Hashable:
        return rows.identity(row)

    def native(self, rounds: Sequence[Round]) -> list[Row]:
        found: list[Row] = []
        for one, calls in called(rounds):
            found.append(said("user", {"text": one.question}))
            asked = [
                {"toolUse": {"toolUseId": call_id, "name": "look", "input": {"at": at}}}
                for call_id, at, _ in calls
            ]
            results = [
                result(call_id, *answers(at, text)) for at, (call_id, _, text) in enumerate(calls)
            ]
            found += [said("assistant", *asked), said("user", *results)] if calls else []
            found.append(said("assistant", {"text": one.answer}))
        return found


def said(role: str, *content: Row) -> Row:
    return {"role": role, "content": list(content)}


def result(call_id: str, *content: Row, status: str = "success") -> Row:
    return {"toolResult": {"toolUseId": call_id, "status": status, "content": list(content)}}


def answers(at: int, text: str) -> list[Row]:
    """A result as a text, as data, or as both."""
    return ([{"text": text}], [{"json": {"found": text}}], [{"text": text}, {"json": [at]}])[at % 3]


@settings(max_examples=25, deadline=None)
@given(ROUNDS)
def test_it_is_a_dialect(rounds: list[Round]) -> None:
    data = {text for one in rounds for _, text in one.calls[1::3]}  # of which JSON is read
    texts = [
        json.dumps(one, ensure_ascii=False)[1:-1] if one in data else one
        for one in texts_of(rounds)
    ]
    check_dialect(Strands(), Strands().native(rounds), texts)


PICTURE = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
S3 = {"location": {"type": "s3", "uri": "s3://bucket/file"}}
BLOCKS = [
    {"text": "hi"},
    {"text": ""},
    {"image": {"format": "gif", "source": {"bytes": PICTURE}}},
    {"image": {"format": "png", "source": S3}},
    {"document": {"format": "pdf", "name": "a", "source": {"bytes": b"%PDF"}}},
    {"document": {"format": "txt", "name": "b", "source": S3, "citations": {"enabled": True}}},
    {"video": {"format": "mp4", "source": {"bytes": b"\0"}}},
    {"audio": {"format": "mp3", "source": {"bytes": b"\0"}}},
    {"cachePoint": {"type": "default", "ttl": "5m"}},
    {"guardContent": {"text": {"text": "guard this", "qualifiers": ["query"]}}},
    {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "sig"}}},
    {"reasoningContent": {"redactedContent": b"sealed"}},
    {"citationsContent": {"citations": [{"title": "t"}], "content": [{"text": "cited"}]}},
    {"citationsContent": {"citations": [], "content": [{"text": "one"}, {"text": "two"}]}},
    {"toolUse": {"toolUseId": "c", "name": "f", "input": {"a": [1]}, "reasoningSignature": "s"}},
    {"toolUse": {"toolUseId": "c", "name": "f", "input": "no object"}},
    result("c", {"text": "one"}, {"json": {"two": 2}}, {"image": {"format": "gif", "source": S3}}),
    result("c", {"text": "no"}, status="error"),
    {"text": "two keys", "cachePoint": {"type": "default"}},
    {"futureContent": {"data": b"new", "type": "future"}},
    {"futureText": "new"},
]


def through_the_log(row: Row) -> Row:
    return decode_body(encode_plain(row))  # type: ignore[no-any-return]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda one: "-".join(one))
def test_a_block_comes_back_whole(block: Row) -> None:
    row = through_the_log(rows.row_of(said("user", block)))
    assert rows.message_of(row) == said("user", block)


@pytest.mark.parametrize(
    ("block", "kind"),
    [
        (BLOCKS[2], "image"),
        (BLOCKS[4], "document"),
        (BLOCKS[9], "text"),
        (BLOCKS[10], "thinking"),
        (BLOCKS[11], "thinking"),
        (BLOCKS[12], "text"),
        (BLOCKS[14], "call"),
        (BLOCKS[17], "result"),
    ],
)
def test_the_engine_reads_a_block_as_what_it_is(block: Row, kind: str) -> None:
    (part,) = read_parts(rows.row_of(said("assistant", block)))
    assert part.kind == kind
    assert part.failed is (block == BLOCKS[17])


def test_values_of_a_program_that_are_no_json_become_texts() -> None:
    given = {"at": (1, float("inf")), "who": ValueError("x"), 3: b"a"}
    message = said("assistant", {"toolUse": {"toolUseId": "c", "name": "f", "input": given}})
    row = through_the_log(rows.row_of(message))
    assert row["content"][0]["input"]["at"] == [1, "inf"]
    assert rows.message_of(row)["content"][0]["toolUse"]["input"]["3"] == b"a"


def test_data_that_was_shortened_becomes_a_text() -> None:
    row = rows.row_of(said("user", result("c", {"json": {"long": "x" * 99}})))
    row["content"][0]["content"][0]["text"] = '{"long": "x…'
    back = rows.message_of(row)["content"][0]["toolResult"]["content"]
    assert back == [{"text": '{"long": "x…'}]


def test_a_request_that_shows_a_message_whole_has_that_very_message() -> None:
    sent = [said("user", {"text": "a"}), said("assistant", {"text": "b"}), said("user", BLOCKS[2])]
    held = [rows.row_of(one) for one in sent]
    summary = {"role": "user", "content": "In short."}
    first, last = rows.messages_of([summary, held[2]], sent, held)
    assert first == said("user", {"text": "In short."})
    assert last is sent[2]


def test_a_system_prompt_of_blocks_is_its_texts() -> None:
    blocks: list[Row] = [
        {"text": "Be brief."},
        {"cachePoint": {"type": "default"}},
        {"text": "So."},
    ]
    assert rows.instructions_of(blocks) == "Be brief.\nSo."
    assert rows.instructions_of([blocks[1]]) is rows.instructions_of(None) is None


def test_the_definition_of_a_tool() -> None:
    schema = {"type": "object", "properties": {"at": {"type": "string"}}}
    spec = {"name": "look", "description": "Look.", "inputSchema": {"json": schema}}
    assert rows.tool_definitions([spec]) == [
        {"name": "look", "description": "Look.", "input_schema": schema}
    ]
