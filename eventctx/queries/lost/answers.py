"""The report of what left a view: messages in counts, and items one by one."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from eventctx.projections.presence import Presence
from eventctx.projections.silent_loss import SuspectedLoss
from eventctx.text import counted, html_table, summary_line

ItemKind = Literal["instruction", "file", "command", "decision", "result"]
"""- ``instruction``: a sentence of a person: the first one of a message, or one with a demand;
- ``file``: a file that a tool call read, wrote or edited;
- ``command``: a command that was run, with one outcome: it succeeded, or failed with this error;
- ``decision``: a sentence in which the model states what it will do instead of something else;
- ``result``: a tool result that holds names or lines which the model used again later."""

LeftBy = Literal[
    "compaction",
    "taken_back",
    "set",
    "clear",
    "replaced",
    "erased",
    "unanswered",
    "provider",
]
"""``taken_back``: the imported file says that it was undone. ``replaced``: the host's own system
prompt takes its place. ``unanswered``: it holds results of calls that are not in view."""

KINDS: tuple[ItemKind, ...] = ("instruction", "file", "command", "decision", "result")
STATES: Final = (Presence.GONE, Presence.SUMMARY, Presence.SHORTENED, Presence.WHOLE)
"""The presences of an item, the worst first."""


class Left(msgspec.Struct, frozen=True):
    """The cause that took a message out of the view, at the ``position`` (``at``: ``@48``).

    ``compaction`` is the number of the compaction among the applied ones, from 1; None where
    another record did it.
    """

    by: LeftBy
    at: str
    position: int
    compaction: int | None = None


class FileUse(msgspec.Struct, frozen=True):
    """How many messages read, wrote and edited a file.

    ``last_read`` is the number of the last one that read it, ``changed_after`` that of the first
    later one that wrote, edited or deleted it: from there on what was read is out of date.
    """

    read: int
    written: int
    edited: int
    last_read: int | None = None
    changed_after: int | None = None


class CommandUse(msgspec.Struct, frozen=True):
    """How often a command ran with this outcome.

    ``status`` is the exit status, None where none is told; ``error`` is the first line that names
    an error, "" where it did not fail.
    """

    runs: int
    failed: bool
    status: int | None
    error: str


class ViewItem(msgspec.Struct, frozen=True, kw_only=True):
    """Something in the messages, and whether the view still has it.

    - ``text``: the sentence, the path, the command, or the call that a result answers.
    - ``name`` (``#6``), ``number``, ``turn``: the last message with it, and that message's turn.
      ``messages`` are the messages with it, of which ``in_view`` are in view.
    - ``used_again``: how many later messages touch the same file, run the same command, or use a
      name or line of it; later than it first left the view, or than the compaction asked about.
    - ``left``: what took its last message out, or shortened it; None while that is in view whole,
      and for a result while it is in view at all.
    - ``file``, ``command``: for items of these kinds. ``quoted``: for a result, the names and
      lines of it that the model used again, the most used first, ten at most.
    """

    kind: ItemKind
    state: Presence
    text: str
    name: str
    number: int
    turn: int | None
    messages: int
    in_view: int
    used_again: int
    left: Left | None = None
    file: FileUse | None = None
    command: CommandUse | None = None
    quoted: tuple[str, ...] = ()


class MessageCounts(msgspec.Struct, frozen=True):
    """Messages: ``total`` is ``whole`` + ``shortened`` + ``left``.

    ``left_by`` counts those that left by what took them out; ``left_of`` by who wrote them:
    ``person``, ``model``, ``tool``, ``other``. Both add up to ``left``. ``erased`` are messages
    without contents, of which no item is known. ``thinking_cleared`` are those in view whose
    thinking the provider cleared. ``provider_cleared`` are those of ``shortened`` in which it
    cleared a tool use of this request, or of the last one before now: they were sent whole.
    """

    total: int
    whole: int
    shortened: int
    left: int
    left_by: dict[LeftBy, int]
    left_of: dict[str, int]
    erased: int
    thinking_cleared: int = 0
    provider_cleared: int = 0


class StateCounts(msgspec.Struct, frozen=True):
    """Items of one kind by state; ``total`` is the sum."""

    kind: ItemKind
    total: int
    whole: int
    shortened: int
    summary: int
    gone: int


class Lost(msgspec.Struct, frozen=True):
    """The report of what is no longer in a view.

    ``about`` is ``now`` (the present view), ``compaction`` or ``turn`` (the last request of
    a turn). ``compaction`` is its number from 1, of ``compactions`` applied ones up to there;
    ``turn`` is that of the compaction or the request; ``position`` (``at``: ``@48``) is that of its
    record, for ``now`` the last of the log.

    ``messages`` counts, for a compaction, those that were in view before it; else all that were
    ever added. ``summaries`` are the texts in view in the place of others; ``sealed`` of them are
    encrypted, so that nothing can be found in them. ``items`` are sorted: instructions first, in a
    kind those that are gone first, then by how often they were used again. For a compaction, items
    that were gone before it are left out.

    ``suspected`` is inferred, not known: requests up to there whose prompt was smaller than the log
    says, while no record tells why. No other field counts them.
    """

    session: str
    about: Literal["now", "compaction", "turn"]
    compaction: int | None
    compactions: int
    turn: int | None
    at: str | None
    position: int | None
    messages: MessageCounts
    summaries: int
    sealed: int
    counts: tuple[StateCounts, ...]
    items: tuple[ViewItem, ...]
    suspected: tuple[SuspectedLoss, ...] = ()

    def __repr__(self) -> str:
        about = "now" if self.about == "now" else f"{self.about} {self.compaction or self.turn}"
        gone = [one for one in self.items if one.state is Presence.GONE]
        return summary_line(
            f"Lost {self.session} {about}:",
            f"{self.messages.left:,} of {counted(self.messages.total, 'message')} out of view",
            f"{len(gone):,} of {counted(len(self.items), 'item')} gone",
        )

    def _repr_html_(self) -> str:
        heads = ("what", "state", "text", "message", "used again")
        rows = [(one.kind, one.state, one.text, one.name, one.used_again) for one in self.items]
        return html_table(repr(self)[1:-1], heads, rows)
