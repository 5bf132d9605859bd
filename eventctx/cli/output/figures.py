"""Token figures and costs as a screen shows them, and how requests are known.

An estimate always has its ``~``.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from eventctx.cli.output.plain import number, one_line, plural

if TYPE_CHECKING:
    from eventctx.cli.output.screen import Screen
    from eventctx.log.events import Known
    from eventctx.log.store import EventStore
    from eventctx.projections.audit import EstimateErrors, Spread
    from eventctx.projections.cache_cost import CacheCost
    from eventctx.projections.figures import (
        CompactionFigures,
        Figures,
        ImportedFile,
        RequestFigures,
    )
    from eventctx.queries.costs import CallCosts, CompactionPrice, CompactionPrices
    from eventctx.queries.requests import RequestView


async def figures_of(store: EventStore, session: str) -> Figures:
    """The figures of every request and compaction of a session. Raises StreamNotFound."""
    # Every command that shows figures imports this; few of its runs fold a timeline.
    from eventctx.queries import key_frames

    return await key_frames.figures_of(store, session)


def tokens(count: int | None, estimated: bool) -> str:
    """12,345, or ~12,345 for an estimate; a dash for None."""
    return f"~{number(count)}" if estimated and count is not None else number(count)


def request_tokens(figures: RequestFigures) -> str:
    """The one figure of a request."""
    return tokens(figures.total, figures.estimated)


def beside_tokens(figures: RequestFigures) -> str:
    """The tokens sent with the messages; as the messages are estimated, so is the rest."""
    return tokens(figures.beside, True)


def parts_in_words(figures: RequestFigures) -> str:
    """``~11 in its messages, ~25,871 beside them``, or how much is system prompt and tools."""
    if figures.system is not None and figures.tools is not None:
        return (
            f"{tokens(figures.messages, True)} in its messages, "
            f"{tokens(figures.system, True)} system prompt, {tokens(figures.tools, True)} tools"
        )
    beside = "not known how many beside them"
    if figures.beside is not None:
        beside = f"{beside_tokens(figures)} beside them"
    return f"{tokens(figures.messages, True)} in its messages, {beside}"


def compaction_tokens(figures: CompactionFigures) -> str:
    """``166,759 → 33,960 tokens``, with the size that an imported file names itself."""
    before = tokens(figures.before, figures.before_estimated)
    after = tokens(figures.after, figures.after_estimated)
    own = ""
    if figures.recorded is not None:
        own = f" (the file says {number(figures.recorded)} before)"
    return f"{before} → {after} tokens{own}"


def cache_cost_in_words(cost: CacheCost, prices: CompactionPrices | None) -> list[str]:
    """A compaction's cost in the provider's cache and its saving, predicted and as reported."""
    foreseen, seen = (None, None) if prices is None else (prices.predicted, prices.reported)
    often = "each request"
    if cost.expected is not None:
        often = f"each of {tokens(cost.expected, True)} requests"
    saves = "saves" if cost.saved >= 0 else "adds"
    thinking = f"{tokens(cost.thinking, True)} of thinking leave; " if cost.thinking else ""
    predicted = (
        f"predicted: gives up {tokens(cost.given_up, True)} cached tokens and writes "
        f"{tokens(cost.rewritten, True)} again; {thinking}{saves} {tokens(abs(cost.saved), True)} "
        f"in {often}{_price_in_words(foreseen)}"
    )
    told = cost.reported
    if told is None:
        return [predicted]
    so_far = "" if told.over else " so far"
    missed = f"; {plural(told.misses, 'miss', 'misses')} of {number(told.missed)} tokens"
    reported = (
        f"reported: the first of {plural(told.requests, 'request')}{so_far} read "
        f"{number(told.read)} cached tokens and wrote {number(told.write)}"
        f"{missed if told.misses else ''}{_price_in_words(seen)}"
    )
    return [predicted, reported]


def _price_in_words(price: CompactionPrice | None) -> str:
    if price is None:
        return ""
    return f": {dollars(price.rewriting + price.calls)} for {dollars(price.saving)}"


def errors_in_words(errors: EstimateErrors) -> str:
    """The estimator's error before any report and after; empty where nothing was reported."""
    parts = []
    if errors.before is not None:
        unseen = ""
        if errors.without_beside:
            unseen = ", not counting what was sent beside the messages, as the log does not hold it"
        parts.append(f"before its first report {_spread(errors.before)}{unseen}")
    if errors.after is not None:
        parts.append(f"after it {_spread(errors.after)}")
    if not parts:
        return ""
    return f"Our estimates against the provider's own counts: {'; '.join(parts)}."


def _spread(one: Spread) -> str:
    median = f"{one.median:+,.1%}"
    if one.requests == 1:
        return f"{median} (1 request)"
    return (
        f"{median} (median of {plural(one.requests, 'request')}; "
        f"5 to 95 %: {one.low:+,.1%} to {one.high:+,.1%})"
    )


KNOWN: Final[dict[Known, str]] = {
    "observed": "observed: the program recorded what it sent",
    "prepared": "prepared by eventctx, recorded before it left",
    "reconstructed": "rebuilt from the imported file; the real request was not saved",
}
"""How a request is known."""

_FROM_REQUESTS: Final = (
    "rebuilt from requests in the imported file, which hold no digest of what was sent"
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


prices_option: Final = click.option(
    "--prices",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="A table of prices, instead of the bundled one.",
)


def costs_in_words(costs: CallCosts) -> list[str]:
    """Sentences about what calls cost, and which of them have no price; none without calls."""
    found = []
    if costs.by_model:
        total = costs.total
        found.append(
            f"Cost at list prices of {costs.date}: {dollars(total.total)} (input "
            f"{dollars(total.input)}, cache reads {dollars(total.cache_read)}, cache writes "
            f"{dollars(total.cache_write)}, output {dollars(total.output)})."
        )
    if costs.unpriced:
        names = ", ".join(one_line(name) or "an unknown model" for name in sorted(costs.unpriced))
        count = plural(sum(costs.unpriced.values()), "call")
        found.append(f"No price for {count}, of {names}: --prices FILE brings one.")
    return found


def dollars(amount: float) -> str:
    """``$1.23``; below a cent, two figures that count."""
    return f"${amount:,.2f}" if amount >= 0.01 or amount == 0 else f"${amount:.2g}"


RAW_HINT: Final = "An Amplifier provider tells it with `raw: true` in its configuration."


def untold_in_words(added: int) -> str:
    """What is not known of a host's additions, of which it tells no text."""
    if not added:
        return "what the host added to it is not known"
    return f"the host added at least {plural(added, 'message')}, whose texts are not known"
