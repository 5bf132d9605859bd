"""Answers to a policy's questions: the only place where a compaction calls a model.

Every call of a summarizer or scorer is a span of its own inside the compaction's, recorded as a
model call with its usage. An exception, a time-out and an answer that cannot be used become
``NoAnswer``, whose text is fit for the log. An answer holds for what it was asked about
(``AskedAbout``): the view may be another one by then.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from eventctx.aio import in_own_thread
from eventctx.log.arguments import shown
from eventctx.log.plan import numbers_in
from eventctx.log.store import Address
from eventctx.messages.demands import demands_in
from eventctx.messages.encoding import decode_bodies
from eventctx.messages.native_compaction import made_up_summary
from eventctx.messages.parts import brings_compaction, words_of
from eventctx.policies.advisers import (
    DEMANDS_ARE_ADDED,
    INSTRUCTION,
    OF_VIEW,
    Advisers,
    ModelAnswer,
    ScoreRequest,
    SummaryRequest,
)
from eventctx.policies.deciding import NoAnswer
from eventctx.policies.policy import (
    Answer,
    AskMemory,
    AskScores,
    AskSummary,
    AskTexts,
    Memory,
    MessageTexts,
    Scores,
    Summary,
)
from eventctx.projections.view.entries import Entry
from eventctx.projections.view.layout import build
from eventctx.projections.view.refs import InsertionRef, MessageRef
from eventctx.projections.view.render import addresses
from eventctx.projections.view.request_view import ViewState
from eventctx.projections.view.sendable.sending import sent_rows
from eventctx.session.activity import SessionEmitter
from eventctx.session.open_session import OpenSession
from eventctx.session.scope import Scope
from eventctx.session.turns import ProviderCall, adviser_call

MAX_QUERY = 2_000
"""Characters of a message that a memory search uses: a longer query would match anything."""

_MAX_NAME: Final = 1_000
"""Longest name of a model or a provider, in characters."""

ModelAsk = AskSummary | AskScores | AskMemory
"""Questions that a model, a user's function or a search answers."""


class AskedAbout(NamedTuple):
    """A question, and what it is about as it was in the view: what its answer holds for.

    ``seen`` are the places of its messages and summaries, and those of its messages that had to
    stay. ``erased`` counts its bodies that were erased,
    ``withdrawn`` are the demands taken back by then, ``next_number`` that of the next message.
    """

    ask: ModelAsk
    seen: tuple[tuple[tuple[int, int, bool], ...], frozenset[int]]
    erased: int
    withdrawn: tuple[tuple[int, int], ...]
    next_number: int


async def note_asked(session: OpenSession, ask: ModelAsk, view: ViewState) -> AskedAbout:
    """A question, and what it is about as it is in ``view``. Raises what the store raises."""
    numbers = {ask.number} if isinstance(ask, AskMemory) else set(ask.numbers)
    merged = ask.merged if isinstance(ask, AskSummary) else ()
    refs = [ref for ref in view.layout.refs if ref.number in numbers]
    texts = [one for one in view.layout.insertions if one in merged]
    places = [(one.position, one.index, one.shortened) for one in refs]
    places += [(one.position, one.index, False) for one in texts]
    addresses = [Address(position, index) for position, index, _ in places]
    bodies = await session.bodies.texts(addresses)
    return AskedAbout(
        ask,
        (tuple(places), view.pins & numbers),
        sum(bodies[address] is None for address in addresses),
        view.spoken.withdrawn,
        view.next_number,
    )


