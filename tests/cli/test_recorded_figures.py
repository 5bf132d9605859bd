"""On every recorded session, all screens give one request and one compaction the same figures.

The audit's JSON is what the others are held against: its own text, replay, log, trace, view, diff,
why, stats and sessions, as text and as JSON, and the measurements of the metrics.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

import eventctx
from eventctx.cli.main import cli
from eventctx.log.record import Record
from eventctx.projections import metrics
from eventctx.projections.metrics import fold as measured
from tests.how_much import some

LOOKED_AT = some(2, 6)
"""Requests of a session whose view is looked at, besides those around compactions."""

SPOTTER = "258c7280-ae70-4798-800f-63464d01a85d"


class Recorded(NamedTuple):
    """A store with all recorded sessions, and the audit of each by name, as JSON."""

    store: Path
    audits: dict[str, dict[str, Any]]
    answers: dict[tuple[str, ...], str]

    def text(self, *command: object) -> str:
        """What a command prints; asked once, since nothing is written."""
        words = tuple(map(str, command))
        if words not in self.answers:
            done = CliRunner().invoke(cli, [*words, "--store", str(self.store)])
            assert done.exit_code == 0, done.output
            self.answers[words] = done.stdout
        return self.answers[words]

    def json(self, *command: object) -> Any:
        return json.loads(self.text(*command, "--json"))

    def lines(self, *command: object) -> list[Any]:
        return [json.loads(line) for line in self.text(*command, "--json").splitlines()]


@pytest.fixture(scope="module")
def recorded(recorded_sessions: Path, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    found = Recorded(tmp_path_factory.mktemp("recorded") / "s.db", {}, {})
    CliRunner().invoke(cli, ["import", str(recorded_sessions), "--store", str(found.store)])
    for row in found.json("sessions"):
        found.audits[row["session"]] = found.json("audit", row["session"])
    return found


@pytest.fixture(autouse=True)
def _in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)


def figure(count: int, estimated: bool) -> str:
    return f"~{count:,}" if estimated else f"{count:,}"


def of_request(row: dict[str, Any]) -> str:
    """The figure of an audit's request as a screen writes it."""
    return figure(row["tokens"], row["estimated"])


def of_compaction(row: dict[str, Any]) -> str:
    known = row["figures"]
    before = figure(known["before"], known["before_estimated"])
    after = figure(known["after"], known["after_estimated"])
    own = f" (the file says {known['recorded']:,} before)" if known["recorded"] else ""
    return f"{before} → {after} tokens{own}"


def everything(recorded: Recorded) -> Iterator[tuple[str, dict[str, Any]]]:
    assert len(recorded.audits) > 10
    yield from recorded.audits.items()


def looked_at(audit: dict[str, Any]) -> list[dict[str, Any]]:
    """Some requests of a session: the first, the last, and those before and after compactions."""
    rows = audit["requests"]
    places = {round(step * (len(rows) - 1) / LOOKED_AT) for step in range(LOOKED_AT + 1)}
    for one in audit["compactions"]:
        after = next((i for i, r in enumerate(rows) if r["position"] > one["position"]), 1)
        places |= {after - 1, after}
    return [rows[place] for place in sorted(places) if place < len(rows)]


def test_the_parts_of_every_request_add_up_and_a_report_comes_first(recorded: Recorded) -> None:
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


def test_the_audit_as_text_says_what_it_says_as_json(recorded: Recorded) -> None:
    for session, audit in everything(recorded):
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
            assert f"↓ compaction @{row['position']} " in text
            assert of_compaction(row) in text


def test_replay_and_log_give_the_audits_figures(recorded: Recorded) -> None:
    for session, audit in everything(recorded):
        steps = {one["position"]: one for one in recorded.lines("replay", session)}
        shown = by_position(recorded.text("replay", session))
        logged = by_position(recorded.text("log", session))
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


def by_position(text: str) -> dict[int, str]:
    matches = [re.match(r" *@(\d+) ", line) for line in text.splitlines()]
    lines = zip(matches, text.splitlines(), strict=True)
    return {int(match[1]): line for match, line in lines if match is not None}


