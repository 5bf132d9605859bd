"""How often each fault is tried: a few times with every run of the tests, often by `make faults`.

docs/explanation/what-is-tested.md shows the same figures; tests/faults/test_the_page.py compares.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple


class Trials(NamedTuple):
    """Trials of one fault: in an ordinary run, and in a full one."""

    small: int
    full: int


COUNTS = {
    "crash states": Trials(100, 10_000),
    "kills": Trials(2, 200),
    "power cuts": Trials(1, 20),
    "limits of file size": Trials(1, 20),
    "full disks": Trials(1, 8),
    "failing operations": Trials(9, 600),
    "flipped bits": Trials(30, 1_000),
    "flipped bits of the log": Trials(15, 300),
    "edits": Trials(24, 200),
    "mutants of a format": Trials(8, 5_000),
    "storms": Trials(3, 200),
    "contests": Trials(1, 10),
    "forks": Trials(3, 50),
    "clocks": Trials(3, 100),
    # Three machines each. A small run kills a leader of each kind, and all at once where that is
    # quick; the others need root, or take very long.
    "quorum leaders killed": Trials(1, 5),
    "quorum all killed": Trials(1, 5),
    "quorum leaders killed alone": Trials(0, 5),
    "quorum commits halted": Trials(1, 3),
    "quorum leaders halted": Trials(0, 3),
    "quorum leaders replaced": Trials(0, 3),
    "quorum leaders cut off": Trials(0, 3),
    "quorum leaders parted": Trials(0, 3),
    "quorum power cuts": Trials(0, 5),
    "quorum damaged copies": Trials(0, 9),
    "patroni servers killed": Trials(1, 3),
    "patroni machines killed": Trials(0, 3),
    "patroni all killed": Trials(0, 3),
    "patroni leaders replaced": Trials(0, 2),
    "patroni leaders cut off": Trials(0, 2),
    "jetstream leaders killed": Trials(1, 5),
    "jetstream all killed": Trials(1, 5),
    "jetstream leaders killed alone": Trials(0, 5),
    "jetstream leaders halted": Trials(0, 3),
    "jetstream leaders cut off": Trials(0, 3),
    "jetstream leaders parted": Trials(0, 3),
    "jetstream power cuts": Trials(0, 5),
    "jetstream damaged copies": Trials(0, 9),
}

FULL = os.environ.get("EVENTCTX_FAULTS") == "full"


def trials(fault: str) -> int:
    small, full = COUNTS[fault]
    return full if FULL else small


def report(fault: str, found: Mapping[str, int]) -> None:
    shown = ", ".join(f"{count} {name}" for name, count in sorted(found.items()))
    print(f"\n{fault}: {shown}")