class PolicyQuestions:
    """Answers the questions of one session's policies."""

    def __init__(self, session: OpenSession, emitter: SessionEmitter, advisers: Advisers) -> None:
        self._session = session
        self._emitter = emitter
        self._advisers = advisers

    async def answer(
        self, ask: ModelAsk, view: ViewState, scope: Scope, hint: str | None
    ) -> Answer:
        """The answer to one question. Raises NoAnswer, and what the store raises."""
        if isinstance(ask, AskSummary):
            return await self._summary(ask, view, scope, hint)
        if isinstance(ask, AskScores):
            return await self._scores(ask, view, scope, hint)
        return await self._memory(ask, view)

    async def _summary(
        self, ask: AskSummary, view: ViewState, scope: Scope, hint: str | None
    ) -> Summary:
        summarizer = self._advisers.summarizer
        if summarizer is None:
            raise NoAnswer("no summarizer was given: open the session with summarizer=…")
        refs = _refs_of(view, ask.numbers)
        entries = view.layout.entries()
        # The question may name a result without a call, which is in no entry.
        wanted = [Address(ref.position, ref.index) for ref in refs]
        wanted += [Address(ref.position, ref.index) for ref in ask.merged]
        alone = build(refs, ask.merged, view.layout.ends).entries()
        wanted += addresses(alone)
        texts = await self._session.bodies.texts([*addresses(entries), *wanted])
        instruction = INSTRUCTION.format(tokens=ask.max_tokens)
        demands = await self._demands(ask, view)
        if any(sentence for _, sentence in demands):
            instruction += f" {DEMANDS_ARE_ADDED}"
        if hint:
            instruction += f" Above all, keep this: {hint}"
        before, after = around(entries, ask)
        request = SummaryRequest(
            session=self._session.stream,
            numbers=tuple([ref.number for ref in refs]),
            messages=_decode(refs, texts),
            earlier=tuple([words_of(message) for message in _decode(ask.merged, texts)]),
            view=sent_rows(entries, texts),
            instruction=instruction,
            instruction_for_view=f"{instruction} {OF_VIEW.format(before=before, after=after)}",
            max_tokens=ask.max_tokens,
            hint=hint,
            prompt=[*sent_rows(alone, texts), {"role": "user", "content": instruction}],
            native=None if ask.until is None else sent_rows(until(entries, ask.until), texts),
        )
        text = await self._call(summarizer, request, scope, "summarizer")
        if ask.until is not None:
            return Summary("", message=checked_native(text))
        if not isinstance(text, str) or not text.strip():
            raise NoAnswer(f"the summarizer answered {shown(text)}; expected a text")
        first, last = await self._times(ask, view.position)
        return Summary(text.strip(), first, last, demands)

    async def _demands(self, ask: AskSummary, view: ViewState) -> tuple[tuple[int, str], ...]:
        """The demands of people in the messages of a question and of the summaries that it merges.

        Read from the messages as they were added, since a view may show a copy of them. A demand
        that was taken back is none.
        """
        taken_back = set(view.spoken.withdrawn)
        quoted = numbers_in([run for one in ask.merged for run in one.demands])
        wanted = quoted.union(ask.numbers)
        places = {
            one.number: Address(one.position, one.index)
            for one in view.spoken.demands
            if one.number in wanted
        }
        for ref in _refs_of(view, ask.numbers):
            # Facts of an older reader do not say whether there are demands.
            if ref.facts.may_demand and ref.number not in places:
                places[ref.number] = Address(ref.position, ref.index)
        missing = quoted - places.keys()
        if missing:
            # So may what an older summary quotes from messages that are out of view.
            lines = (await self._session.lines.at(view.position)).lines
            places.update({one.number: one.address for one in lines if one.number in missing})
        texts = await self._session.bodies.texts(list(places.values()))
        found: list[tuple[int, str]] = []
        for number, place in sorted(places.items()):
            data = texts[place]
            (message,) = decode_bodies([data]) if data is not None else ({},)
            said = enumerate(demands_in(message), 1)
            holding = [sentence for at, sentence in said if (number, at) not in taken_back]
            found += [(number, sentence) for sentence in holding or ("",)]
        return tuple(found)

    async def as_demanded(self, ask: ModelAsk, answer: Answer, view: ViewState) -> Answer:
        """An earlier answer with what people demand by now: a demand may have been taken back."""
        if not isinstance(ask, AskSummary) or not isinstance(answer, Summary):
            return answer
        return msgspec.structs.replace(answer, demands=await self._demands(ask, view))

    async def placeholder(self, ask: ModelAsk, view: ViewState) -> Answer:
        """A placeholder for an answer in a dry run, which calls no model."""
        if isinstance(ask, AskSummary):
            text = f"(a summary of {len(ask.numbers)} messages will stand here)"
            if ask.until is not None:
                return Summary(text, message=made_up_summary(text))
            return Summary(text, demands=await self._demands(ask, view))
        if isinstance(ask, AskScores):
            return Scores(dict.fromkeys(ask.numbers, 0.5))
        return Memory(())

    async def _scores(
        self, ask: AskScores, view: ViewState, scope: Scope, hint: str | None
    ) -> Scores:
        scorer = self._advisers.scorer
        if scorer is None:
            raise NoAnswer("no scorer was given: open the session with scorer=…")
        refs = _refs_of(view, ask.numbers)
        texts = await self._session.bodies.texts([Address(ref.position, ref.index) for ref in refs])
        request = ScoreRequest(
            self._session.stream, tuple([ref.number for ref in refs]), _decode(refs, texts), hint
        )
        given = await self._call(scorer, request, scope, "scorer")
        return Scores(checked_scores(given, request.numbers))

    async def _memory(self, ask: AskMemory, view: ViewState) -> Memory:
        rememberer = self._advisers.rememberer
        if rememberer is None:
            return Memory(())
        (ref,) = _refs_of(view, (ask.number,))
        texts = await self._session.bodies.texts([Address(ref.position, ref.index)])
        (message,) = _decode([ref], texts)
        try:
            found = await asyncio.wait_for(
                rememberer(words_of(message)[:MAX_QUERY], ask.max_snippets, frozenset(ask.staying)),
                self._advisers.timeout,
            )
        except Exception as error:
            raise NoAnswer(_failure_text("recall", error)) from error
        return Memory(tuple([text for text in found if isinstance(text, str)]))

    async def texts(self, ask: AskTexts, view: ViewState, version: int) -> MessageTexts:
        """The messages that a policy asks for, from a view at position ``version`` or the log.

        Calls no model. Raises what the store raises.
        """
        wanted = set(ask.numbers)
        places = {
            ref.number: Address(ref.position, ref.index)
            for ref in view.layout.refs
            if ref.number in wanted and not ref.shortened
        }
        if len(places) < len(wanted):
            lines = (await self._session.lines.at(version)).lines
            missing = wanted - places.keys()
            places.update({one.number: one.address for one in lines if one.number in missing})
        texts = await self._session.bodies.texts(list(places.values()))
        found = {number: texts[place] for number, place in places.items()}
        known = {number: data for number, data in found.items() if data is not None}
        messages = decode_bodies(list(known.values()))
        return MessageTexts(dict(zip(known, messages, strict=True)))

    async def _call(
        self, adviser: Callable[[Any], Any], request: Any, scope: Scope, who: str
    ) -> Any:
        """Await a model call inside a span of its own, and return its answer."""
        model, provider = _name_in(adviser, "model"), _name_in(adviser, "provider")
        span = adviser_call(self._emitter, scope, model, provider)
        try:
            async with span:
                value = await asyncio.wait_for(_ask(adviser, request), self._advisers.timeout)
                if isinstance(value, ModelAnswer):
                    await _report(span, value)
                    value = value.value
                return value
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # The adviser's own work was cancelled, not the agent's task.
            raise NoAnswer(_failure_text(who, error)) from error
        except Exception as error:
            raise NoAnswer(_failure_text(who, error)) from error

    async def _times(self, ask: AskSummary, version: int) -> tuple[int | None, int | None]:
        """The times at which the first and the last message of the summary were added."""
        numbers = numbers_in([run for one in ask.merged for run in one.stands_for])
        numbers.update(ask.numbers)
        state, times = await self._session.lines.timed_at(version)
        found = [times[line.position] for line in state.lines if line.number in numbers]
        return min(found, default=None), max(found, default=None)


