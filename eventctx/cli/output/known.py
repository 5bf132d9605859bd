"""How requests are known, in words: the same on every screen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from eventctx.cli.output.figures import beside_tokens, request_tokens
from eventctx.cli.output.plain import plural
from eventctx.cli.output.screen import Screen
from eventctx.log.events import Known
from eventctx.projections.figures import Figures, RequestFigures
from eventctx.queries.requests import RequestView

KNOWN: Final[dict[Known, str]] = {
    "observed": "observed: the program recorded what it sent",
    "prepared": "prepared by eventctx, recorded before it left",
    "reconstructed": "reconstructed by an importer: the file does not hold what was sent",
}
"""How a request is known."""

_BESIDE: Final = "what was sent beside these messages, such as system prompt and tool definitions"


def known_in_words(view: RequestView, figures: RequestFigures) -> str:
    """How a request is known, and what is not known of it."""
    words = KNOWN[view.known]
    if view.sent is not None and view.sent.erased:
        return f"{words}; contents of it were erased, and only their digests are left"
    if view.known == "reconstructed":
        return f"{words}. {_missing(figures, '')}"
    return words


def session_in_words(requests: Iterable[RequestFigures]) -> str:
    """How the requests of a session are known; empty where eventctx made them all."""
    found = list(requests)
    observed = [one for one in found if one.known == "observed"]
    inferred = [one for one in found if one.known == "reconstructed"]
    if not inferred:
        if not observed:
            return ""
        return f"{plural(len(observed), 'request')} observed: the program recorded what it sent."
    reported = [one for one in inferred if one.reported is not None]
    words = (
        f"{plural(len(inferred), 'request')} reconstructed by an importer: the file does not hold "
        # The fewer messages, the less an error of their estimate weighs in the rest.
        f"what was sent. {_missing((reported or inferred)[0], ' in the first one')}"
    )
    if observed:
        words += f" {plural(len(observed), 'other')} observed: the program recorded what it sent."
    return words


def show_known(screen: Screen, figures: Figures) -> None:
    """The last line of a screen about a session: how its requests are known."""
    words = session_in_words(figures.requests.values())
    if words:
        screen.line((words, "dim"))


def stands(view: RequestView) -> bool:
    """Whether nothing contradicts the request: all digests hold."""
    return view.consistent and (view.sent is None or view.sent.holds)


def _missing(figures: RequestFigures, where: str) -> str:
    if figures.beside is None:
        return f"Not in the file: {_BESIDE}; tokens are those of the messages alone."
    share = f"about {beside_tokens(figures).lstrip('~')} tokens of {request_tokens(figures)}{where}"
    return f"Not in the file: {_BESIDE}, {share}."
