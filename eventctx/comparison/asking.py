"""Answers of a user's own functions to the questions of a run: summaries and scores."""

from __future__ import annotations

import inspect
from typing import Any

from eventctx.comparison.recording import STREAM, Recording
from eventctx.comparison.simulator import AskedInRun, Played, Watch, demanded, stand_in, steps
from eventctx.log.arguments import shown
from eventctx.messages.encoding import decode_body
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
from eventctx.policies.policy import Answer, AskScores, AskSummary, Policy, Scores, Summary
from eventctx.projections.view.layout import build
from eventctx.projections.view.render import places
from eventctx.projections.view.sendable.sending import sent_rows
from eventctx.session.questions import around, checked_scores


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
    """As ``simulator.play``, but questions go to these functions where they are given.

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
            reply = await _answer(asked, summarizer, scorer)
        except Exception as error:
            # A user's function may raise anything.
            reply = error


async def _answer(
    asked: AskedInRun, summarizer: Summarizer | None, scorer: Scorer | None
) -> Answer:
    question, messages = asked.question, asked.recording.messages
    if isinstance(question, AskSummary) and summarizer is not None:
        demands = demanded(asked, question)
        told = any(sentence for _, sentence in demands)
        text = await _called(summarizer(_summary_request(asked, question, told)))
        if not isinstance(text, str) or not text.strip():
            raise NoAnswer(f"the summarizer answered {shown(text)}; expected a text")
        return Summary(text.strip(), demands=demands)
    if isinstance(question, AskScores) and scorer is not None:
        chosen = [messages[number] for number in question.numbers]
        given = await _called(scorer(ScoreRequest(STREAM, question.numbers, chosen)))
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


async def _called(answering: Any) -> Any:
    if not inspect.isawaitable(answering):
        raise TypeError("expected an async function, found one that answers at once")
    value = await answering
    return value.value if isinstance(value, ModelAnswer) else value
