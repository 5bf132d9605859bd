"""An old image of a person makes room as a result does; in the view only, in every dialect."""

from __future__ import annotations

import base64
import copy
import struct
import zlib
from typing import Any

import pytest

import eventctx
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.shorten import Limit, shorten
from eventctx.messages.tokens import FAMILIES
from eventctx.policies.pipeline import reduce_view
from eventctx.policies.policy import Proposal
from eventctx.policies.working_set import bound_tokens
from eventctx.testing.policies import view_of
from tests.policies.given import model, user

Row = dict[str, Any]


def png(width: int, height: int) -> str:
    """The base64 of a PNG of so many pixels; only its header is read."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", len(header)) + b"IHDR" + header
    chunk += struct.pack(">I", zlib.crc32(b"IHDR" + header))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + chunk).decode()


DATA = png(1_200, 1_000)
URL = f"data:image/png;base64,{DATA}"
WORDS = "This is the screen after the second click, and it must stay like that."
SOURCE = {"type": "base64", "media_type": "image/png", "data": DATA}
ANSWERED = {"type": "tool_result", "tool_use_id": "c", "content": [
    {"type": "text", "text": "shot"}, {"type": "image", "source": SOURCE}]}  # fmt: skip
SENT: dict[str, Row] = {
    "Anthropic": {"role": "user", "content": [
        {"type": "text", "text": WORDS}, {"type": "image", "source": SOURCE}]},
    "a PDF": {"role": "user", "content": [
        {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}},
        {"type": "text", "text": WORDS}]},
    "OpenAI chat": {"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": URL}}, {"type": "text", "text": WORDS}]},
    "Responses": {"type": "message", "role": "user", "content": [
        {"type": "input_text", "text": WORDS}, {"type": "input_image", "image_url": URL}]},
    "a recording": {"role": "user", "content": [
        {"type": "text", "text": WORDS},
        {"type": "input_audio", "input_audio": {"format": "wav", "id": "r1"}}]},
    "without a type": {"role": "user", "content": [
        {"type": "text", "text": WORDS},
        {"inlineData": {"mimeType": "image/png", "data": DATA}}]},
    "beside a result": {"role": "user", "content": [ANSWERED, {"type": "text", "text": WORDS}]},
    "several": {"role": "user", "content": [
        {"type": "text", "text": WORDS}, *[{"type": "image", "source": SOURCE}] * 9]},
    "alone": {"role": "user", "content": [{"type": "image", "source": SOURCE}]},
}  # fmt: skip
every = pytest.mark.parametrize("message", SENT.values(), ids=SENT)


@every
def test_a_line_takes_the_place_of_an_image_and_words_stay(message: Row) -> None:
    facts = read_facts(message)
    assert facts.human and facts.media
    short = shorten(copy.deepcopy(message), 1_234_567, Limit(media=0), facts)
    now = read_facts(short)
    assert now.human and not now.media and now.results == facts.results
    assert (WORDS in str(short)) == (WORDS in str(message))
    assert str(short).count("left out of message 1234567") == len(facts.media)
    for rates in FAMILIES.values():
        assert rates.tokens(now) <= bound_tokens(facts, Limit(media=0), rates)


@every
def test_a_step_of_a_pipeline_counts_what_is_left(message: Row) -> None:
    visible = view_of([message, user("on")], ())
    decided: Any = {0: ("shortened", "custom"), 1: ("kept", "custom")}
    (ref, _) = reduce_view(visible, Proposal(decided, {0: Limit(media=0)})).messages
    assert ref.tokens == visible.estimator.tokens(ref.facts) < visible.messages[0].tokens


def test_images_of_a_tool_or_a_harness_are_no_persons() -> None:
    for message in (
        {"role": "user", "content": [ANSWERED]},
        {"role": "user", "content": [
            {"type": "text", "text": "<system-reminder>x</system-reminder>"},
            {"type": "image", "source": SOURCE}]},
    ):  # fmt: skip
        assert shorten(copy.deepcopy(message), 3, Limit(media=0)) == message


POLICIES = ["workset", "ladder", "simple", "truncate", "importance", "token-budget"]


@pytest.mark.parametrize("policy", POLICIES)
async def test_old_screens_make_room_and_the_words_beside_them_stay(policy: str) -> None:
    budget = 12_000
    async with eventctx.open() as engine:
        ctx = await engine.session("s", policy=policy, max_tokens=budget)
        for n in range(20):
            image = {"type": "image", "source": SOURCE}
            asked = {"type": "text", "text": f"Screen {n}: what is wrong with it?"}
            await ctx.add_message({"role": "user", "content": [asked, image]})
            view = await ctx.get_messages_for_request()
            assert str(view[-1]).count(DATA) == 1, "the one to be answered is shown"
            await ctx.add_message(model(f"On screen {n} nothing is wrong. " + "so " * 200))
        shown = str(view)
        assert shown.count(DATA) < 8 and "image left out of message" in shown
        assert all(f"Screen {n}: what is wrong with it?" in shown for n in range(20))
        assert all(DATA in str(row) for row in await ctx.get_messages() if row["role"] == "user")
        audit = await engine.audit("s")
        assert len(audit.compactions) < 12 and all(
            row.fallback is None for row in audit.compactions
        )
