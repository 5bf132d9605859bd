"""Fit the rates of the estimators and show how far they are off: python -m tests.estimates FOLDER…

Reads every recorded session in the folders, each file once. Prints for each family of models and
each part of the files (``recorded.share_of``) the errors that ``errors`` defines; with ``--fit``
also the rates that fit the first part, in tenths of a character (digits in hundredths of a token).

They have the least absolute errors of growth, and are never below 0: by iteratively reweighted
least squares with coordinate descent; every session has the same weight. The cost of a call and of
a byte beyond a character's first are given, not fitted: the fit would charge calls for all that a
harness adds unseen with them, and the recordings hold no language that would tell the other.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from eventctx.messages.tokens import FAMILIES
from tests.estimates.errors import (
    behind_compactions,
    by_session,
    features,
    growth,
    next_requests,
    spread,
)
from tests.estimates.recorded import Session, Sums, sessions_in

FREE: Final = ("prose", "arguments", "outcome", "thinking", "digits")
SPACES: Final = frozenset(("deepseek", "gemini"))
"""Families for which a credit for pairs of spaces is fitted. It makes their spread a third smaller;
for Claude it fits one program's sessions better and another's by 10 % worse."""

GIVEN: Final = {"messages": 4.0, "wide": 0.25, "other": 1.0}

SAFETY: Final = 1.03
"""Rates are set so much higher than they fit, since a count that is too low loses a request."""

EVERY: Final = 6
"""Of the requests of a session every so many are fitted: neighbours tell nearly the same."""

_ROUNDS: Final = 25
_SWEEPS: Final = 15

Row = tuple[tuple[float, ...], float]
"""What grew for each token that the prompt grew by, and the row's weight."""


def fitted(sessions: Iterable[Session], per_call: float, spaces: bool) -> dict[str, float]:
    """Tokens for each character of the kinds in ``FREE``, for each digit more, and with ``spaces``
    for each pair of spaces less.
    """
    free = (*FREE, "spaces") if spaces else FREE
    rows: list[Row] = []
    for session in sessions:
        grown = list(features(session))
        kept = grown[::EVERY] or grown
        rows += [(one, 1 / len(kept)) for one in kept]
    given = {**GIVEN, "calls": per_call}
    places = {name: Sums._fields.index(name) for name in (*free, *given)}
    targets = [
        1 - sum(row[places[name]] * value for name, value in given.items()) for row, _ in rows
    ]
    rates = {name: 0.0 if name == "spaces" else 0.3 for name in free}
    for _ in range(_ROUNDS):
        errors = [
            target - sum(row[places[name]] * rates[name] for name in free)
            for (row, _), target in zip(rows, targets, strict=True)
        ]
        weights = [
            weight / max(abs(error), 0.01) for (_, weight), error in zip(rows, errors, strict=True)
        ]
        for _ in range(_SWEEPS):
            for name in free:
                _improve(rates, name, rows, errors, weights, places[name])
    return rates


def _improve(
    rates: dict[str, float],
    name: str,
    rows: list[Row],
    errors: list[float],
    weights: list[float],
    place: int,
) -> None:
    """Set one rate to the best one beside the others, and the errors with it."""
    above = below = 0.0
    for (row, _), error, weight in zip(rows, errors, weights, strict=True):
        above += weight * row[place] * error
        below += weight * row[place] ** 2
    best = rates[name] + above / below if below else 0.0
    best = min(0.0, best) if name == "spaces" else max(0.0, best)
    for number, (row, _) in enumerate(rows):
        errors[number] -= row[place] * (best - rates[name])
    rates[name] = best


async def _read(folders: list[Path]) -> list[Session]:
    found: dict[tuple[str, object], Session] = {}
    for folder in folders:
        async for session in sessions_in(folder):
            found.setdefault((session.family, session.steps[:3]), session)
    return list(found.values())


def _show(family: str, share: str, sessions: list[Session]) -> None:
    rates = FAMILIES[family]
    print(f"{family}, {share}: {len(sessions)} sessions")
    print("    growth, nothing reported:", by_session([list(growth(s, rates)) for s in sessions]))
    print("    next request:            ", by_session([next_requests(s) for s in sessions]))
    behind = spread(error for s in sessions for error in behind_compactions(s))
    if behind is not None:
        print(f"    {behind.number} behind a compaction:  ", behind)


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.estimates", description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--fit", action="store_true")
    options = parser.parse_args()
    sessions = asyncio.run(_read(options.folders))
    for family, rates in FAMILIES.items():
        for share in ("fit", "held-out"):
            chosen = [one for one in sessions if (one.family, one.share) == (family, share)]
            if chosen:
                _show(family, share, chosen)
            if chosen and share == "fit" and options.fit:
                found = fitted(chosen, rates.per_call / SAFETY, family in SPACES)
                rest = [kind for kind in ("digits", "spaces") if kind in found]
                hundredths = {kind: round(found.pop(kind) * SAFETY * 100) for kind in rest}
                tenths = {kind: round(10 / rate / SAFETY) for kind, rate in found.items() if rate}
                print("    fits:", tenths, hundredths)


if __name__ == "__main__":
    main()
