"""The cost of a compaction, and of the requests after it: by policy, in processor time.

The session is the one that peers were measured with (messages of 1 KB in tool rounds of four, a
budget of 200,000 tokens), in a store in memory, so that the disk does not count.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from statistics import mean, median
from typing import Any, NamedTuple

import msgspec

import eventctx
from eventctx.engine import Engine
from eventctx.errors import MalformedTranscript, UnknownFormat
from eventctx.importers.load import import_file
from eventctx.log.record import Draft
from eventctx.policies.advisers import SummaryRequest
from eventctx.policies.policy import Budget, PolicyState, Proposal, Visible
from eventctx.policies.proposals import keep_only
from eventctx.session.requests import Wanted
from eventctx.stores.memory import MemoryStore
from tests.benchmarks.peer_trims import TRIMS
from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row, missing, of_processor
from tests.benchmarks.timing import Samples, quantile
from tests.benchmarks.tokens import sessions_folder
from tests.benchmarks.workload import drafts, message, messages

FIGURE = "compacting"
NAME = "one"
BUDGET = 200_000
ROOMY = 10**9

MOST = 50.0
"""Milliseconds that a first compaction of 10,000 messages may take."""

MOST_WITH_INDEX = 60.0
"""The same for a policy that reads texts and makes an index of them."""

FLAT = 1.5
"""More than this between a long and a short session, or a late and an early compaction, is growth
and not noise; the tolerance is this benchmark's."""

COMPACTIONS = 20
PLAYED_BUDGET = 50_000

ELSEWHERE = (
    "elsewhere: Amplifier's context-simple 539 ms (newest), 253,389 ms (marketplace); google-adk's "
    "trigger check 635 ms, OpenHands' token count 1,352 ms"
)
"""Measured on sessions of this length in other runs; they are not to be had here."""


