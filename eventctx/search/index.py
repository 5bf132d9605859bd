"""The index of a full-text search: queries in, hits out.

An index is a cache. It holds words and addresses, no texts, and may be lost at any moment: its
``mark`` is the last record that it contains, and a user that finds it empty fills it again from the
log. Methods block (call them in a thread) and may be called from any number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

END = 2**62
"""A position beyond every stream's end."""


class IndexLost(Exception):
    """The index was damaged or deleted, and an empty one is in its place: fill it and try again.

    A signal between an index and ``Recall``, which fills it; it never reaches a caller of eventctx.
    """


class Mark(NamedTuple):
    """The last record that was indexed: its global position and event id.

    The id shows whether the store is still the same, and not another one of the same name.
    """

    position: int
    id: bytes


class Place(NamedTuple):
    """The place of a message: the stream that it was added to, its address and its number there.

    ``time`` is its record's, in UTC nanoseconds.
    """

    stream: str
    position: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    number: int
    time: int


class Document(NamedTuple):
    """A message to index. A message without words has a place too, and is found by its number.

    ``parts`` are the words inside its identifiers; a match there has a lower weight.
    """

    place: Place
    text: str
    parts: str = ""


class Gone(NamedTuple):
    """The address of a body that was erased, in the stream that holds it."""

    stream: str
    position: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here


class Segment(NamedTuple):
    """Positions ``first`` to ``last`` (inclusive) of a stream. A fork consists of several."""

    stream: str
    first: int = 0
    last: int = END


Lineage = tuple[Segment, ...]
"""The segments of a session, its own stream first; a fork's go on with those of its parents."""


class Term(NamedTuple):
    """A word, or several that must follow each other; ``prefix``: the last may be a beginning."""

    text: str
    prefix: bool = False


class Hit(NamedTuple):
    """A message that matches. A higher ``score`` is a better match; it has no unit."""

    place: Place
    score: float


class TextIndex(Protocol):
    """Words of messages. Every method may raise IndexLost, and the errors of a store."""

    def exists(self) -> bool:
        """Whether anything may be in the index; it makes none."""
        ...

    def mark(self) -> Mark | None:
        """The last record in the index; None if it is empty."""
        ...

    def extend(
        self,
        after: Mark | None,
        to: Mark,
        documents: Sequence[Document],
        gone: Sequence[Gone] = (),
        deleted: Sequence[str] = (),
    ) -> bool:
        """Index ``documents``, remove ``gone``, and set the mark to ``to``, all in one step.

        Of the streams ``deleted`` all messages are removed, with their places.

        Returns false and changes nothing if the mark is not ``after``: another one was faster.
        """
        ...

    def forget(self, gone: Sequence[Gone]) -> None:
        """Remove the words of these messages, so that none of them stays in the index.

        Their places stay, since message numbers are counted by them.
        """
        ...

    def following(self, segments: Sequence[Segment]) -> int:
        """The number of the next message after ``segments``."""
        ...

    def find(self, segments: Sequence[Segment], first: int, last: int) -> list[Place]:
        """The places of messages ``first`` to ``last``, in their order; of those that are there."""
        ...

    def search(
        self, terms: Sequence[Term], segments: Sequence[Segment] | None, limit: int, *, every: bool
    ) -> list[Hit]:
        """The best matches, of equal ones the latest first.

        ``every``: messages with all terms, else with any. ``segments``: where to search; None for
        everywhere.
        """
        ...

    def count(
        self, terms: Sequence[Term], segments: Sequence[Segment] | None, *, every: bool
    ) -> int:
        """How many messages ``search`` finds without a limit."""
        ...

    def clear(self) -> None:
        """Replace the index by an empty one."""
        ...

    def close(self) -> None:
        """Release all resources. A second call does nothing."""
        ...
