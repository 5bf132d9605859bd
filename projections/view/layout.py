"""The order of a view: references in, entries out, under the rules that every provider needs.

Rules (DESIGN §6): results follow their call directly, and a row between them moves behind them; a
call without a result gets a synthetic one; a result without a call is left out; the first row that
is not a system message has role user. None of this changes the transcript.

The idea: adding a message must not arrange the whole view again. So a layout has two parts. The
*sealed* part holds entries that later messages do not change, with a running digest over them. The
*region* holds the messages of the tool round still in progress, and is arranged anew when a row
arrives; once all its calls are answered, or the model has gone on without the answers, it is sealed
too. Thus a layout grows in amortised constant time. It is built from nothing only at a break: a
result that comes after its call was sealed without it, or a change other than an added message.

Invariant: growing a layout row by row and building it from all its rows give the same entries.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from eventctx.messages.facts import Dialect, Facts
from eventctx.messages.tokens import OPENING_TOKENS, SYNTHETIC_TOKENS
from eventctx.messages.tool_rounds import Group, group_rows, joins
from eventctx.projections.view.call_ends import NO_ENDS, CallEnds
from eventctx.projections.view.refs import CallEnd, InsertionRef, MessageRef
from eventctx.projections.view.series import Series

if TYPE_CHECKING:
    from hashlib import _Hash

RENDERER: Final = 2
"""Version of the rules above and of the fixed texts below. Recorded in every prepared request.

2: the result that is made up for a call says what the log knows of it, and shows its answer where
that was kept. A call that a request of renderer 1 showed keeps the text that it had there, so that
requests of both versions are derived by one fold, and a new release breaks no prefix.
"""

DIGEST_FORM: Final = 1
"""Version of what a view digest covers. Renderer 2 only has more dispositions."""

SYNTHETIC_RESULT: Final = "[No result was recorded for this call.]"
"""The text of every made-up result in the requests of renderer 1."""

CALL_NOT_ENDED: Final = (
    "[No result was recorded for this call, nor that it ended. The tool may have done its work all "
    "the same: check before you call it again.]"
)
CALL_ENDED: Final = (
    "[No result was recorded for this call, only that it ended. The tool has done its work, or "
    "failed at it: check before you call it again.]"
)
ANSWER_KEPT: Final = (
    "[The result of this call was never added to the conversation. The call had ended, and this "
    "answer was kept of it:]\n"
)
SYNTHETIC_TEXTS: Final = (SYNTHETIC_RESULT, CALL_NOT_ENDED, CALL_ENDED, ANSWER_KEPT)
"""The texts with which a made-up result begins."""

KEPT_CUT: Final = "\n[… {left} characters of the answer left out; the log has them …]\n"
"""Stands for the middle of a longer kept answer."""

OPENING: Final = "[The conversation goes on from here; what came before is not in view.]"


class Entry(NamedTuple):
    """One message of a view.

    ``ref`` is None for an opening; for a synthetic result it is the message with the call, whose id
    is ``call_id``, and ``end`` is what it says of the call (None: nothing, as in renderer 1).
    ``omit`` are call ids whose results, in this message, answer no call in view.
    """

    kind: Literal["message", "insertion", "synthetic", "opening"]
    ref: MessageRef | InsertionRef | None
    call_id: str = ""
    omit: tuple[str, ...] = ()
    end: CallEnd | None = None

    @property
    def tokens(self) -> int:
        """Estimated tokens of this entry."""
        if self.kind == "synthetic":
            return SYNTHETIC_TOKENS if self.end is None else self.end.tokens
        return OPENING_TOKENS if self.ref is None else self.ref.tokens

    @property
    def dialect(self) -> Dialect:
        """The dialect for a text generated for this entry."""
        return "chat" if self.ref is None else self.ref.facts.dialect


class Layout(NamedTuple):
    """Visible messages, their sealed entries, and the region that may still change.

    ``refs`` and ``insertions`` are all that is in view; ``sealed_digest`` and ``sealed_tokens`` are
    of the sealed entries; ``opened`` is true once the first row that is not a system message was
    laid out. ``pending`` are the region's unanswered call ids; ``abandoned`` those that got a
    synthetic result in the sealed part, with the number of the message that calls. ``omitted``
    counts messages left out as orphans or duplicates, or because the host's system prompt replaces
    them; ``late`` counts results that came after their call was abandoned; ``shortened`` counts
    shortened messages in an entry. ``ends`` are for the results that are made up.
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
        _feed(digest, tail)
        tokens = self.sealed_tokens + sum([entry.tokens for entry in tail])
        return digest.hexdigest(), len(self.sealed) + len(tail), tokens


