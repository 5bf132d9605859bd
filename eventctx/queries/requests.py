"""Requests of a stored session, derived again from its log."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import msgspec

from eventctx.errors import InvalidSetting, LogCorrupted
from eventctx.log.arguments import check_number
from eventctx.log.codec import decode_known
from eventctx.log.events import Known, RequestPrepared, ToolUseClearing, known_as
from eventctx.log.integrity import check_bodies, damage_found, is_sound, sound_bodies
from eventctx.log.naming import RequestName, position_name, request_name
from eventctx.log.record import Record
from eventctx.log.store import Address, EventStore
from eventctx.log.turn_recorder import count_cleared_uses
from eventctx.messages.encoding import decode_bodies, decode_body
from eventctx.messages.native_compaction import cleared_calls, without_cleared
from eventctx.messages.parts import call_names
from eventctx.projections import numbering
from eventctx.projections.numbering import Numbering
from eventctx.projections.view import planned, request_view
from eventctx.projections.view.entries import Entry, digest_of
from eventctx.projections.view.refs import InsertionRef, MessageRef
from eventctx.projections.view.render import ERASED, addresses
from eventctx.projections.view.sendable.rows import RowChange
from eventctx.projections.view.sendable.sending import rows_of_request
from eventctx.queries.key_frames import record_at, timeline_at
from eventctx.queries.sent import SentForm, sent_form, sources_of, tools_of
from eventctx.text import cell_text, counted, html_table, summary_line


class RequestView(msgspec.Struct, frozen=True):
    """A request to a model, derived again from the log.

    ``known`` says how: *observed* where the client recorded what it sent (``sent``), *prepared*
    where this library made it, *reconstructed* where an importer inferred it from a transcript.
    ``entries`` are of the transcript's view, whose digest is ``digest``; ``derived`` has the row of
    each entry, None for one that is not sent. ``messages`` are as they were sent for an observed
    request, and the rows of ``derived`` for all others. ``changes`` say where a prepared request
    differs from what was added, so that a provider takes it. ``tools`` are the definitions that
    were sent, None where they are not known.

    ``consistent``: the view has the digest that was recorded with the request, and every body in it
    its own. ``verified``: the request equals, by digest, what was recorded when it was made or
    sent; of a reconstructed one this is never known.
    """

    position: int
    turn: int | None
    iteration: int | None
    prepared: RequestPrepared
    entries: tuple[Entry, ...]
    messages: list[dict[str, Any]]
    digest: str
    verified: bool
    consistent: bool = True
    derived: list[dict[str, Any] | None] = []
    changes: tuple[RowChange, ...] = ()
    known: Known = "prepared"
    sent: SentForm | None = None
    tools: list[Any] | None = None

    def __repr__(self) -> str:
        return summary_line(self._title, "verified" if self.verified else "not verified")

    def _repr_html_(self) -> str:
        rows = [(one.get("role"), cell_text(one)) for one in self.messages]
        return html_table(repr(self)[1:-1], ("role", "content"), rows)

    @property
    def _title(self) -> str:
        name = request_name(self.turn, self.iteration, self.position)
        return f"RequestView {name}: {counted(len(self.messages), 'message')}, {self.known},"


class AddedMessage(msgspec.Struct, frozen=True):
    """A message that a host added to a request, after the first ``behind`` prepared messages.

    ``message`` is None where the contents were erased.
    """

    behind: int
    message: dict[str, Any] | None


class HostReport(msgspec.Struct, frozen=True):
    """A host's report, recorded at ``position``, that it sent something else than was prepared.

    ``messages`` is the number of messages sent, ``missing`` the number of prepared messages that
    were not among them. ``untold``: the host tells no text that it adds; this many messages it
    added, at least. ``messages`` is then 0 where it tells no count.
    """

    position: int
    messages: int
    missing: int
    additions: tuple[AddedMessage, ...]
    untold: int | None = None


class ProviderClearing(msgspec.Struct, frozen=True):
    """The old tool uses that the provider cleared in a request, as the answer counts them.

    The request is at ``request``, the answer at ``position``; ``uses`` is the API's count.
    ``messages`` are those that it changed, by number, as the model read them: inferred from the
    count and the API's published rules. None where these do not tell.
    """

    request: int
    position: int
    uses: int
    messages: dict[int, dict[str, Any]] | None


async def fold(store: EventStore, stream: str, projection: Any, *, stop: int | None = None) -> Any:
    """The state of ``projection`` after position ``stop`` (inclusive; None: all of it).

    Raises StreamNotFound.
    """
    state, evolve = projection.initial(), projection.evolve
    async for record in store.read(stream, stop=stop, bodies=False):
        state = evolve(state, record)
    return state


async def position_of_turn(store: EventStore, stream: str, number: int) -> int:
    """The last position of turn ``number``. Raises InvalidSetting when there is no such turn."""
    return (await turn_of(store, stream, number)).last


async def turn_of(store: EventStore, stream: str, number: int) -> numbering.TimelineTurn:
    """Turn ``number`` of a session. Raises InvalidSetting when there is no such turn."""
    state = (await timeline_at(store, stream)).changes.time
    turn = numbering.turn(state, number)
    if turn is None:
        raise InvalidSetting(_no_turn(state, stream, number))
    return turn


async def find_request(store: EventStore, stream: str, name: RequestName) -> Record:
    """The ``context:request_prepared`` that ``name`` means.

    Raises StreamNotFound, and InvalidSetting for a request that does not exist or has two names.
    """
    _check_name(name)
    if name.position is not None:
        return await _prepared_at(store, stream, name.position)
    state = (await timeline_at(store, stream)).audit
    if name.ordinal is not None:
        own = bisect_right(state.time.requests, state.own_from, key=attrgetter("position"))
        numbered = state.time.requests[own + name.ordinal - 1 :][:1] if name.ordinal else []
        if not numbered:
            raise InvalidSetting(_no_ordinal(stream, name.ordinal, len(state.time.requests) - own))
        position = numbered[0].position
    elif name.turn is not None:
        made = numbering.request(state.time, name.turn, name.iteration)
        if made is None:
            raise InvalidSetting(_no_request(state.time, stream, name.turn, name.iteration))
        position = made.position
    else:
        raise InvalidSetting("request: expected a turn, a position or a number, found none")
    return await _prepared_at(store, stream, position)


def _check_name(name: RequestName) -> None:
    for field, value in name._asdict().items():
        if value is not None:
            check_number(field, value)
    given = [field for field in ("turn", "position", "ordinal") if getattr(name, field) is not None]
    if len(given) > 1:
        raise InvalidSetting(f"request: expected one name of it, found {' and '.join(given)}")
    if name.iteration is not None and name.turn is None:
        raise InvalidSetting("iteration: counts within a turn; expected turn with it, found none")


def _no_ordinal(stream: str, ordinal: int, known: int) -> str:
    if not known:
        return f"session {stream!r} has no requests, found number {ordinal}"
    return (
        f"session {stream!r} has requests 1 to {known:,}, found {ordinal}; "
        f"`eventctx audit {stream}` lists them"
    )


def _no_request(state: Numbering, stream: str, turn: int, iteration: int | None) -> str:
    if numbering.first_of(state, turn) is None:
        return _no_turn(state, stream, turn)
    made = [one.iteration for one in state.requests if one.turn == turn]
    if not made:
        return f"turn {turn} of session {stream!r} has no request; `eventctx audit` lists them"
    counted = sorted({one for one in made if one is not None})
    named = f"iterations {counted[0]} to {counted[-1]}" if counted else "no iteration"
    return (
        f"turn {turn} of session {stream!r} has no request in iteration {iteration}; "
        f"it has requests in {named}"
    )


async def request_at(
    store: EventStore,
    stream: str,
    position: int,
    *,
    allow_damage: bool = False,
) -> RequestView:
    """The request whose ``context:request_prepared`` lies at ``position``.

    With ``allow_damage``, a request with edited bodies is returned as one that is not verified.
    Raises InvalidSetting where another record or none lies there, StreamNotFound, and LogCorrupted
    for a body that lost its digest or cannot be decoded.
    """
    prepared = await _prepared_at(store, stream, position)
    event: Any = decode_known(prepared)
    before = await timeline_at(store, stream, position - 1)
    sources = sources_of(before)
    state = request_view.as_requested(before.view, event)
    state = planned.with_insertions(state, event.insertions, prepared)
    entries = tuple(state.layout.entries())
    wanted = addresses(entries)
    bodies = await store.bodies(stream, wanted)
    if not allow_damage:
        check_bodies(stream, zip(wanted, bodies, strict=True))
    texts: dict[tuple[int, int], bytes | None] = {
        place: body.data for place, body in zip(wanted, bodies, strict=True)
    }
    digest = digest_of(entries)
    try:
        made_by = event.renderer if known_as(event) == "prepared" else 0
        derived, changes = rows_of_request(entries, texts, made_by)
    except msgspec.DecodeError as error:
        raise damage_found(stream, wanted, bodies) from error
    whole = digest == event.digest and all(map(is_sound, bodies))
    sent, sound = None, True
    if event.wire is not None:
        sent = await sent_form(store, stream, sources, event.wire, allow_damage=allow_damage)
        tools = sent.tools
    else:
        tools, sound = await tools_of(
            store, stream, sources, event.tools_digest, allow_damage=allow_damage
        )
    known = known_as(event)
    return RequestView(
        position,
        numbering.turn_number(before.changes.time, prepared.turn_id),
        prepared.iteration,
        event,
        entries,
        [row for row in derived if row is not None] if sent is None else sent.rows,
        digest,
        whole and sound and (known == "prepared" if sent is None else sent.holds),
        whole and sound,
        derived,
        changes,
        known,
        sent,
        tools,
    )


async def _prepared_at(store: EventStore, stream: str, position: int) -> Record:
    prepared = await record_at(store, stream, position)
    if prepared is None or prepared.type != "context:request_prepared":
        found = "nothing" if prepared is None else prepared.type
        raise InvalidSetting(
            f"{position_name(position)} of session {stream!r}: expected a "
            f"context:request_prepared, found {found}; `eventctx audit {stream}` lists them"
        )
    return prepared


async def host_reports(store: EventStore, stream: str, position: int) -> tuple[HostReport, ...]:
    """The host's reports about the request prepared at ``position``, where it sent another one.

    Of reports with the same content only the first is returned.
    """
    reports: dict[tuple[Any, ...], tuple[int, Any]] = {}
    async for record in store.read(stream, start=position + 1, bodies=False):
        if record.type != "context:request_sent":
            continue
        event = decode_known(record)
        if event.prepared == position:
            places = tuple(
                [
                    (one.behind, Address(record.position if at is None else at, one.index))
                    for one in event.additions
                    for at in (one.position,)
                ]
            )
            content = (event.messages, event.missing, event.untold, places)
            reports.setdefault(content, (record.position, places))
    found = []
    for (messages, missing, untold, _), (at, places) in reports.items():
        bodies = await sound_bodies(store, stream, [address for _, address in places])
        texts = decode_bodies([b"null" if body.data is None else body.data for body in bodies])
        added = [
            AddedMessage(behind, text) for (behind, _), text in zip(places, texts, strict=True)
        ]
        found.append(HostReport(at, messages, missing, tuple(added), untold))
    return tuple(found)


async def cleared_by_provider(
    store: EventStore, stream: str, position: int
) -> ProviderClearing | None:
    """The tool uses that the API cleared in the request prepared at ``position``; None for none."""
    call: Any = None
    span = None
    async for record in store.read(stream, start=position + 1, bodies=False):
        if record.type == "provider:request":
            event: Any = decode_known(record)
            if event.prepared == position:
                call, span = event, record.span_id
        elif record.type == "context:request_prepared" and span is None:
            return None  # the request was not sent, or all its attempts failed
        elif record.span_id != span or span is None:
            continue
        elif record.type == "provider:error":
            span = None
        elif record.type == "provider:response":
            uses = count_cleared_uses(decode_known(record).transformed)
            if not uses:
                return None
            view = await request_at(store, stream, position, allow_damage=True)
            read = _as_read(view, uses, call.clears)
            return ProviderClearing(position, record.position, uses, read)
    return None


def _as_read(
    view: RequestView, uses: int, clears: ToolUseClearing | None
) -> dict[int, dict[str, Any]] | None:
    """The messages that the API changed, by number; None where that cannot be told."""
    rows = [row for row in view.derived if row is not None]
    # The calls in an erased message are not known by name, or not at all.
    erased = any(
        row.get("content") == ERASED or "erased" in call_names(row).values() for row in rows
    )
    calls = (
        None if clears is None or erased else cleared_calls(rows, uses, clears.keep, clears.exclude)
    )
    if clears is None or calls is None:
        return None
    found: dict[int, dict[str, Any]] = {}
    for entry, row in zip(view.entries, view.derived, strict=True):
        if row is not None and entry.kind == "message" and isinstance(entry.ref, MessageRef):
            read = without_cleared(row, calls, clears.inputs)
            if read != row:
                found[entry.ref.number] = read
    return found


def _no_turn(state: Numbering, stream: str, number: int) -> str:
    known = [turn.number for turn in numbering.turns(state)]
    if not known:
        return f"session {stream!r} has no turns; its requests are listed by `eventctx audit`"
    return f"session {stream!r} has turns {min(known)} to {max(known)}, found {number}"


def address_of(ref: MessageRef | InsertionRef) -> Address:
    """The address of a reference's body."""
    return Address(ref.position, ref.index)


async def sound_messages(
    store: EventStore, stream: str, addresses: Sequence[Address]
) -> list[dict[str, Any] | None]:
    """The messages at ``addresses``, in that order; None for an erased one.

    Raises LogCorrupted for a body that lost its digest or is no JSON.
    """
    messages: list[dict[str, Any] | None] = []
    bodies = await sound_bodies(store, stream, addresses)
    for address, body in zip(addresses, bodies, strict=True):
        try:
            messages.append(None if body.data is None else decode_body(body.data))
        except msgspec.DecodeError as error:
            problem = f"body {address.index} is no JSON"
            raise LogCorrupted(stream, address.position, problem) from error
    return messages
