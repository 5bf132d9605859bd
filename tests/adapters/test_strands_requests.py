"""What Strands is given to send is accepted by Bedrock, and comes back from the log as it was."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import pytest

pytest.importorskip("strands", reason="an extra that is not in dev: eventctx[strands]")

from hypothesis import given, settings
from hypothesis import strategies as st
from strands import tool
from strands.agent import NullConversationManager

from eventctx.adapters.strands import EventctxAgentPlugin, rows
from eventctx.adapters.strands.rows import sendable
from eventctx.engine import open_engine
from eventctx.messages.encoding import decode_body, encode_plain
from eventctx.messages.parts import read_parts
from eventctx.orchestrators.protocol import ToolRequest
from eventctx.testing import Reply, check_dialect
from eventctx.testing.strict_provider import violations
from tests.adapters.drivers.strands import Scripted, agent, check_requests
from tests.adapters.logs import count
from tests.adapters.long_talks import NAMES, TURNS, interrupted_at, settings_for
from tests.adapters.test_dialects import ROUNDS, Dialect, Round, called, texts_of


class Answers(Scripted):
    """Reads pages at random, in one or two rounds a turn, and thinks before some answers."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__([])
        self.draw = draw
        self.number = 0
        self.rounds = 0

    async def stream(self, *given: Any, **named: Any) -> Any:
        self.number += 1
        thinks = "Pages first. " * 20 if self.draw.random() < 0.4 else None
        if self.rounds:
            self.rounds -= 1
            hows = self.draw.choices(["reads", "fails", "empty", "waits"], [6, 2, 1, 1], k=3)
            calls = [
                ToolRequest(f"call_{self.number}_{at}", "read", {"page": self.number, "how": how})
                for at, how in enumerate(hows[: self.draw.choice([1, 2, 3])])
            ]
            text = self.draw.choice(["", "", "I look.", " \n"])
            self.script = [Reply(text, calls=calls, thinking=thinks)]
        else:
            self.script = [Reply(f"Read {self.number}. " + "so " * 60, thinking=thinks)]
        async for event in super().stream(*given, **named):
            yield event


async def talk(engine: Any, seed: int, settings: dict[str, Any]) -> Answers:
    draw, waits = random.Random(seed), asyncio.Event()  # noqa: S311
    model, ours = Answers(draw), EventctxAgentPlugin(engine, "s", **settings)

    @tool
    async def read(page: int, how: str) -> str:
        """Read a page."""
        if how == "fails":
            raise LookupError(f"page {page} is torn")
        if how == "waits":
            waits.set()
            await asyncio.Event().wait()
        return "" if how == "empty" else f"page {page}: " + "words " * 200

    given = {"system_prompt": "Be brief.", "conversation_manager": NullConversationManager()}
    host = agent(ours, model=model, tools=[read], **given)
    for turn in range(TURNS):
        model.rounds = draw.choice([0, 1, 1, 2])
        waits.clear()
        work = host.invoke_async(f"Read page {turn}, please.")
        await interrupted_at(waits, work, lambda: draw.choice([0, 3, 30]))
    return model


@pytest.mark.parametrize("policy", NAMES)
async def test_bedrock_accepts_every_request_of_a_long_session(policy: str) -> None:
    async with open_engine("memory://") as engine:
        model = await talk(engine, len(policy), settings_for(policy))
        refused = [
            (number, one)
            for number, (_, sent, _) in enumerate(model.seen)
            for one in violations("bedrock", {"messages": sent})
        ]
        assert not refused, f"{len(refused)} of {len(model.seen)} requests: {refused[:3]}"
        assert (await engine.audit("s")).compactions
        assert (await engine.verify("s")).ok
        assert await count(engine, "context:messages_set") == [0]
        await check_requests(engine, "s", model)


CONTENT: dict[str, list[dict[str, Any]]] = {
    "user": [{"text": "Read."}, {"text": " "}, {"toolResult": {"toolUseId": "a", "content": []}}],
    "assistant": [
        *({"text": "Read."}, {"text": ""}),
        {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "s"}}},
        {"toolUse": {"toolUseId": "a", "name": "read", "input": {}}},
    ],
}
MESSAGES = st.sampled_from(["user", "assistant"]).flatmap(
    lambda role: st.fixed_dictionaries(
        {"role": st.just(role), "content": st.lists(st.sampled_from(CONTENT[role]), max_size=3)}
    )
)
PAIRS = ("bedrock/calls-answered", "bedrock/results-have-calls", "bedrock/call-ids-unique")


@given(st.lists(MESSAGES, max_size=8))
def test_what_is_sent_loses_nothing_and_keeps_the_rules(messages: list[dict[str, Any]]) -> None:
    messages = [{"role": "user", "content": [{"text": "Begin."}]}, *messages]
    before = deepcopy(messages)
    sent = sendable(messages)
    assert messages == before
    assert sendable(sent) == sent
    rules = (*PAIRS, "bedrock/one-result-a-call", "bedrock/prefill-without-space")
    assert not violations("bedrock", {"messages": sent}, without=rules)
    for word in ('"Read."', '"toolUse"', '"toolResult"'):
        assert json.dumps(sent).count(word) == json.dumps(messages).count(word)


# -- messages come back from the log as they were -------------------------------------------------


Row = dict[str, Any]


def native(rounds: Sequence[Round]) -> list[Row]:
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
    dialect = Dialect(
        native,
        lambda messages: [rows.row_of(one) for one in messages],
        lambda given: rows.messages_of(given, [], []),
        rows.identity,
    )
    check_dialect(dialect, native(rounds), texts)


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
    ("place", "kind"),
    [
        *((2, "image"), (4, "document"), (9, "text"), (10, "thinking"), (11, "thinking")),
        *((12, "text"), (14, "call"), (17, "result")),
    ],
)
def test_the_engine_reads_a_block_as_what_it_is(place: int, kind: str) -> None:
    (part,) = read_parts(rows.row_of(said("assistant", BLOCKS[place])))
    assert (part.kind, part.failed) == (kind, place == 17)


def test_values_of_a_program_that_are_no_json_become_texts() -> None:
    given = {"at": (1, float("inf")), "who": ValueError("x"), 3: b"a"}
    message = said("assistant", {"toolUse": {"toolUseId": "c", "name": "f", "input": given}})
    row = through_the_log(rows.row_of(message))
    assert row["content"][0]["input"]["at"] == [1, "inf"]
    assert rows.message_of(row)["content"][0]["toolUse"]["input"]["3"] == b"a"
    # So does data that was shortened.
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


def test_a_system_prompt_of_blocks_is_its_texts_and_tools_are_defined() -> None:
    cached: Row = {"cachePoint": {"type": "default"}}
    blocks: list[Row] = [{"text": "Be brief."}, cached, {"text": "So."}]
    assert rows.instructions_of(blocks) == "Be brief.\nSo."
    assert rows.instructions_of([blocks[1]]) is rows.instructions_of(None) is None
    schema = {"type": "object", "properties": {"at": {"type": "string"}}}
    spec = {"name": "look", "description": "Look.", "inputSchema": {"json": schema}}
    assert rows.tool_definitions([spec]) == [
        {"name": "look", "description": "Look.", "input_schema": schema}
    ]
