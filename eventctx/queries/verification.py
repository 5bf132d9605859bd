"""The findings of a verification, their form for callers, and their JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from eventctx.log import notebook
from eventctx.log.store import Receipt
from eventctx.queries.encoding import filled

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


class VerificationAnswer(msgspec.Struct, frozen=True):
    """A row of ``verify``: of a session, or without a name what is wrong with the store itself."""

    session: str | None
    ok: bool
    records: int | UnsetType = UNSET
    erased: int | UnsetType = UNSET
    deleted: int | UnsetType = UNSET
    signed: tuple[Signed, ...] | UnsetType = UNSET
    problems: Sequence[Problem | StoreProblem] = ()
    receipt: str | UnsetType | None = UNSET


class StoreProblem(msgspec.Struct, frozen=True):
    """A problem of the store itself, which is at no position of a session."""

    position: int
    kind: str
    text: str


def session_answer(found: Verification) -> VerificationAnswer:
    """The row of a session."""
    receipt = str(found.receipt) if found.ok else None
    return filled(VerificationAnswer, found, session=found.stream, receipt=receipt)


def store_answer(problems: Sequence[str]) -> VerificationAnswer:
    """The row of what is wrong with the store itself."""
    found = [StoreProblem(-1, "store", text) for text in problems]
    return VerificationAnswer(None, ok=False, problems=found)


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
