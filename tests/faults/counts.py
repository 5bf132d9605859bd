"""How often each fault is tried: a few times with every run of the tests, often by `make faults`.

docs/explanation/what-is-tested.md shows the same figures; tests/faults/test_the_page.py compares.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

COUNTS = {  # of the trials in an ordinary run, and in a full one
    "crash states": (100, 10_000),
    "kills": (2, 200),
    "power cuts": (1, 20),
    "limits of file size": (1, 20),
    "full disks": (1, 8),
    "failing operations": (9, 600),
    "flipped bits": (30, 1_000),
    "flipped bits of the log": (15, 300),
    "edits": (24, 200),
    "mutants of a format": (8, 5_000),
    "storms": (3, 200),
    "contests": (1, 10),
    "forks": (3, 50),
    "clocks": (3, 100),
    # Three machines each. A small run kills a leader of each kind, and all at once where that is
    # quick; the others need root, or take very long.
    "quorum leaders killed": (1, 5),
    "quorum all killed": (1, 5),
    "quorum leaders killed alone": (0, 5),
    "quorum commits halted": (1, 3),
    "quorum leaders halted": (0, 3),
    "quorum leaders replaced": (0, 3),
    "quorum leaders cut off": (0, 3),
    "quorum leaders parted": (0, 3),
    "quorum power cuts": (0, 5),
    "quorum damaged copies": (0, 9),
    "patroni servers killed": (1, 3),
    "patroni machines killed": (0, 3),
    "patroni all killed": (0, 3),
    "patroni leaders replaced": (0, 2),
    "patroni leaders cut off": (0, 2),
    "jetstream leaders killed": (1, 5),
    "jetstream all killed": (1, 5),
    "jetstream leaders killed alone": (0, 5),
    "jetstream leaders halted": (0, 3),
    "jetstream leaders cut off": (0, 3),
    "jetstream leaders parted": (0, 3),
    "jetstream power cuts": (0, 5),
    "jetstream damaged copies": (0, 9),
}

FULL = os.environ.get("EVENTCTX_FAULTS") == "full"


def trials(fault: str) -> int:
    small, full = COUNTS[fault]
    return full if FULL else small


def report(fault: str, found: Mapping[str, int]) -> None:
    shown = ", ".join(f"{count} {name}" for name, count in sorted(found.items()))
    print(f"\n{fault}: {shown}")