def test_the_trace_gives_the_audits_figures_and_its_spans_say_what_is_estimated(
    recorded: Recorded,
) -> None:
    for session, audit in everything(recorded):
        text = recorded.text("trace", session)
        payloads = {
            one["position"]: one["payload"]
            for one in recorded.lines("log", session, "--type", "context:*")
        }
        spans = recorded.lines("trace", session)
        chats = {
            one["attributes"]["eventctx.request.seq"]: one["attributes"]
            for one in spans
            if "eventctx.request.seq" in one["attributes"]
        }
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
        compactions = {
            one["attributes"].get("eventctx.compaction.id"): one["attributes"] for one in spans
        }
        for row in audit["compactions"]:
            assert f"  @{row['position']}  " in text
            assert of_compaction(row) in text
            attributes, payload = compactions[row["position"]], payloads[row["position"]]
            for end in ("before", "after"):
                estimate = attributes[f"eventctx.compaction.estimated_tokens.{end}"]
                assert estimate == payload[f"tokens_{end}"]
                if row["figures"][f"{end}_estimated"]:
                    assert estimate == row[f"tokens_{end}"]
            recorded_size = attributes.get("eventctx.compaction.tokens.recorded")
            assert recorded_size == row["figures"]["recorded"]


def test_the_metrics_measure_the_same_estimates_and_reports(recorded: Recorded) -> None:
    for session, audit in everything(recorded):
        found = list(measured.fold(asyncio.run(records_of(recorded.store, session))))

        def values(instrument: metrics.names.Instrument, kind: str = "") -> list[float]:
            return [
                one.value
                for one in found  # noqa: B023 - called in this round of the loop only
                if one.instrument is instrument
                and one.attributes.get("gen_ai.token.type", kind) == kind
            ]

        estimates = [row["figures"]["estimate"] for row in audit["requests"]]
        assert values(metrics.names.REQUEST_TOKENS) == estimates
        prompts = sum(one["prompt"] for one in audit["usage"].values())
        assert sum(values(metrics.names.TOKEN_USAGE, "input")) == prompts
        outputs = sum(one["output"] for one in audit["usage"].values())
        assert sum(values(metrics.names.TOKEN_USAGE, "output")) == outputs


async def records_of(store: Path, session: str) -> list[Record]:
    async with eventctx.open(store) as engine:
        return [record async for record in engine.records(session)]


def test_view_diff_and_why_give_the_audits_figures(recorded: Recorded) -> None:
    for session, audit in everything(recorded):
        rows = looked_at(audit)
        for row in rows:
            view = recorded.json("view", session, "--position", f"@{row['position']}")
            same = ("request", "tokens", "estimated", "figures", "turn", "iteration")
            assert [view[key] for key in same] == [row[key] for key in same], session
        text = recorded.text("view", session, "--position", rows[-1]["position"])
        assert f" {of_request(rows[-1])}" in text.splitlines()[0]
        if len(rows) > 1:
            ends = [f"@{rows[0]['position']}", f"@{rows[-1]['position']}"]
            compared = recorded.json("diff", session, *ends)
            for side, row in (("before", rows[0]), ("after", rows[-1])):
                shared = ("request", "tokens", "estimated", "figures")
                assert [compared[side][key] for key in shared] == [row[key] for key in shared]
                groups = sum(one["tokens"] for one in compared[side]["groups"])
                assert groups == row["figures"]["messages"]
            [total] = re.findall(
                r"^all tokens +(\S+) +(\S+) ", recorded.text("diff", session, *ends), re.M
            )
            assert total == (of_request(rows[0]), of_request(rows[-1]))
        for row in audit["compactions"]:
            after = next(r for r in audit["requests"] if r["position"] > row["position"])
            view = recorded.json("view", session, "--position", after["position"])
            if not view["left_out"]:
                continue
            number = view["left_out"][0]["numbers"][0][0]
            gone = recorded.json("why", session, f"#{number}")["ruling"]["by"]
            assert gone["at"] == f"@{row['position']}"
            for key in ("tokens_before", "tokens_after", "figures"):
                assert gone["compaction"][key] == row[key]
            assert of_compaction(row) in recorded.text("why", session, f"#{number}")


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


