"""A request that the model was sent, and all that is known of it: findings, and their JSON."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from eventctx.errors import InvalidSetting
from eventctx.log.naming import RequestName, ranges_name, request_name
from eventctx.log.record import body_digest
from eventctx.log.store import Address, EventStore
from eventctx.log.wire import CacheMark
from eventctx.messages.overlap import runs_of_numbers
from eventctx.projections.explain.why import LeftOut
from eventctx.projections.figures import Figures, RequestFigures
from eventctx.projections.view.entries import Entry
from eventctx.projections.view.refs import InsertionRef, MessageRef
from eventctx.projections.view.render import addresses
from eventctx.queries.encoding import fill
from eventctx.queries.explain_answers import ChangeAnswer, change_answers
from eventctx.queries.explaining import left_out_of
from eventctx.queries.key_frames import figures_of
from eventctx.queries.requests import (
    HostReport,
    ProviderClearing,
    RequestView,
    cleared_by_provider,
    find_request,
    host_reports,
    request_at,
)
from eventctx.queries.sent import SentForm


class Proof(msgspec.Struct, frozen=True):
    """The comparison of a derived view with the record: its digest, and every body in it.

    ``bodies`` counts those that were compared; ``erased`` are message numbers whose contents were
    destroyed on purpose, and ``edited`` the positions of bodies that lost their digests.
    """

    digest_matches: bool
    bodies: int
    erased: tuple[int, ...]
    edited: tuple[int, ...]

    @property
    def ok(self) -> bool:
        """Whether the view is the recorded one, and nothing in it was edited."""
        return self.digest_matches and not self.edited


async def proof_of(store: EventStore, stream: str, view: RequestView) -> Proof:
    """Check a derived view's digest, and each body in it, against the recorded digests."""
    wanted = addresses(view.entries)
    bodies = await store.bodies(stream, wanted)
    edited: set[Address] = set()
    gone: set[Address] = set()
    for address, body in zip(wanted, bodies, strict=True):
        if body.data is None or body.salt is None:
            (gone if body.erased else edited).add(address)
        elif body_digest(body.salt, body.data) != body.digest:
            edited.add(address)
    numbers = {
        entry.ref.number
        for entry in view.entries
        if isinstance(entry.ref, MessageRef)
        and Address(entry.ref.position, entry.ref.index) in gone
    }
    return Proof(
        view.digest == view.prepared.digest,
        len(wanted) - len(gone),
        tuple(sorted(numbers)),
        tuple(sorted({address.position for address in edited})),
    )


class ViewFindings(NamedTuple):
    """A request, the session's figures, what the view leaves out, and what the host changed.

    ``proof`` is None unless it was asked for. ``cleared`` is what the provider cleared of it.
    """

    session: str
    view: RequestView
    figures: Figures
    left_out: tuple[LeftOut, ...]
    proof: Proof | None
    reports: tuple[HostReport, ...]
    cleared: ProviderClearing | None


async def view_of(
    store: EventStore, session: str, name: RequestName, *, proves: bool = False
) -> ViewFindings:
    """The request that ``name`` means, damaged or not. Raises StreamNotFound, InvalidSetting."""
    position = (await find_request(store, session, name)).position
    view = await request_at(store, session, position, allow_damage=True)
    return ViewFindings(
        session,
        view,
        await figures_of(store, session),
        await left_out_of(store, session, RequestName(position=view.position)),
        await proof_of(store, session, view) if proves else None,
        await host_reports(store, session, view.position),
        await cleared_by_provider(store, session, view.position),
    )


async def last_request(store: EventStore, session: str) -> RequestName:
    """The request that was prepared last. Raises StreamNotFound, InvalidSetting for none."""
    async for record in store.read(session, backward=True, bodies=False):
        if record.type == "context:request_prepared":
            return RequestName(position=record.position)
    raise InvalidSetting(
        f"session {session!r} has no request; `eventctx transcript` shows its messages"
    )


# -- as JSON -------------------------------------------------------------------------------------


