"""The open tool calls of a turn, and which of them a host's report of an end belongs to.

Hosts do not always name the call. Amplifier's loop-basic gives the arguments when a tool returned
and the tool's name alone when it failed, so two calls of one tool can have one description. An end
that several open calls may have waits, and is settled by the first of these:

1. As many such ends wait as there are calls, and all ends are equal: the order does not matter.
   So when one call is still open, it gets the remaining end.
   Calls that are alike but for their ids are taken in the order of the answer, while a host may run
   them in any. So the end of one also waits for those of its kind that are still to begin.
2. The conversation gets a call's result: its text holds the failure, or is the answer. A result
   that tells of another failure is the end of its call, too.
3. The iteration or the turn is over. Ends of one status for all calls are taken in order.
   Otherwise nobody knows, and the calls end as cancelled, with a message that says what is known.

No call is blamed that returned, and none is said to have returned that failed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from eventctx.log.events import ToolPre
from eventctx.log.turn_recorder import SpanOutcome, TurnSpan, fit_for_log

NO_END: Final = "the host did not say how it ended"
LEFT_OPEN: Final = SpanOutcome("cancelled", "NotTold", NO_END)


class EndedCall(NamedTuple):
    """A call whose end is known now. ``answer`` is the text that it returned, if it was given."""

    span: TurnSpan[ToolPre]
    outcome: SpanOutcome
    answer: str | None = None


@dataclass(eq=False, slots=True)
class _Call:
    key: object
    span: TurnSpan[ToolPre]


@dataclass(eq=False, slots=True)
class _End:
    """An end, and the calls that may have it. ``sure``: no call that ended before may have it."""

    outcome: SpanOutcome
    answer: str | None
    among: list[_Call]
    sure: bool

    def fits(self, text: str, failed: SpanOutcome | None = None) -> bool:
        """Whether a call with this result in the conversation may have this end."""
        if self.outcome.status == "ok":
            return self.answer == text
        message = self.outcome.message
        if not message or failed is None:
            return bool(message) and str(message) in text
        # One failure's message may contain another's, so a failure that is told must be equal.
        return message in (failed.message, fit_for_log(text))


class OpenCalls:
    """The calls that have begun and not ended, in order, and the ends that wait for their call."""

    def __init__(self) -> None:
        self._open: list[_Call] = []
        self._waiting: list[_End] = []
        self._returned: list[TurnSpan[ToolPre]] = []
        self._to_begin: dict[object, int] = {}

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, key: object, span: TurnSpan[ToolPre], alike: int = 0) -> None:
        """Take a call that has begun; ``key`` is what its end will be known by.

        ``alike`` calls with this key are still to begin.
        """
        begun = _Call(key, span)
        if self._to_begin.get(key):
            for end in self._waiting:
                if any(call.key == key for call in end.among):
                    end.among = [*end.among, begun]
        self._to_begin[key] = alike
        self._open.append(begun)

    def end(
        self, key: object, name: str | None, outcome: SpanOutcome, answer: str | None = None
    ) -> list[EndedCall]:
        """Take an end, and return the calls whose ends are known now.

        It is the end of a call with this key. Where no open call has it, as with ``key`` None, it
        is the end of a call of the tool ``name``; an end of no open call is ignored.
        """
        among = [one for one in self._open if key is not None and one.key == key]
        by_name = not among
        if by_name:
            among = [one for one in self._open if one.span.of.name == name]
        if not among:
            return []
        # A host may fail after a tool returned, and then reports both ends of one call.
        other = by_name and any(one.of.name == name for one in self._returned)
        self._waiting.append(_End(outcome, answer, among, outcome.status == "ok" or not other))
        return self._settle_forced()

    def result_added(
        self, call_id: str, text: str, failed: SpanOutcome | None = None
    ) -> list[EndedCall]:
        """Take a call's result in the conversation, and return the calls that it settles.

        ``failed`` is the failure that the text tells: hosts report no end of a call that a hook
        denied. A result without one ends no call, as hosts add some for calls that they broke off.
        """
        call = next((one for one in self._open if one.span.of.call_id == call_id), None)
        if call is None:
            if any(one.of.call_id == call_id for one in self._returned):
                self._forget_failure(text)
            return self._settle_forced()
        fitting = [one for one in self._waiting if call in one.among and one.fits(text, failed)]
        if not fitting and failed is None:
            return []
        if not fitting:
            for end in self._waiting:
                # The host may have put it in other words, so it may have been this call's.
                end.sure = end.sure and call not in end.among
            return [self._settle(call, None, failed), *self._settle_forced()]
        # The longest: one failure's message may contain another's.
        found = max(fitting, key=lambda end: len(end.outcome.message or end.answer or ""))
        return [self._settle(call, found), *self._settle_forced()]

    def close(self) -> list[EndedCall]:
        """End the calls that are still open, as their iteration or turn is over."""
        ended: list[EndedCall] = []
        while self._open:
            calls, ends = self._find_undecided(self._open[0])
            statuses = {end.outcome.status for end in ends}
            if len(ends) >= len(calls) and len(statuses) == 1:
                for call, end in zip(calls, ends, strict=False):
                    ended.append(self._settle(call, end, _in_order(call, end, ends)))
                continue
            unknown = [(call, _unknown(call, calls, ends)) for call in calls]
            ended += [self._settle(call, None, outcome) for call, outcome in unknown]
        self._waiting.clear()
        self._returned.clear()
        self._to_begin.clear()
        return ended

    def _settle_forced(self) -> list[EndedCall]:
        """The calls that must have the ends that wait, whichever end is whose."""
        ended: list[EndedCall] = []
        while found := self._find_forced():
            calls, ends = found
            for call, end in zip(calls, ends, strict=False):
                ended.append(self._settle(call, end))
            for end in ends[len(calls) :]:
                self._waiting.remove(end)
        return ended

    def _find_forced(self) -> tuple[list[_Call], list[_End]] | None:
        for one in self._waiting:
            calls = one.among
            if any(self._to_begin[call.key] for call in calls):
                continue
            ends = [end for end in self._waiting if end.sure and set(end.among) <= set(calls)]
            if len(ends) >= len(calls) and len({end.outcome for end in ends}) == 1:
                return list(calls), ends
        return None

    def _find_undecided(self, call: _Call) -> tuple[list[_Call], list[_End]]:
        """The calls that look like this one, with it, and the waiting ends that may be theirs."""
        calls, ends = [call], list[_End]()
        while more := [
            end for end in self._waiting if end not in ends and not set(calls).isdisjoint(end.among)
        ]:
            ends += more
            calls = [
                one for one in self._open if one in calls or any(one in end.among for end in more)
            ]
        return calls, [end for end in self._waiting if end in ends]

    def _settle(
        self, call: _Call, end: _End | None, outcome: SpanOutcome | None = None
    ) -> EndedCall:
        self._open.remove(call)
        if end is not None and end in self._waiting:
            self._waiting.remove(end)
        for other in self._waiting:
            other.among = [one for one in other.among if one is not call]
        # An end that nothing is left for is a second report of a call that has its end.
        self._waiting = [other for other in self._waiting if other.among]
        if end is None:
            return EndedCall(call.span, outcome or LEFT_OPEN)
        if end.outcome.status == "ok":
            self._returned.append(call.span)
        return EndedCall(call.span, outcome or end.outcome, end.answer)

    def _forget_failure(self, text: str) -> None:
        """Drop the failure of a call that has returned: the host failed after the tool."""
        for end in self._waiting:
            if not end.sure and end.fits(text):
                self._waiting.remove(end)
                return


def _in_order(call: _Call, end: _End, ends: list[_End]) -> SpanOutcome:
    """The outcome of an end that was taken in order, with the doubt where others differ."""
    outcome = end.outcome
    if len({one.outcome for one in ends}) == 1:
        return outcome
    doubt = f"the host did not say which of {len(ends)} calls of {call.span.of.name!r} failed so"
    message = f"{outcome.message} ({doubt})" if outcome.message else doubt
    return msgspec.structs.replace(outcome, message=fit_for_log(message))


def _unknown(call: _Call, calls: list[_Call], ends: list[_End]) -> SpanOutcome:
    """The outcome of a call whose end nobody knows, with the known ends of similar calls."""
    if not ends:
        return LEFT_OPEN
    failed = [end.outcome.error for end in ends if end.outcome.status != "ok"]
    known = [f"{len(ends) - len(failed)} returned"] if len(failed) < len(ends) else []
    known += [f"{len(failed)} failed: {'; '.join(str(one) for one in failed)}"] if failed else []
    among = f"of {len(calls)} calls of {call.span.of.name!r}, {' and '.join(known)}"
    return msgspec.structs.replace(LEFT_OPEN, message=fit_for_log(f"{NO_END} ({among})"))