async def _ask(adviser: Callable[[Any], Any], request: Any) -> Any:
    """Ask an async function here, and a plain one, which may wait for a model, in a thread."""
    called = adviser if inspect.isroutine(adviser) else getattr(adviser, "__call__", adviser)  # noqa: B004
    if inspect.iscoroutinefunction(adviser) or inspect.iscoroutinefunction(called):
        return await adviser(request)
    answer = await in_own_thread(partial(adviser, request), "eventctx-adviser")
    return await answer if inspect.isawaitable(answer) else answer


def _name_in(given: object, attribute: str) -> str | None:
    """The name of a model or provider that an adviser or its answer gives; None without one."""
    name = getattr(given, attribute, None)
    fits = isinstance(name, str) and 0 < len(name) <= _MAX_NAME and name.isprintable()
    return name if fits else None


async def _report(span: ProviderCall, answer: ModelAnswer) -> None:
    span.model = _name_in(answer, "model") or span.model
    span.provider = _name_in(answer, "provider") or span.provider
    if answer.prompt is not None:
        await span.usage(
            answer.prompt,
            answer.output,
            cache_read=answer.cache_read,
            cache_write=answer.cache_write,
        )


def _refs_of(view: ViewState, numbers: Sequence[int]) -> list[MessageRef]:
    wanted = set(numbers)
    refs = [ref for ref in view.layout.refs if ref.number in wanted]
    if not refs or len(refs) < len(wanted):
        raise NoAnswer("the messages that were asked about left the view meanwhile")
    return refs


