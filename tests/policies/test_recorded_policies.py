"""Recorded sessions played live, request by request, under every policy and several budgets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import pytest
import yaml
from msgspec.json import encode

from eventctx.engine import Engine
from eventctx.importers.load import import_file
from eventctx.messages import calibration
from eventctx.policies.advisers import ModelAnswer, SummaryRequest
from eventctx.policies.fit import fit
from eventctx.policies.named import POLICIES
from eventctx.policies.planner import visible_of
from eventctx.policies.policy import Budget, PolicyState, Proposal, Visible
from eventctx.policies.proposals import keep_only
from eventctx.policies.trigger import convert_budget, make_budget
from eventctx.policies.working_set import keep_whole
from eventctx.projections.view import request_view
from eventctx.queries.audit import Audit
from eventctx.queries.requests import fold
from eventctx.stores.memory import MemoryStore
from tests.faults.counts import FULL
from tests.how_much import MOST_MESSAGES, beginning
from tests.policies.advisers import Scripted
from tests.test_recorded_sessions import SESSIONS
from tests.transcripts import is_system, refusal

one_process_reads = pytest.mark.xdist_group("recorded policies")
"""Each session is imported by one process."""

pytestmark = one_process_reads

CALLS = ("function_call", "reasoning", "custom_tool_call", "web_search_call")


def second_half(visible: Visible, budget: Budget, state: PolicyState) -> Proposal:
    numbers = [ref.number for ref in visible.messages]
    return keep_only(visible, numbers[len(numbers) // 2 :])


async def summarised_by_an_api(request: SummaryRequest) -> ModelAnswer:
    block = {"type": "compaction", "content": f"{len(request.numbers)} messages."}
    return ModelAnswer({"role": "assistant", "content": [block]})


OPTIONS: dict[str, dict[str, Any]] = {
    "summarize": {"summarizer": Scripted()},
    "native": {"summarizer": summarised_by_an_api},
    "importance": {"scorer": Scripted()},
    "custom": {"function": second_half},
    "pipeline": {"policies": ("truncate", "summarize"), "summarizer": Scripted()},
}


class Recorded(NamedTuple):
    """A session; ``size`` is that of its first messages in bytes of JSON."""

    messages: list[dict[str, Any]]
    model: str | None
    size: int


def measured(messages: list[dict[str, Any]], model: str | None = None) -> Recorded:
    return Recorded(messages, model, len(encode(messages[:MOST_MESSAGES])))


class Played(NamedTuple):
    views: list[list[str]]
    audit: Audit
    engine: Engine


def fixtures(path: Path) -> Recorded:
    """The longest request that a provider fixture recorded."""
    found: list[list[dict[str, Any]]] = []
    for exchange in yaml.load(path.read_text(), yaml.CSafeLoader)["interactions"]:
        body = exchange["request"].get("parsed_body") or {}
        rows = body.get("messages", body.get("input"))
        found.append(rows if isinstance(rows, list) else [{"role": "user", "content": rows}])
    return measured(max(found, key=len))


_known: dict[Path, Recorded] = {}


async def recorded(path: Path) -> Recorded:
    if path not in _known:
        _known[path] = fixtures(path) if path.suffix == ".yaml" else await imported(path)
    return _known[path]


async def imported(path: Path) -> Recorded:
    engine = Engine(MemoryStore())
    session = (await import_file(engine.store, path, complete=True))[0].session
    rows = (await engine.audit(session)).requests
    lines = await engine.transcript(session)
    messages = [line.message for line in lines if line.message is not None]
    return measured(messages, next((row.model for row in rows if row.model), None))


def is_models(message: dict[str, Any]) -> bool:
    return message.get("role") == "assistant" or message.get("type") in CALLS


async def played(session: Recorded, policy: str, budget: int) -> Played:
    """A request before every answer of the model, as an agent would make it."""
    engine = Engine(MemoryStore())
    options = OPTIONS.get(policy, {})
    ctx = await engine.session(
        "live", policy=policy, max_tokens=budget, on_overflow="send_floor", **options
    )
    views: list[list[str]] = []
    texts: dict[str, str] = {}  # a message is in many views, its text is kept once
    systems: list[dict[str, Any]] = []
    for number, message in enumerate(session.messages):
        await ctx.add_message(message)
        if is_system(message):
            systems.append(message)
        following = session.messages[number + 1 : number + 2]
        if is_models(message) or (following and not is_models(following[0])):
            continue
        view = await ctx.get_messages_for_request(model=session.model)
        assert refusal(view) is None
        left = [one for one in view if is_system(one)]
        assert [one for one in left if one in systems] == systems
        encoded = [encode(one).decode() for one in view]
        views.append([texts.setdefault(text, text) for text in encoded])
    assert await ctx.get_messages() == session.messages
    return Played(views, await engine.audit("live"), engine)


async def check_budget(run: Played, budget: int) -> None:
    """No view exceeds its budget, unless what must stay is proven to."""
    for row in run.audit.requests:
        assert row.floor_sent == (row.tokens > budget)
        if row.floor_sent:
            state = await fold(run.engine.store, "live", request_view, stop=row.position - 1)
            visible, scale = visible_of(state), calibration.scale(state.calibration)
            goal = convert_budget(make_budget(budget, 0.92, 0.5), scale)
            assert fit(visible, keep_whole(visible), goal).overflow


BUDGETS = (200_000, 50_000, 16_000, 4_000)
NAMES = sorted(POLICIES)


async def filling(
    paths: Sequence[Path], budget: int, policy: int, *, every: int
) -> list[tuple[Path, Recorded]]:
    """The sessions to play with a policy, by its place in the list of all, and a budget.

    In an ordinary run, some of those that fill the budget, others for each policy, and never none:
    to the rest it is as the budget of a smaller session. A full run plays all sessions.
    """
    sessions = [(path, await recorded(path)) for path in paths]
    if FULL:
        return sessions
    full = [one for one in sessions if one[1].size // 3 > budget]
    return full[policy % min(every, len(full)) :: every]


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("policy", NAMES)
async def test_every_policy_keeps_the_view_rules_at_every_request_of_every_session(
    policy: str, budget: int, recorded_sessions: Path
) -> None:
    paths = [recorded_sessions / name for name in (*SESSIONS, *providers(recorded_sessions))]
    for name, whole in await filling(paths, budget, NAMES.index(policy), every=4):
        session = whole._replace(messages=beginning(whole.messages, budget))
        run = await played(session, policy, budget)
        rows = run.audit.requests
        for row, before, after in zip(rows[1:], run.views, run.views[1:], strict=False):
            assert row.breaks or after[: len(before)] == before, name
        await check_budget(run, budget)
        assert all(row.fallback is None for row in run.audit.compactions), name
        assert (await run.engine.verify("live")).ok


def providers(folder: Path) -> list[str]:
    return [f"provider/{path.name}" for path in sorted((folder / "provider").glob("*.yaml"))]


def shared(before: list[str], after: list[str]) -> float:
    """The share of a request, in characters, with which the next one begins."""
    old, new = "".join(before), "".join(after)
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if old[:middle] == new[:middle] else (low, middle - 1)
    return low / len(old) if old else 1.0


async def test_at_50k_a_request_begins_with_95_percent_of_the_one_before_and_40_stay_in_use(
    recorded_sessions: Path,
) -> None:
    means: list[float] = []
    for name in SESSIONS:
        whole = await recorded(recorded_sessions / name)
        session = whole._replace(messages=beginning(whole.messages, 200_000))
        run = await played(session, "ladder", 50_000)
        shares = [shared(a, b) for a, b in zip(run.views, run.views[1:], strict=False)]
        if shares:
            means.append(mean(shares))
        for row in run.audit.compactions:
            assert row.tokens_after >= 0.4 * 50_000, name
    assert mean(means) >= 0.95
    assert min(means) >= 0.95