def build(
    refs: Iterable[MessageRef],
    insertions: Sequence[InsertionRef] = (),
    ends: CallEnds = NO_ENDS,
) -> Layout:
    """Lay out ``refs`` (in conversation order) and ``insertions`` from nothing."""
    series = refs if isinstance(refs, Series) else Series(refs)
    rows = list(series)
    groups = group_rows([ref.facts for ref in rows])
    sealed_groups, region_rows = _split(groups, rows)
    abandoned = _unanswered(sealed_groups, rows)
    entries, omitted = _flatten(sealed_groups, rows, ends)
    entries = _insert(entries, insertions, [rows[i] for i in region_rows])
    opened_entries, opened = _open(entries, False)
    digest = hashlib.sha256(b"view" + bytes((DIGEST_FORM,)))
    _feed(digest, opened_entries)
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
        sum([ref.shortened for ref in rows]) - _shortened_orphans(groups, rows),
        ends,
    )


def _shortened_orphans(groups: Sequence[Group], rows: Sequence[MessageRef]) -> int:
    """The number of shortened rows in no entry; these count as omitted."""
    orphans = [row for group in groups if group.orphan for row in group.results]
    return sum([rows[row].shortened for row in orphans]) + sum(
        [ref.shortened for ref in rows if ref.replaced]
    )


def append(layout: Layout, ref: MessageRef) -> Layout:
    """The layout with one more message at the end of the conversation."""
    facts = ref.facts
    if facts.kind == "result" and any(call in layout.abandoned for call in facts.results):
        return _with_late_result(layout, ref)
    refs = layout.refs.append(ref)
    region = layout.region
    grows = facts.kind == "assistant" and facts.dialect == "responses"
    if not (region or grows or facts.calls or facts.kind == "result"):
        return _with_sealed(layout, refs, [Entry("message", ref)])
    if region and facts.kind == "assistant" and not _continues(layout, facts):
        # The model went on without waiting: the calls still unanswered are abandoned.
        layout = _seal(layout, layout.refs, region)
        region = ()
    region = (*region, ref)
    pending = layout.pending.union(facts.calls).difference(facts.results)
    if pending or grows:
        return layout._replace(refs=refs, region=region, pending=pending)
    return _seal(layout, refs, region)


def with_end(layout: Layout, call_id: str, end: CallEnd) -> Layout:
    """The layout with the recorded end of a call that is still open in the round in progress.

    Of a call that was sealed without a result the end comes too late: its text was sent already.
    """
    if call_id not in layout.pending:
        return layout
    number = next(ref.number for ref in reversed(layout.region) if call_id in ref.facts.calls)
    return layout._replace(ends=layout.ends.with_end(number, call_id, end))


def made_up_tokens(layout: Layout) -> dict[tuple[int, str], int]:
    """Tokens of the made-up results in view, by message number and call id."""
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
    # All sealed before have the plain words already. An old log has very many requests.
    if any(number > layout.ends.plain_until for number in layout.abandoned.values()):
        return build(layout.refs, layout.insertions, ends)._replace(late=layout.late)
    return layout._replace(ends=ends)


def _continues(layout: Layout, facts: Facts) -> bool:
    """Whether an assistant row continues the answer that the row directly before it belongs to."""
    last = layout.region[-1]
    return layout.refs[-1] is last and joins(last.facts, facts)


def _with_late_result(layout: Layout, ref: MessageRef) -> Layout:
    # The sealed part has a synthetic result in the place of this one. That changes entries already
    # sealed, which is a break, so the layout is built from nothing.
    rebuilt = build(layout.refs.append(ref), layout.insertions, layout.ends)
    same = rebuilt.slice(0, len(layout.sealed)) == list(layout.sealed)
    return rebuilt._replace(late=layout.late + (not same))


