"""``audit`` as a document, of a whole session or of one turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from eventctx.documents.times import iso_or
from eventctx.documents.token_figures import compaction_json, request_json
from eventctx.errors import InvalidSetting
from eventctx.queries.figures import figures_of

if TYPE_CHECKING:
    from eventctx.engine import Engine
    from eventctx.projections.audit import AuditRow
    from eventctx.projections.figures import ImportedFile
    from eventctx.queries.audit import Audit


async def audit_of(
    engine: Engine, session: str, turn: int | None = None
) -> tuple[Audit, ImportedFile]:
    """The audit, of one turn if it is named, and what is known of the file it was imported from.

    Raises StreamNotFound, InvalidSetting for a turn that there is not.
    """
    audit = await engine.audit(session)
    file = (await figures_of(engine.store, session)).file
    if turn is None:
        return audit, file
    known = [one.number for one in audit.turns]
    if turn not in known:
        raise InvalidSetting(
            f"session {session!r} has "
            + (f"turns {min(known)} to {max(known)}" if known else "no turns")
            + f", found {turn}"
        )
    return of_turn(audit, turn), file


def of_turn(audit: Audit, turn: int) -> Audit:
    """The requests and compactions of one turn."""
    return msgspec.structs.replace(
        audit,
        requests=tuple(row for row in audit.requests if row.turn == turn),
        compactions=tuple(row for row in audit.compactions if row.turn == turn),
    )


def audit_document(audit: Audit, undated: int | None = None) -> dict[str, Any]:
    """The audit with stable keys; times as RFC 3339, None where an imported file has none."""
    return {
        "session": audit.session,
        "requests": [_request_row(row, undated) for row in audit.requests],
        "compactions": [
            {
                **msgspec.to_builtins(row),
                "time": iso_or(row.time, undated),
                **compaction_json(row.figures),
            }
            for row in audit.compactions
        ],
        "turns": [{**turn._asdict(), "time": iso_or(turn.time, undated)} for turn in audit.turns],
        "usage": msgspec.to_builtins(audit.usage),
        "errors": msgspec.to_builtins(audit.errors),
    }


def _request_row(row: AuditRow, undated: int | None) -> dict[str, Any]:
    return {
        "request": row.name,
        **msgspec.to_builtins(row),
        "counts": row.counts._asdict(),
        "time": iso_or(row.time, undated),
        **request_json(row.figures),
    }