def around(entries: Sequence[Entry], ask: AskSummary) -> tuple[int, int]:
    """The numbers of entries before the first and after the last one to summarize."""
    wanted = set(ask.numbers)
    rows = [
        row
        for row, entry in enumerate(entries)
        if (entry.kind == "insertion" and entry.ref in ask.merged)
        or (isinstance(entry.ref, MessageRef) and entry.ref.number in wanted)
    ]
    return (rows[0], len(entries) - 1 - rows[-1]) if rows else (0, 0)


def until(entries: Sequence[Entry], number: int) -> Sequence[Entry]:
    """The entries before message ``number``. Raises NoAnswer where that is not in view any more."""
    for place, entry in enumerate(entries):
        if isinstance(entry.ref, MessageRef) and entry.ref.number == number:
            return entries[:place]
    raise NoAnswer("the messages that were asked about left the view meanwhile")


def checked_native(given: object) -> Mapping[str, Any]:
    """A provider's own summary. Raises NoAnswer for anything else."""
    if isinstance(given, Mapping) and brings_compaction(given):
        return given
    raise NoAnswer(
        f"the summarizer answered {shown(given)}; expected a message with the provider's "
        "compaction, as the policy native needs it: pass the method compact of a provider"
    )


def _decode(
    refs: Sequence[MessageRef | InsertionRef], texts: Mapping[tuple[int, int], bytes | None]
) -> list[dict[str, Any]]:
    erased = b'{"role":"user","content":"[erased]"}'
    found = [texts[ref.position, ref.index] for ref in refs]
    return decode_bodies([erased if data is None else data for data in found])


def checked_scores(given: object, numbers: Sequence[int]) -> dict[int, float]:
    """A scorer's answer by number. Raises NoAnswer for one that is not a score for each."""
    if isinstance(given, Mapping):
        values: list[object] = [given.get(number) for number in numbers]
    elif isinstance(given, Sequence) and len(given) == len(numbers):
        values = list(given)
    else:
        raise NoAnswer(f"the scorer answered {shown(given)}; expected {len(numbers)} scores")
    scores: dict[int, float] = {}
    for number, value in zip(numbers, values, strict=True):
        # Written so that NaN, which is not in any range, is refused too.
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise NoAnswer(
                f"the scorer gave message {number} {shown(value)}; expected a number from 0 to 1"
            )
        scores[number] = float(value)
    return scores


def _failure_text(who: str, error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"the {who} took longer than its time-out"
    message = str(error)[:300].encode("utf-8", "backslashreplace").decode()
    return f"the {who} raised {type(error).__name__}: {message}"
