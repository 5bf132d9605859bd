"""The simulator: plays a policy over a transcript as if live, in memory, and writes nothing.

Before every answer of the model a request is prepared, and compacted where a live session would
compact. Every view is folded by the same code as a live session's, from the same records; only the
store, the clock and the model are left out. So the views are those that the engine would send.

The idea: a view is worked on as references. Texts are read only where a message is shortened, and
a request names what it shows whole by number, so its price does not depend on the texts.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any

from eventctx.comparison.played import (
    AskedInRun,
    Compaction,
    NumberSet,
    Played,
    PlayedRequest,
    answer,
    stand_in,
)
from eventctx.comparison.recording import Recording, body_of, record_of
from eventctx.log import events
from eventctx.log.events import PostCompact, Trigger
from eventctx.messages import calibration
from eventctx.messages.encoding import decode_body
from eventctx.messages.thinking import ThinkingRule, generation_of
from eventctx.policies.advisers import Scorer, Summarizer
from eventctx.policies.deciding import (
    Bodies,
    Deciding,
    Decision,
    DecisionIO,
    Question,
    Reply,
    Situation,
)
from eventctx.policies.planner import Completed, visible_of
from eventctx.policies.policy import (
    Answer,
    AskTexts,
    Budget,
    MessageTexts,
    Policy,
)
from eventctx.policies.trigger import Frame, due_for, make_budget
from eventctx.projections.evidence import HeldTexts, normalise
from eventctx.projections.view import planned, request_view
from eventctx.projections.view import state as view_state
from eventctx.projections.view.entries import Entry
from eventctx.projections.view.refs import MessageRef
from eventctx.projections.view.render import places, render
from eventctx.projections.view.request_view import ViewState
from eventctx.projections.view.sendable.sending import sent_rows
from eventctx.session.compactions import is_stuck

THRESHOLD = 0.92
TARGET = 0.5

FIRST_OWN = 2**40
"""The position of a run's first own record: behind any message, however many are still to come."""

Watch = Callable[[list[dict[str, Any]]], None]


def play(
    messages: Sequence[dict[str, Any]] | Recording,
    policy: Policy | None,
    budget: int | None,
    *,
    model: str | None = None,
    target: float = TARGET,
    threshold: float = THRESHOLD,
    watch: Watch | None = None,
) -> Played:
    """Play ``policy`` over ``messages`` with requests of ``budget`` tokens.

    Without a policy or a budget nothing is ever compacted. Questions that need a model are answered
    by a stand-in: a summary says that it is one, every score is one half. ``watch`` is called with
    the messages of each request, as they would be sent; that takes most of the time. Raises
    InvalidMessage and InvalidSetting.
    """
    run = steps(
        messages, policy, budget, model=model, target=target, threshold=threshold, watch=watch
    )
    try:
        ask = next(run)
        while True:
            ask = run.send(stand_in(ask))
    except StopIteration as end:
        played: Played = end.value
        return played


async def play_with(
    recording: Recording,
    policy: Policy | None,
    budget: int | None,
    *,
    summarizer: Summarizer | None,
    scorer: Scorer | None,
    target: float,
    threshold: float,
    watch: Watch | None = None,
) -> Played:
    """As ``play``, but questions go to these functions where they are given.

    Where one fails, the ladder decides, as in a live session.
    """
    run = steps(
        recording,
        policy,
        budget,
        model=recording.model,
        target=target,
        threshold=threshold,
        watch=watch,
    )
    reply: Answer | Exception | None = None
    while True:
        try:
            asked = next(run) if reply is None else run.send(reply)
        except StopIteration as end:
            played: Played = end.value
            return played
        try:
            reply = await answer(asked, summarizer, scorer)
        except Exception as error:
            # A user's function may raise anything.
            reply = error