def test_stats_and_trace_agree_on_what_was_not_recorded(recorded: Recorded) -> None:
    stats = recorded.json("stats")
    spans = [span for name in recorded.audits for span in recorded.lines("trace", name)]
    chats = [one["attributes"] for one in spans if one["name"].startswith("chat")]
    tools = [one["attributes"] for one in spans if one["name"].startswith("execute_tool")]
    without = sum("gen_ai.usage.cache_read.input_tokens" not in one for one in chats)
    assert stats["calls_without_usage"] == without > 0
    inexact = sum(one.get("eventctx.usage.output_exact") is False for one in chats)
    assert sum(one["inexact_outputs"] for one in stats["usage"].values()) == inexact > 0
    open_tools = sum(one["eventctx.outcome"] == "unfinished" for one in tools)
    assert stats["tool_calls_without_end"] == open_tools
    text = recorded.text("stats")
    assert f"{without} calls: tokens not recorded" in text
    assert f"the end of {open_tools} not recorded" in text
    trees = [recorded.text("trace", name) for name in recorded.audits]
    lines = [line for tree in trees for line in tree.splitlines() if "chat" in line]
    assert sum("output not recorded" in line for line in lines) == without + inexact


def test_the_session_whose_figures_contradicted_each_other(recorded: Recorded) -> None:
    audit = recorded.audits[SPOTTER]
    first, last = audit["requests"][0], audit["requests"][-1]
    assert first["tokens"] == 25_882
    assert first["figures"]["messages"] < 20
    assert last["tokens"] == recorded.lines("replay", SPOTTER)[-2]["view_tokens"]
    [compaction] = audit["compactions"]
    assert (compaction["tokens_before"], compaction["tokens_after"]) == (166_759, 33_960)
    assert compaction["figures"]["recorded"] == 167_094
    assert audit["errors"]["before"]["requests"] == 1
    after = audit["errors"]["after"]
    assert after["requests"] == 151
    assert after["low"] <= after["median"] <= after["high"]
    assert abs(after["median"]) < 0.02
    text = recorded.text("audit", SPOTTER)
    assert "Our estimates against the provider's own counts: before its first report" in text


def test_what_is_said_to_be_missing_is_not_in_the_file(recorded: Recorded) -> None:
    """A system prompt in the transcript is in the file, and so is a recorded request."""
    for session, audit in everything(recorded):
        rows = [row for row in audit["requests"] if row["figures"]["known"] == "reconstructed"]
        text = recorded.text("audit", session)
        assert ("rebuilt from" in text) == bool(rows), session
        lines = recorded.lines("log", session, "--type", "context:message_added", "--bodies")
        roles = [one["bodies"][0]["content"].get("role") for one in lines]
        if {"system", "developer"} & set(roles):
            assert "such as system prompt" not in text, session
        raw = recorded.text("log", session, "--type", "import:raw")
        if re.search(r"\bexchange \d|llm:request\.rest", raw):
            assert "the file does not hold what was sent" not in text, session
            assert "Not in the file" not in text, session
    assert "such as system prompt and tool definitions, about 25,873 tokens of 25,882" in (
        recorded.text("audit", SPOTTER)
    )


def test_the_size_behind_a_request_goes_on_from_the_requests_own(recorded: Recorded) -> None:
    for session, audit in everything(recorded):
        steps = recorded.lines("replay", session)
        for row in audit["requests"]:
            at = next(i for i, one in enumerate(steps) if one["position"] == row["position"])
            if at + 1 == len(steps) or steps[at + 1]["type"] != "context:message_added":
                continue
            assert steps[at + 1]["view_tokens"] >= row["tokens"], (session, row["request"])


def test_a_time_that_is_not_in_the_file_is_on_no_screen(recorded: Recorded) -> None:
    undated = [row["session"] for row in recorded.json("sessions") if row["last"] is None]
    assert len(undated) > 4
    for session in undated:
        start = recorded.lines("log", session, "--to", "0")[0]["time"][:19]
        audit = recorded.audits[session]
        assert not any(row["time"] for row in [*audit["requests"], *audit["turns"]]), session
        for screen in (recorded.text("why", session, "#1"), recorded.text("log", session)):
            seen = re.sub(r"imported_at \S+ \S+", "", screen)
            assert start.replace("T", " ") not in seen, session
            assert start not in seen, session
            assert "not dated" in seen, session


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
