"""The order of a view: references in, entries out, under the rules that every provider needs.

Rules: results follow their call directly, and a row between them moves after them; a
call without a result gets a synthetic one; a result without a call is left out; the first row that
is not a system message has role user. None of this changes the transcript.

The idea: adding a message must not arrange the whole view again. So a layout has two parts. The
*sealed* part holds entries that later messages do not change, with a running digest over them. The
*region* holds the messages of the tool round still in progress, and is arranged anew when a row
arrives; once all its calls are answered, or the model has gone on without the answers, it is sealed
too. Thus a layout grows in amortised constant time. It is built from nothing only at a break: a
result that comes after its call was sealed without it, or a change other than an added message.

Invariant: growing a layout row by row and building it from all its rows give the same entries, and
so the same digest. A snapshot relies on it: it stores references alone and builds the layout again.

Invariant: a sealed entry is never changed by an added message, except by a late result, which is
counted in ``late`` and is a break. So the digest of the sealed part is extended, never recomputed.

How a round, an insertion and the opening become entries: ``entries.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from eventctx.messages.facts import Facts
from eventctx.messages.tool_rounds import Group, answered_calls, answers_to, group_rows, joins
from eventctx.projections.view.entries import (
    Entry,
    entries_of,
    new_digest,
    plain_until,
    update_digest,
    with_inserted,
    with_opening,
)
from eventctx.projections.view.refs import NO_ENDS, CallEnd, CallEnds, InsertionRef, MessageRef
from eventctx.projections.view.series import Series

if TYPE_CHECKING:
    from hashlib import _Hash


class Layout(msgspec.Struct, frozen=True, gc=False):
    """Visible messages, their sealed entries, and the region that may still change.

    ``refs`` and ``insertions`` are all that is in view; ``sealed_digest`` and ``sealed_tokens`` are
    of the sealed entries; ``opened`` is true once the first row that is not a system message was
    laid out. ``pending`` are the region's unanswered call ids. ``abandoned`` are the ids by which a
    result would answer a call that got a synthetic one in the sealed part, with the number of the
    message that calls. ``omitted`` counts messages left out as orphans or duplicates, or because
    the host's system prompt replaces them; ``late`` counts results that came after their call was
    abandoned; ``shortened`` counts shortened messages in an entry. ``ends`` are for the results
    that are synthetic.
    """

    refs: Series[MessageRef]
    insertions: tuple[InsertionRef, ...]
    sealed: Series[Entry]
    sealed_digest: _Hash
    sealed_tokens: int
    opened: bool
    region: tuple[MessageRef, ...]
    pending: frozenset[str]
    abandoned: Mapping[str, int]
    omitted: int
    late: int
    shortened: int
    ends: CallEnds = NO_ENDS

    def in_play(self) -> list[MessageRef]:
        """The messages that a compaction decides on: all but those that the prompt replaces."""
        return [ref for ref in self.refs if not ref.replaced]

    def entries(self) -> list[Entry]:
        """All entries in order."""
        return [*self.sealed, *self.tail()]

    def tail(self) -> list[Entry]:
        """The entries of the round in progress."""
        return _arrange(self.region, self.opened, self.ends)[0] if self.region else []

    def slice(self, start: int, stop: int) -> list[Entry]:
        """The entries from ``start`` to before ``stop``, without a list of all entries."""
        settled = self.sealed[start:stop]
        missing = stop - max(start, len(self.sealed))
        return [*settled, *self.tail()[:missing]] if missing > 0 else settled

    @property
    def tokens(self) -> int:
        """Estimated tokens of all entries."""
        return self.sealed_tokens + sum([entry.tokens for entry in self.tail()])

    def measure(self) -> tuple[str, int, int]:
        """Digest (hex), number of entries, and tokens of the view, in time of the region's size."""
        tail = self.tail()
        digest = self.sealed_digest.copy()
        update_digest(digest, tail)
        tokens = self.sealed_tokens + sum([entry.tokens for entry in tail])
        return digest.hexdigest(), len(self.sealed) + len(tail), tokens


def build(
    refs: Iterable[MessageRef],
    insertions: Sequence[InsertionRef] = (),
    ends: CallEnds = NO_ENDS,
) -> Layout:
    """Lay out ``refs`` (in conversation order) and ``insertions`` from nothing."""
    series = refs if isinstance(refs, Series) else Series(refs)
    # Most rows of a long session need no search for calls and answers; the others get it.
    settled, rows = _plain_beginning(list(series))
    groups = group_rows([ref.facts for ref in rows])
    sealed_groups, region_rows = _split(groups, rows)
    if region_rows and not _pending([rows[i] for i in region_rows]) and _ends(insertions, rows):
        sealed_groups, region_rows = groups, []
    abandoned = _by_answer(_unanswered(sealed_groups, rows))
    entries, omitted = entries_of(sealed_groups, rows, ends)
    entries = with_inserted([*settled, *entries], insertions, [rows[i] for i in region_rows])
    opened_entries, opened = with_opening(entries, False)
    digest = new_digest()
    update_digest(digest, opened_entries)
    region = tuple([rows[i] for i in region_rows])
    return Layout(
        series,
        tuple(insertions),
        Series(opened_entries),
        digest,
        sum([entry.tokens for entry in opened_entries]),
        opened,
        region,
        _pending(region),
        abandoned,
        omitted,
        0,
        sum([ref.shortened for ref in series]) - _shortened_orphans(groups, rows),
        ends,
    )


