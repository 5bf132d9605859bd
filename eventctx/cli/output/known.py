"""How requests are known, in words: the same on every screen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from eventctx.cli.output.figures import beside_tokens, request_tokens
from eventctx.cli.output.plain import plural

if TYPE_CHECKING:
    from eventctx.cli.output.screen import Screen
    from eventctx.log.events import Known
    from eventctx.projections.figures import Figures, ImportedFile, RequestFigures
    from eventctx.queries.requests import RequestView

KNOWN: Final[dict[Known, str]] = {
    "observed": "observed: the program recorded what it sent",
    "prepared": "prepared by eventctx, recorded before it left",
    "reconstructed": "reconstructed from the imported file, which does not hold what was sent",
}
"""How a request is known."""

_FROM_REQUESTS: Final = (
    "reconstructed from requests in the imported file, which hold no digest of what was sent"
)
"""How a request is known whose messages an importer read from a recorded request."""

_ANY_MESSAGES: Final = ("messages", "swe-agent")
"""Formats of which nothing says what else is in a file."""


def known_in_words(view: RequestView, figures: RequestFigures, file: ImportedFile) -> str:
    """How a request is known, and what is not known of it."""
    words = _reconstructed(file) if view.known == "reconstructed" else KNOWN[view.known]
    if view.sent is not None and view.sent.erased:
        return f"{words}; contents of it were erased, and only their digests are left"
    if view.known == "reconstructed":
        return f"{words}. {_missing(figures, '', file)}"
    return words


def session_in_words(requests: Iterable[RequestFigures], file: ImportedFile) -> str:
    """How the requests of a session are known; empty where eventctx made them all."""
    found = list(requests)
    observed = [one for one in found if one.known == "observed"]
    inferred = [one for one in found if one.known == "reconstructed"]
    if not inferred:
        if not observed:
            return ""
        return f"{plural(len(observed), 'request')} observed: the program recorded what it sent."
    reported = [one for one in inferred if one.reported is not None]
    # The fewer messages, the less an error of their estimate weighs in the rest.
    first = (reported or inferred)[0]
    which = " in the first one" if first is inferred[0] else " in the first one that was counted"
    missing = _missing(first, which, file)
    words = f"{plural(len(inferred), 'request')} {_reconstructed(file)}. {missing}"
    if observed:
        words += f" {plural(len(observed), 'other')} observed: the program recorded what it sent."
    return words


def show_known(screen: Screen, figures: Figures) -> None:
    """The last line of a screen about a session: how its requests are known."""
    words = session_in_words(figures.requests.values(), figures.file)
    if words:
        screen.line((words, "dim"))


def stands(view: RequestView) -> bool:
    """Whether nothing contradicts the request: all digests hold."""
    return view.consistent and (view.sent is None or view.sent.holds)


def _reconstructed(file: ImportedFile) -> str:
    return _FROM_REQUESTS if file.requests else KNOWN["reconstructed"]


def _missing(figures: RequestFigures, where: str, file: ImportedFile) -> str:
    beside = "tool definitions" if file.system else "system prompt and tool definitions"
    if file.beside:
        words = (
            f"Not among these messages: what was sent beside them, such as {beside} (as far as the "
            "file has it, `eventctx log SESSION --type import:raw --bodies` shows it)"
        )
    elif file.format in _ANY_MESSAGES:
        words = f"Not among these messages: what was sent beside them, such as {beside}"
    else:
        words = f"Not in the file: what was sent beside these messages, such as {beside}"
    if figures.beside is None:
        return f"{words}; tokens are those of the messages alone."
    share = f"about {beside_tokens(figures).lstrip('~')} tokens of {request_tokens(figures)}{where}"
    return f"{words}, {share}."
