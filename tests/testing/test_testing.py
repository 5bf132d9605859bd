"""The rest of ``eventctx.testing``: a mock context, a recorder, a fixed clock, given-when-then."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given as examples
from hypothesis import settings
from hypothesis import strategies as st

import eventctx
import eventctx.testing
from eventctx.errors import InvalidMessage, InvalidSetting
from eventctx.policies.policy import AskScores, Budget, PolicyState, Proposal, Visible
from eventctx.policies.proposals import keep_only
from eventctx.testing import (
    EventRecorder,
    FixedClock,
    FixedRandom,
    MockContextManager,
    check_request,
    given,
)
from eventctx.testing.requests import refusal
from tests.policies.given import asks, model, play, system, tells, user
from tests.transcripts import DIALECTS, stories

ROOT = Path(__file__).resolve().parents[2]
HELLO = {"role": "user", "content": "Hello"}


# -- the mock context ----------------------------------------------------------------------------


async def test_a_mock_context_does_what_the_contract_shows():
    context = MockContextManager()
    await context.add_message(HELLO)
    await context.add_message({"role": "assistant", "content": "Hi there!"})
    assert len(await context.get_messages_for_request(token_budget=1)) == 2
    assert len(context.messages) == 2
    await context.set_messages([HELLO])
    assert await context.get_messages() == [HELLO]
    await context.clear()
    assert context.messages == await context.get_messages() == []
    calls = {"add_message": 2, "get_messages_for_request": 1, "set_messages": 1}
    assert context.calls == {**calls, "get_messages": 2, "clear": 1}
    assert [len(one) for one in context.requests] == [2]
    assert context.budgets == [1]


async def test_a_mock_context_shares_nothing_and_refuses_a_message_without_a_role():
    row: dict[str, Any] = {"role": "user", "content": [{"type": "text", "text": "before"}]}
    context = MockContextManager([row])
    await context.add_message(row)
    (await context.get_messages())[0]["content"].clear()
    (await context.get_messages_for_request())[1]["content"].clear()
    row["content"][0]["text"] = "after"
    with pytest.raises(InvalidMessage):
        await context.add_message({"content": "Hello"})
    with pytest.raises(ValueError, match="role"):
        await context.set_messages([HELLO, {}])
    assert [one["content"][0]["text"] for one in context.messages] == ["before", "before"]


# -- the recorder --------------------------------------------------------------------------------


async def test_a_recorder_takes_the_place_of_hooks_and_says_what_came_instead():
    recorder = EventRecorder()
    data = {"list": [1]}
    answer = await recorder.emit("tool:pre", data)
    data["list"].append(2)
    assert answer.action == "continue"
    assert recorder.events == [("tool:pre", {"list": [1]})]
    recorder("tool:post", {"x": 1})
    assert recorder.names == ["tool:pre", "tool:post"]
    assert recorder.of("tool:*") == [{"list": [1]}, {"x": 1}]
    assert len(recorder) == 2
    with pytest.raises(AssertionError, match=r"one c:e, found 0 in \['tool:pre', 'tool:post'\]"):
        recorder.only("c:e")
    with pytest.raises(AssertionError, match="expected tool:pre in the order"):
        recorder.check_order("tool:post", "tool:pre")
    recorder.clear()
    assert list(recorder) == []


async def test_a_recorder_hears_an_engine():
    recorder = EventRecorder()
    async with eventctx.open() as engine:
        engine.on("*", recorder)
        ctx = await engine.session("s")
        async with ctx.turn("turn-1"):
            await ctx.add_message(HELLO)
    recorder.check_order("session:start", "prompt:submit", "context:message_added")
    added = recorder.only("context:message_added")
    assert (added["session_id"], added["turn_id"]) == ("s", "turn-1")
    assert [record.type for record in recorder.records] == recorder.names


async def test_a_recorder_is_a_handler_of_amplifiers_hooks():
    testing = pytest.importorskip("amplifier_core.testing")
    recorder = EventRecorder()
    hooks = testing.MockCoordinator().hooks
    hooks.register("context:pre_compact", recorder, name="recorder")
    result = await hooks.emit("context:pre_compact", {"message_count": 3})
    assert recorder.only("context:pre_compact")["message_count"] == 3
    assert result.action == "continue"


# -- the same log twice --------------------------------------------------------------------------


async def written(path: Path, seed: int = 0) -> tuple[str, list[Any]]:
    """What a small session leaves: its receipt, and every record with all bytes of it."""
    async with eventctx.open(path, clock=FixedClock(), random=FixedRandom(seed)) as engine:
        ctx = await engine.session("s", max_tokens=300)
        async with ctx.turn("t") as turn:
            for number in range(6):
                await ctx.add_message({"role": "user", "content": f"{number} " * 100})
                async with turn.iteration() as iteration:
                    await ctx.get_messages_for_request()
                    async with iteration.provider_call("m") as call:
                        await call.usage(100, 5)
    async with eventctx.open(path) as engine:
        records = [record async for record in engine.records("s", bodies=True)]
        return str((await engine.verify("s")).receipt), records


async def test_a_fixed_clock_and_ids_write_the_same_log_twice(tmp_path):
    first, records = await written(tmp_path / "a.db")
    second, again = await written(tmp_path / "b.db")
    assert any(record.type == "context:post_compact" for record in records)
    assert records == again
    assert first == second
    other, _ = await written(tmp_path / "c.db", seed=1)
    assert other != first


def test_a_fixed_clock_goes_on_by_its_step_and_fixed_bytes_never_repeat():
    clock = FixedClock(start=100, step=10)
    assert [clock(), clock()] == [100, 110]
    clock.advance(1.5)
    assert clock() == 1_500_000_120
    with pytest.raises(InvalidSetting):
        FixedClock(step=-1)
    random, sizes = FixedRandom(), [16, 16, 8, 200, 16]
    drawn = [random(size) for size in sizes]
    assert [len(one) for one in drawn] == sizes
    assert len(set(drawn)) == 5


# -- the package ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_package_needs_neither_pytest_nor_amplifier():
    lazy = {"AdapterContract", "StoreContract"}  # they need pytest, and say so
    names = sorted(set(eventctx.testing.__all__) - lazy)
    program = f"""
