"""The families, and which of them are held back from any tuning."""

from __future__ import annotations

from typing import Final

from eventctx.testing.tasks import agreed, found, own, spoken
from eventctx.testing.tasks.work import Family

FAMILIES: Final[tuple[Family, ...]] = (
    spoken.RULES,
    spoken.FORBIDDEN,
    spoken.CORRECTION,
    spoken.GLOSSARY,
    spoken.HANDOFF,
    found.INVENTORY,
    found.LATE_ID,
    found.HOPS,
    found.BASELINE,
    found.MIGRATION,
    own.PLAN,
    own.REMEDY,
    own.COUNTERS,
    own.NESTED,
    agreed.CHOICE,
    agreed.SCHEDULE,
)

HELD_OUT: Final = ("nested", "handoff", "counters", "correction")
"""Nothing is tuned on these four: their names have the least SHA-256 of all, so chance chose them.

Whoever works on a policy looks at the others' failures alone; these decide whether it got better.
"""
