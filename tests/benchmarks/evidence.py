"""What each policy keeps of what a recorded model reused, beside chance, age and hindsight.

The recorded sessions are split by their file's SHA-256: the default policy was tuned on those whose
first hex digit is below 8, and only the others say how good it is. At equal cost, because a policy
that sends more tokens holds more: the baseline is run with budgets around the given one, and read
off between them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from hashlib import sha256
from itertools import chain
from pathlib import Path

from eventctx.comparison.compare import RunOver, run_all
from eventctx.comparison.contenders import Contender, contenders, with_hindsight
from eventctx.comparison.defaults import BUDGETS
from eventctx.comparison.drive import play
from eventctx.comparison.figures import RunFigures
from eventctx.comparison.recording import Recording
from eventctx.comparison.statistics import at_equal_cost, draws, interval
from eventctx.comparison.stored import recordings_of
from eventctx.importers.load import import_file
from eventctx.policies.named import DEFAULT, policy_named
from eventctx.stores.memory import MemoryStore
from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row, missing
from tests.test_recorded_sessions import SESSIONS

FIGURE = "evidence"
SESSIONS_FOLDER = Path(__file__).resolve().parents[3] / "shared" / "sessions"
AROUND = (0.5, 0.7, 1.0, 1.4)
"""Budgets of a baseline, as shares of the one that is compared."""

BASELINES = ("ladder", "recency", "random")
SHARES = ("evidence", "quotes", "names")


async def measure(place: Place) -> list[Row]:
    folder = Path(os.environ.get("EVENTCTX_SESSIONS", SESSIONS_FOLDER))
    if not (folder / "MANIFEST.json").is_file():
        return [missing(FIGURE, "recorded sessions", f"none at {folder}")]
    halves: dict[str, list[Recording]] = {"tuned on": [], "reported": []}
    for path in sorted({folder / name for name in SESSIONS}):
        tuned = int(digest_of(path)[0], 16) < 8
        halves["tuned on" if tuned else "reported"] += await _read(path)
    budgets = BUDGETS if not place.quick else BUDGETS[1:2]
    rows = [
        row
        for half, recordings in halves.items()
        if recordings
        for row in await _of_half(half, recordings, budgets)
    ]
    longest = max(chain(*halves.values()), key=lambda one: len(one.needs))
    return [*rows, _speed(longest)]


def _speed(recording: Recording) -> Row:
    """How fast a session is played and judged, in processor time; 500 requests a second wanted."""
    assert recording.needs  # read first, since that is not what is measured
    began = time.process_time()
    played = play(recording, policy_named("ladder"), 50_000)
    spent = time.process_time() - began
    return Row(
        figure=FIGURE,
        name="a request played and judged, ladder at 50,000 tokens",
        value=spent / len(played.requests) * 1e3,
        unit="ms",
        limit=2.0,
        note=f"{len(played.requests):,} requests of the longest session",
    )


def digest_of(path: Path) -> str:
    """The SHA-256 of a file in hex, of a folder that of its files joined, by name."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    whole = sha256()
    for one in files:
        whole.update(one.read_bytes())
    return whole.hexdigest()


async def _read(path: Path) -> list[Recording]:
    """The main session of a file; of an Amplifier folder the transcript, as of any other host."""
    store = MemoryStore()
    own = "amplifier" if path.name == "transcript.jsonl" else None
    if path.name == "events.jsonl":
        return []  # the same session again
    summary = (await import_file(store, path, complete=True, format=own))[0]
    return (await recordings_of(store, [summary.session] if summary.session else []))[0]


async def _of_half(half: str, recordings: list[Recording], budgets: Sequence[int]) -> list[Row]:
    chosen = contenders(None)
    labels = {one.label for one in chosen}
    chosen += [one for one in contenders(BASELINES) if one.label not in labels]
    runs = await run_all(recordings, [*chosen, with_hindsight()], budgets)
    whole = sum(runs[0].figures, RunFigures())
    figure = f"{FIGURE}, {half} ({len(recordings)} sessions)"
    rows = [_row(figure, run, whole) for run in runs]
    for budget in budgets:
        own = next(r for r in runs if (r.contender.label, r.budget) == (DEFAULT, budget))
        for baseline in contenders([one for one in BASELINES if one != DEFAULT]):
            rows += await _at_equal_cost(figure, recordings, own, baseline)
    return rows


def _row(figure: str, run: RunOver, whole: RunFigures) -> Row:
    total = sum(run.figures, RunFigures())
    parts = [(one.evidence, one.judged) for one in run.figures]
    between = interval(parts, draws(len(parts)))
    shown = "" if between is None else f"[{100 * between.low:.0f}, {100 * between.high:.0f}] "
    budget = "" if run.budget is None else f" {run.budget:,}"
    return Row(
        figure=figure,
        name=f"{run.contender.label}{budget}",
        value=_percent(total.recall),
        unit="%",
        note=(
            f"{shown}quotes {_shown(total.recall_of_quotes)}, "
            f"names {_shown(total.recall_of_names)}, with # {_shown(total.recall_with_pointers)}, "
            f"demands {_shown(total.demand_recall)}, starved {_shown(total.starving)}, "
            f"reuse {_shown(total.prefix_reuse)}, cost {100 * total.cost() / whole.cost():.0f}, "
            f"{total.compactions_per_50 or 0:.1f} compactions per 50"
        ),
    )


async def _at_equal_cost(
    figure: str, recordings: list[Recording], own: RunOver, baseline: Contender
) -> list[Row]:
    assert own.budget is not None
    around = [int(own.budget * share) for share in AROUND]
    runs = (await run_all(recordings, [baseline], around))[1:]
    rows = []
    for share in SHARES:
        name = f"{share} over {baseline.label} at equal cost, {own.budget:,}"
        found = at_equal_cost(
            own.curve(share), [one.curve(share) for one in runs], draws(len(recordings))
        )
        if found is None:
            rows.append(missing(figure, name, "costs more or less than the baseline ever does"))
            continue
        by, between = found
        note = "" if between is None else f"[{100 * between.low:+.1f}, {100 * between.high:+.1f}]"
        rows.append(
            Row(
                figure=figure,
                name=name,
                value=100 * by,
                unit="points",
                limit=0.0 if "reported" in figure else None,
                better="more",
                note=note,
            )
        )
    return rows


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _shown(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"
