"""Figures and costs in words: an estimate has its mark, and what is not known is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import eventctx
from eventctx.cli.output import figures
from eventctx.projections.audit import EstimateErrors, Spread
from eventctx.projections.figures import CompactionFigures, RequestFigures
from tests.cli.conftest import Run
from tests.sessions import USER, tool_round


def test_an_estimate_is_marked_and_what_was_beside_the_messages_is_a_figure_of_its_own() -> None:
    assert figures.tokens(25_882, False) == "25,882"
    assert figures.tokens(25_882, True) == "~25,882"
    assert figures.tokens(None, True) == "–"
    reported = RequestFigures(25_882, False, 25_882, 11, 25_871, 11)
    assert figures.request_tokens(reported) == "25,882"
    assert figures.parts_in_words(reported) == "~11 in its messages, ~25,871 beside them"
    unknown = RequestFigures(11, True, None, 11, None, 11)
    assert figures.request_tokens(unknown) == "~11"
    words = "~11 in its messages, not known how many beside them"
    assert figures.parts_in_words(unknown) == words
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
    assert figures.errors_in_words(EstimateErrors(None, None, 0)) == ""


MODEL = "my-model"
PRICES = {"date": "2026-01-02", "models": {MODEL: {"input": 1_000, "output": 0}}}


@pytest.fixture
async def counted(tmp_path: Path) -> Path:
    """A session of six calls; the fifth prompt is 4,000 tokens smaller than sent."""
    path = tmp_path / "s.db"
    async with eventctx.open(path) as engine:
        ctx = await engine.session("s", max_tokens=200_000)
        await ctx.add_message(USER)
        async with ctx.turn("go") as turn:
            for number in range(6):
                async with turn.iteration() as iteration:
                    await ctx.get_messages_for_request(model=MODEL)
                    async with iteration.provider_call(MODEL, "p") as call:
                        tokens = (await engine.audit("s")).requests[-1].tokens
                        added = 20_000 if number == 0 else 0
                        await call.usage(tokens + added - (4_000 if number == 4 else 0), 10)
                    for message in tool_round(number, size=9_000):
                        await ctx.add_message(message)
    return path


@pytest.mark.parametrize("command", [("audit", "s"), ("stats",)])
def test_a_table_of_ones_own_prices_what_the_bundled_one_does_not_name(
    run: Run, counted: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    table = tmp_path / "prices.json"
    table.write_text(json.dumps(PRICES))
    run(*command).ok(f"No price for 6 calls, of {MODEL}")
    priced = run(*command, "--prices", table).ok("Cost at list prices of 2026-01-02: $")
    assert "No price" not in priced


@pytest.mark.parametrize("command", ["audit", "lost"])
def test_a_loss_that_no_record_tells_of_is_said_at_its_request(
    run: Run, counted: Path, command: str
) -> None:
    words = ("1.5: the provider counted ~4,0", "likely (inferred)", "probably dropped: #2")
    run(command, "s").ok(*words)
