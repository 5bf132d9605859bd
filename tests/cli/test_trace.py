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
from tests.cli.conftest import write


def test_a_session_is_shown_as_a_tree_per_turn_with_its_compactions_marked(run, store) -> None:
    done = run("trace", "work", "--store", store)
    assert done.code == 0, done.err
    heads = [line for line in done.out.splitlines() if line.startswith("turn ")]
    assert [line.split(" · ")[0] for line in heads] == ["turn 1", "turn 2", "turn 3"]
    spans = [
        json.loads(line)
        for line in run("trace", "work", "--json", "--store", store).out.splitlines()
    ]
    assert {line.rpartition(" trace ")[2] for line in heads} == {one["trace_id"] for one in spans}
    (first, *_) = done.out.split("\n\n")
    shapes = [re.sub(r"  \+.*|  \d[\d.]* m?s .*", "", line) for line in first.splitlines()[1:]]
    assert shapes[0] == "invoke_agent"
    assert shapes[1:4] == [
        "├─ chat model-1  1.1",
        "├─ execute_tool read  0.py",
        "├─ chat model-1  1.2",
    ]
    audit = run("audit", "work", "--json", "--store", store).document
    assert f"{audit['requests'][0]['reported']:,} in (100 cached), 20 out" in first
    marked = [line for line in done.out.splitlines() if "↓ compact ladder" in line]
    compactions = [one for one in spans if one["name"] == "compact ladder"]
    assert len(marked) == len(compactions) > 0
    for line, row in zip(marked, audit["compactions"], strict=True):
        assert f"  @{row['position']}  " in line
        known = row["figures"]
        before = "~" * known["before_estimated"] + f"{row['tokens_before']:,}"
        after = "~" * known["after_estimated"] + f"{row['tokens_after']:,}"
        assert f" {before} → {after} tokens" in line
    assert "compacted view" in done.out


def test_a_call_outside_a_turn_and_its_tools_stand_under_one_head(run, tmp_path) -> None:
    file, store = tmp_path / "agent.json", tmp_path / "agent.db"
    use = {"type": "tool_use", "id": "c", "name": "read", "input": {}}
    file.write_text(json.dumps([
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x"}]},
    ]))  # fmt: skip
    assert run("import", file, "--store", store).code == 0
    head, *tree = run("trace", "agent", "--store", store).out.splitlines()
    assert head.startswith("outside a turn · not dated · trace ")
    assert [line.split("  ")[0] for line in tree[:2]] == ["chat", "execute_tool read"]
    assert not any(line.startswith("outside") for line in tree)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "expected the name of a session, or --all"),
        (("work", "--all"), "expected the name of a session, or --all"),
        (("--all", "--turn", 1), "at most one of --turn and --all"),
    ],
)
def test_which_sessions_are_meant_has_to_be_clear(run, store, arguments, said) -> None:
    done = run("trace", *arguments, "--store", store)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_a_fork_shows_its_own_turns_and_points_to_its_parent_for_the_others(
    run, store, tmp_path
) -> None:
    head = json.loads(run("sessions", "--json", "--store", store).out)[0]["records"] - 1
    assert run("fork", "work", "child", "--at", head, "--store", store).code == 0
    assert "has no spans" in run("trace", "child", "--store", store).out
    done = run("trace", "child", "--turn", 1, "--store", store)
    assert done.code == 2
    assert "was before the fork: trace 'work'" in done.err
    asyncio.run(write(store, "child", turns=1))
    assert run("trace", "child", "--store", store).out.startswith("turn 4 · ")


def test_a_tool_that_failed_says_why_and_one_that_was_cancelled_says_so(run, tmp_path) -> None:
    path = tmp_path / "f.db"

    async def failing() -> None:
        async with eventctx.open(path) as engine:
            ctx = await engine.session("s")
            async with ctx.turn() as turn, turn.iteration() as cycle:
                for error in (OSError("gone\x1b[31m"), asyncio.CancelledError()):
                    with pytest.raises(type(error)):
                        async with cycle.tool_call("read"):
                            raise error

    asyncio.run(failing())
    out = run("trace", "s", "--store", path).out
    assert "failed: OSError: gone\\x1b[31m" in out
    assert "cancelled" in out