def _seal(layout: Layout, refs: Series[MessageRef], region: tuple[MessageRef, ...]) -> Layout:
    groups = group_rows([ref.facts for ref in region])
    entries, omitted = _flatten(groups, region, layout.ends)
    pending = _unanswered(groups, region)
    if layout.ends.known:
        layout = layout._replace(ends=layout.ends.without_answered(region, pending))
    return _with_sealed(layout, refs, entries, pending, omitted)


def _with_sealed(
    layout: Layout,
    refs: Series[MessageRef],
    entries: list[Entry],
    abandoned: Mapping[str, int] | None = None,
    omitted: int = 0,
) -> Layout:
    """The layout with ``entries`` appended to the sealed part, and an empty region."""
    entries, opened = _open(entries, layout.opened)
    digest = layout.sealed_digest.copy()
    _feed(digest, entries)
    return Layout(
        refs,
        layout.insertions,
        layout.sealed.extend(entries),
        digest,
        layout.sealed_tokens + sum([entry.tokens for entry in entries]),
        opened,
        (),
        frozenset(),
        {**layout.abandoned, **abandoned} if abandoned else layout.abandoned,
        layout.omitted + omitted,
        layout.late,
        layout.shortened,
        layout.ends,
    )


def _split(groups: list[Group], rows: Sequence[MessageRef]) -> tuple[list[Group], list[int]]:
    """The groups to seal, and the indexes of the rows behind them that form the region."""
    last = next((g for g in reversed(groups) if any(_assistant(rows[i]) for i in g.rows)), None)
    if last is None:
        return groups, []
    # An item that was taken out of its round is a group of its own, behind the round's first row.
    start = last.rows[0]
    while start > 0 and joins(rows[start - 1].facts, rows[start].facts):
        start -= 1
    answer = [i for i in range(start, len(rows)) if _assistant(rows[i])]
    grows = answer[-1] == len(rows) - 1 and rows[-1].facts.dialect == "responses"
    unfinished = [group for group in groups if group.rows[0] >= start]
    if not grows and not _unanswered(unfinished, rows):
        return groups, []
    settled = [group for group in groups if group.rows[0] < start]
    taken = {row for group in settled for row in group.rows}
    return settled, [row for row in range(start, len(rows)) if row not in taken]


def _pending(region: Sequence[MessageRef]) -> frozenset[str]:
    return frozenset(_unanswered(group_rows([ref.facts for ref in region]), region))


def _unanswered(groups: Iterable[Group], rows: Sequence[MessageRef]) -> dict[str, int]:
    """The calls of ``groups`` that nobody answered, whatever a view does with them, by message."""
    found: dict[str, int] = {}
    for group in groups:
        if len(group.rows) == 1 and not rows[group.rows[0]].facts.calls:
            continue  # most groups by far
        answered = {call for row in group.results for call in rows[row].facts.results}
        for row in group.rows:
            for call in rows[row].facts.calls:
                if call not in answered:
                    found[call] = rows[row].number
    return found


def _assistant(ref: MessageRef) -> bool:
    return ref.facts.kind == "assistant"


def _arrange(
    region: Sequence[MessageRef], opened: bool, ends: CallEnds
) -> tuple[list[Entry], bool]:
    entries, _ = _flatten(group_rows([ref.facts for ref in region]), region, ends)
    return _open(entries, opened)


def _flatten(
    groups: Sequence[Group], rows: Sequence[MessageRef], ends: CallEnds
) -> tuple[list[Entry], int]:
    """The entries of ``groups`` in order, and the number of rows left out."""
    entries: list[Entry] = []
    omitted = 0
    for group in groups:
        if group.orphan:
            omitted += len(group.results)
            continue
        shown = [row for row in group.calls if not rows[row].replaced]
        entries.extend([Entry("message", rows[row]) for row in shown])
        omitted += len(group.calls) - len(shown)
        waiting = {call for row in group.calls for call in rows[row].facts.calls}
        for row in group.results:
            given = rows[row].facts.results
            surplus = tuple([call for call in given if call not in waiting])
            if surplus and rows[row].facts.item:
                surplus = ()  # an item answers one call: that of this round, or of a reference
            waiting.difference_update(given)
            entries.append(Entry("message", rows[row], omit=surplus))
        for call in group.pending:
            caller = next(rows[row] for row in group.calls if call in rows[row].facts.calls)
            entries.append(Entry("synthetic", caller, call, end=ends.of(caller.number, call)))
    return entries, omitted