class LeftOutAnswer(msgspec.Struct, frozen=True):
    """Messages that a view leaves out or shortens for the same reason."""

    disposition: str
    reason: str
    rule: str
    messages: str
    numbers: tuple[tuple[int, int], ...]


class EntryAnswer(msgspec.Struct, frozen=True):
    """An entry of the view, and its message; None where it is not sent, or was erased."""

    kind: str
    number: int | None
    shortened: bool
    message: dict[str, Any] | None
    changes: list[ChangeAnswer]


class SentMessageAnswer(msgspec.Struct, frozen=True):
    """A message as it was sent, and the messages of the transcript in it."""

    numbers: tuple[int, ...]
    injected: list[dict[str, Any]]
    message: dict[str, Any] | None


class SentAnswer(msgspec.Struct, frozen=True):
    """A request as the client recorded that it sent it."""

    digest: str
    verified: bool
    system: Any
    tools: Any
    parameters: dict[str, Any]
    cache_control: tuple[CacheMark, ...]
    messages: list[SentMessageAnswer]


class ClearedAnswer(msgspec.Struct, frozen=True):
    """What the provider cleared of the request before the model read it, as its answer counts.

    ``messages`` and ``numbers`` are those that it changed, inferred from the count; None where it
    does not tell which.
    """

    position: int
    uses: int
    messages: str | None
    numbers: tuple[tuple[int, int], ...] | None


class ViewAnswer(msgspec.Struct, frozen=True):
    """A request. ``proof`` is left out unless it was asked for."""

    session: str
    request: str
    position: int
    turn: int | None
    iteration: int | None
    digest: str
    known: str
    verified: bool
    consistent: bool
    proof: Proof | UnsetType
    tokens: int
    estimated: bool
    figures: RequestFigures
    budget: int | None
    prepared: dict[str, Any]
    tools: list[Any] | None
    as_sent: SentAnswer | None
    left_out: list[LeftOutAnswer]
    entries: list[EntryAnswer]
    sent: tuple[HostReport, ...]
    cleared: ClearedAnswer | None


def view_answer(found: ViewFindings) -> ViewAnswer:
    """The request as JSON."""
    view = found.view
    figures = found.figures.requests[view.position]
    prepared = msgspec.to_builtins(view.prepared)
    prepared.pop("event", None)
    return fill(
        ViewAnswer,
        view,
        session=found.session,
        request=request_name(view.turn, view.iteration, view.position),
        digest=view.digest if view.sent is None else view.sent.digest,
        proof=UNSET if found.proof is None else found.proof,
        tokens=figures.total,
        estimated=figures.estimated,
        figures=figures,
        budget=view.prepared.budget,
        prepared=prepared,
        as_sent=None if view.sent is None else _sent(view.sent),
        left_out=[
            fill(LeftOutAnswer, one, messages=ranges_name(one.runs), numbers=one.runs)
            for one in found.left_out
        ],
        entries=[
            _entry(view, place, entry, message)
            for place, (entry, message) in enumerate(zip(view.entries, view.derived, strict=True))
        ],
        sent=found.reports,
        cleared=None if found.cleared is None else _cleared(found.cleared),
    )


def _cleared(found: ProviderClearing) -> ClearedAnswer:
    runs = None if found.messages is None else runs_of_numbers(sorted(found.messages))
    return fill(
        ClearedAnswer, found, messages=None if runs is None else ranges_name(runs), numbers=runs
    )


def _entry(
    view: RequestView, place: int, entry: Entry, message: dict[str, Any] | None
) -> EntryAnswer:
    ref = entry.ref
    return EntryAnswer(
        ref.kind if isinstance(ref, InsertionRef) else entry.kind,
        ref.number if isinstance(ref, MessageRef) and entry.kind == "message" else None,
        isinstance(ref, MessageRef) and ref.shortened,
        message,
        change_answers([one for one in view.changes if one.place == place]),
    )


def _sent(sent: SentForm) -> SentAnswer:
    messages = [
        SentMessageAnswer(
            one.numbers, [msgspec.structs.asdict(text) for text in one.injected], one.message
        )
        for one in sent.messages
    ]
    return fill(SentAnswer, sent, verified=sent.holds, messages=messages)
