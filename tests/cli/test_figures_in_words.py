"""Figures in words: an estimate has its mark, and what is not known is said."""

from __future__ import annotations

from eventctx.cli.output import figures
from eventctx.projections.audit import EstimateErrors, Spread
from eventctx.projections.figures import CompactionFigures, RequestFigures


def test_only_an_estimate_is_marked() -> None:
    assert figures.tokens(25_882, False) == "25,882"
    assert figures.tokens(25_882, True) == "~25,882"
    assert figures.tokens(None, True) == "–"


def test_the_messages_and_what_was_beside_them_are_two_figures() -> None:
    reported = RequestFigures(25_882, False, 25_882, 11, 25_871, 11)
    assert figures.request_tokens(reported) == "25,882"
    assert figures.parts_in_words(reported) == "~11 in its messages, ~25,871 beside them"
    unknown = RequestFigures(11, True, None, 11, None, 11)
    assert figures.request_tokens(unknown) == "~11"
    words = "~11 in its messages, not known how many beside them"
    assert figures.parts_in_words(unknown) == words


def test_a_compactions_two_sizes_are_marked_each_for_itself() -> None:
    both = CompactionFigures(166_759, False, 33_960, False, 167_094)
    words = "166,759 → 33,960 tokens (the file says 167,094 before)"
    assert figures.compaction_tokens(both) == words
    one = CompactionFigures(166_759, False, 30_487, True)
    assert figures.compaction_tokens(one) == "166,759 → ~30,487 tokens"


def test_the_error_is_said_before_any_report_and_after() -> None:
    before, after = Spread(1, -0.9996, -0.9996, -0.9996), Spread(151, 0.0004, -0.006, 0.0041)
    words = figures.errors_in_words(EstimateErrors(before, after, without_beside=1))
    assert words == (
        "Our estimates against the provider's own counts: before its first report -100.0% "
        "(1 request), not counting what was sent beside the messages, as the log does not hold "
        "it; after it +0.0% (median of 151 requests; 5 to 95 %: -0.6% to +0.4%)."
    )
    alone = figures.errors_in_words(EstimateErrors(before, None, without_beside=0))
    assert alone.endswith("before its first report -100.0% (1 request).")


def test_where_nothing_was_reported_no_error_is_said() -> None:
    assert figures.errors_in_words(EstimateErrors(None, None, 0)) == ""
