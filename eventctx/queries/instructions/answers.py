"""The ledger: every demand of a person, and how each request held it."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from eventctx.log.events import Known
from eventctx.projections.instructions import RemovedBy

Held = Literal["verbatim", "in_summary", "in_index", "shortened", "absent"]
"""- ``verbatim``: a message of the person that is in view has it, maybe a shortened one;
- ``in_summary``, ``in_index``: it stands word by word in a summary, or in an index, notice or
  memory;
- ``shortened``: its message is in view, but this sentence was cut out;
- ``absent``: it stands nowhere, or in other words only."""

HELD: Final[tuple[Held, ...]] = ("verbatim", "in_summary", "in_index", "shortened", "absent")
NOT_HELD: Final[tuple[Held, ...]] = ("shortened", "absent")
"""States in which the model is not told of a demand. Counts of absent demands count both."""


class HeldRun(msgspec.Struct, frozen=True):
    """Requests in a row, ``first`` to ``last`` (``2.3``), that hold a demand in the same way.

    ``where`` names what holds it besides its own message: another message (``#40``), or the record
    of an insertion (``@48``).
    """

    held: Held
    first: str
    last: str
    first_position: int
    last_position: int
    requests: int
    where: str | None = None


class TakenBack(msgspec.Struct, frozen=True):
    """Somebody said that a demand no longer holds, in the record at ``position`` (``at``: ``@48``).

    ``by`` is the message that takes it back (``#40``), where one was named.
    """

    at: str
    position: int
    said_by: Literal["person", "model"]
    by: str | None = None


class LeftTranscript(msgspec.Struct, frozen=True):
    """A demand's message left the transcript, by the record at ``position`` (``at``: ``@48``)."""

    by: RemovedBy
    at: str
    position: int


class Instruction(msgspec.Struct, frozen=True, kw_only=True):
    """A demand of a person: number ``demand`` (from 1) in message ``number``; ``name``: ``#12.1``.

    ``stands`` is how the view asked about holds it, ``where`` as in a run; None for one that was
    taken back or left the transcript, and so holds no longer. ``requests`` counts those that it
    held in, ``held_in`` those of them that held it in any form, word by word. ``absent_since`` is
    the first request of those in a row, up to the view, that did not.
    """

    name: str
    number: int
    demand: int
    text: str
    turn: int | None
    stands: Held | None
    where: str | None
    requests: int
    held_in: int
    absent_since: str | None
    runs: tuple[HeldRun, ...]
    taken_back: TakenBack | None = None
    left: LeftTranscript | None = None

    @property
    def is_absent(self) -> bool:
        """Whether it holds, and the view does not tell the model of it."""
        return self.stands in NOT_HELD


class Instructions(msgspec.Struct, frozen=True):
    """Every demand of a person in a session, in the order in which they were said.

    ``about`` names the request (``2.3``) whose view the answer is about; None for the view as it
    stands now. ``requests`` counts those up to there, ``known`` by how each is known. ``counts``
    has the demands that hold by ``stands``. ``erased`` messages may have held demands, too.
    ``sealed`` summaries were encrypted: what stands in there is not known.
    """

    session: str
    about: str | None
    requests: int
    known: dict[Known, int]
    counts: dict[Held, int]
    absent: int
    taken_back: int
    left: int
    erased: int
    sealed: int
    instructions: tuple[Instruction, ...]
