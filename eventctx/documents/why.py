"""``why`` as a document."""

from __future__ import annotations

from typing import Any

from eventctx.documents.rulings import cause_json, changes_json, ruling_json
from eventctx.log.naming import message_name, request_name
from eventctx.queries.explain.answers import Explanation


def why_document(answer: Explanation, undated: int | None = None) -> dict[str, Any]:
    """The answer with stable keys; a time is None where an imported file has none."""
    return {
        "session": answer.session,
        "name": message_name(answer.number),
        "number": answer.number,
        "request": None
        if answer.position is None
        else request_name(answer.turn, answer.iteration, answer.position),
        "position": answer.position,
        "turn": answer.turn,
        "iteration": answer.iteration,
        "in_view": answer.in_view,
        "standing": answer.standing,
        "ruling": ruling_json(answer.ruling, undated),
        "stays": ruling_json(answer.stays, undated),
        "thinking_left_out": ruling_json(answer.stripped, undated),
        "results_left_out": answer.results_left_out,
        "changes": changes_json(answer.changes),
        "not_sent": answer.left_out,
        "merged_into": answer.into,
        "merged_into_in_view": answer.into_in_view,
        "caller": answer.caller,
        "stands_in": answer.stands_in,
        "added": cause_json(answer.added, undated),
        "restored": cause_json(answer.restored),
        "erased": cause_json(answer.erased),
        "pinned": answer.pinned,
        "pinned_by": cause_json(answer.pinned_by),
        "plan": None if answer.planned is None else answer.planned.position,
        "message": answer.message,
        "shows": answer.shows,
    }
