"""Views without a session, stories played in one, and rules that every policy keeps in both."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from eventctx.engine import Engine, open_engine
from eventctx.log.codec import decode_event
from eventctx.policies import rules
from eventctx.policies.fit import Fitted, fit
from eventctx.policies.index import HEADER
from eventctx.policies.policy import Budget, Policy, PolicyState, Proposal, Visible
from eventctx.policies.trigger import make_budget
from eventctx.policies.working_set import keep_whole
from eventctx.projections.presence import REASONS
from eventctx.session.context import Context
from eventctx.stores.memory import MemoryStore
from eventctx.testing.policies import Answers, decide, view_of
from tests.how_much import some
from tests.sessions import model as model
from tests.sessions import user as user
from tests.sessions import with_frames
from tests.transcripts import Story, is_system, refusal

Row = dict[str, Any]
ROOMY = Budget(1_000_000, 920_000, 500_000)
MANUAL = PolicyState("manual")
DUE = PolicyState("threshold")

examples = settings(
    max_examples=some(6, 100), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
budgets = st.sampled_from([1, 300, 1_200, 4_000, 20_000])


def system(text: str) -> Row:
    return {"role": "system", "content": text}


@asynccontextmanager
async def one_session(**options: Any) -> AsyncIterator[tuple[Engine, Context]]:
    """An engine in memory, and its session ``s`` with these settings."""
    async with open_engine("memory://") as engine:
        yield engine, await engine.session("s", **options)


def asks(*ids: str, size: int = 2) -> Row:
    function = {"name": "f", "arguments": '{"x":"' + "a" * size + '"}'}
    return {"role": "assistant", "tool_calls": [{"id": i, "function": function} for i in ids]}


def tells(call_id: str, size: int = 5) -> Row:
    return {"role": "tool", "tool_call_id": call_id, "content": "r" * size}


def view(*rows: Row, pins: tuple[int, ...] = ()) -> Visible:
    """The view of these messages that a policy gets, counted as the engine counts them."""
    return view_of(rows, pins)


def staying(proposal: Proposal) -> list[int]:
    found = proposal.dispositions.items()
    return sorted(number for number, (what, _) in found if what in ("kept", "shortened"))


ANSWERS = Answers("all went well", 0.5, ("the port is 8080", "deploys go to Kubernetes"))


def decided(
    policy: Policy,
    visible: Visible,
    budget: Budget = ROOMY,
    state: PolicyState = DUE,
    answers: Answers = ANSWERS,
) -> Proposal:
    """The policy's proposal; its questions get the same answers every time."""
    return decide(policy, visible, budget, state, answers)


def keeps_the_rules(
    policy: Policy,
    visible: Visible,
    budget: Budget,
    state: PolicyState = DUE,
    answers: Answers = ANSWERS,
) -> Fitted:
    """Check a proposal before and after ``fit``, and that it takes no room from the floor."""
    proposal = decided(policy, visible, budget, state, answers)
    rules.check(visible, proposal)
    fitted = fit(visible, proposal, budget)
    rules.check(visible, fitted.proposal)
    assert {reason for _, reason in fitted.proposal.dispositions.values()} <= REASONS.keys()
    assert bool(fitted.overflow) == (fitted.tokens > budget.tokens)
    if fitted.overflow:
        assert fit(visible, keep_whole(visible), budget).overflow
    return fitted


def seen(story: Story, pins: tuple[int, ...] = ()) -> Visible:
    return view(*story.messages, pins=pins)


def called(call_id: str, name: str, arguments: dict[str, Any]) -> Row:
    block = {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
    return {"role": "assistant", "content": [block]}


def told(call_id: str, text: str, *beside: str) -> Row:
    """A result, and texts in the same row."""
    block = {"type": "tool_result", "tool_use_id": call_id, "content": text}
    return {"role": "user", "content": [block, *({"type": "text", "text": one} for one in beside)]}


def budget_of(tokens: int) -> Budget:
    return make_budget(tokens, 0.92, 0.5)


async def compactions_of(engine: Engine, session: str = "s") -> list[Any]:
    """The ends of a session's compactions, as events."""
    records = engine.records(session)
    return [decode_event(one) async for one in records if one.type == "context:post_compact"]


ODD_VIEWS: dict[str, list[Row]] = {
    "empty": [],
    "only system": [system("be careful"), system("be brief")],
    "orphans first": [tells("nowhere"), tells("elsewhere"), user("go"), asks("a"), tells("a")],
    "duplicate ids": [
        *(user("go"), asks("a"), tells("a"), asks("a"), tells("a"), tells("a")),
        *(asks("a", "a"), tells("a"), user("on"), asks("a")),
    ],
    "no human": [asks("a"), tells("a"), model("done"), asks("b")],
    "only a person": [user("x" * 9_000)],
}


def play(
    policy: Policy | str, story: Story, tokens: int, **options: Any
) -> tuple[Engine, list[Any]]:
    """Add the story message by message and prepare a request after each; returns all requests."""

    async def played() -> tuple[Engine, list[Any]]:
        engine = Engine(MemoryStore())
        with_frames(engine.store)
        ctx = await engine.session(
            "s", policy=policy, on_overflow="send_floor", max_tokens=tokens, **options
        )
        requests = []
        for message in story.messages:
            await ctx.add_message(message)
            requests.append(await ctx.get_messages_for_request())
        assert await ctx.get_messages() == story.messages
        return engine, requests

    return asyncio.run(played())


def muted(advisers: dict[str, Any]) -> dict[str, Any]:
    async def asked_again(request: Any) -> Any:
        raise AssertionError(f"asked again: {request}")

    return dict.fromkeys(advisers, asked_again)


def accepted(policy: Policy, story: Story, tokens: int, **advisers: Any) -> None:
    """Check all views of a session: a provider takes them, the budget holds, nothing is lost.

    Another process that opens the session shows the same, and asks no adviser again.
    """
    engine, requests = play(policy, story, tokens, **advisers)
    for count, request in enumerate(requests, start=1):
        assert refusal(request) is None, json.dumps(request, indent=1)
        assert sum(str(one.get("content")).startswith(HEADER) for one in request) <= 1
        for message in story.messages[:count]:
            assert not is_system(message) or message in request

    async def check() -> None:
        audit = await engine.audit("s")
        assert all(row.outcome != "failed" for row in audit.compactions)
        assert advisers or all(row.fallback is None for row in audit.compactions)
        for row, request in zip(audit.requests, requests, strict=True):
            assert row.floor_sent == (row.tokens > tokens)
            found = await engine.request_view("s", position=row.position)
            assert (found.verified, found.messages) == (True, request)
            if row.floor_sent:
                assert not any(entry.kind == "insertion" for entry in found.entries)
        again = await Engine(engine.store).session(
            "s", policy=policy, on_overflow="send_floor", max_tokens=tokens, **muted(advisers)
        )
        assert await again.get_messages_for_request() == requests[-1]

    asyncio.run(check())
