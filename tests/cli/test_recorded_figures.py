"""On every recorded session, all screens give one request and one compaction the same figures.

The audit's JSON is what the others are held against: its own text, replay, log, trace, view, diff,
why, stats and sessions, as text and as JSON, and the measurements of the metrics.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

import eventctx
from eventctx.cli.main import cli
from eventctx.cli.output import figures
from eventctx.projections.audit import EstimateErrors, Spread
from eventctx.projections.figures import CompactionFigures, RequestFigures
from tests.cli.conftest import Run
from tests.how_much import some
from tests.sessions import USER, tool_round

# All sessions are imported once, for one process.
pytestmark = pytest.mark.xdist_group("recorded figures")

SPOTTER = "258c7280-ae70-4798-800f-63464d01a85d"


class Recorded(NamedTuple):
    """A store with all recorded sessions, and the audit of each by name, as JSON."""

    store: Path
    audits: dict[str, dict[str, Any]]

    def text(self, *command: object) -> str:
        done = CliRunner().invoke(cli, [*map(str, command), "--store", str(self.store)])
        assert done.exit_code == 0, done.output
        return done.stdout

    def json(self, *command: object) -> Any:
        return json.loads(self.text(*command, "--json"))

    def lines(self, *command: object) -> list[Any]:
        return [json.loads(line) for line in self.text(*command, "--json").splitlines()]

    def at_positions(self, *command: object) -> dict[int, str]:
        """The lines that begin with a position."""
        lines = self.text(*command).splitlines()
        matches = [re.match(r" *@(\d+) ", line) for line in lines]
        return {int(one[1]): line for one, line in zip(matches, lines, strict=True) if one}


@pytest.fixture(scope="module")
def recorded(recorded_sessions: Path, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    found = Recorded(tmp_path_factory.mktemp("recorded") / "s.db", {})
    CliRunner().invoke(cli, ["import", str(recorded_sessions), "--store", str(found.store)])
    for row in found.json("sessions"):
        found.audits[row["session"]] = found.json("audit", row["session"])
    return found


def figure(count: int, estimated: bool) -> str:
    return f"~{count:,}" if estimated else f"{count:,}"


def of_request(row: dict[str, Any]) -> str:
    return figure(row["tokens"], row["estimated"])


def of_compaction(row: dict[str, Any]) -> str:
    known = row["figures"]
    before = figure(known["before"], known["before_estimated"])
    after = figure(known["after"], known["after_estimated"])
    own = f" (the file says {known['recorded']:,} before)" if known["recorded"] else ""
    return f"{before} → {after} tokens{own}"


def everything(recorded: Recorded) -> Iterator[tuple[str, dict[str, Any]]]:
    """All sessions in a full run, in another one every third and the one of the last test."""
    assert len(recorded.audits) > 10
    for place, (session, audit) in enumerate(recorded.audits.items()):
        if place % some(3, 1) == 0 or session == SPOTTER:
            yield session, audit


def test_the_parts_of_every_request_add_up_and_stand_in_the_text(recorded: Recorded) -> None:
    for session, audit in everything(recorded):
        for row in audit["requests"]:
            one = row["figures"]
            assert (row["tokens"], row["estimated"]) == (one["total"], one["estimated"]), session
            parts = one["messages"] + (one["beside"] or 0)
            # The recorded session with its exact requests was answered by a test server.
            far_off = one["known"] == "observed" and not 0.5 <= one["total"] / parts <= 2
            assert one["total"] == parts or far_off, (session, row["request"])
            assert one["reported"] == row["reported"]
            assert one["estimated"] == (row["reported"] is None)
            assert row["reported"] in (None, one["total"])
        prompts = sum(row["reported"] or 0 for row in audit["requests"])
        used = sum(one["prompt"] for one in audit["usage"].values())
        assert prompts <= used, session
        text = recorded.text("audit", session)
        cells = [line.split() for line in text.splitlines()]
        shown = {one[1]: one for one in cells if len(one) > 8 and one[1].startswith("@")}
        with_parts = any(row["figures"]["beside"] != 0 for row in audit["requests"])
        for row in audit["requests"]:
            one = shown[f"@{row['position']}"]
            assert one[0] == row["request"]
            parts = row["figures"]
            beside = "–" if parts["beside"] is None else figure(parts["beside"], True)
            figures = [of_request(row)]
            figures += [figure(parts["messages"], True), beside] if with_parts else []
            assert one[-2 - len(figures) : -2] == figures, (session, row["request"])
        for row in audit["compactions"]:
            assert f"↓ compaction @{row['position']} " in text and of_compaction(row) in text


def test_replay_and_log_give_the_audits_figures(recorded: Recorded) -> None:
    for session, audit in everything(recorded):
        steps = {one["position"]: one for one in recorded.lines("replay", session)}
        shown = recorded.at_positions("replay", session)
        logged = recorded.at_positions("log", session)
        for row in audit["requests"]:
            step = steps[row["position"]]
            assert step["request"] == row["request"]
            assert (step["view_tokens"], step["estimated"]) == (row["tokens"], row["estimated"])
            assert f" {of_request(row)} tokens  " in shown[row["position"]]
            for line in (shown[row["position"]], logged[row["position"]]):
                assert re.search(rf"messages?, {re.escape(of_request(row))}( of [\d,]+)? tok", line)
        for row in audit["compactions"]:
            assert steps[row["position"]]["view_tokens"] == row["tokens_after"]
            assert of_compaction(row) in shown[row["position"]]
            assert of_compaction(row) in logged[row["position"]]


def test_the_trace_gives_the_audits_figures_and_what_is_estimated(recorded: Recorded) -> None:
    for session, audit in everything(recorded):
        text = recorded.text("trace", session)
        logged = recorded.lines("log", session, "--type", "context:*")
        payloads = {one["position"]: one["payload"] for one in logged}
        told = [one["attributes"] for one in recorded.lines("trace", session)]
        chats = {one.get("eventctx.request.seq"): one for one in told}
        compactions = {one.get("eventctx.compaction.id"): one for one in told}
        lines = {
            match[1]: line
            for line in text.splitlines()
            if (match := re.search(r"chat(?: \S+)?  (@?[\d.]+)  ", line))
        }
        for row in audit["requests"]:
            attributes = chats[row["position"]]
            assert attributes.get("gen_ai.usage.input_tokens") == row["reported"]
            assert attributes["eventctx.request.estimated_tokens"] == row["figures"]["estimate"]
            assert f"  {of_request(row)} in" in lines[row["request"]], (session, row["request"])
        for row in audit["compactions"]:
            assert f"  @{row['position']}  " in text and of_compaction(row) in text
            attributes, payload = compactions[row["position"]], payloads[row["position"]]
            for end in ("before", "after"):
                estimate = attributes[f"eventctx.compaction.estimated_tokens.{end}"]
                assert estimate == payload[f"tokens_{end}"]
                if row["figures"][f"{end}_estimated"]:
                    assert estimate == row[f"tokens_{end}"]
            own = attributes.get("eventctx.compaction.tokens.recorded")
            assert own == row["figures"]["recorded"]


def test_stats_and_sessions_count_what_the_audits_and_traces_hold(recorded: Recorded) -> None:
    stats, sessions = recorded.json("stats"), recorded.json("sessions")
    audits = recorded.audits
    assert stats["requests"] == sum(len(one["requests"]) for one in audits.values())
    for row in sessions:
        assert row["requests"] == len(audits[row["session"]]["requests"])
        assert row["compactions"] == len(audits[row["session"]]["compactions"])
        last = audits[row["session"]]["requests"][-1]
        assert (row["tokens"], row["tokens_estimated"]) == (last["tokens"], last["estimated"])
    compactions = [row for one in audits.values() for row in one["compactions"]]
    saved = sum(row["tokens_before"] - row["tokens_after"] for row in compactions)
    assert stats["tokens_saved"] == saved
    for model, used in stats["usage"].items():
        for key in ("calls", "prompt", "output", "cache_read", "inexact_outputs"):
            of_all = sum(one["usage"].get(model, {}).get(key, 0) for one in audits.values())
            assert used[key] == of_all, (model, key)


def test_the_session_whose_figures_contradicted_each_other(recorded: Recorded) -> None:
    audit = recorded.audits[SPOTTER]
    first, last = audit["requests"][0], audit["requests"][-1]
    assert first["tokens"] == 25_882 and first["figures"]["messages"] < 20
    assert last["tokens"] == recorded.lines("replay", SPOTTER)[-2]["view_tokens"]
    [compaction] = audit["compactions"]
    assert (compaction["tokens_before"], compaction["tokens_after"]) == (166_759, 33_960)
    assert compaction["figures"]["recorded"] == 167_094
    after = audit["errors"]["after"]
    assert (audit["errors"]["before"]["requests"], after["requests"]) == (1, 151)
    assert after["low"] <= after["median"] <= after["high"] and abs(after["median"]) < 0.02
    text = recorded.text("audit", SPOTTER)
    assert "Our estimates against the provider's own counts: before its first report" in text


def test_a_view_gives_system_prompt_and_tools_one_size_each(recorded: Recorded) -> None:
    seen = 0
    for session, audit in everything(recorded):
        for row in audit["requests"]:
            parts = row["figures"]
            if parts["system"] is None:
                continue
            text = recorded.text("view", session, "--position", row["position"])
            for title in ("system prompt", r"\d+ tool definitions?"):
                sizes = re.findall(rf"^{title} · .* · (~[\d,]+) tokens", text, re.M)
                key = "system" if title == "system prompt" else "tools"
                assert sizes in ([], [figure(parts[key], True)]), (session, row["request"])
                seen += len(sizes)
    assert seen > 8


def test_an_estimate_is_marked_and_what_was_beside_the_messages_is_a_figure_of_its_own() -> None:
    assert figures.tokens(25_882, False) == "25,882"
    assert figures.tokens(25_882, True) == "~25,882" and figures.tokens(None, True) == "–"
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
def test_an_unrecorded_loss_is_said_at_its_request(run: Run, counted: Path, command: str) -> None:
    words = ("1.5: the provider counted ~4,0", "likely (inferred)", "probably dropped: #2")
    run(command, "s").ok(*words)
