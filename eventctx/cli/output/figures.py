"""Token figures as a screen shows them: an estimate always has its ``~``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventctx.cli.output.plain import number, plural

if TYPE_CHECKING:
    from eventctx.projections.audit import EstimateErrors, Spread
    from eventctx.projections.figures import CompactionFigures, RequestFigures


def tokens(count: int | None, estimated: bool) -> str:
    """12,345, or ~12,345 for an estimate; a dash for None."""
    return f"~{number(count)}" if estimated and count is not None else number(count)


def request_tokens(figures: RequestFigures) -> str:
    """The one figure of a request."""
    return tokens(figures.total, figures.estimated)


def beside_tokens(figures: RequestFigures) -> str:
    """What was sent beside the messages; as the messages are estimated, so is the rest."""
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