def half(visible: Visible, budget: Budget, state: PolicyState) -> Proposal:
    """A policy of the user's own: the later half stays."""
    numbers = [ref.number for ref in visible.messages]
    return keep_only(visible, numbers[len(numbers) // 2 :])


async def instant(request: SummaryRequest) -> str:
    """A summarizer that takes no time."""
    return "They read some files and talked about them. " * 20


DETERMINISTIC: dict[str, dict[str, Any]] = {
    "ladder": {},
    "simple": {},
    "truncate": {},
    # Memory is a search, which has a row of its own.
    "token-budget": {"memory": False},
    "importance": {},
    "workset": {},
    "custom": {"function": half},
}
POLICIES = {**DETERMINISTIC, "summarize": {"summarizer": instant}}
"""Settings by policy."""


async def measure(place: Place) -> list[Row]:
    return [
        *map(_noted, await first(place)),
        *map(_noted, await following(place)),
        *map(_noted, await repeated(place)),
        *await played_live(place),
        *await recall(place),
    ]


def _noted(row: Row) -> Row:
    """The row as one of processor time, if it is of time at all."""
    return of_processor(row) if row.unit in ("ms", "µs") else row


async def processor(work: Callable[[], Awaitable[Any]]) -> float:
    """Milliseconds of processor time that ``work`` takes."""
    gc.collect()
    began = time.process_time()
    await work()
    return (time.process_time() - began) * 1e3


async def _opened(store: MemoryStore, policy: str, budget: int) -> eventctx.Context:
    return await Engine(store).session(NAME, policy=policy, max_tokens=budget, **POLICIES[policy])


async def _warm(policy: str, batch: Sequence[Draft]) -> eventctx.Context:
    """A session whose every message is in view and was sent once."""
    store = MemoryStore()
    await _opened(store, policy, ROOMY)
    await store.append(NAME, batch, 0)
    context = await _opened(store, policy, ROOMY)
    await context.get_messages_for_request()
    return context


# -- the first compaction --------------------------------------------------------------------------


async def first(place: Place) -> list[Row]:
    """The request that compacts a long session for the first time, and how neighbours trim it."""
    length = place.count(10_000)
    batch = [*drafts(length)]
    taken: dict[str, list[float]] = {policy: [] for policy in POLICIES}
    notes: dict[str, str] = {}
    for _ in range(place.count(7, 3)):
        for policy, values in taken.items():
            context = await _warm(policy, batch)
            values.append(await processor(lambda: context.get_messages_for_request(BUDGET)))  # noqa: B023
            layout = context._session.aggregate.view.layout
            notes[policy] = f"{len(layout.refs):,} messages, {layout.tokens:,} tokens left"
    notes["ladder"] += f"; {ELSEWHERE}"
    name = f"first compaction of {length:,} messages"
    own = median(taken["ladder"])
    return [
        *[
            Row(
                figure=FIGURE,
                name=f"{name}: {policy}",
                value=median(values),
                unit="ms",
                limit=MOST_WITH_INDEX if policy == "workset" else MOST,
                note=notes[policy],
            )
            for policy, values in taken.items()
        ],
        *[await _trimmed(place, neighbour, length, own) for neighbour in TRIMS],
    ]


async def _trimmed(place: Place, neighbour: str, length: int, own: float) -> Row:
    name = f"{neighbour}: {length:,} messages"
    given = messages(length)
    taken: list[float] = []
    left = 0

    async def trimmed() -> None:
        nonlocal left
        left = await asyncio.to_thread(trim)

    # The first time is not counted: libraries import more when they are called. One that takes
    # longer than all of eventctx's figures together is measured once.
    while len(taken) < place.count(5, 3) and sum(taken) < 10_000:
        try:
            trim = TRIMS[neighbour](given, BUDGET)
        except ImportError:
            return missing(FIGURE, name, "not installed")
        taken.append(await processor(trimmed))
    return Row(
        figure=FIGURE,
        name=name,
        value=median(taken[1:] or taken),
        unit="ms",
        against="eventctx, ladder",
        floor=own,
        note=f"{left:,} messages left; in memory, nothing recorded",
    )


# -- a message more and the next request -----------------------------------------------------------


class Grown(NamedTuple):
    """Microseconds in a short session and in one ten times as long."""

    short: float
    long: float

    @property
    def ratio(self) -> float:
        return self.long / self.short


async def following(place: Place) -> list[Row]:
    """Adding a message, and a request that does not compact, by the length of the session.

    A request returns its messages, so the whole of it is judged by how many it returns.
    """
    length = place.count(10_000)
    found: dict[str, dict[str, Grown]] = {}
    for policy in DETERMINISTIC:
        short = await _steps(place, policy, length // 10)
        long = await _steps(place, policy, length)
        for step in short:
            found.setdefault(step, {})[policy] = Grown(short[step], long[step])
    return [_grown_row(step, by_policy, length) for step, by_policy in found.items()]


async def _steps(place: Place, policy: str, length: int) -> dict[str, float]:
    """Microseconds of each step, all in view and compacted."""
    batch = [*drafts(length)]
    steps: dict[str, float] = {}
    for state, budget in (("all in view", ROOMY), ("compacted", place.count(BUDGET))):
        context = await _warm(policy, batch)
        if budget != ROOMY:
            await context.get_messages_for_request(budget)
        samples = Samples()
        gc.collect()
        last = length + 4 * place.count(60, 20)
        for number in range(length, last):
            one = message(number)
            began = time.process_time()
            await context.add_message(one)
            samples.add("add_message", time.process_time() - began)
            if number % 4 == 3:
                began = time.process_time()
                await context._requests.prepare(Wanted(budget))
                samples.add("decide and record a request", time.process_time() - began)
        # In a loop of its own, because making thousands of messages empties the processor's caches.
        for number in range(last, last + 10):
            await context.add_message(message(number))
            began = time.process_time()
            view = await context.get_messages_for_request(budget)
            taken = time.process_time() - began
            samples.add("a whole request, a message returned", taken / len(view))
            del view
        for step in samples.by_name:
            steps[f"{state}: {step}"] = samples.micro(step)
    return steps


def _grown_row(step: str, by_policy: dict[str, Grown], length: int) -> Row:
    """The policy that grows most, with the others beside it."""
    worst = max(by_policy, key=lambda policy: by_policy[policy].ratio)
    return Row(
        figure=FIGURE,
        name=f"{length:,} messages, {step}: {worst}",
        value=by_policy[worst].long,
        unit="µs",
        against=f"{length // 10:,} messages",
        floor=by_policy[worst].short,
        limit=FLAT,
        note=", ".join(f"{policy} {one.ratio:.2f}" for policy, one in by_policy.items()),
    )


# -- one compaction after the other ----------------------------------------------------------------


class Compacted(NamedTuple):
    """Of every request that compacted: milliseconds, messages in view before, bytes recorded."""

    taken: list[float]
    before: list[int]
    sizes: list[int]


async def repeated(place: Place) -> list[Row]:
    """A session that is compacted again and again: does the next one cost more than the first?"""
    rows: list[Row] = []
    for policy in POLICIES:
        runs = [await _compacted_often(place, policy) for _ in range(place.count(3, 1))]
        taken = [median(one) for one in zip(*[run.taken for run in runs], strict=True)]
        sizes = runs[0].sizes
        count = len(taken)
        fifth = max(1, count // 4)
        rows += [
            Row(
                figure=FIGURE,
                name=f"{policy}: the last {fifth} of {count} compactions",
                value=median(taken[-fifth:]),
                unit="ms",
                against=f"the first {fifth}",
                floor=median(taken[:fifth]),
                limit=FLAT,
                note="in order: "
                + " ".join(f"{one:.1f}" for one in taken)
                + f"; in view {runs[0].before[0]} to {runs[0].before[-1]} messages",
            ),
            Row(
                figure=FIGURE,
                name=f"{policy}: size of what they record",
                value=median(sizes[-fifth:]) / 1024,
                unit="KiB",
                against=f"the first {fifth}",
                floor=median(sizes[:fifth]) / 1024,
                limit=FLAT,
                note="in order: " + " ".join(f"{one / 1024:.1f}" for one in sizes),
            ),
        ]
    return rows


async def _compacted_often(place: Place, policy: str) -> Compacted:
    budget = place.count(BUDGET, 40_000)
    store = MemoryStore()
    context = await _opened(store, policy, budget)
    taken: list[float] = []
    number = 0
    while len(taken) < COMPACTIONS:
        await context.add_message(message(number))
        number += 1
        if number % 4:
            continue
        before = context._session.aggregate.view.compactions
        began = time.process_time()
        await context.get_messages_for_request()
        seconds = time.process_time() - began
        if context._session.aggregate.view.compactions != before:
            taken.append(seconds * 1e3)
            gc.collect()
    compacted: list[int] = []
    sizes: list[int] = []
    async for record in store.read(NAME):
        if record.type == "context:post_compact":
            bodies = sum(len(one.data or b"") + len(one.facts) for one in record.bodies)
            compacted.append(msgspec.json.decode(record.payload)["messages_before"])
            sizes.append(len(record.payload) + bodies)
    return Compacted(taken, compacted, sizes)


# -- recorded sessions -----------------------------------------------------------------------------


async def played_live(place: Place) -> list[Row]:
    """Recorded sessions played request by request: what stays the same, and what stays in use."""
    folder = sessions_folder()
    try:
        from tests.test_recorded_policies import SESSIONS, played, recorded, shared
    except ImportError:
        return [missing(FIGURE, "recorded sessions", "needs what the tests need: pytest, pyyaml")]
    if folder is None:
        return [missing(FIGURE, "recorded sessions", "none here; EVENTCTX_SESSIONS names them")]
    sessions = [
        await recorded(folder / name)
        for name in SESSIONS[: len(SESSIONS) if not place.quick else 4]
    ]
    rows: list[Row] = []
    for policy in POLICIES:
        means: list[float] = []
        used: list[float] = []
        for session in sessions:
            run = await played(session, policy, PLAYED_BUDGET)
            shares = [shared(before, after) for before, after in pairwise(run.views)]
            means += [mean(shares)] if shares else []
            used += [
                row.tokens_after / PLAYED_BUDGET
                for row in run.audit.compactions
                if row.outcome == "applied"
            ]
        rows += _played_rows(policy, means, used)
    return rows


def _played_rows(policy: str, means: list[float], used: list[float]) -> list[Row]:
    ladder = policy == "ladder"
    where = f"at {PLAYED_BUDGET:,} tokens"
    return [
        Row(
            figure=FIGURE,
            name=f"{policy}: of a request, begins the next one, {where}",
            value=100 * mean(means),
            unit="%",
            limit=95.0 if ladder else None,
            better="more",
            note=f"mean of {len(means)} recorded sessions; least of one {100 * min(means):.1f} %",
        ),
        Row(
            figure=FIGURE,
            name=f"{policy}: of the budget, in use after a compaction, {where}",
            value=100 * min(used, default=0.0),
            unit="%",
            limit=40.0 if ladder else None,
            better="more",
            note=f"least of {len(used)} compactions, median {100 * median(used or [0.0]):.0f} %",
        ),
    ]


# -- recall ----------------------------------------------------------------------------------------

QUERIES = (
    "error",
    "file not found",
    '"def __init__"',
    "test*",
    "summary of the changes",
    "compile OR link",
    "the and of to in",
    "qwertz_nowhere",
)


async def recall(place: Place) -> list[Row]:
    """Search over all messages of the recorded Claude Code sessions."""
    folder = sessions_folder()
    files = sorted(folder.glob("claude-code/**/*.jsonl")) if folder is not None else []
    if not files:
        return [missing(FIGURE, "recall", "no recorded Claude Code sessions here")]
    path = place.path("recall.db")
    samples = Samples()
    async with eventctx.open(path, durability="normal") as engine:
        for file in files:
            # A subagent's file comes with the session that it belongs to.
            if file.parent.name != "subagents":
                with suppress(MalformedTranscript, UnknownFormat):
                    await import_file(engine.store, file, complete=True)
        size = count = 0
        async for record in engine.store.read_all():
            size += sum(len(body.data or b"") for body in record.bodies)
            count += len(record.bodies)
        recaller = engine.recaller()
        filling = await processor(recaller.catch_up)
        for _ in range(place.count(20, 5)):
            for query in QUERIES:
                await samples.time(query, lambda: engine.recall(query))  # noqa: B023
    every = [seconds for values in samples.by_name.values() for seconds in values]
    spent = [seconds for values in samples.processor.values() for seconds in values]
    slowest = max(QUERIES, key=samples.median)
    return [
        Row(
            figure=FIGURE,
            name=f"recall: filling the index, {count:,} bodies of {size / 1e6:.1f} MB",
            value=size / 1e6 / (filling / 1e3),
            unit="MB/s",
            better="more",
            cpu=filling * 1e3 / (size / 1e6),
            note="in processor time; done once",
        ),
        Row(
            figure=FIGURE,
            name="recall: a search, median",
            value=median(every) * 1e3,
            unit="ms",
            cpu=median(spent) * 1e6,
            note=f"p95 {quantile(every, 0.95) * 1e3:.1f} ms; slowest {slowest!r} at "
            f"{samples.milli(slowest):.1f} ms",
        ),
    ]
