"""The findings of a verification, and their form for callers."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from eventctx.log import notebook
from eventctx.log.store import Receipt

ProblemKind = Literal[
    "record", "body", "facts", "missing", "head", "receipt", "unreadable", "snapshot", "signature"
]

MAX_PROBLEMS: Final = 1_000
"""The most findings that are listed; a thoroughly damaged log has one per record."""


class Problem(msgspec.Struct, frozen=True):
    """One finding: the position of the record (-1: none in particular), the kind, and a text."""

    position: int
    kind: ProblemKind
    text: str


class Signed(msgspec.Struct, frozen=True):
    """A signature that holds: the key (hex) vouches for all records up to ``position``."""

    position: int
    public_key: str


class Verification(msgspec.Struct, frozen=True):
    """The outcome of a verification.

    ``records`` were read, ``erased`` bodies were erased on purpose, as records in the chain say.
    ``receipt`` is for the stream as it stands; keep it outside the store. ``deleted`` records went
    when the session was deleted on purpose. ``signed`` are the signatures that hold.
    """

    stream: str
    records: int
    erased: int
    problems: tuple[Problem, ...]
    receipt: Receipt
    deleted: int = 0
    signed: tuple[Signed, ...] = ()

    @property
    def ok(self) -> bool:
        """True when nothing was found."""
        return not self.problems

    def __repr__(self) -> str:
        found = notebook.counted(len(self.problems), "problem") if self.problems else "ok"
        return notebook.line(
            f"Verification {self.stream}: {found},", notebook.counted(self.records, "record")
        )

    def _repr_html_(self) -> str:
        rows = [(one.position, one.kind, one.text) for one in self.problems]
        return notebook.table(repr(self)[1:-1], ("position", "kind", "problem"), rows)


class Findings:
    """The problems of one walk, as they are found."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.deleted = 0
        self._unreadable: tuple[int, int, str] | None = None

    def report(self, position: int, kind: ProblemKind, text: str) -> None:
        """Add a problem, while there is room."""
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(Problem(position, kind, text))

    def unreadable(self, position: int, problem: str) -> None:
        """Add a record that cannot be read; neighbours with one cause become one problem."""
        last = self._unreadable
        if last is None or last[1] != position - 1 or last[2] != problem:
            self._unreadable = (position, position, problem)
            self.report(position, "unreadable", problem)
            return
        first = last[0]
        self._unreadable = (first, position, problem)
        if self.problems[-1].position == first:
            self.problems.pop()
        self.report(first, "unreadable", f"{problem} (positions {first} to {position})")
