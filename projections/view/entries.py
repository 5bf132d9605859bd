"""The entries of a view: the messages that a model is sent, in order, made of references.

The rules of ``layout.py`` for one round, for insertions and for the opening are kept here; so are
the texts that no message has, and the bytes of a view digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Container, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

from eventctx.messages.facts import Dialect
from eventctx.messages.tokens import OPENING_TOKENS, SYNTHETIC_TOKENS
from eventctx.messages.tool_rounds import Group, answered_calls
from eventctx.projections.view.refs import CallEnd, CallEnds, InsertionRef, MessageRef

if TYPE_CHECKING:
    from hashlib import _Hash


RENDERER: Final = 4
"""Version of the rules of a view's order and of the fixed texts below. Recorded in every prepared
request.

2: the result that is made up for a call says what the log knows of it, and shows its answer where
that was kept. A call that a request of renderer 1 showed keeps the text that it had there, so that
requests of both versions are derived by one fold, and a new release breaks no prefix.
3: rows that a provider refuses are made acceptable (``view/sendable``). Entries and digests are
those of renderer 2, since the changes follow from the rows alone.
4: a provider's own summary stays at the beginning where any other row is left out as empty.
"""

DIGEST_FORM: Final = 1
"""Version of a view digest's form. Renderer 2 only has more dispositions."""

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
    is ``call_id``, and ``end`` is the end of the call that it tells (None: none, as in renderer 1).
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


def entries_of(
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
            answered = answered_calls(given, waiting)
            surplus = () if len(answered) == len(given) else _surplus(given, waiting)
            if surplus and rows[row].facts.item:
                surplus = ()  # an item answers one call: that of this round, or of a reference
            waiting.difference_update(answered)
            entries.append(Entry("message", rows[row], omit=surplus))
        for call in group.pending:
            caller = next(rows[row] for row in group.calls if call in rows[row].facts.calls)
            entries.append(Entry("synthetic", caller, call, end=ends.of(caller.number, call)))
    return entries, omitted


def _surplus(given: Sequence[str], waiting: Collection[str]) -> tuple[str, ...]:
    """The results that answer no waiting call."""
    return tuple([call for call in given if not answered_calls((call,), waiting)])


def with_inserted(
    entries: list[Entry], insertions: Sequence[InsertionRef], region: Sequence[MessageRef]
) -> list[Entry]:
    """Put each insertion before its message, or at the start if that message is not in view.

    If that message is still to come, the insertion is the last entry before ``region``.
    """
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
        if found is None and one.ahead and _ends_before(places, one):
            found = len(entries)
        placed.append((_start(entries, one) if found is None else found, order, one))
    # From the end, so that the places before stay valid; in one place, the last insertion first.
    for place, _, insertion in sorted(placed, key=lambda entry: entry[:2], reverse=True):
        result.insert(place, Entry("insertion", insertion))
    return result


def _ends_before(places: dict[int, int], insertion: InsertionRef) -> bool:
    """Whether the message of the insertion has not come yet: no later one is in view."""
    return all(number < (insertion.before or 0) for number in places)


def _start(entries: list[Entry], insertion: InsertionRef) -> int:
    """The place after the leading system messages that are older than the insertion.

    A later system message comes after the insertion, whether the view grew or was built from
    nothing. A host's system prompt comes before everything.
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


def with_opening(entries: list[Entry], opened: bool) -> tuple[list[Entry], bool]:
    """Put an opening before a conversation that does not begin with a row of role user.

    None is needed before a provider's own compaction.

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
        if facts is not None and facts.compacts:
            return entries, True  # the API takes its own summary first, and refuses it elsewhere
        return [*entries[:place], Entry("opening", None), *entries[place:]], True
    return entries, False


class ByteSink(Protocol):
    """Takes the bytes of a view digest: a hash, above all."""

    def update(self, data: bytes, /) -> None:
        """Add bytes at the end."""
        ...


def update_digest(digest: ByteSink, entries: Iterable[Entry]) -> None:
    """Add entries to a view digest: body digests and dispositions, not texts."""
    parts: list[bytes] = []
    for kind, ref, call_id, omit, end in entries:
        if kind == "message":
            assert isinstance(ref, MessageRef)  # noqa: S101 - tells the type checker
            if ref.stripped:
                parts.append(b"b")
            parts.append(b"M" if ref.shortened else b"m")
            parts.append(ref.digest)
            if omit:  # seldom
                parts.extend([_with_length(surplus) for surplus in omit])
        elif kind == "synthetic":
            parts.append(b"s" + _with_length(call_id) if end is None else _of_end(call_id, end))
        elif isinstance(ref, InsertionRef):
            parts.append(b"i" + _with_length(ref.kind) + ref.digest)
        else:
            parts.append(b"o")
    digest.update(b"".join(parts))


def _of_end(call_id: str, end: CallEnd) -> bytes:
    known = b"n" if not end.ended else b"e" if end.position is None else b"k"
    return b"S" + known + _with_length(call_id) + end.digest


def _with_length(text: str) -> bytes:
    encoded = text.encode()
    return len(encoded).to_bytes(4, "big") + encoded


def new_digest() -> _Hash:
    """The digest of no entries, to ``update_digest``."""
    return hashlib.sha256(b"view" + bytes((DIGEST_FORM,)))


def digest_of(entries: Iterable[Entry]) -> str:
    """The view digest (hex) of any entries; ``Layout.measure`` gives the same, incrementally."""
    digest = new_digest()
    update_digest(digest, entries)
    return digest.hexdigest()


def plain_until(rows: Sequence[MessageRef], start: int, abandoned: Container[str] = ()) -> int:
    """The first row after the plain rounds from row ``start`` on.

    A plain round is a text, or calls with their answers directly after them, so its entries are
    its rows in order. Nearly all rows of a long session are such rounds, and need no search for
    calls and answers as in ``tool_rounds``. Every row before the found one is one
    entry. A result of a call in ``abandoned`` is in no plain round.
    """
    at, end = start, len(rows)
    while at < end:
        ref = rows[at]
        facts = ref.facts
        if ref.replaced or facts.dialect == "responses" or facts.item:
            break
        if facts.server_calls or facts.server_results:
            break
        if facts.kind == "result":
            if facts.calls or facts.results or not facts.observation:
                break
            at += 1
        elif facts.calls:
            until = _end_of_answers(rows, at, abandoned)
            if until == at:
                break
            at = until
        else:
            at += 1
    return at


def _end_of_answers(rows: Sequence[MessageRef], at: int, abandoned: Container[str]) -> int:
    """The row after those that answer all calls of row ``at``; ``at`` if there are no such."""
    calls = rows[at].facts.calls
    waiting = set(calls)
    until, end = at + 1, len(rows)
    while waiting:
        if until == end:
            return at
        ref = rows[until]
        facts = ref.facts
        results = facts.results
        if facts.kind != "result" or facts.calls or facts.observation or ref.replaced:
            return at
        if facts.dialect == "responses" or facts.item or not results:
            return at
        # A person's words after a result must not come before another row with results.
        if facts.human and results != calls:
            return at
        for call in results:
            if call in abandoned or call not in waiting:
                return at
        waiting.difference_update(results)
        until += 1
    return until
