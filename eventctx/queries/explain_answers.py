"""Answers of ``why`` and ``diff``: findings of pure projections with texts, and their JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from eventctx.log.naming import iso_or, message_name, position_name, request_name
from eventctx.projections.explain.changes import Cause
from eventctx.projections.explain.view_diff import Kind
from eventctx.projections.explain.why import Reason, Why
from eventctx.projections.figures import CompactionFigures, RequestFigures
from eventctx.projections.presence import Presence
from eventctx.projections.view.sendable.rows import RowChange
from eventctx.projections.view.sendable.sending import WORDS
from eventctx.queries.encoding import fill
from eventctx.text import cell_text, counted, html_table, summary_line

Message = dict[str, Any]


class StandIn(msgspec.Struct, frozen=True):
    """A message of a view in the place of others; ``message`` is None where it was erased."""

    kind: str
    position: int
    stands_for: tuple[tuple[int, int], ...]
    message: Message | None


class ClearedByProvider(msgspec.Struct, frozen=True):
    """The old tool uses that the provider cleared in a request, as its answer counts them.

    The request is at ``request``, the answer at ``position``; ``uses`` is the count. ``message`` is
    the message as the model read it, inferred from that; None where it may be one of those that
    were cleared, and nothing tells.
    """

    request: int
    position: int
    uses: int
    message: Message | None


class Explanation(Why, frozen=True, kw_only=True):
    """``Why``, with the texts, and the request that it is about.

    ``position``, ``turn`` and ``iteration`` are those of the request; all None for the present
    view. ``message`` is the message as it was added, ``shows`` its form in the view, each
    None where it was erased or is not there. ``stands_in`` are the messages of the view in
    its place. ``changes`` are the rules by which it is sent otherwise than the log has it, so
    that a provider takes it; ``left_out`` is true where one of them leaves out the whole message.
    ``cleared`` says that the provider cleared a part of it before the model read it: in this
    request, and for the present view in the last one.
    """

    session: str
    position: int | None = None
    turn: int | None = None
    iteration: int | None = None
    message: Message | None = None
    shows: Message | None = None
    stands_in: tuple[StandIn, ...] = ()
    changes: tuple[RowChange, ...] = ()
    left_out: bool = False
    cleared: ClearedByProvider | None = None

    def __repr__(self) -> str:
        when = "now"
        if self.position is not None:
            when = f"in {request_name(self.turn, self.iteration, self.position)}"
        return summary_line(
            f"Explanation {self.session} #{self.number} {when}:",
            self.standing,
            self.ruling and self.ruling.rule,
        )

    def _repr_html_(self) -> str:
        shown = [("added", self.message), ("in view", self.shows)]
        shown += [(f"{one.kind} in its place", one.message) for one in self.stands_in]
        rows = [(what, cell_text(one)) for what, one in shown if one is not None]
        return html_table(repr(self)[1:-1], ("", "text"), rows)


class Side(msgspec.Struct, frozen=True):
    """One of two requests.

    ``groups`` are estimated tokens of its messages by kind; they add up to ``figures.messages``.
    """

    position: int
    turn: int | None
    iteration: int | None
    entries: int
    figures: RequestFigures
    budget: int | None
    groups: dict[str, int]

    @property
    def tokens(self) -> int:
        """``figures.total``."""
        return self.figures.total

    @property
    def name(self) -> str:
        """``2.3``, or ``@48`` for a request outside a turn or without an iteration."""
        return request_name(self.turn, self.iteration, self.position)


class MessageDifference(msgspec.Struct, frozen=True):
    """The change of one message between two requests, and its reason.

    ``message`` is the message as it was added; None where it was erased.
    """

    number: int
    kind: Kind
    role: str
    ruling: Reason | None
    message: Message | None


class ExtraEntry(msgspec.Struct, frozen=True):
    """A message in a view that is in no transcript: an insertion, a synthetic result, an opening.

    ``position`` is that of the insertion's record; ``number`` is the message whose call has no
    result. Each is None where it does not apply.
    """

    kind: str
    position: int | None
    number: int | None
    stands_for: tuple[tuple[int, int], ...]
    message: Message | None


class ViewDiff(msgspec.Struct, frozen=True):
    """The differences of two requests, the earlier one first.

    ``differences`` are in order of message number; ``came`` (only in the later view) and ``went``
    (only in the earlier one) in the order of their view. ``passed`` counts messages that were
    added in between and are not in the later view either.
    """

    session: str
    before: Side
    after: Side
    differences: tuple[MessageDifference, ...]
    came: tuple[ExtraEntry, ...]
    went: tuple[ExtraEntry, ...]
    passed: int

    def of(self, *kinds: Kind) -> tuple[MessageDifference, ...]:
        """The differences of these kinds."""
        return tuple([one for one in self.differences if one.kind in kinds])

    def __repr__(self) -> str:
        return summary_line(
            f"ViewDiff {self.session} {self.before.name} -> {self.after.name}:",
            counted(len(self.differences), "message"),
            f"{len(self.came):,} other came" if self.came else None,
            f"{len(self.went):,} other went" if self.went else None,
            f"{self.before.tokens:,} -> {self.after.tokens:,} tokens",
        )

    def _repr_html_(self) -> str:
        rows: list[tuple[object, ...]] = [
            (f"#{one.number}", one.kind, one.role, cell_text(one.message))
            for one in self.differences
        ]
        for kind, extras in (("came", self.came), ("went", self.went)):
            rows += [("", kind, one.kind, cell_text(one.message)) for one in extras]
        return html_table(repr(self)[1:-1], ("message", "change", "role", "text"), rows)


class SettingAnswer(msgspec.Struct, frozen=True):
    """A setting; names are the policies' own, and so no stable keys."""

    name: str
    value: Any