def rebuild(refs: Sequence[MessageRef], layout: Layout) -> Layout:
    """A layout with the same messages in another form, and all else as before."""
    built = build(refs, layout.insertions, layout.ends)
    return replace(built, late=layout.late)


def _plain_beginning(rows: list[MessageRef]) -> tuple[list[Entry], list[MessageRef]]:
    """The entries of the plain rounds at the beginning, and the rows after them.

    The model's last answer stays with the rows after it, as the region begins with one.
    """
    until = plain_until(rows, 0)
    if until < len(rows):
        until = next((row for row in range(until - 1, 0, -1) if _assistant(rows[row])), 0)
    return _entries_of_plain(rows[:until]), rows[until:]


def _entries_of_plain(rows: Sequence[MessageRef]) -> list[Entry]:
    return [Entry("message", ref) for ref in rows]


def _shortened_orphans(groups: Sequence[Group], rows: Sequence[MessageRef]) -> int:
    """The number of shortened rows in no entry; these count as omitted."""
    orphans = [row for group in groups if group.orphan for row in group.results]
    return sum([rows[row].shortened for row in orphans]) + sum(
        [ref.shortened for ref in rows if ref.replaced]
    )


def extend(layout: Layout, refs: Sequence[MessageRef]) -> tuple[Layout, int]:
    """The layout with the first of ``refs`` at the end, as ``append`` would; and their number.

    It takes them all, or all before a result that comes too late for its call.
    """
    taken = 0
    while taken < len(refs) and not _is_late(layout, refs[taken].facts):
        until = taken if layout.region else plain_until(refs, taken, layout.abandoned)
        if until > taken:
            plain = refs[taken:until]
            entries = _entries_of_plain(plain)
            layout = _with_sealed(layout, layout.refs.extend(plain), entries)
            taken = until
        else:
            layout = append(layout, refs[taken])
            taken += 1
    return layout, taken


def append(layout: Layout, ref: MessageRef) -> Layout:
    """The layout with one more message at the end of the conversation."""
    facts = ref.facts
    if _is_late(layout, facts):
        return _with_late_result(layout, ref)
    refs = layout.refs.append(ref)
    region = layout.region
    grows = facts.goes_on
    if not (region or grows or facts.calls or facts.kind == "result"):
        # No later message changes a text outside of a round, so it is sealed at once.
        return _with_sealed(layout, refs, [Entry("message", ref)])
    if region and facts.kind == "assistant" and not _continues(layout, facts):
        # The model went on without waiting: the calls still unanswered are abandoned.
        layout = _seal(layout, layout.refs, region)
        region = ()
    region = (*region, ref)
    pending = layout.pending.union(facts.calls)
    pending = pending.difference(answered_calls(facts.results, pending))
    if pending or grows:
        return replace(layout, refs=refs, region=region, pending=pending)
    # All calls are answered. A row that came between them has its final place, too.
    return _seal(layout, refs, region)


def with_end(layout: Layout, call_id: str, end: CallEnd) -> Layout:
    """The layout with the recorded end of a call that is still open in the round in progress.

    For a call that was sealed without a result the end comes too late: its text was sent already.
    """
    ended = answered_calls((call_id,), layout.pending)
    if not ended:
        return layout
    number = next(ref.number for ref in reversed(layout.region) if ended[0] in ref.facts.calls)
    return replace(layout, ends=layout.ends.with_end(number, ended[0], end))


def open_calls(layout: Layout) -> frozenset[str]:
    """The calls of the round in progress that have neither a result nor a recorded end."""
    numbers = {ref.number for ref in layout.region}
    ended = {call_id for number, call_id in layout.ends.known if number in numbers}
    return layout.pending - ended


def made_up_tokens(layout: Layout) -> dict[tuple[int, str], int]:
    """Tokens of the synthetic results in view, by message number and call id."""
    if not (layout.abandoned or layout.pending):
        return {}
    return {
        (one.ref.number, one.call_id): one.tokens
        for one in layout.entries()
        if one.kind == "synthetic" and isinstance(one.ref, MessageRef)
    }


def as_plain(layout: Layout, until: int) -> Layout:
    """The layout whose calls of messages up to number ``until`` are shown as by renderer 1."""
    ends = layout.ends._replace(plain_until=until)
    # Building is needed only if a call was sealed since the last such request: the words of all
    # others are plain already, and an old log has very many requests.
    if any(number > layout.ends.plain_until for number in layout.abandoned.values()):
        return replace(build(layout.refs, layout.insertions, ends), late=layout.late)
    return replace(layout, ends=ends)


