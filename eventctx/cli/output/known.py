"""How a request is known, in words: the same on every screen."""

from __future__ import annotations

from typing import Final

from eventctx.log.events import Known
from eventctx.queries.requests import RequestView

KNOWN: Final[dict[Known, str]] = {
    "observed": "observed: the program recorded what it sent",
    "prepared": "prepared by eventctx, recorded before it left",
    "reconstructed": "reconstructed by an importer: the file does not hold what was sent",
}
"""How a request is known."""


def known_in_words(view: RequestView) -> str:
    """How a request is known, and what the comparison of its digest proves."""
    words = KNOWN[view.known]
    if view.sent is not None and view.sent.erased:
        return f"{words}; contents of it were erased, and only their digests are left"
    return words


def stands(view: RequestView) -> bool:
    """Whether nothing contradicts the request: all digests hold."""
    return view.consistent and (view.sent is None or view.sent.holds)