def _insert(
    entries: list[Entry], insertions: Sequence[InsertionRef], region: Sequence[MessageRef]
) -> list[Entry]:
    """Put each insertion before its message, or at the start if that message is not in view."""
    if not insertions:
        return entries
    places: dict[int, int] = {}
    for place, entry in enumerate(entries):
        if isinstance(entry.ref, MessageRef) and entry.kind == "message":
            places.setdefault(entry.ref.number, place)
    if region:
        places.setdefault(region[0].number, len(entries))
    result = list(entries)
    placed = []
    for order, one in enumerate(insertions):
        found = None if one.before is None else places.get(one.before)
        placed.append((_start(entries, one) if found is None else found, order, one))
    # From the end, so that the places before stay valid; in one place, the last insertion first.
    for place, _, insertion in sorted(placed, key=lambda entry: entry[:2], reverse=True):
        result.insert(place, Entry("insertion", insertion))
    return result


def _start(entries: list[Entry], insertion: InsertionRef) -> int:
    """The place behind the leading system messages that are older than the insertion.

    A later system message stands behind the insertion, whether the view grew or was built from
    nothing. A host's system prompt stands before everything.
    """
    if insertion.kind == "system_prompt":
        return 0
    start = 0
    while start < len(entries) and _is_system(entries[start]):
        ref = entries[start].ref
        if isinstance(ref, MessageRef) and ref.number > insertion.through:
            break
        start += 1
    return start


def _is_system(entry: Entry) -> bool:
    return entry.ref is not None and entry.kind != "synthetic" and entry.ref.facts.kind == "system"


def _open(entries: list[Entry], opened: bool) -> tuple[list[Entry], bool]:
    """Put an opening before a conversation that does not begin with a row of role user.

    ``opened`` is whether the conversation has begun already; also returns whether it has now.
    """
    if opened:
        return entries, True
    for place, entry in enumerate(entries):
        if _is_system(entry):
            continue
        facts = entry.ref.facts if entry.ref is not None else None
        if facts is not None and facts.role == "user" and facts.kind != "result":
            return entries, True
        return [*entries[:place], Entry("opening", None), *entries[place:]], True
    return entries, False


def _feed(digest: Any, entries: Iterable[Entry]) -> None:
    """Add entries to a view digest: body digests and dispositions, not texts."""
    parts: list[bytes] = []
    for kind, ref, call_id, omit, end in entries:
        if kind == "message":
            assert isinstance(ref, MessageRef)  # noqa: S101 - tells the type checker
            if ref.stripped:
                parts.append(b"b")
            parts.append(b"M" if ref.shortened else b"m")
            parts.append(ref.digest)
            parts.extend([_sized(surplus) for surplus in omit])
        elif kind == "synthetic":
            parts.append(b"s" + _sized(call_id) if end is None else _of_end(call_id, end))
        elif isinstance(ref, InsertionRef):
            parts.append(b"i" + _sized(ref.kind) + ref.digest)
        else:
            parts.append(b"o")
    digest.update(b"".join(parts))


def _of_end(call_id: str, end: CallEnd) -> bytes:
    known = b"n" if not end.ended else b"e" if end.position is None else b"k"
    return b"S" + known + _sized(call_id) + end.digest


def _sized(text: str) -> bytes:
    encoded = text.encode()
    return len(encoded).to_bytes(4, "big") + encoded


def digest_of(entries: Iterable[Entry]) -> str:
    """The view digest (hex) of any entries; ``Layout.measure`` gives the same, incrementally."""
    digest = hashlib.sha256(b"view" + bytes((DIGEST_FORM,)))
    _feed(digest, entries)
    return digest.hexdigest()


EMPTY: Final = build(())
