"""``verify`` as a document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eventctx.queries.verification.findings import Verification
    from eventctx.queries.verification.whole_store import StoreVerification


def verification_document(checked: StoreVerification) -> list[dict[str, Any]]:
    """A row for each session, and one without a name for what is wrong with the store itself."""
    rows = [verification_row(one) for one in checked.sessions]
    return [*rows, store_row(checked.problems)] if checked.problems else rows


def verification_row(one: Verification) -> dict[str, Any]:
    """The row of a session."""
    return {
        "session": one.stream,
        "ok": one.ok,
        "records": one.records,
        "erased": one.erased,
        "deleted": one.deleted,
        "signed": one.signed,
        "problems": one.problems,
        "receipt": str(one.receipt) if one.ok else None,
    }


def store_row(problems: Sequence[str]) -> dict[str, Any]:
    """The row of what is wrong with the store itself."""
    found = [{"position": -1, "kind": "store", "text": text} for text in problems]
    return {"session": None, "ok": False, "problems": found}
