"""``trace``: the tree that a person reads, and what is said when something is amiss."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path

import pytest

import eventctx
from eventctx.cli.output.trace_tree import duration
from tests.cli.conftest import imported, write
from tests.sessions import USER, tool_round


def test_a_session_is_shown_as_a_tree_per_turn_with_its_compactions_marked(run, store) -> None:
    out = run("trace", "work").ok("compacted view")
    heads = [line for line in out.splitlines() if line.startswith("turn ")]
    assert [line.split(" · ")[0] for line in heads] == ["turn 1", "turn 2", "turn 3"]
    spans = run("trace", "work", "--json").lines
    assert {line.rpartition(" trace ")[2] for line in heads} == {one["trace_id"] for one in spans}
    (first, *_) = out.split("\n\n")
    shapes = [re.sub(r"  \+.*|  \d[\d.]* m?s .*", "", line) for line in first.splitlines()[1:]]
    assert shapes[0] == "invoke_agent"
    assert shapes[1:4] == [
        "├─ chat model-1  1.1",
        "├─ execute_tool read  0.py",
        "├─ chat model-1  1.2",
    ]
    audit = run("audit", "work", "--json").document
    assert f"{audit['requests'][0]['reported']:,} in (100 cached), 20 out" in first
    marked = [line for line in out.splitlines() if "↓ compact ladder" in line]
    compactions = [one for one in spans if one["name"] == "compact ladder"]
    assert len(marked) == len(compactions) > 0
    for line, row in zip(marked, audit["compactions"], strict=True):
        assert f"  @{row['position']}  " in line
        known = row["figures"]
        before = "~" * known["before_estimated"] + f"{row['tokens_before']:,}"
        after = "~" * known["after_estimated"] + f"{row['tokens_after']:,}"
        assert f" {before} → {after} tokens" in line
    for turn in (1, 2, 3):
        mine = run("trace", "work", "--turn", turn, "--json").lines
        ids = {row["attributes"]["eventctx.turn.id"] for row in mine}
        assert len(ids) == 1
        assert mine == [row for row in spans if row["attributes"].get("eventctx.turn.id") in ids]


def test_a_call_outside_a_turn_and_its_tools_stand_under_one_head(run, tmp_path) -> None:
    imported(run, tmp_path, tool_round(0))
    head, *tree = run("trace", "talk").ok().splitlines()
    assert head.startswith("outside a turn · not dated · trace ")
    assert [line.split("  ")[0] for line in tree[:2]] == ["chat", "execute_tool read"]
    assert not any(line.startswith("outside") for line in tree)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("work", "--jaeger", "no/f.json"), "expected a folder no to write it in"),
        (("work", "--otlp-file", "no/f.json"), "expected a folder no to write it in"),
        (("work", "--jaeger", "."), "is a directory"),
        (("work", "--otlp-file", "."), "is a directory"),
    ],
)
def test_what_cannot_be_written_is_said_and_leaves_nothing(
    run, store, monkeypatch: pytest.MonkeyPatch, arguments, said
) -> None:
    monkeypatch.chdir(store.parent)
    run("trace", *arguments).fails(said)
    assert [one for one in store.parent.iterdir() if not one.name.startswith("s.db")] == []


def test_a_fork_shows_its_own_turns_and_points_to_its_parent_for_the_others(run, store) -> None:
    head = run("sessions", "--json").document[0]["records"] - 1
    run("fork", "work", "child", "--at", head).ok()
    run("trace", "child").ok("has no spans")
    run("trace", "child", "--turn", 1).fails("was before the fork: trace 'work'")
    asyncio.run(write(store, "child", turns=1))
    assert run("trace", "child").ok().startswith("turn 4 · ")


async def test_a_tool_that_failed_says_why_and_a_cancelled_one_says_so(run, tmp_path) -> None:
    async with eventctx.open(tmp_path / "s.db") as engine:
        ctx = await engine.session("s")
        async with ctx.turn() as turn, turn.iteration() as cycle:
            for error in (OSError("gone\x1b[31m"), asyncio.CancelledError()):
                with pytest.raises(type(error)):
                    async with cycle.tool_call("read"):
                        raise error
    run("trace", "s").ok("failed: OSError: gone\\x1b[31m", "cancelled")


def test_without_exporters_it_says_what_to_get(run, store, monkeypatch: pytest.MonkeyPatch) -> None:
    for library, scheme in (("requests", "http"), ("grpc", "grpc")):
        monkeypatch.delitem(sys.modules, "eventctx.hooks.otlp_transports", raising=False)
        monkeypatch.setitem(sys.modules, library, None)
        done = run("trace", "work", "--otlp", f"{scheme}://127.0.0.1:1")
        done.fails("pip install 'eventctx[otlp]'")


def test_a_file_takes_the_service_that_the_environment_names(
    run, store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    file = tmp_path / "t.json"
    assert run("trace", "work", "--jaeger", file).code == 0
    (process,) = json.loads(file.read_text())["data"][0]["processes"].values()
    assert process["serviceName"] == "shop"
    tags = {tag["key"]: tag["value"] for tag in process["tags"]}
    assert tags["deployment.environment.name"] == "test"
    assert "service.instance.id" not in tags


@pytest.mark.parametrize(
    ("nanoseconds", "told"),
    [
        *((-1, "0.0 ms"), (3_210_000, "3.2 ms"), (10_000_000, "10 ms"), (999_999_999, "1.0 s")),
        *((10**9, "1.0 s"), (125 * 10**9, "2 min 5 s"), (3_720 * 10**9, "1 h 2 min")),
    ],
)
def test_a_duration_is_told_as_a_person_would(nanoseconds: int, told: str) -> None:
    assert duration(nanoseconds) == told


def test_a_tool_call_says_which_command_it_runs_redacted_and_cut(run, tmp_path) -> None:
    secret = "sk-ant-api03-" + "a1B2" * 20
    called = {
        "a": ("bash", {"command": f"curl -H 'x-api-key: {secret}' x\npytest -q"}),
        "b": ("bash", {"command": "echo " + "long " * 10_000}),
        "c": ("read_file", {"path": "/src/" + "folder/" * 20 + "last.py"}),
        "d": ("other", {"colour": "red\x1b[2J"}),
        "e": ("bash", {}),
    }
    uses = [
        {"type": "tool_use", "id": one, "name": name, "input": given}
        for one, (name, given) in called.items()
    ]
    results = [{"type": "tool_result", "tool_use_id": one, "content": "x"} for one in called]
    blocks = {"role": "assistant", "content": uses}, {"role": "user", "content": results}
    imported(run, tmp_path, [USER, *blocks])
    out = run("trace", "talk").ok()
    tools = [line for line in out.splitlines() if "execute_tool" in line]
    assert len(tools) == 5 and all(len(line) < 130 for line in tools)
    assert "$ curl -H" in tools[0] and secret[:30] not in out
    assert "$ echo long long" in tools[1] and "…" in tools[1]
    assert "last.py" in tools[2]
    assert "colour=" in tools[3] and "\x1b" not in out
    assert "$" not in tools[4]
    run("trace", "talk", "--no-redact").ok(secret[:30])


def test_durations_of_a_file_without_times_are_not_recorded(run, tmp_path) -> None:
    imported(run, tmp_path, [USER, {"role": "assistant", "content": "done"}], "--complete")
    tree = run("trace", "talk").ok("output not recorded")
    assert re.search(r"chat  1\.1  .*duration not recorded  ~", tree)
    run("stats").ok("1 call: tokens not recorded")