class CauseCompactionAnswer(msgspec.Struct, frozen=True):
    """The compaction that a record ended; sizes are those of ``figures``."""

    trigger: str
    strategy: str
    strategy_version: int
    requested_by: str | None
    asked_because: str | None
    fallback: str | None
    error: str | None
    settings: list[SettingAnswer]
    budget: int | None
    threshold: int | None
    target: int | None
    tokens_before: int
    tokens_after: int
    figures: CompactionFigures


class CauseAnswer(msgspec.Struct, frozen=True):
    """A record that changed a message."""

    at: str
    position: int
    time: str | None
    turn: int | None
    iteration: int | None
    type: str
    compaction: CauseCompactionAnswer | None


class ReasonAnswer(msgspec.Struct, frozen=True):
    """A record's effect on a message, and its reason."""

    disposition: str
    reason: str
    rule: str
    settings: list[SettingAnswer]
    by: CauseAnswer | None


class ChangeAnswer(msgspec.Struct, frozen=True):
    """A rule by which a row is sent otherwise than the log has it, with its sentence."""

    rule: str
    words: str
    detail: tuple[str, ...]


def cause_answer(cause: Cause | None, undated: int | None = None) -> CauseAnswer | None:
    """A record that changed a message; None where there is none."""
    if cause is None:
        return None
    compaction = None
    if (facts := cause.compaction) is not None:
        compaction = fill(
            CauseCompactionAnswer,
            facts,
            settings=_settings(facts.settings),
            tokens_before=facts.figures.before,
            tokens_after=facts.figures.after,
        )
    return fill(
        CauseAnswer,
        cause,
        at=position_name(cause.position),
        time=iso_or(cause.time, undated),
        compaction=compaction,
    )


def reason_answer(reason: Reason | None, undated: int | None = None) -> ReasonAnswer | None:
    """A record's effect on a message, and its reason; None where there is none."""
    if reason is None:
        return None
    settings, by = _settings(reason.settings), cause_answer(reason.cause, undated)
    return fill(ReasonAnswer, reason, settings=settings, by=by)


def change_answers(changes: Iterable[RowChange]) -> list[ChangeAnswer]:
    """The rules by which a row is sent otherwise than the log has it."""
    return [ChangeAnswer(one.rule, WORDS[one.rule], one.detail) for one in changes]


def _settings(settings: Mapping[str, Any]) -> list[SettingAnswer]:
    return [SettingAnswer(name, value) for name, value in settings.items()]


# -- why -----------------------------------------------------------------------------------------


