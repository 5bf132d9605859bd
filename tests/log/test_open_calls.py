"""Whose end a report is that names no call: settled when it is known, and never a wrong one."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventctx.log.open_calls import NO_END, EndedCall, OpenCalls
from eventctx.log.turn_recorder import OK, SpanOutcome, TurnRecorder

BROKEN = SpanOutcome("error", "ValueError", "went wrong")
GONE = SpanOutcome("error", "OSError", "no such file")


class Calls:
    """Open calls that are named by their ids; ``ended`` is what is known of each, in order."""

    def __init__(self, *calls: tuple[str, str, object]) -> None:
        numbers = count()
        turn = TurnRecorder(lambda kind: f"{next(numbers):016x}", "turn-1")
        self._cycle = turn.iteration()
        self.open = OpenCalls()
        self.ended: list[tuple[str | None, str, str | None]] = []
        for call in calls:
            self.begin(*call)

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

    @property
    def statuses(self) -> list[tuple[str | None, str]]:
        return [(call, status) for call, status, _ in self.ended]


def reads(*calls: str, key: str | None = None) -> Calls:
    """Calls of one tool, each with arguments of its own, or all with the same."""
    return Calls(*[(call, "read", key or f"key of {call}") for call in calls])


# -- by elimination ------------------------------------------------------------------------------


def test_the_only_open_call_of_a_tool_has_its_failure_at_once() -> None:
    calls = Calls(("a", "read", 1), ("b", "write", 2))
    calls.failed("read")
    assert calls.ended == [("a", "error", "went wrong")]


def test_a_failure_waits_for_the_call_beside_it_and_belongs_to_the_one_left_over() -> None:
    calls = reads("a", "b")
    calls.failed("read")
    assert calls.ended == []
    calls.returned("key of a")
    assert calls.statuses == [("a", "ok"), ("b", "error")]


def test_a_call_that_began_after_a_failure_is_not_the_one_that_failed() -> None:
    calls = reads("a", "b")
    calls.failed("read")
    calls.begin("c", "read", "key of c")
    calls.returned("key of b")
    assert calls.statuses == [("b", "ok"), ("a", "error")]


def test_arguments_that_a_tool_changed_do_not_hide_its_end() -> None:
    calls = reads("a", "b")
    calls.returned("arguments that nobody gave", name="read")
    calls.returned("key of a", name="read")
    assert calls.statuses == [("a", "ok"), ("b", "ok")]


# -- by the results in the conversation ----------------------------------------------------------


def test_each_failure_belongs_to_the_call_whose_result_holds_it() -> None:
    calls = reads("a", "b")
    calls.failed("read", GONE)
    calls.failed("read", BROKEN)
    calls.row("a", "Error executing tool: went wrong")
    calls.row("b", "Error executing tool: no such file")
    assert calls.ended == [("a", "error", "went wrong"), ("b", "error", "no such file")]


@pytest.mark.parametrize("first", ["returned", "failed"])
def test_of_two_identical_calls_the_one_failed_whose_result_says_so(first: str) -> None:
    calls = reads("a", "b", key="same")
    steps = [lambda: calls.returned("same", "text"), lambda: calls.failed("read")]
    for step in steps if first == "returned" else reversed(steps):
        step()
    assert calls.ended == []
    calls.row("a", "Error executing tool: went wrong")
    assert calls.statuses == [("a", "error"), ("b", "ok")]


def test_the_end_of_a_call_waits_for_the_one_like_it_that_has_not_begun() -> None:
    calls = Calls()
    calls.begin("a", "read", "same", alike=1)  # the host may as well have begun with b
    calls.returned("same", "text")
    calls.begin("b", "read", "same")
    calls.failed("read")
    assert calls.ended == []
    calls.row("a", "Error executing tool: went wrong")
    assert calls.statuses == [("a", "error"), ("b", "ok")]


def test_a_call_that_never_began_keeps_no_end_from_the_one_like_it() -> None:
    calls = Calls()
    calls.begin("a", "read", "same", alike=1)
    calls.returned("same", "text")
    assert calls.open.beside_each_other
    calls.close()
    assert calls.statuses == [("a", "ok")]
    assert not calls.open.beside_each_other


def test_a_denied_call_is_not_the_one_that_failed() -> None:
    calls = reads("a", "b")
    calls.failed("read")
    calls.row("a", "Denied by hook: not now")
    calls.row("b", "Error executing tool: went wrong")
    calls.close()
    assert calls.ended == [("b", "error", "went wrong"), ("a", "cancelled", NO_END)]


def test_a_result_that_tells_of_another_failure_is_the_end_of_its_call() -> None:
    calls = reads("a", "b")
    calls.failed("read")
    calls.row("a", "Denied by hook: not now", SpanOutcome("error", "ToolFailed", "not now"))
    assert calls.ended == [("a", "error", "not now")]
    calls.row("b", "Error executing tool: went wrong", BROKEN)
    assert calls.ended[1:] == [("b", "error", "went wrong")]


def test_a_failure_that_a_host_put_in_other_words_is_no_failure_of_the_call_beside_it() -> None:
    calls = reads("a", "b", key="same")
    calls.failed("read")
    calls.returned("same", "text")
    calls.row("a", "Error: it broke", SpanOutcome("error", "ToolFailed", "it broke"))
    calls.row("b", "text")
    assert calls.ended == [("a", "error", "it broke"), ("b", "ok", None)]


def test_a_failure_behind_a_tool_that_returned_is_no_failure_of_the_call_beside_it() -> None:
    calls = reads("a", "b")
    calls.returned("key of a")
    calls.failed("read")
    calls.row("a", "Error executing tool: went wrong")
    calls.returned("key of b")
    assert calls.statuses == [("a", "ok"), ("b", "ok")]


def test_one_failures_message_may_stand_in_the_message_of_another() -> None:
    calls = reads("a", "b")
    calls.failed("read", SpanOutcome("error", "E", "wrong"))
    calls.failed("read", SpanOutcome("error", "E", "went wrong"))
    calls.row("a", "Error executing tool: went wrong")
    assert calls.ended == [("a", "error", "went wrong"), ("b", "error", "wrong")]


# -- when the iteration is over ------------------------------------------------------------------


def test_failures_of_all_calls_are_taken_in_order_and_say_that_they_are() -> None:
    calls = reads("a", "b")
    calls.failed("read", GONE)
    calls.failed("read", BROKEN)
    calls.close()
    assert calls.statuses == [("a", "error"), ("b", "error")]
    doubt = "(the host did not say which of 2 calls of 'read' failed so)"
    assert [message for _, _, message in calls.ended] == [
        f"no such file {doubt}",
        f"went wrong {doubt}",
    ]


def test_a_failure_behind_a_call_that_returned_belongs_to_the_one_left_over() -> None:
    calls = reads("a", "b")
    calls.returned("key of a")
    calls.failed("read")
    assert calls.statuses == [("a", "ok")]
    calls.close()
    assert calls.ended[1:] == [("b", "error", "went wrong")]


# -- any conversation ----------------------------------------------------------------------------

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
