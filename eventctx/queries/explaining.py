"""Answers ``why`` and ``diff`` from a store.

One pass over the log finds the state at each request that is asked about; then the bodies of the
messages that are shown are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from eventctx.errors import InvalidSetting
from eventctx.log.arguments import shown
from eventctx.log.codec import decode_known
from eventctx.log.events import RequestPrepared, known_as
from eventctx.log.integrity import sound_bodies
from eventctx.log.naming import RequestName, message_name
from eventctx.log.record import Record
from eventctx.log.store import Address, EventStore
from eventctx.projections import figures, numbering
from eventctx.projections.explain.changes import ChangesState
from eventctx.projections.explain.view_diff import compare, token_groups
from eventctx.projections.explain.why import LeftOut, ViewHistory, Why, left_out
from eventctx.projections.figures import Figures
from eventctx.projections.presence import Presence
from eventctx.projections.view import planned
from eventctx.projections.view.entries import RENDERER, Entry
from eventctx.projections.view.refs import InsertionRef, MessageRef
from eventctx.projections.view.render import addresses
from eventctx.projections.view.sendable.contents import MANY_IMAGES
from eventctx.projections.view.sendable.rows import RowChange
from eventctx.projections.view.sendable.sending import rows_of_request
from eventctx.queries.explain_answers import (
    ClearedByProvider,
    Explanation,
    ExtraEntry,
    Message,
    MessageDifference,
    Side,
    StandIn,
    ViewDiff,
)
from eventctx.queries.key_frames import timeline_at
from eventctx.queries.requests import (
    ProviderClearing,
    address_of,
    cleared_by_provider,
    find_request,
    sound_messages,
)

NOW: Final = RequestName()
"""The present view."""


class Seen(NamedTuple):
    """A state, and the request whose view it holds; None for the present view.

    ``figures`` are those of the whole session.
    """

    state: ChangesState
    figures: Figures
    record: Record | None = None
    prepared: RequestPrepared | None = None
    turn: int | None = None


async def states_at(
    store: EventStore, stream: str, selectors: Sequence[RequestName]
) -> tuple[list[Seen], ChangesState]:
    """The state at each selected request, and the state at the end of the log.

    Raises StreamNotFound, and InvalidSetting for a request that does not exist.
    """
    now = await timeline_at(store, stream)
    known = figures.read(now.audit.sizes)
    seen: list[Seen] = []
    for selector in selectors:
        if selector == NOW:
            seen.append(Seen(now.changes, known))
            continue
        record = await find_request(store, stream, selector)
        event: Any = decode_known(record)
        # A request that leaves out thinking is itself a change, which its own view has.
        until = record.position if event.unbound else record.position - 1
        state = (await timeline_at(store, stream, until)).changes
        turn = numbering.turn_number(state.time, record.turn_id)
        state = replace(state, view=planned.with_insertions(state.view, event.insertions, record))
        seen.append(Seen(state, known, record, event, turn))
    return seen, now.changes


async def why(
    store: EventStore, stream: str, number: int, selector: RequestName = NOW
) -> Explanation:
    """The presence of message ``number`` in a view, and its reason.

    Raises StreamNotFound, InvalidSetting.
    """
    _check_number(number)
    (seen,), now = await states_at(store, stream, [selector])
    known = len(now.origins)
    if number >= known:
        raise InvalidSetting(_no_message(stream, number, known))
    history = ViewHistory(seen.state, seen.figures)
    found = history.why(number)
    if found.standing is Presence.NOT_ADDED:
        found = msgspec.structs.replace(found, added=ViewHistory(now).added(number))
    [answer] = await _explained(store, stream, seen, [found])
    if not answer.in_view:
        return answer
    changes, left_out = await _changes_sent(store, stream, seen, history, number)
    cleared = await _cleared(store, stream, seen, history.shown[number].ref)
    return msgspec.structs.replace(answer, changes=changes, left_out=left_out, cleared=cleared)


async def clearing_of(store: EventStore, stream: str, seen: Seen) -> ProviderClearing | None:
    """The provider's clearing in a request; for the present view, in the last one."""
    requests = seen.state.time.requests
    if seen.record is not None:
        return await cleared_by_provider(store, stream, seen.record.position)
    return await cleared_by_provider(store, stream, requests[-1].position) if requests else None


async def _cleared(
    store: EventStore, stream: str, seen: Seen, ref: MessageRef | InsertionRef | None
) -> ClearedByProvider | None:
    """The provider's clearing of a message in view; None where it cleared nothing in it."""
    found = await clearing_of(store, stream, seen)
    if found is None or not isinstance(ref, MessageRef) or ref.position > found.request:
        return None
    message = None if found.messages is None else found.messages.get(ref.number)
    if message is None and (found.messages is not None or not ref.facts.results):
        return None
    return ClearedByProvider(found.request, found.position, found.uses, message)


_AROUND = 24
"""Entries on either side of a message that its rules may depend on, such as one long answer."""


async def _changes_sent(
    store: EventStore, stream: str, seen: Seen, history: ViewHistory, number: int
) -> tuple[tuple[RowChange, ...], bool]:
    """The rules by which a message in view is sent otherwise, and whether it is left out whole.

    The bodies of the whole view are read only where its ids or its images are the question.
    """
    event, view = seen.prepared, seen.state.view
    made_here = view.mirror is None if event is None else known_as(event) == "prepared"
    entries = history.entries
    place = next((at for at, one in enumerate(entries) if one is history.shown.get(number)), None)
    if place is None or not made_here:
        return (), False
    renderer = RENDERER if event is None else event.renderer
    start, end = max(0, place - _AROUND), place + _AROUND
    if _depends_on_all(entries, place):
        start, end = 0, len(entries)
    around = entries[start:end]
    wanted = addresses(around)
    bodies = await sound_bodies(store, stream, wanted)
    texts = {(at.position, at.index): body.data for at, body in zip(wanted, bodies, strict=True)}
    rows, changes = rows_of_request(around, texts, renderer)
    own = tuple([one for one in changes if one.place == place - start])
    return own, rows[place - start] is None