class WhyAnswer(msgspec.Struct, frozen=True):
    """Whether a message is in a view, and why.

    - ``request``, ``position``, ``turn``, ``iteration``: the request; null for the view as it is.
    - ``ruling``: what took the message out or shortened it; null if it is as it was added.
    - ``stays``: why the last compaction, at position ``plan``, kept it; null if it was added or
      ``restored`` after that.
    - ``thinking_left_out``: why its thinking is not sent; ``results_left_out``: ids of results in
      it that answer no call in view; ``changes``: the rules by which it is sent otherwise than
      the log has it; ``not_sent``: one of them leaves it out.
    - ``merged_into``: the message that replaces it; ``stands_in``: what is in view in its place.
    - ``caller``: the message with the call that an omitted result answers.
    - ``added``, ``restored``, ``erased``, ``pinned_by``: the records that did so.
    - ``message``: as it was added; ``shows``: as it is in view; null where it is erased or not in
      view. ``cleared``: what the provider took out of the request before the model read it.
    """

    session: str
    name: str
    number: int
    request: str | None
    position: int | None
    turn: int | None
    iteration: int | None
    in_view: bool
    standing: Presence
    ruling: ReasonAnswer | None
    stays: ReasonAnswer | None
    thinking_left_out: ReasonAnswer | None
    results_left_out: tuple[str, ...]
    changes: list[ChangeAnswer]
    not_sent: bool
    merged_into: int | None
    merged_into_in_view: bool
    caller: int | None
    stands_in: tuple[StandIn, ...]
    added: CauseAnswer | None
    restored: CauseAnswer | None
    erased: CauseAnswer | None
    pinned: bool
    pinned_by: CauseAnswer | None
    plan: int | None
    message: dict[str, Any] | None
    shows: dict[str, Any] | None
    cleared: ClearedByProvider | None


def why_answer(found: Explanation, undated: int | None = None) -> WhyAnswer:
    """The explanation as JSON; a time is None where an imported file has none."""
    request = None
    if found.position is not None:
        request = request_name(found.turn, found.iteration, found.position)
    return fill(
        WhyAnswer,
        found,
        name=message_name(found.number),
        request=request,
        ruling=reason_answer(found.ruling, undated),
        stays=reason_answer(found.stays, undated),
        thinking_left_out=reason_answer(found.stripped, undated),
        changes=change_answers(found.changes),
        not_sent=found.left_out,
        merged_into=found.into,
        merged_into_in_view=found.into_in_view,
        added=cause_answer(found.added, undated),
        restored=cause_answer(found.restored),
        erased=cause_answer(found.erased),
        pinned_by=cause_answer(found.pinned_by),
        plan=None if found.planned is None else found.planned.position,
    )


# -- diff ----------------------------------------------------------------------------------------


class GroupAnswer(msgspec.Struct, frozen=True):
    """The estimated tokens of one kind of messages."""

    group: str
    tokens: int


class SideAnswer(msgspec.Struct, frozen=True):
    """One of two requests."""

    request: str
    position: int
    turn: int | None
    iteration: int | None
    entries: int
    figures: RequestFigures
    budget: int | None
    groups: list[GroupAnswer]
    tokens: int
    estimated: bool


class DifferenceAnswer(msgspec.Struct, frozen=True):
    """The change of one message between two requests, and its reason."""

    name: str
    number: int
    kind: str
    role: str
    ruling: ReasonAnswer | None
    message: dict[str, Any] | None


class DiffAnswer(msgspec.Struct, frozen=True):
    """The differences of two requests, the earlier one first."""

    session: str
    before: SideAnswer
    after: SideAnswer
    differences: list[DifferenceAnswer]
    came: tuple[ExtraEntry, ...]
    went: tuple[ExtraEntry, ...]
    passed: int


def diff_answer(found: ViewDiff) -> DiffAnswer:
    """The difference as JSON."""
    differences = [
        fill(
            DifferenceAnswer,
            one,
            name=message_name(one.number),
            ruling=reason_answer(one.ruling),
        )
        for one in found.differences
    ]
    sides = {"before": side_answer(found.before), "after": side_answer(found.after)}
    return fill(DiffAnswer, found, differences=differences, **sides)


def side_answer(side: Side) -> SideAnswer:
    """One of two requests, as JSON."""
    groups = [GroupAnswer(name, count) for name, count in side.groups.items()]
    estimated = side.figures.estimated
    return fill(SideAnswer, side, request=side.name, groups=groups, estimated=estimated)
