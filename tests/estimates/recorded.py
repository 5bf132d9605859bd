"""Recorded sessions as the sums that an estimator's rates are fitted to.

A request becomes one row: the prompt that its provider reported, and the characters by kind, calls
and messages of the view that was sent. An estimate is linear in them but for rounding up, so one
import of a file serves every set of rates.

Files fall into two parts by their content: the first byte of its SHA-256 is even for *fit*, odd for
*held-out*. Nothing about a session, not even its name, can move it from one part to the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal, NamedTuple

from eventctx.engine import Engine
from eventctx.errors import EventctxError
from eventctx.importers.load import import_file
from eventctx.log.codec import decode_event
from eventctx.log.events import RequestPrepared, UsageReported
from eventctx.messages.tokens import CALL_BESIDE_WEIGHT, Estimator, family_of
from eventctx.projections.view import request_view
from eventctx.projections.view.layout import Layout
from eventctx.stores.memory import MemoryStore

Share = Literal["fit", "held-out"]

SUFFIXES: Final = (".jsonl", ".json", ".traj", ".yaml")

LEAST_PROMPT: Final = 200
"""Smaller prompts are placeholders or the first calls of tests."""


class Sums(NamedTuple):
    """What a view holds, by the kinds that have a rate of their own.

    ``other`` are tokens that no rate changes: images, documents, searches, synthetic entries.
    """

    prose: int = 0
    arguments: int = 0
    outcome: int = 0
    thinking: int = 0
    calls: int = 0
    messages: int = 0
    digits: int = 0
    wide: int = 0
    spaces: int = 0
    other: int = 0
    weight: int = 0

    def tokens(self, rates: Estimator) -> float:
        """Tokens by ``rates``, without the rounding of each message."""
        beside = rates.per_message * self.messages + self.other
        if rates.weighs:
            beside += CALL_BESIDE_WEIGHT * self.calls
            return self.weight / 100 + self.thinking * 10 / rates.thinking + beside
        beside += rates.per_call * self.calls
        kinds = ("prose", "arguments", "outcome", "thinking")
        characters = sum(getattr(self, kind) * 10 / getattr(rates, kind) for kind in kinds)
        dense = self.digits * rates.digit + self.wide * rates.wide - self.spaces * rates.spaces
        return characters + dense / 100 + beside


COUNTED: Final = (*Sums._fields[:4], "digits", "wide", "spaces", "weight")
"""The sums that a message's facts hold under the same names."""


class Step(NamedTuple):
    """A request with its reported prompt, and the tokens that the import expected it to have.

    ``stretch`` goes up where the view did not just grow; ``compacted`` marks the first request
    after a compaction.
    """

    prompt: int
    expected: int
    model: str
    stretch: int
    compacted: bool
    sums: Sums


class Session(NamedTuple):
    """A session of one family of models, with two requests or more."""

    name: str
    share: Share
    family: str
    steps: tuple[Step, ...]


def share_of(path: Path) -> Share:
    """The part that a file belongs to."""
    return "held-out" if sha256(path.read_bytes()).digest()[0] % 2 else "fit"


def files_in(folder: Path) -> Iterator[Path]:
    """The files of a folder that may be sessions, in the order of their names."""
    for path in sorted(folder.rglob("*")):
        # Subagents come with the session that they belong to.
        if path.suffix in SUFFIXES and "subagents" not in path.parts and path.is_file():
            yield path


async def sessions_in(folder: Path) -> AsyncIterator[Session]:
    """Every session in ``folder`` with reported prompts, one for each family of its models."""
    for path in files_in(folder):
        async for session in sessions_of(path):
            yield session


async def sessions_of(path: Path) -> AsyncIterator[Session]:
    """As ``sessions_in``, of one file; none of a file that is no transcript."""
    engine = Engine(MemoryStore())
    try:
        summaries = await import_file(engine.store, path, complete=True)
    except EventctxError:
        return
    share = share_of(path)
    for summary in summaries:
        if summary.session is not None:
            _, agent, number = summary.session.partition(".agent-")
            name = f"{name_of(path)}{agent and ' agent ' + number[:8]}"
            for family, steps in _by_family(await _steps(engine, summary.session)).items():
                yield Session(name, share, family, tuple(steps))


def name_of(path: Path) -> str:
    """What the name of a file's sessions begins with."""
    return path.parts[-3][:8] if path.name == "events.jsonl" else path.stem[:30]


def _by_family(steps: list[Step]) -> dict[str, list[Step]]:
    found: dict[str, list[Step]] = {}
    for step in steps:
        found.setdefault(family_of(step.model), []).append(step)
    return {family: rows for family, rows in found.items() if len(rows) > 1}


async def _steps(engine: Engine, session: str) -> list[Step]:
    state = request_view.initial()
    sizes: dict[int, tuple[int, Sums, int, bool]] = {}
    steps: list[Step] = []
    stretch, model, compacted = 0, "", False
    async for record in engine.records(session):
        state = request_view.evolve(state, record)
        event = decode_event(record)
        if isinstance(event, RequestPrepared):
            stretch += bool(event.breaks)
            compacted = compacted or "compaction" in event.breaks
            sums = _sums(state.layout, state.estimator)
            sizes[record.position] = (event.tokens, sums, stretch, compacted)
            model = event.model or model
        elif isinstance(event, UsageReported) and event.prepared in sizes:
            expected, sums, at, behind = sizes.pop(event.prepared)
            # Zeros are what hosts write for requests that were aborted.
            if event.prompt >= LEAST_PROMPT:
                named = event.model or model
                steps.append(Step(event.prompt, expected, named, at, behind, sums))
                compacted = False
    return steps


def _sums(layout: Layout, estimator: Estimator) -> Sums:
    sums: Counter[str] = Counter()
    for entry in layout.entries():
        if entry.kind not in ("message", "insertion") or entry.ref is None:
            sums["other"] += entry.tokens
            continue
        facts = entry.ref.facts
        sums["messages"] += 1
        sums["calls"] += len(facts.calls)
        sums["other"] += facts.images + estimator.tokens_of_media(facts)
        for name in COUNTED:
            sums[name] += getattr(facts, name)
    return Sums(**sums)