def steps(
    messages: Sequence[dict[str, Any]] | Recording,
    policy: Policy | None,
    budget: int | None,
    *,
    model: str | None = None,
    target: float = TARGET,
    threshold: float = THRESHOLD,
    watch: Watch | None = None,
) -> Generator[AskedInRun, Answer | Exception, Played]:
    """As ``play``, for a caller that answers the policy's questions itself."""
    recording = messages if isinstance(messages, Recording) else Recording(messages)
    limits = None if budget is None else make_budget(budget, threshold, target)
    return SimulatedRun(recording, policy, limits, model, watch).play()


class SimulatedRun:
    """One run under way: a view that grows, and the requests made of it."""

    def __init__(
        self,
        recording: Recording,
        policy: Policy | None,
        budget: Budget | None,
        model: str | None,
        watch: Watch | None,
    ) -> None:
        self._recording = recording
        self._policy = policy
        self._budget = budget
        self._watch = watch
        self._model = model
        self._next = FIRST_OWN
        self._texts: dict[tuple[int, int], bytes] = {}
        self._normal: dict[tuple[int, int], str] = {}
        self._requests: list[PlayedRequest] = []
        self._compactions: list[Compaction] = []
        self._skipped = 0
        self._asked = 0
        self._shown: list[Entry] = []
        self._view = view_state.initial()

    def play(self) -> Generator[AskedInRun, Answer | Exception, Played]:
        """Play all messages; yields the policy's questions."""
        recording = self._recording
        requests = recording.requests
        for number in range(len(recording)):
            self._add(number)
            if number + 1 in requests:
                self._view = request_view.with_model(self._view, self._model)
                yield from self._compact_if_due(number + 1)
                self._note(number + 1)
        return self.played()

    def played(self) -> Played:
        """The run until now."""
        return Played(
            "whole" if self._policy is None else self._policy.name,
            None if self._budget is None else self._budget.tokens,
            tuple(self._requests),
            tuple(self._compactions),
            self._skipped,
        )

    # -- the view --------------------------------------------------------------------------------

    def _add(self, number: int) -> None:
        record = self._recording.records[number]
        view = request_view.evolve(self._view, record)
        results = self._recording.facts[number].results
        abandoned = self._view.layout.abandoned
        if results and abandoned and not abandoned.keys().isdisjoint(results):
            # A late result invalidates the thinking after its place; the record says whose.
            generation = generation_of(self._view.calibration.model)
            unbound = planned.refused_thinking(self._view.layout, view.layout, generation)
            record = record_of(events.MessageAdded(unbound=unbound), number, record.bodies)
            view = request_view.evolve(self._view, record)
        self._view = view

    def _data(self, place: tuple[int, int]) -> bytes | None:
        position, index = place
        if position < len(self._recording):
            return self._recording.records[position].bodies[0].data
        return self._texts[position, index]

    # -- compactions -----------------------------------------------------------------------------

    def _compact_if_due(self, before: int) -> Generator[AskedInRun, Answer | Exception, None]:
        view, budget, policy = self._view, self._budget, self._policy
        if budget is None or policy is None:
            return
        thinking = ThinkingRule(model=view.calibration.model)
        frame = Frame(view, view.position, budget, calibration.scale(view.calibration), thinking)
        trigger = due_for(frame, policy.max_messages)
        if trigger is None or (trigger == "budget" and is_stuck(view, frame.goal)):
            return
        yield from self._compact(frame, trigger, policy, before)

    def _compact(
        self, frame: Frame, trigger: Trigger, policy: Policy, before: int
    ) -> Generator[AskedInRun, Answer | Exception, None]:
        deciding = Deciding(policy, trigger)
        visible = visible_of(frame.view, thinking=frame.thinking)
        scene = Situation(frame.view, visible, frame.goal, frame.goal, frame.thinking)
        io = DecisionIO(body_of, bytes, partial(self._apply, frame.view, trigger))
        asked = self._asked
        decided = yield from self._answer(deciding.steps(scene, io), frame.view)
        if decided.plan is None:
            self._skipped += 1
            if self._asked > asked or trigger == "threshold":
                self._view = view_state.after_compaction(frame.view)
            return
        for index, body in enumerate(decided.plan.bodies):
            assert body.data is not None  # noqa: S101 - it was made just now
            self._texts[self._next, index] = body.data
        self._next += 1
        self._view = decided.after
        self._compactions.append(
            Compaction(
                before,
                trigger,
                frame.tokens_of(frame.view),
                frame.tokens_of(decided.after),
                dict(decided.proposal.dispositions),
                deciding.error if deciding.fallback else None,
                frame.budget.threshold,
            )
        )

    def _apply(self, view: ViewState, trigger: Trigger, made: Completed) -> ViewState:
        event = PostCompact("applied", trigger, "", 0, 0, 0, 0, 0, "", plan=made.plan)
        return request_view.evolve(view, record_of(event, self._next, made.bodies))

    def _answer(
        self, steps: Generator[Question, Reply, Decision], view: ViewState
    ) -> Generator[AskedInRun, Answer | Exception, Decision]:
        try:
            question = next(steps)
            while True:
                question = steps.send((yield from self._reply(question, view)))
        except StopIteration as end:
            decided: Decision = end.value
            return decided

    def _reply(
        self, question: Question, view: ViewState
    ) -> Generator[AskedInRun, Answer | Exception, Reply]:
        if isinstance(question, Bodies):
            return {one.number: self._data((one.position, one.index)) for one in question.refs}
        if isinstance(question, AskTexts):
            messages = self._recording.messages
            asked = [one for one in question.numbers if one < len(messages)]
            return MessageTexts({one: messages[one] for one in asked})
        self._asked += 1
        return (yield AskedInRun(question, view, self._recording, self._data))

    # -- requests --------------------------------------------------------------------------------

    def _note(self, before: int) -> None:
        entries = self._view.layout.entries()
        before_it = self._shown
        same = _equal_from_the_start(before_it, entries)
        last = self._requests[-1] if self._requests else None
        if last is not None and same == len(before_it):
            prefix, bits, others = last.tokens, last.whole.bits, last.shown.others
        else:
            prefix, bits, others = sum([one.tokens for one in entries[:same]]), 0, ()
            same = 0
        fresh: list[str] = []
        for entry in entries[same:]:
            kind, ref, _, omit, _ = entry
            if kind == "message" and isinstance(ref, MessageRef) and not (ref.shortened or omit):
                bits |= 1 << ref.number
            elif kind in ("message", "insertion"):
                fresh.append(self._text(entry))
        tokens = self._view.layout.tokens
        floor = self._budget is not None and tokens > self._budget.tokens
        shown = HeldTexts(NumberSet(bits), ("\n".join([*others, *fresh]),) if fresh else others)
        made = len(self._compactions)
        self._requests.append(PlayedRequest(before, tokens, prefix, shown, made, floor))
        self._shown = entries
        if self._watch is not None:
            texts = {place: self._data(place) for place in places(entries)}
            self._watch(sent_rows(entries, texts))

    def _text(self, entry: Entry) -> str:
        ref = entry.ref
        assert ref is not None  # noqa: S101 - a message or an insertion has one
        place = ref.position, ref.index
        if entry.omit:
            return normalise(render([entry], {place: self._data(place)})[0])
        found = self._normal.get(place)
        if found is None:
            data = self._data(place)
            assert data is not None  # noqa: S101 - nothing is erased in a run
            found = self._normal[place] = normalise(decode_body(data))
        return found


def _equal_from_the_start(before: list[Entry], after: list[Entry]) -> int:
    """The number of entries, from the first on, that are equal in both as a provider sees them."""
    same = 0
    for one, other in zip(before, after, strict=False):
        if one is not other and one != other and _visible_part(one) != _visible_part(other):
            break
        same += 1
    return same


def _visible_part(entry: Entry) -> tuple[Any, ...]:
    kind, ref, call_id, omit, end = entry
    if ref is None:
        return (kind,)
    stripped = isinstance(ref, MessageRef) and ref.stripped
    return kind, ref.digest, stripped, call_id, omit, end
