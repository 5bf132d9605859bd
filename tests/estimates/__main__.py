"""Fit the rates of the estimators and show how far they are off: python -m tests.estimates FOLDER…

Reads every recorded session in the folders, each file once. Prints for each family of models and
each part of the files (``recorded.share_of``) the errors that ``errors`` defines; with ``--fit``
also the rates that fit the first part, in tenths of a character (digits in hundredths of a token).
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from eventctx.messages.tokens import FAMILIES
from tests.estimates.errors import behind_compactions, by_session, growth, next_requests, spread
from tests.estimates.fitting import SAFETY, SPACES, fitted
from tests.estimates.recorded import Session, sessions_in


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
                hundredths = {
                    k: round(found.pop(k) * SAFETY * 100)
                    for k in ("digits", "spaces")
                    if k in found
                }
                tenths = {kind: round(10 / rate / SAFETY) for kind, rate in found.items() if rate}
                print("    fits:", tenths, hundredths)


if __name__ == "__main__":
    main()
