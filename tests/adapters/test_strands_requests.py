"""What Strands is given to send is accepted by Bedrock."""

from __future__ import annotations

import asyncio
import json
import random
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("strands", reason="an extra that is not in dev: eventctx[strands]")

from strands import tool
from strands.agent import NullConversationManager

from eventctx.adapters.strands import EventctxAgentPlugin
from eventctx.adapters.strands.rows import sendable
from eventctx.engine import open_engine
from eventctx.orchestrators.protocol import ToolRequest
from eventctx.testing import Reply
from eventctx.testing.strict_provider import violations
from tests.adapters.drivers.strands import Scripted, agent, check_requests, types
from tests.adapters.long_talks import NAMES, TURNS, interrupted_at, settings_for


class Tools:
    """A tool that reads, fails, or is interrupted."""

    def __init__(self) -> None:
        self.waits = asyncio.Event()

        @tool
        async def read(page: int, how: str) -> str:
            """Read a page."""
            if how == "fails":
                raise LookupError(f"page {page} is torn")
            if how == "waits":
                self.waits.set()
                await asyncio.Event().wait()
            return "" if how == "empty" else f"page {page}: " + "words " * 200

        self.read = read


class Answers(Scripted):
    """Reads pages at random, in one or two rounds a turn, and thinks before some answers."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__([])
        self.draw = draw
        self.number = 0
        self.rounds = 0

    def next_turn(self) -> None:
        self.rounds = self.draw.choice([0, 1, 1, 2])

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
    draw = random.Random(seed)  # noqa: S311
    model, tools = Answers(draw), Tools()
    ours = EventctxAgentPlugin(engine, "s", **settings)
    host = agent(
        ours,
        model=model,
        tools=[tools.read],
        system_prompt="Be brief.",
        conversation_manager=NullConversationManager(),
    )
    for turn in range(TURNS):
        model.next_turn()
        tools.waits.clear()
        work = host.invoke_async(f"Read page {turn}, please.")
        await interrupted_at(tools.waits, work, lambda: draw.choice([0, 3, 30]))
    return model


@pytest.mark.parametrize("policy", NAMES)
async def test_bedrock_accepts_every_request_of_a_long_session_at_a_small_budget(
    policy: str,
) -> None:
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
        assert (await types(engine, "s")).count("context:messages_set") == 0
        await check_requests(engine, "s", model)


BLOCKS = {
    "user": st.sampled_from(
        [{"text": "Read."}, {"text": " "}, {"toolResult": {"toolUseId": "a", "content": []}}]
    ),
    "assistant": st.sampled_from(
        [
            {"text": "Read."},
            {"text": ""},
            {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "s"}}},
            {"toolUse": {"toolUseId": "a", "name": "read", "input": {}}},
        ]
    ),
}
MESSAGES = st.sampled_from(["user", "assistant"]).flatmap(
    lambda role: st.fixed_dictionaries(
        {"role": st.just(role), "content": st.lists(BLOCKS[role], max_size=3)}
    )
)
PAIRS = ("bedrock/calls-answered", "bedrock/results-have-calls", "bedrock/call-ids-unique")


@given(st.lists(MESSAGES, max_size=8))
def test_what_is_sent_loses_no_words_and_keeps_the_rules_of_bedrock(
    messages: list[dict[str, Any]],
) -> None:
    messages = [{"role": "user", "content": [{"text": "Begin."}]}, *messages]
    before = deepcopy(messages)
    sent = sendable(messages)
    assert messages == before
    assert sendable(sent) == sent
    rules = (*PAIRS, "bedrock/one-result-a-call", "bedrock/prefill-without-space")
    assert not violations("bedrock", {"messages": sent}, without=rules)
    for word in ('"Read."', '"toolUse"', '"toolResult"'):
        assert json.dumps(sent).count(word) == json.dumps(messages).count(word)
