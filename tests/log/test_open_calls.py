"""Whose end a report is that names no call: settled when it is known, and never a wrong one."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventctx.log.open_calls import NO_END, EndedCall, OpenCalls
from eventctx.log.turn_recorder import OK, SpanOutcome, TurnRecorder

BROKEN = SpanOutcome("error", "ValueError", "went wrong")
GONE = SpanOutcome("error", "OSError", "no such file")


class Calls:
    """Open calls that are named by their ids; ``ended`` is what is known of each, in order."""

    def __init__(self) -> None:
        numbers = count()
        turn = TurnRecorder(lambda kind: f"{next(numbers):016x}", "turn-1")
        self._cycle = turn.iteration()
        self.open = OpenCalls()
        self.ended: list[tuple[str | None, str, str | None]] = []

    def begin(self, call_id: str, name: str, key: object, alike: int = 0) -> None:
        self.open.begin(key, self._cycle.tool_call(name, call_id), alike)

    def returned(self, key: object, answer: str | None = None, name: str | None = None) -> None:
        self._take(self.open.end(key, name, OK, answer))

    def failed(self, name: str, outcome: SpanOutcome = BROKEN, key: object = None) -> None:
        self._take(self.open.end(key, name, outcome))

    def row(self, call_id: str, text: str, failed: SpanOutcome | None = None) -> None:
        self._take(self.open.result_added(call_id, text, failed))

    def close(self) -> None:
        self._take(self.open.close())
        assert len(self.open) == 0

    def _take(self, ended: list[EndedCall]) -> None:
        for one in ended:
            self.ended.append((one.span.of.call_id, one.outcome.status, one.outcome.message))


WRONG = "Error executing tool: went wrong"
NOT_NOW, DENIED = "Denied by hook: not now", SpanOutcome("error", "ToolFailed", "not now")
IN_OTHER_WORDS = SpanOutcome("error", "ToolFailed", "it broke")
DOUBT = "(the host did not say which of 2 calls of 'read' failed so)"

OWN = [("begin", "a", "read", "of a"), ("begin", "b", "read", "of b")]
"""Two calls of one tool begin, each with arguments of its own."""
SAME = [("begin", "a", "read", "same"), ("begin", "b", "read", "same")]

STORIES: dict[str, list[Any]] = {
    # -- by elimination
    "the only open call of a tool has its failure at once": [
        *[("begin", "a", "read", 1), ("begin", "b", "write", 2)],
        *[("failed", "read"), ["a error went wrong"]],
    ],
    "a failure waits for the call beside it and belongs to the one left over": [
        *[*OWN, ("failed", "read"), []],
        *[("returned", "of a"), ["a ok", "b error went wrong"]],
    ],
    "a call that began after a failure is not the one that failed": [
        *[*OWN, ("failed", "read"), ("begin", "c", "read", "of c")],
        *[("returned", "of b"), ["b ok", "a error went wrong"]],
    ],
    "arguments that a tool changed do not hide its end": [
        *[*OWN, ("returned", "arguments that nobody gave", None, "read")],
        *[("returned", "of a", None, "read"), ["a ok", "b ok"]],
    ],
    # -- by the results in the conversation
    "each failure belongs to the call whose result holds it": [
        *[*OWN, ("failed", "read", GONE), ("failed", "read")],
        *[("row", "a", WRONG), ("row", "b", "Error executing tool: no such file")],
        ["a error went wrong", "b error no such file"],
    ],
    "of two identical calls the one failed whose result says so": [
        *[*SAME, ("returned", "same", "text"), ("failed", "read"), []],
        *[("row", "a", WRONG), ["a error went wrong", "b ok"]],
    ],
    "... also where the failure came first": [
        *[*SAME, ("failed", "read"), ("returned", "same", "text"), []],
        *[("row", "a", WRONG), ["a error went wrong", "b ok"]],
    ],
    "the end of a call waits for the one like it that has not begun": [
        ("begin", "a", "read", "same", 1),  # the host may as well have begun with b
        *[("returned", "same", "text"), ("begin", "b", "read", "same"), ("failed", "read"), []],
        *[("row", "a", WRONG), ["a error went wrong", "b ok"]],
    ],
    "a denied call is not the one that failed": [
        *[*OWN, ("failed", "read"), ("row", "a", NOT_NOW), ("row", "b", WRONG)],
        *[("close",), ["b error went wrong", f"a cancelled {NO_END}"]],
    ],
    "a result that tells of another failure is the end of its call": [
        *[*OWN, ("failed", "read"), ("row", "a", NOT_NOW, DENIED), ["a error not now"]],
        *[("row", "b", WRONG, BROKEN), ["b error went wrong"]],
    ],
    "a failure that a host put in other words is no failure of the call beside it": [
        *[*SAME, ("failed", "read"), ("returned", "same", "text")],
        *[("row", "a", "Error: it broke", IN_OTHER_WORDS), ("row", "b", "text")],
        ["a error it broke", "b ok"],
    ],
    "a failure behind a tool that returned is no failure of the call beside it": [
        *[*OWN, ("returned", "of a"), ("failed", "read"), ("row", "a", WRONG)],
        *[("returned", "of b"), ["a ok", "b ok"]],
    ],
    "one failure's message may stand in the message of another": [
        *[*OWN, ("failed", "read", SpanOutcome("error", "E", "wrong")), ("failed", "read")],
        *[("row", "a", WRONG), ["a error went wrong", "b error wrong"]],
    ],
    "... and a failure that a result tells must be equal": [
        *[*OWN, ("failed", "read", SpanOutcome("error", "E", "wrong"))],
        *[("row", "a", WRONG, BROKEN), ["a error went wrong"]],
        *[("row", "b", "Error executing tool: wrong"), ["b error wrong"]],
    ],
    # -- when the iteration is over
    "failures of all calls are taken in order and say that they are": [
        *[*OWN, ("failed", "read", GONE), ("failed", "read"), ("close",)],
        [f"a error no such file {DOUBT}", f"b error went wrong {DOUBT}"],
    ],
    "a failure behind a call that returned belongs to the one left over": [
        *[*OWN, ("returned", "of a"), ("failed", "read"), ["a ok"]],
        *[("close",), ["b error went wrong"]],
    ],
}
"""What a host tells; a list is what is known of calls by then that was not known before."""


@pytest.mark.parametrize("story", STORIES.values(), ids=list(STORIES))
def test_a_report_is_the_end_of_the_call_that_it_must_be(story: list[Any]) -> None:
    calls = Calls()
    for step in story:
        if isinstance(step, list):
            known = [" ".join(filter(None, (call, *rest))) for call, *rest in calls.ended]
            assert known == step
            calls.ended.clear()
        else:
            getattr(calls, step[0])(*step[1:])


def test_a_call_that_never_began_keeps_no_end_from_the_one_like_it() -> None:
    calls = Calls()
    calls.begin("a", "read", "same", alike=1)
    calls.returned("same", "text")
    assert calls.ended == []
    calls.close()
    assert calls.ended == [("a", "ok", None)]
    calls.begin("b", "read", "same")
    calls.returned("same", "another")
    assert calls.ended == [("a", "ok", None), ("b", "ok", None)]


CALL = st.tuples(
    st.sampled_from(["read", "write"]),
    st.sampled_from(["x", "y"]),
    st.sampled_from(["ok", "error", "other error", "denied"]),
)


@settings(deadline=None)
@given(st.lists(CALL, max_size=5), st.data())
def test_no_call_is_said_to_have_had_an_end_that_it_did_not_have(
    truths: list[tuple[str, str, str]], data: st.DataObject
) -> None:
    """A host like loop-basic: arguments with a success, the tool's name alone with a failure.

    It begins calls in any order, and some when others have ended; calls that are alike are known
    by the order of the answer all the same.
    """
    calls = Calls()
    unnamed = [(str(at), (name, argument)) for at, (name, argument, _) in enumerate(truths)]

    def begin(key: tuple[str, str]) -> None:
        alike = [one for one in unnamed if one[1] == key]
        unnamed.remove(alike[0])
        calls.begin(alike[0][0], key[0], key, len(alike) - 1)

    order = data.draw(st.permutations(range(len(truths))))
    at_once = data.draw(st.integers(0, len(order)))
    ending = data.draw(st.integers(0, len(order)))
    for at in order[:at_once]:
        begin(truths[at][:2])
    for place, at in enumerate(order):
        name, argument, how = truths[at]
        if place >= at_once:
            begin((name, argument))
        if place >= ending:
            continue
        if how == "ok":
            calls.returned((name, argument), f"answer {at}")
        elif how != "denied":
            calls.failed(name, SpanOutcome("error", "E", how))
    ends = list(calls.ended)
    if data.draw(st.booleans()):
        for at, (_, _, how) in enumerate(truths):
            text = f"answer {at}" if how == "ok" else f"Error: {how}"
            calls.row(str(at), text, None if how == "ok" else SpanOutcome("error", "E", how))
    calls.close()
    assert calls.ended[: len(ends)] == ends
    assert sorted(call for call, _, _ in calls.ended) == [str(at) for at in range(len(truths))]
    for call, status, message in calls.ended:
        how = truths[int(call or 0)][2]
        assert status in ("ok" if how == "ok" else "error", "cancelled")
        if status == "error" and "the host did not say" not in str(message):
            assert message == how
