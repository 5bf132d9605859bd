"""``diff`` as a document."""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict

from eventctx.documents.rulings import ruling_json
from eventctx.documents.token_figures import request_json
from eventctx.log.naming import message_name
from eventctx.queries.explain.answers import Side, ViewDiff


def diff_document(compared: ViewDiff) -> dict[str, Any]:
    """The difference with stable keys."""
    return {
        **asdict(compared),
        "before": _side_json(compared.before),
        "after": _side_json(compared.after),
        "differences": [
            {"name": message_name(one.number), **asdict(one), "ruling": ruling_json(one.ruling)}
            for one in compared.differences
        ],
    }


def _side_json(side: Side) -> dict[str, Any]:
    groups = [{"group": name, "tokens": count} for name, count in side.groups.items()]
    return {
        "request": side.name,
        **asdict(side),
        **request_json(side.figures),
        "groups": groups,
    }
