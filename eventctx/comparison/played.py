"""A run: its requests with what their views show, its compactions, its questions and answers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Set
from typing import Any, NamedTuple

from eventctx.comparison.recording import STREAM, Recording
from eventctx.log.arguments import shown
from eventctx.log.events import Trigger
from eventctx.log.plan import numbers_in
from eventctx.messages.demands import demands_in
from eventctx.messages.encoding import decode_body
from eventctx.messages.native_compaction import made_up_summary
from eventctx.messages.parts import words_of
from eventctx.policies.advisers import (
    DEMANDS_ARE_ADDED,
    INSTRUCTION,
    OF_VIEW,
    ModelAnswer,
    Scorer,
    ScoreRequest,
    Summarizer,
    SummaryRequest,
)
from eventctx.policies.deciding import NoAnswer
from eventctx.policies.policy import Answer, AskScores, AskSummary, Memory, Scores, Summary
from eventctx.projections.evidence import HeldTexts
from eventctx.projections.view.layout import build
from eventctx.projections.view.render import places
from eventctx.projections.view.request_view import ViewState
from eventctx.projections.view.sendable.sending import sent_rows
from eventctx.session.questions import ModelAsk, around, checked_scores


class NumberSet(Set[int]):
    """Message numbers, as the bits of an integer: number 0 is the lowest one.

    It is small enough to keep one for every request.
    """

    __slots__ = ("bits",)

    def __init__(self, bits: int = 0) -> None:
        self.bits = bits

    @classmethod
    def of(cls, numbers: Iterable[int]) -> NumberSet:
        """The set of these numbers."""
        bits = 0
        for number in numbers:
            bits |= 1 << number
        return cls(bits)

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and number >= 0 and bool(self.bits >> number & 1)

    def __iter__(self) -> Iterator[int]:
        bits, number = self.bits, 0
        while bits:
            skipped = (bits & -bits).bit_length()
            number += skipped
            bits >>= skipped
            yield number - 1

    def __len__(self) -> int:
        return self.bits.bit_count()

    def isdisjoint(self, other: Iterable[int]) -> bool:
        """Whether no number of ``other`` is in the set."""
        bits = self.bits
        return not any(bits >> number & 1 for number in other)

    def __repr__(self) -> str:
        return f"NumberSet({list(self)})"


class Compaction(NamedTuple):
    """A compaction of a run, made before the request with ``before`` messages.

    ``dispositions`` has every message that was in view, with a disposition and a reason code.
    ``fallback`` says why the ladder decided in the policy's place; None where the policy did.
    The next one is due at ``threshold`` tokens.
    """

    before: int
    trigger: Trigger
    tokens_before: int
    tokens_after: int
    dispositions: dict[int, tuple[str, str]]
    fallback: str | None
    threshold: int = 0


class PlayedRequest(NamedTuple):
    """A request of a run: what its view shows, and what it would cost.

    ``before`` messages precede the answer. ``shown`` has the numbers of the messages in view whole,
    and the texts of all else in it (shortened copies, insertions). ``prefix`` are the tokens of the
    entries that are equal, from the start on, to those of the request before. ``compactions`` were
    applied until now. ``floor`` is true where the view exceeds its budget.
    """

    before: int
    tokens: int
    prefix: int
    shown: HeldTexts
    compactions: int
    floor: bool

    @property
    def whole(self) -> NumberSet:
        """The numbers of the messages in view whole."""
        numbers = self.shown.whole
        assert isinstance(numbers, NumberSet)  # noqa: S101 - the simulator made it
        return numbers


class Played(NamedTuple):
    """A run: its requests, its compactions, and the tries at one that changed nothing."""

    policy: str
    budget: int | None
    requests: tuple[PlayedRequest, ...]
    compactions: tuple[Compaction, ...]
    skipped: int


class AskedInRun(NamedTuple):
    """A policy's question in a run, and what is needed to answer it: ``body`` reads a body."""

    question: ModelAsk
    view: ViewState
    recording: Recording
    body: Callable[[tuple[int, int]], bytes | None]


def stand_in(asked: AskedInRun) -> Answer:
    """The answer where no one can be asked: a summary that says so, one half, no memory."""
    question = asked.question
    if isinstance(question, AskSummary):
        text = f"(a summary of {len(question.numbers)} messages will stand here)"
        message = None if question.until is None else made_up_summary(text)
        return Summary(text, demands=demands_of(asked, question), message=message)
    if isinstance(question, AskScores):
        return Scores(dict.fromkeys(question.numbers, 0.5))
    return Memory(())


def demands_of(asked: AskedInRun, question: AskSummary) -> tuple[tuple[int, str], ...]:
    """The demands in the messages of a question, and in the summaries that it takes in."""
    wanted = numbers_in([run for one in question.merged for run in one.demands])
    wanted.update(question.numbers)
    recording = asked.recording
    return tuple(
        [
            (number, sentence)
            for number in sorted(wanted)
            if recording.facts[number].may_demand
            for sentence in demands_in(recording.messages[number]) or ("",)
        ]
    )


async def answer(asked: AskedInRun, summarizer: Summarizer | None, scorer: Scorer | None) -> Answer:
    """The answer of these functions where they are given, else the stand-in's."""
    question, messages = asked.question, asked.recording.messages
    if isinstance(question, AskSummary) and summarizer is not None:
        demands = demands_of(asked, question)
        told = any(sentence for _, sentence in demands)
        text = await _call(summarizer(_summary_request(asked, question, told)))
        if not isinstance(text, str) or not text.strip():
            raise NoAnswer(f"the summarizer answered {shown(text)}; expected a text")
        return Summary(text.strip(), demands=demands)
    if isinstance(question, AskScores) and scorer is not None:
        chosen = [messages[number] for number in question.numbers]
        given = await _call(scorer(ScoreRequest(STREAM, question.numbers, chosen)))
        return Scores(checked_scores(given, question.numbers))
    return stand_in(asked)


def _summary_request(asked: AskedInRun, question: AskSummary, told: bool) -> SummaryRequest:
    entries = asked.view.layout.entries()
    wanted = set(question.numbers)
    refs = [ref for ref in asked.view.layout.refs if ref.number in wanted]
    merged = [asked.body((one.position, one.index)) for one in question.merged]
    bodies = [asked.body((ref.position, ref.index)) for ref in refs]
    instruction = INSTRUCTION.format(tokens=question.max_tokens)
    if told:
        instruction += f" {DEMANDS_ARE_ADDED}"
    before, after = around(entries, question)
    alone = build(refs, question.merged, asked.view.layout.ends).entries()
    shown = sent_rows(alone, {place: asked.body(place) for place in places(alone)})
    return SummaryRequest(
        session=asked.recording.name or STREAM,
        numbers=tuple([ref.number for ref in refs]),
        messages=[decode_body(data) for data in bodies if data is not None],
        earlier=tuple([words_of(decode_body(data)) for data in merged if data is not None]),
        view=sent_rows(entries, {place: asked.body(place) for place in places(entries)}),
        instruction=instruction,
        instruction_for_view=f"{instruction} {OF_VIEW.format(before=before, after=after)}",
        max_tokens=question.max_tokens,
        prompt=[*shown, {"role": "user", "content": instruction}],
    )


async def _call(answering: Any) -> Any:
    if not inspect.isawaitable(answering):
        raise TypeError("expected an async function, found one that answers at once")
    value = await answering
    return value.value if isinstance(value, ModelAnswer) else value
