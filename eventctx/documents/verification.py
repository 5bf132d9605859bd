"""``verify`` as a document."""

from __future__ import annotations

from typing import Any

from eventctx.queries.verification.whole_store import StoreVerification


def verification_document(checked: StoreVerification) -> list[dict[str, Any]]:
    """A row for each session, and one without a name for what is wrong with the store itself."""
    rows: list[dict[str, Any]] = [
        {
            "session": one.stream,
            "ok": one.ok,
            "records": one.records,
            "erased": one.erased,
            "deleted": one.deleted,
            "signed": one.signed,
            "problems": one.problems,
            "receipt": str(one.receipt) if one.ok else None,
        }
        for one in checked.sessions
    ]
    if checked.problems:
        found = [{"position": -1, "kind": "store", "text": text} for text in checked.problems]
        rows.append({"session": None, "ok": False, "problems": found})
    return rows
