"""The provider's counts come first, estimates say so, and one fold makes the figures of all."""

from __future__ import annotations

from typing import Any

import pytest

from eventctx.log import events
from eventctx.log.codec import encode_event
from eventctx.log.record import Draft, place
from eventctx.projections import figures
from eventctx.projections.audit import (
    Spread,
    estimate_errors,
)
from eventctx.projections.figures import CompactionFigures, Figures
from tests.sessions import compacted_by_hand


def prepared(tokens: int, **more: Any) -> events.RequestPrepared:
    return events.RequestPrepared(
        renderer=1, last_message=0, messages=1, tokens=tokens, digest="", **more
    )


def reconstructed(tokens: int, **more: Any) -> events.RequestPrepared:
    return prepared(tokens, reconstructed=True, **more)


def reported(at: int, prompt: int) -> events.UsageReported:
    return events.UsageReported(prompt=prompt, prepared=at)


def compacted(before: int, after: int, **more: Any) -> events.PostCompact:
    estimator = "by-kind-1"
    sizes = {"tokens_before": before, "tokens_after": after}
    return compacted_by_hand(**{"plan": None, "estimator": estimator, **sizes, **more})


ADDED = events.MessageAdded()


def figures_of(*log: events.Event) -> Figures:
    """The figures of a stream of these events, whose positions count from 0."""
    state = figures.initial()
    for position, event in enumerate(log):
        name, version, payload = encode_event(event)
        draft = Draft(bytes(16), name, version, 0, payload)
        state = figures.evolve(state, place(draft, "s", position, -1, b""))
    return figures.read(state)


def test_a_reported_prompt_is_the_figure_and_what_is_not_messages_was_sent_beside_them() -> None:
    one = figures.of_request(reconstructed(11), 25_882)
    assert (one.total, one.estimated, one.reported, one.estimate) == (25_882, False, 25_882, 11)
    assert (one.messages, one.beside) == (11, 25_871)


def test_without_a_report_the_figure_is_the_estimate_and_says_so() -> None:
    one = figures.of_request(prepared(1_500, reserve=500, factor=1.1), None)
    assert (one.total, one.estimated, one.reported) == (1_500, True, None)
    assert (one.messages, one.beside) == (1_000, 500)
    # What was sent beside a reconstructed request is not known then.
    one = figures.of_request(reconstructed(11), None)
    assert (one.total, one.messages, one.beside) == (11, 11, None)
    assert figures.of_request(prepared(11), None).beside == 0
    assert figures.of_request(reconstructed(511, reserve=500), None).beside == 500


def test_the_two_parts_of_a_request_always_add_up_and_none_is_below_zero() -> None:
    for one in (
        figures.of_request(prepared(1_869), 1_465),
        figures.of_request(prepared(900, reserve=-300), None),
        figures.of_request(prepared(900, reserve=-300), 700),
        figures.of_request(prepared(900, reserve=300), 100),
        figures.of_request(reconstructed(11), None, system=3_000, tools=20_000),
        figures.of_request(reconstructed(11), 25_882, system=3_000, tools=20_000),
    ):
        assert one.beside is not None and one.beside >= 0
        assert one.messages + one.beside == one.total


def test_a_report_is_shared_out_among_what_is_known_of_a_request() -> None:
    one = figures.of_request(reconstructed(1_000), 30_000, system=4_000, tools=15_000)
    assert (one.messages, one.system, one.tools) == (1_500, 6_000, 22_500)
    assert (one.total, one.beside) == (30_000, 28_500)
    # One that is far off leaves the parts as they were estimated.
    one = figures.of_request(reconstructed(1_000), 50, system=4_000, tools=15_000)
    assert (one.messages, one.system, one.tools, one.beside) == (1_000, 4_000, 15_000, 19_000)
    assert (one.total, one.estimated) == (50, False)


def test_a_compaction_has_the_figures_of_the_requests_around_it() -> None:
    found = figures_of(
        prepared(160_000),
        reported(0, 166_759),
        compacted(135_035, 4_036, tokens_recorded=167_094),
        prepared(30_487, plan=2, breaks=("compaction",)),
        reported(3, 33_960),
        prepared(35_000, plan=2),
        reported(5, 37_900),
    )
    one = found.compactions[2]
    assert one == CompactionFigures(166_759, False, 33_960, False, recorded=167_094)
    assert (one.before, one.after) == (found.requests[0].total, found.requests[3].total)
    assert one.taken_out == 166_759 - 33_960


def test_what_was_added_since_the_last_request_is_part_of_what_a_compaction_was_made_for() -> None:
    """A result of 10,000 tokens brings a request of 13,000 over a budget of 20,000."""
    log = [prepared(13_200), reported(0, 13_006), ADDED]
    own = figures_of(*log, compacted(23_240, 10_300, trigger="budget"))
    assert own.compactions == {3: CompactionFigures(23_240, True, 10_300, True)}
    imported = figures_of(*log, compacted(13_400, 10_300, trigger="imported"))
    assert imported.compactions == {3: CompactionFigures(13_006, False, 10_300, True)}


@pytest.mark.parametrize(
    "between",
    [
        events.MessagesSet(order=((0, 0),)),
        events.Cleared(messages=4),
        events.SessionFork(parent="s", at=2),
        compacted(950, 500),
    ],
    ids=lambda event: type(event).__name__,
)
def test_a_request_of_another_view_is_no_measure_of_a_compaction(between: events.Event) -> None:
    before = figures_of(prepared(900), reported(0, 1_000), between, compacted(700, 400))
    assert before.compactions[3] == CompactionFigures(700, True, 400, True)
    after = figures_of(compacted(700, 400), between, prepared(900, plan=0), reported(2, 1_000))
    assert after.compactions[0] == CompactionFigures(700, True, 400, True)


def test_a_compaction_that_was_not_applied_has_no_figures_and_changes_none() -> None:
    skipped = compacted(0, 0, outcome="skipped")
    found = figures_of(prepared(900), reported(0, 1_000), skipped, compacted(950, 500))
    assert found.compactions == {3: CompactionFigures(1_000, False, 500, True)}


def test_the_error_of_estimates_is_given_before_any_report_and_after_with_its_spread() -> None:
    log: list[events.Event] = [reconstructed(1), reported(0, 1_000)]
    for error in range(-10, 11):
        log += [reconstructed(1_000 + error, reserve=900), reported(len(log), 1_000)]
    found = figures_of(*log, prepared(77))
    errors = estimate_errors(found, found.requests)
    assert errors.before == Spread(1, -0.999, -0.999, -0.999)
    assert errors.after == Spread(21, 0.0, -0.009, 0.009)
    assert errors.without_beside == 1
