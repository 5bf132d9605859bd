"""The index of a full-text search: what is asked of it, and what it answers.

An index is a cache. It holds words and addresses, no texts, and may be lost at any moment: its
``mark`` says how far it has come, and whoever finds it empty fills it again from the log. Methods
block (call them in a thread) and may be called from any number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

END = 2**62
"""A position beyond every stream's end."""


class IndexLost(Exception):
    """The index was damaged or deleted, and an empty one stands in its place: fill it, ask again.

    A signal between an index and whoever fills it; it never reaches a caller of eventctx.
    """


class Mark(NamedTuple):
    """The last record that was indexed: its global position and event id.

    The id tells this store from another one that lies under the same name now.
    """

    position: int
    id: bytes


class Place(NamedTuple):
    """Where a message is: in which stream it was said, its address and number there.

    ``time`` is its record's, in UTC nanoseconds.
    """

    stream: str
    position: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    number: int
    time: int


class Document(NamedTuple):
    """A message to index. One without words has a place all the same, and is found by its number.

    ``parts`` are the words that its identifiers are made of; a match there counts for less.
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
"""Where the positions of a session are: of a fork, in its own stream and in its parents'."""


class Term(NamedTuple):
    """A word, or several that must follow each other; ``prefix``: the last may go on."""

    text: str
    prefix: bool = False


class Hit(NamedTuple):
    """A message that matches. A higher ``score`` is a better match; it has no unit."""

    place: Place
    score: float


class TextIndex(Protocol):
    """Words of messages. Every method may raise IndexLost, and the errors of a store."""

    def mark(self) -> Mark | None:
        """How far the index has come; None if it is empty."""
        ...

    def extend(
        self,
        after: Mark | None,
        to: Mark,
        documents: Sequence[Document],
        gone: Sequence[Gone] = (),
    ) -> bool:
        """Index ``documents``, then take out ``gone``, and move the mark, all in one step.

        False, and nothing is changed, if the mark is not ``after``: somebody else was faster.
        """
        ...

    def forget(self, gone: Sequence[Gone]) -> None:
        """Take out the words of these messages, so that nothing of them stays in the index.

        Their places stay: numbers are counted by them.
        """
        ...

    def following(self, segments: Sequence[Segment]) -> int:
        """The number of the next message behind ``segments``."""
        ...

    def find(self, segments: Sequence[Segment], number: int) -> Place | None:
        """The place of message ``number``; None if there is none."""
        ...

    def search(
        self, terms: Sequence[Term], segments: Sequence[Segment] | None, limit: int, *, every: bool
    ) -> list[Hit]:
        """The best matches, of equal ones the latest first.

        ``every``: messages that hold all terms, else any. ``segments`` None: everywhere.
        """
        ...

    def clear(self) -> None:
        """Begin anew with an empty index."""
        ...

    def close(self) -> None:
        """Release everything. Calling it again does nothing."""
        ...
