"""The grouping of messages into steps: an answer of the model, and the results of its calls.

One step is open at most: the one of the agent that may still get results. All other messages are
complete steps when they come.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from eventctx.log.naming import iso_or
from eventctx.messages.facts import Facts
from eventctx.messages.parts import read_parts
from eventctx.queries.atif.calls import CallStory, RequestFacts, finish, unanswered
from eventctx.queries.atif.draft import LoggedMessage, StepDraft, StepKind


class StepGroups:
    """The open step, and the request that waits for its answer.

    ``refs`` are references to subagents, by call. ``undated`` is the time of records whose file
    has no times. ``unanswered`` are the positions of requests that no message answers. While
    ``inherited``, steps are those of the session that this one was forked from.
    """

    def __init__(
        self,
        requests: RequestFacts,
        refs: Mapping[str, list[dict[str, Any]]],
        undated: int | None,
        *,
        inherited: bool,
    ) -> None:
        self.open: StepDraft | None = None
        self.call: CallStory | None = None
        self.turn: int | None = None
        self.inherited = inherited
        self.unanswered: frozenset[int] = frozenset()
        self._answered_by_open: CallStory | None = None
        self._requests = requests
        self._refs = refs
        self._undated = undated

    def draft(self, source: StepKind, time: int | None, *, copied: bool = False) -> StepDraft:
        """A new step of the present turn, at ``time`` in nanoseconds."""
        draft = StepDraft(source, None if time is None else iso_or(time, self._undated))
        if self.turn is not None:
            draft.extra["turn"] = self.turn
        if copied or self.inherited:
            draft.other["is_copied_context"] = True
        return draft

    def flush(self) -> Iterator[StepDraft]:
        """The step that was open, if there is one."""
        draft, self.open = self.open, None
        call, self._answered_by_open = self._answered_by_open, None
        if draft is None:
            return
        if call is not None:
            finish(draft, call, self._requests)
            call.written = True
        refs = {call_id: found for call_id in draft.ids() if (found := self._refs.get(call_id))}
        if refs:
            draft.other["refs"] = refs
        yield draft

    def end_call(self) -> Iterator[StepDraft]:
        """The open step, and the request that nothing answered."""
        yield from self.flush()
        call, self.call = self.call, None
        if call is not None and not call.answered and not self.inherited:
            draft = unanswered(call, iso_or(call.record.time, self._undated), self._requests)
            if self.turn is not None:
                draft.extra["turn"] = self.turn
            yield draft

    def take(
        self, stored: LoggedMessage, facts: Facts, time: int | None, *, copied: bool = False
    ) -> Iterator[StepDraft]:
        """The steps that are complete now that a message comes."""
        if self.call is not None and self.call.position in self.unanswered:
            yield from self.end_call()
        if facts.kind == "assistant":
            yield from self._answer(stored, facts, time, copied=copied)
        elif facts.observation and self._is_open(copied):
            assert self.open is not None  # noqa: S101 - tells the type checker
            self.open.add_observation(stored)
        elif facts.kind == "result" and not facts.observation:
            yield from self._results(stored, facts, time, copied=copied)
        else:
            yield from self.flush()
            source: StepKind = "system" if facts.kind in ("system", "other") else "user"
            draft = self.draft(source, time, copied=copied)
            draft.add(stored)
            yield draft

    def _is_open(self, copied: bool) -> bool:
        is_copied = copied or self.inherited
        return self.open is not None and is_copied == bool(self.open.other.get("is_copied_context"))

    def _answer(
        self, stored: LoggedMessage, facts: Facts, time: int | None, *, copied: bool
    ) -> Iterator[StepDraft]:
        call = None if copied else self.call
        fresh = call is not None and not call.answered
        # The items of one answer of OpenAI's Responses API are messages of their own.
        goes_on = self.open is not None and not self.open.results and self._is_open(copied)
        of_call = call is not None and call is self._answered_by_open
        if not fresh and goes_on and (of_call or facts.dialect == "responses"):
            assert self.open is not None  # noqa: S101 - tells the type checker
            self.open.add(stored)
            return
        yield from self.flush()
        self.open = self.draft("agent", time, copied=copied)
        if call is not None and fresh:
            call.answered = True
            self._answered_by_open = None if self.inherited else call
        self.open.add(stored)

    def _results(
        self, stored: LoggedMessage, facts: Facts, time: int | None, *, copied: bool
    ) -> Iterator[StepDraft]:
        if not self._takes(set(facts.results), copied):
            yield from self.flush()
            # Late, or without a call: a step that calls no model says so.
            self.open = self.draft("agent", time, copied=copied)
            if not copied and not self.inherited:
                self.open.other["llm_call_count"] = 0
        assert self.open is not None  # noqa: S101 - tells the type checker
        if all(part.kind == "result" for part in read_parts(stored.message, copies=True)):
            self.open.add(stored)
            return
        results = self.open.add_results(stored)
        yield from self.flush()
        draft = self.draft("user", time, copied=copied)
        draft.add_words(stored, results)
        yield draft

    def _takes(self, ids: set[str], copied: bool) -> bool:
        """Whether results with these ids belong to the open step."""
        draft = self.open
        if draft is None or not self._is_open(copied):
            return False
        silent = not (draft.calls or draft.text or draft.reasoning)
        return silent or ids <= draft.ids()