def _is_late(layout: Layout, facts: Facts) -> bool:
    return facts.kind == "result" and any(one in layout.abandoned for one in facts.results)


def _continues(layout: Layout, facts: Facts) -> bool:
    """Whether an assistant row continues the answer that the row directly before it belongs to."""
    last = layout.region[-1]
    return layout.refs[-1] is last and joins(last.facts, facts)


def _with_late_result(layout: Layout, ref: MessageRef) -> Layout:
    # The sealed part has a synthetic result in the place of this one. That changes entries already
    # sealed, which is a break, so the layout is built from nothing.
    rebuilt = build(layout.refs.append(ref), layout.insertions, layout.ends)
    # A later call may have the same id, and the result may be its: then no sealed entry changes.
    same = rebuilt.slice(0, len(layout.sealed)) == list(layout.sealed)
    return replace(rebuilt, late=layout.late + (not same))


def _seal(layout: Layout, refs: Series[MessageRef], region: tuple[MessageRef, ...]) -> Layout:
    if plain_until(region, 0) == len(region):  # nearly all
        entries, omitted = _entries_of_plain(region), 0
        pending: dict[str, int] = {}
    else:
        groups = group_rows([ref.facts for ref in region])
        entries, omitted = entries_of(groups, region, layout.ends)
        pending = _unanswered(groups, region)
    if layout.ends.known:
        layout = replace(layout, ends=layout.ends.without_answered(region, pending))
    return _with_sealed(layout, refs, entries, _by_answer(pending), omitted)


def _with_sealed(
    layout: Layout,
    refs: Series[MessageRef],
    entries: list[Entry],
    abandoned: Mapping[str, int] | None = None,
    omitted: int = 0,
) -> Layout:
    """The layout with ``entries`` appended to the sealed part, and an empty region."""
    entries, opened = with_opening(entries, layout.opened)
    digest = layout.sealed_digest.copy()
    update_digest(digest, entries)
    return replace(
        layout,
        refs=refs,
        sealed=layout.sealed.extend(entries),
        sealed_digest=digest,
        sealed_tokens=layout.sealed_tokens + sum([entry.tokens for entry in entries]),
        opened=opened,
        region=(),
        pending=frozenset(),
        abandoned={**layout.abandoned, **abandoned} if abandoned else layout.abandoned,
        omitted=layout.omitted + omitted,
    )


def _split(groups: list[Group], rows: Sequence[MessageRef]) -> tuple[list[Group], list[int]]:
    """The groups to seal, and the indexes of the rows after them that form the region."""
    last = next((g for g in reversed(groups) if any(_assistant(rows[i]) for i in g.rows)), None)
    if last is None:
        return groups, []
    # An item that was taken out of its round is a group of its own, after the round's first row,
    # so the answer may begin before the last group.
    start = last.rows[0]
    while start > 0 and joins(rows[start - 1].facts, rows[start].facts):
        start -= 1
    answer = [i for i in range(start, len(rows)) if _assistant(rows[i])]
    grows = answer[-1] == len(rows) - 1 and rows[-1].facts.goes_on
    unfinished = [group for group in groups if group.rows[0] >= start]
    if not grows and not _unanswered(unfinished, rows):
        return groups, []
    settled = [group for group in groups if group.rows[0] < start]
    taken = {row for group in settled for row in group.rows}
    return settled, [row for row in range(start, len(rows)) if row not in taken]


def _ends(insertions: Sequence[InsertionRef], rows: Sequence[MessageRef]) -> bool:
    """Whether an insertion comes after all rows, so that no answer goes on."""
    last = max([row.number for row in rows])
    return any(one.ahead and one.before is not None and one.before > last for one in insertions)


def _pending(region: Sequence[MessageRef]) -> frozenset[str]:
    return frozenset(_unanswered(group_rows([ref.facts for ref in region]), region))


def _unanswered(groups: Iterable[Group], rows: Sequence[MessageRef]) -> dict[str, int]:
    """The unanswered calls of ``groups``, whatever a view does with them, by message."""
    found: dict[str, int] = {}
    for group in groups:
        if len(group.rows) == 1 and not rows[group.rows[0]].facts.calls:
            continue  # most groups by far
        made = {call: rows[row].number for row in group.rows for call in rows[row].facts.calls}
        for row in group.results:
            for call in answered_calls(rows[row].facts.results, made):
                del made[call]
        found |= made
    return found


def _by_answer(unanswered: Mapping[str, int]) -> dict[str, int]:
    """The messages of unanswered calls by the ids that their results would have."""
    return {answer: number for call, number in unanswered.items() for answer in answers_to(call)}


def _assistant(ref: MessageRef) -> bool:
    return ref.facts.kind == "assistant"


def _arrange(
    region: Sequence[MessageRef], opened: bool, ends: CallEnds
) -> tuple[list[Entry], bool]:
    entries, _ = entries_of(group_rows([ref.facts for ref in region]), region, ends)
    return with_opening(entries, opened)


EMPTY: Final = build(())
