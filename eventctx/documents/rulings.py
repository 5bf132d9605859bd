"""A record's effect on a message, and its reason, as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from eventctx.documents.times import iso_or
from eventctx.documents.token_figures import compaction_json
from eventctx.log.naming import position_name
from eventctx.projections.explain.changes import Cause
from eventctx.projections.explain.why import Reason
from eventctx.projections.view.sendable.rows import RowChange
from eventctx.projections.view.sendable.sending import WORDS


def cause_json(cause: Cause | None, undated: int | None = None) -> dict[str, Any] | None:
    """A record that changed a message; None where there is none."""
    if cause is None:
        return None
    compaction = None
    if cause.compaction is not None:
        compaction = msgspec.to_builtins(cause.compaction)
        compaction["settings"] = settings_json(cause.compaction.settings)
        compaction |= compaction_json(cause.compaction.figures)
    return {
        "at": position_name(cause.position),
        "position": cause.position,
        "time": iso_or(cause.time, undated),
        "turn": cause.turn,
        "iteration": cause.iteration,
        "type": cause.type,
        "compaction": compaction,
    }


def changes_json(changes: Iterable[RowChange]) -> list[dict[str, Any]]:
    """The rules by which a row is sent otherwise than the log has it, each with its sentence."""
    return [{"rule": one.rule, "words": WORDS[one.rule], "detail": one.detail} for one in changes]


def ruling_json(ruling: Reason | None, undated: int | None = None) -> dict[str, Any] | None:
    """A record's effect on a message, and its reason; None where there is none."""
    if ruling is None:
        return None
    return {
        "disposition": ruling.disposition,
        "reason": ruling.reason,
        "rule": ruling.rule,
        "settings": settings_json(ruling.settings),
        "by": cause_json(ruling.cause, undated),
    }


def settings_json(settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Settings as pairs of name and value: names are the policies' own, and so no stable keys."""
    return [{"name": name, "value": value} for name, value in settings.items()]
