"""``view`` as a document: a request that the model was sent, and all that is known of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import asdict

from eventctx.documents.rulings import changes_json
from eventctx.documents.token_figures import request_json
from eventctx.errors import InvalidSetting
from eventctx.log.naming import RequestName, ranges_name, request_name
from eventctx.projections.view.refs import InsertionRef, MessageRef
from eventctx.queries.explain.answering import left_out_of
from eventctx.queries.explain.proof import Proof, proof_of
from eventctx.queries.explain.selectors import RequestSelector
from eventctx.queries.figures import figures_of
from eventctx.queries.requests import Besides, RequestView, sent_besides

if TYPE_CHECKING:
    from eventctx.engine import Engine
    from eventctx.projections.explain.why import LeftOut
    from eventctx.projections.figures import Figures
    from eventctx.queries.sent import SentForm


class ViewAnswer(NamedTuple):
    """A request, the session's figures, what the view leaves out, and what the host changed.

    ``proof`` is None unless it was asked for.
    """

    session: str
    view: RequestView
    figures: Figures
    left_out: tuple[LeftOut, ...]
    proof: Proof | None
    besides: tuple[Besides, ...]


async def view_of(
    engine: Engine, session: str, name: RequestName, *, proves: bool = False
) -> ViewAnswer:
    """The request that ``name`` means, damaged or not. Raises StreamNotFound, InvalidSetting."""
    turn, iteration, position = name
    view = await engine.request_view(session, turn, iteration, position=position, allow_damage=True)
    store = engine.store
    return ViewAnswer(
        session,
        view,
        await figures_of(store, session),
        await left_out_of(store, session, RequestSelector(position=view.position)),
        await proof_of(store, session, view) if proves else None,
        await sent_besides(store, session, view.position),
    )


async def last_request(engine: Engine, session: str) -> RequestName:
    """The request that was prepared last. Raises StreamNotFound, InvalidSetting for none."""
    async for record in engine.store.read(session, backward=True, bodies=False):
        if record.type == "context:request_prepared":
            return RequestName(position=record.position)
    raise InvalidSetting(
        f"session {session!r} has no request; `eventctx transcript` shows its messages"
    )


def view_document(answer: ViewAnswer) -> dict[str, Any]:
    """The request with stable keys."""
    view = answer.view
    prepared = msgspec.to_builtins(view.prepared)
    prepared.pop("event", None)
    return {
        "session": answer.session,
        "request": request_name(view.turn, view.iteration, view.position),
        "position": view.position,
        "turn": view.turn,
        "iteration": view.iteration,
        "digest": view.digest if view.sent is None else view.sent.digest,
        "known": view.known,
        "verified": view.verified,
        "consistent": view.consistent,
        **({} if answer.proof is None else {"proof": _proof_json(answer.proof)}),
        **request_json(answer.figures.requests[view.position]),
        "budget": view.prepared.budget,
        "prepared": prepared,
        "tools": view.tools,
        "as_sent": None if view.sent is None else _sent_json(view.sent),
        "left_out": [
            {
                "disposition": one.disposition,
                "reason": one.reason,
                "rule": one.rule,
                "messages": ranges_name(one.runs),
                "numbers": one.runs,
            }
            for one in answer.left_out
        ],
        "entries": [
            {
                "kind": entry.ref.kind if isinstance(entry.ref, InsertionRef) else entry.kind,
                "number": entry.ref.number
                if isinstance(entry.ref, MessageRef) and entry.kind == "message"
                else None,
                "shortened": isinstance(entry.ref, MessageRef) and entry.ref.shortened,
                "message": message,
                "changes": changes_json([one for one in view.changes if one.place == place]),
            }
            for place, (entry, message) in enumerate(zip(view.entries, view.derived, strict=True))
        ],
        "sent": [
            {**one._asdict(), "additions": [added._asdict() for added in one.additions]}
            for one in answer.besides
        ],
    }


def _sent_json(sent: SentForm) -> dict[str, Any]:
    """The sent request with stable keys."""
    return {
        "digest": sent.digest,
        "verified": sent.holds,
        "system": sent.system,
        "tools": sent.tools,
        "parameters": sent.parameters,
        "cache_control": msgspec.to_builtins(sent.cache_control),
        "messages": [
            {
                "numbers": list(one.numbers),
                "injected": [msgspec.structs.asdict(text) for text in one.injected],
                "message": one.message,
            }
            for one in sent.messages
        ],
    }


def _proof_json(proof: Proof) -> dict[str, Any]:
    """The proof with stable keys."""
    return {name: value for name, value in asdict(proof).items() if name != "ok"}
