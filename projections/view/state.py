"""The request view's state: what is in view, and what is known of the rest."""

from __future__ import annotations

from typing import NamedTuple

from eventctx.log.events import Break
from eventctx.log.plan import Run
from eventctx.messages import calibration
from eventctx.messages.calibration import Calibration
from eventctx.messages.tokens import FAMILIES, Estimator
from eventctx.projections.view import layout as layouts
from eventctx.projections.view.layout import Layout


class ViewState(NamedTuple):
    """The view after some record of a stream.

    ``position`` is that record's (-1: none), ``next_number`` the number of the next message,
    ``messages`` how many the transcript holds. ``gone`` are the runs of numbers that compactions
    took out of view, ``hidden`` counts them as summarised, dropped and merged. ``breaks`` happened
    since the last prepared request. ``size_after_compaction`` is the view's size, as the estimator
    counts, and ``messages_after_compaction`` its messages but for system ones, after the last
    compaction. ``turns`` is the number of the last turn. ``shown`` is what the last request showed
    of a round in progress: where it began, how many entries, and their digest; None where no round
    was in progress. ``calibration`` is what is known of token counts.
    """

    position: int
    next_number: int
    messages: int
    layout: Layout
    gone: tuple[Run, ...]
    plan_position: int | None
    pins: frozenset[int]
    breaks: tuple[Break, ...]
    size_after_compaction: int
    messages_after_compaction: int
    compactions: int
    hidden: tuple[int, int, int]
    turns: int
    shown: tuple[int, int, str] | None
    calibration: Calibration

    @property
    def estimator(self) -> Estimator:
        """What the tokens of this view are counted with."""
        return FAMILIES[self.calibration.family]


class ViewCounts(NamedTuple):
    """What became of the transcript's messages in a view. Their sum is the transcript's length.

    ``omitted`` are results that answer no call in view.
    """

    kept: int
    shortened: int
    summarised: int
    dropped: int
    merged: int
    omitted: int


def initial() -> ViewState:
    """The view of an empty stream."""
    return ViewState(
        position=-1,
        next_number=0,
        messages=0,
        layout=layouts.EMPTY,
        gone=(),
        plan_position=None,
        pins=frozenset(),
        breaks=(),
        size_after_compaction=0,
        messages_after_compaction=0,
        compactions=0,
        hidden=(0, 0, 0),
        turns=0,
        shown=None,
        calibration=calibration.UNCALIBRATED,
    )


def counts(state: ViewState) -> ViewCounts:
    """Dispositions of all messages of the transcript at this point."""
    shortened = state.layout.shortened
    omitted = state.layout.omitted
    return ViewCounts(
        len(state.layout.refs) - shortened - omitted, shortened, *state.hidden, omitted
    )


def after_compaction(state: ViewState) -> ViewState:
    """The view as a compaction left it, from where it grows until the next one is due."""
    return state._replace(
        size_after_compaction=state.layout.tokens,
        messages_after_compaction=conversation_length(state.layout),
    )


def conversation_length(layout: Layout) -> int:
    """How many messages are in view, system messages apart."""
    return sum([ref.facts.kind != "system" for ref in layout.refs])