def test_what_cannot_be_written_is_said_and_leaves_nothing(run, store, tmp_path) -> None:
    for option in ("--jaeger", "--otlp-file"):
        done = run("trace", "work", option, tmp_path / "no" / "f.json", "--store", store)
        assert done.code == 2
        assert f"expected a folder {tmp_path / 'no'} to write it in" in done.err
        done = run("trace", "work", option, tmp_path, "--store", store)
        assert done.code == 2
        assert "is a directory" in done.err


def test_without_the_exporters_the_command_says_what_to_install(
    run, store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for library, scheme in (("requests", "http"), ("grpc", "grpc")):
        monkeypatch.delitem(sys.modules, "eventctx.hooks.otlp_transports", raising=False)
        monkeypatch.setitem(sys.modules, library, None)
        done = run("trace", "work", "--otlp", f"{scheme}://127.0.0.1:1", "--store", store)
        assert done.code == 2
        assert "pip install 'eventctx[otlp]'" in done.err


def test_unfinished_turns_can_be_asked_for_where_they_are_left_out_and_nowhere_else(
    run, store, tmp_path: Path
) -> None:
    for target in ([], ["--jaeger", tmp_path / "t.json"]):
        done = run("trace", "work", "--unfinished", *target, "--store", store)
        assert (done.code, done.out) == (2, "")
        assert "--unfinished is for --otlp" in done.err


def test_a_file_takes_the_service_that_the_environment_names(
    run, store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    file = tmp_path / "t.json"
    assert run("trace", "work", "--jaeger", file, "--store", store).code == 0
    (process,) = json.loads(file.read_text())["data"][0]["processes"].values()
    assert process["serviceName"] == "shop"
    tags = {tag["key"]: tag["value"] for tag in process["tags"]}
    assert tags["deployment.environment.name"] == "test"
    assert "service.instance.id" not in tags


@pytest.mark.parametrize(
    ("nanoseconds", "told"),
    [
        (-1, "0.0 ms"),
        (3_210_000, "3.2 ms"),
        (10_000_000, "10 ms"),
        (999_999_999, "1.0 s"),
        (1_000_000_000, "1.0 s"),
        (125_000_000_000, "2 min 5 s"),
        (3_720_000_000_000, "1 h 2 min"),
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
    file, store = tmp_path / "agent.json", tmp_path / "agent.db"
    file.write_text(json.dumps([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": uses},
        {"role": "user", "content": results},
    ]))  # fmt: skip
    assert run("import", file, "--store", store).code == 0
    out = run("trace", "agent", "--store", store).out
    tools = [line for line in out.splitlines() if "execute_tool" in line]
    assert len(tools) == 5 and all(len(line) < 130 for line in tools)
    assert "$ curl -H" in tools[0] and secret[:30] not in out
    assert "$ echo long long" in tools[1] and "…" in tools[1]
    assert "last.py" in tools[2]
    assert "colour=" in tools[3] and "\x1b" not in out
    assert "$" not in tools[4]
    assert secret[:30] in run("trace", "agent", "--no-redact", "--store", store).out


def test_a_turn_has_the_spans_that_it_has_in_the_trace_of_all(run, store):
    every = run("trace", "work", "--json", "--store", store).lines
    for turn in (1, 2, 3):
        mine = run("trace", "work", "--turn", turn, "--json", "--store", store).lines
        ids = {row["attributes"]["eventctx.turn.id"] for row in mine}
        assert len(ids) == 1
        assert mine == [row for row in every if row["attributes"].get("eventctx.turn.id") in ids]


def test_durations_of_a_file_without_times_are_not_recorded(run, tmp_path) -> None:
    file, store = tmp_path / "chat.json", tmp_path / "chat.db"
    file.write_text(json.dumps([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "done"},
    ]))  # fmt: skip
    assert run("import", file, "--store", store).code == 0
    tree = run("trace", "chat", "--store", store).out
    assert re.search(r"chat  1\.1  .*duration not recorded  ~", tree)
    assert "1 call: tokens not recorded" in run("stats", "--store", store).out
    assert "output not recorded" in tree