def _depends_on_all(entries: Sequence[Entry], place: int) -> bool:
    """Whether another message of the view has an id of this one, or images may be too many."""
    ref = entries[place].ref
    assert ref is not None  # noqa: S101 - a message has one
    own = {*ref.facts.calls, *ref.facts.results}
    facts = [one.ref.facts for one in entries if one.kind == "message" and one.ref is not None]
    images = sum([one.kind == "image" for fact in facts for one in fact.media])
    uses = sum([not own.isdisjoint(fact.calls) for fact in facts]) if own else 0
    return bool(ref.facts.item) or uses > 1 or (images > MANY_IMAGES and bool(ref.facts.media))


async def left_out_of(
    store: EventStore, stream: str, selector: RequestName = NOW
) -> tuple[LeftOut, ...]:
    """The messages that a view does not show whole. Raises StreamNotFound, InvalidSetting."""
    (seen,), _ = await states_at(store, stream, [selector])
    return left_out(ViewHistory(seen.state))


async def difference(
    store: EventStore, stream: str, one: RequestName, other: RequestName
) -> ViewDiff:
    """The differences of two requests; the earlier one is ``before``, whichever is named first.

    Raises StreamNotFound, InvalidSetting.
    """
    found, _ = await states_at(store, stream, [one, other])
    earlier, later = sorted(found, key=lambda seen: seen.state.view.position)
    before = ViewHistory(earlier.state, earlier.figures)
    after = ViewHistory(later.state, later.figures)
    compared = compare(before, after)
    origins = [one.origin for one in compared.differences]
    refs = [extra.ref for extra in (*compared.came, *compared.went)]
    inserted = [ref for ref in refs if isinstance(ref, InsertionRef)]
    texts = await _texts(store, stream, [*origins, *inserted])

    def extra(kind: str, ref: MessageRef | InsertionRef | None) -> ExtraEntry:
        if isinstance(ref, InsertionRef):
            return ExtraEntry(kind, ref.position, None, ref.stands_for, texts[address_of(ref)])
        return ExtraEntry(kind, None, None if ref is None else ref.number, (), None)

    came = [extra(one.kind, one.ref) for one in compared.came]
    went = [extra(one.kind, one.ref) for one in compared.went]
    return ViewDiff(
        stream,
        side_of(earlier, before),
        side_of(later, after),
        tuple(
            [
                MessageDifference(
                    one.number,
                    one.kind,
                    one.origin.facts.role,
                    one.ruling,
                    texts[address_of(one.origin)],
                )
                for one in compared.differences
            ]
        ),
        _without(came, went),
        _without(went, came),
        compared.passed,
    )


def _without(entries: Sequence[ExtraEntry], others: Sequence[ExtraEntry]) -> tuple[ExtraEntry, ...]:
    """The entries whose text is not among ``others``: a change of one system row records all."""
    same = [(one.kind, one.stands_for, one.message) for one in others if one.message is not None]
    found: list[ExtraEntry] = []
    for one in entries:
        text = (one.kind, one.stands_for, one.message)
        if text in same:
            same.remove(text)
        else:
            found.append(one)
    return tuple(found)


async def _explained(
    store: EventStore, stream: str, seen: Seen, found: Sequence[Why]
) -> list[Explanation]:
    """The answers with their texts."""
    refs: list[MessageRef | InsertionRef] = []
    for one in found:
        refs += [ref for ref in (one.origin, one.shown, *one.insertions) if ref is not None]
    texts = await _texts(store, stream, refs)
    record = seen.record
    return [
        Explanation(
            **{name: getattr(one, name) for name in Why.__struct_fields__},
            session=stream,
            position=None if record is None else record.position,
            turn=seen.turn,
            iteration=None if record is None else record.iteration,
            message=None if one.origin is None else texts[address_of(one.origin)],
            shows=None if one.shown is None else texts[address_of(one.shown)],
            stands_in=tuple(
                [
                    StandIn(ref.kind, ref.position, ref.stands_for, texts[address_of(ref)])
                    for ref in one.insertions
                ]
            ),
        )
        for one in found
    ]


async def _texts(
    store: EventStore, stream: str, refs: Iterable[MessageRef | InsertionRef]
) -> dict[Address, Message | None]:
    """Messages by address; None for an erased one. Raises LogCorrupted for a body without JSON."""
    wanted = list(dict.fromkeys([address_of(ref) for ref in refs]))
    return dict(zip(wanted, await sound_messages(store, stream, wanted), strict=True))


def side_of(seen: Seen, history: ViewHistory) -> Side:
    """A request as one of two that are compared."""
    assert seen.record is not None  # noqa: S101 - a diff is between requests
    assert seen.prepared is not None  # noqa: S101 - as above
    figures = seen.figures.requests[seen.record.position]
    return Side(
        seen.record.position,
        seen.turn,
        seen.record.iteration,
        len(history.entries),
        figures,
        seen.prepared.budget,
        token_groups(history, figures.messages),
    )


def _check_number(number: object) -> None:
    if type(number) is not int or number < 0:
        raise InvalidSetting(f"message number: expected an int from 0, found {shown(number)}")


def _no_message(stream: str, number: int, known: int) -> str:
    if not known:
        return f"session {stream!r} has no messages, found number {number}"
    last, found = message_name(known - 1), message_name(number)
    return (
        f"session {stream!r} has messages #0 to {last}, found {found}; "
        f"`eventctx transcript {stream}` lists them"
    )