import sys
for name in ('pytest', 'amplifier_core', 'unittest.mock'): sys.modules[name] = None
import eventctx.testing
for name in {names}: getattr(eventctx.testing, name)
try: eventctx.testing.ScriptedAmplifierProvider().get_info()
except eventctx.InvalidSetting as error: print(error)
"""
    said = subprocess.check_output([sys.executable, "-c", program], text=True, cwd=ROOT)
    assert "pip install 'eventctx[amplifier]'" in said


def test_every_public_name_is_in_the_reference_and_has_a_docstring():
    page = (ROOT / "docs" / "reference" / "testing.md").read_text()
    for name in eventctx.testing.__all__:
        assert (getattr(eventctx.testing, name).__doc__ or "").strip(), name
        assert re.search(rf"^\| `{name}`", page, flags=re.MULTILINE), name
    assert dir(eventctx.testing) == sorted(eventctx.testing.__all__)
    with pytest.raises(AttributeError, match="no_such_thing"):
        eventctx.testing.no_such_thing  # noqa: B018


def test_items_of_an_answer_do_not_stand_between_the_results_of_its_calls() -> None:
    def call(name: str) -> dict[str, Any]:
        return {"type": "function_call", "call_id": name, "name": "look", "arguments": "{}"}

    result = {"type": "function_call_output", "call_id": "a", "output": "seen"}
    said = {"type": "message", "role": "assistant", "content": "and"}
    asked = {"role": "user", "content": "look"}
    other = {**result, "call_id": "b"}
    check_request([asked, call("a"), call("b"), said, result, other])
    with pytest.raises(AssertionError, match="must be answered before it"):
        check_request([asked, call("a"), call("b"), result, said, other])


# -- given, when, then: what becomes of messages, and what a failure tells a person ---------------


TALK = [
    *(system("Be brief."), user("Count the files."), asks("a"), tells("a", 4_000)),
    *(asks("b"), tells("b", 4_000), model("400."), user("Thank you.")),
]


def own(propose: Any) -> Any:
    """A policy made of a function."""
    return SimpleNamespace(name="own", version=1, max_messages=None, propose=propose)


def test_a_policy_by_name_is_asked_for_what_becomes_of_messages():
    given(*TALK, budget=1_500).when("truncate", keep_recent=2).then(
        in_view=[0, 1, 6, 7],
        kept=[0, 1, 7],
        dropped=[2, 3, 4, 5],
        reasons={0: "system", 7: "latest_human", 3: "older"},
        tokens_at_most=1_500,
        fits=True,
    )
    with pytest.raises(InvalidSetting, match="found 'nonsense'"):
        given(*TALK, budget=1_500).when("nonsense")


def test_what_is_shortened_reads_as_the_model_would_read_it_and_a_floor_too_large_is_told():
    outcome = given(*TALK, budget=2_000).when("ladder")
    short = next(number for number, done in outcome.dispositions.items() if done == "shortened")
    content = outcome.messages[outcome.in_view.index(short)]["content"]
    assert len(content) < 4_000 and content.startswith("r" * 100)
    assert len(TALK[short]["content"]) == 4_000
    outcome = given(system("x" * 9_000), user("go"), budget=300).when("ladder")
    outcome.then(fits=False, kept=[0, 1])
    assert outcome.overflow["system messages"] > 2_000
    assert "the floor does not fit, system messages" in str(outcome)


def test_pins_hint_and_answers_reach_the_policy():
    pinned = given(*TALK, budget=1_500, pins=[2]).when("truncate", keep_recent=1)
    pinned.then(kept=[2], in_view=[0, 1, 2, 3, 7], reasons={1: "task", 2: "pinned"})
    start = given(*TALK, budget=1_500, hint="files").answering(summary="400 files")
    asked = start.when("summarize")
    assert any("400 files" in str(message) for message in asked.insertions)
    asked.then(summarised=[2, 3])


def test_scores_may_be_given_by_number():
    def by_score(visible: Visible, budget: Budget, state: PolicyState) -> Proposal | AskScores:
        numbers = tuple(ref.number for ref in visible.messages)
        if "s" not in state.answers:
            return AskScores("s", numbers)
        scores = state.answers["s"].by_number
        return keep_only(visible, [number for number in numbers if scores[number] > 0.6])

    start = given(*TALK, budget=9_000).answering(scores={2: 0.9, 3: 0.9})
    start.when(own(by_score)).then(in_view=[0, 1, 2, 3, 7])


def test_a_failure_tells_what_was_expected_and_the_whole_decision():
    outcome = given(*TALK, budget=1_500, pins=[1]).when("truncate", keep_recent=2)
    with pytest.raises(AssertionError) as caught:
        outcome.then(in_view=[0], kept=[3], dropped=[99], reasons={0: "older"}, tokens_at_most=1)
    for words in (
        "expected in view [0], found [0, 1, 6, 7]",
        "expected message 3 kept, found dropped",
        "expected message 99 dropped, found no such message",
        "expected message 0 to be so for 'older', found 'system'",
        "expected at most 1 tokens",
        "policy 'truncate':",
        "#1   user ",
        "kept, pinned (pinned)  Count the files.",
    ):
        assert words in str(caught.value)
    with pytest.raises(AssertionError, match="expected that it does not fit"):
        outcome.then(fits=False)


MOODS = iter([[0, 7], [0, 6, 7]])


@pytest.mark.parametrize(
    ("propose", "said"),
    [
        (
            lambda v, b, s: Proposal(dict.fromkeys(range(8), ("dropped", "older"))),
            r"policy 'own': .*'system messages stay'.* \[0\]",
        ),
        (lambda v, b, s: keep_only(v, next(MOODS)), "not pure"),
        (lambda v, b, s: AskScores(f"s{len(s.answers)}", (0,)), "asked 8 questions"),
        (lambda v, b, s: AskScores("s", (0,)), "asks 's' a second time"),
    ],
    ids=["careless", "moody", "curious", "deaf"],
)
def test_a_policy_that_breaks_a_rule_is_not_pure_or_goes_on_asking_fails(propose, said):
    with pytest.raises(AssertionError, match=said):
        given(*TALK, budget=1_500).when(own(propose))


@settings(max_examples=25, deadline=None)
@examples(st.sampled_from(DIALECTS), st.data())
def test_it_decides_as_a_session_does_in_any_dialect(dialect, data):
    story = data.draw(stories(dialect, most=8))
    outcome = given(*story.messages, budget=1_200).when("truncate", keep_recent=4)
    assert sorted(outcome.dispositions) == list(range(len(story.messages)))
    assert len(outcome.messages) == len(outcome.in_view)
    _, requests = play(outcome.policy, story, 1_200)
    assert refusal(requests[-1]) is None
