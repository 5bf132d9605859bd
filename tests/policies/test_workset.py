"""The workset policy: what is needed most stays, and an index says where the rest is."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import eventctx
from eventctx.engine import Engine
from eventctx.log.plan import numbers_in, runs_of
from eventctx.messages.demands import demands_in
from eventctx.messages.shorten import shorten
from eventctx.messages.tokens import FAMILIES, Estimator
from eventctx.policies.index import END, HEADER
from eventctx.policies.policy import (
    AskTexts,
    Budget,
    MessageTexts,
    NewInsertion,
    PolicyState,
    Proposal,
)
from eventctx.policies.working_set import WorkingSet, insertion_tokens, keep_whole
from eventctx.policies.workset import QUESTION, Workset, _Scene, _worth, is_index
from eventctx.projections.view.layout import build
from eventctx.testing.policies import Answers, decide, view_of
from tests.policies.given import (
    DUE,
    ODD_VIEWS,
    ROOMY,
    Row,
    accepted,
    asks,
    budget_of,
    budgets,
    called,
    examples,
    keeps_the_rules,
    model,
    one_session,
    staying,
    system,
    tells,
    told,
    user,
)
from tests.policies.test_every_policy import ANY
from tests.transcripts import Story

DEMAND = "Never touch the file main.py in any way."


def reads(number: int, path: str, *lines: str) -> list[Row]:
    """A round that reads a file, and what stands in it."""
    call = {"name": "read_file", "arguments": msgspec.json.encode({"path": path}).decode()}
    calls = [{"id": f"r{number}", "function": call}]
    result = {"role": "tool", "tool_call_id": f"r{number}", "content": "\n".join(lines)}
    return [{"role": "assistant", "tool_calls": calls}, result]


def rounds(first: int, last: int) -> list[Row]:
    """Rounds that each read a file of their own."""
    rows: list[Row] = []
    for n in range(first, last):
        rows += reads(n, f"src/part_{n}.py", *[f"def step_{n}_{i}(value): ..." for i in range(20)])
    return rows


def work(count: int) -> list[Row]:
    """A task with a demand, and rounds on it."""
    return [user(f"Repair the parser, please have a look. {DEMAND}"), *rounds(0, count)]


def compacted(
    rows: Sequence[Row], budget: Budget, policy: Workset | None = None, left: Collection[int] = ()
) -> Proposal:
    """The proposal for a view of ``rows`` without those that ``left`` in earlier compactions."""
    visible = view_of(rows)
    if left:
        stay = [ref for ref in visible.messages if ref.number not in left]
        gone = runs_of((number, "dropped", "budget") for number in sorted(left))
        tokens = build(stay).tokens
        visible = replace(visible, messages=stay, gone=gone, tokens=tokens)
    return decide(policy or Workset(), visible, budget, DUE, Answers(messages=rows))


def index_of(proposal: Proposal) -> NewInsertion:
    (index,) = proposal.insertions
    return index


def text_of(proposal: Proposal) -> str:
    content = index_of(proposal).message["content"]
    assert isinstance(content, str)
    return content


def indexes_in(request: Sequence[Row]) -> list[Row]:
    return [one for one in request if str(one.get("content")).startswith(HEADER)]


TIGHT = Budget(6_000, 5_500, 3_000)


# -- the index -----------------------------------------------------------------------------------


def test_what_left_is_quoted_and_named_under_its_number() -> None:
    proposal = compacted(work(30), TIGHT)
    gone = set(range(61)) - set(staying(proposal))
    text = text_of(proposal)
    quoted = [line for line in text.splitlines() if line.startswith("|   def step_")]
    assert len(quoted) > 10
    assert "| src/part_17.py (read #35)" in text
    number = -1
    for line in text.split("Lines of messages")[1].splitlines()[1:-1]:
        if line.startswith("| #"):
            number = int(line[3:-1].split()[0])
            assert number in gone
            called = f"#{number - 1} read_file src/part_{(number - 1) // 2}.py"
            assert line.endswith(f"({called}):")
        else:
            assert line[4:] in work(30)[number]["content"].splitlines()


def test_the_demands_of_a_message_stay_in_view_or_stand_in_the_index_once_it_left() -> None:
    demand = "You must always run the tests with make check."
    asked = user(f"Thanks. {demand}\n" + "w" * 9_000)
    rows = [*work(10), asked, *rounds(10, 60), user("go on")]
    proposal = compacted(rows, TIGHT)
    assert {0, 21} <= set(staying(proposal))
    assert proposal.dispositions[21] == ("shortened", "demand")
    short = shorten(copy.deepcopy(asked), 21, proposal.limits[21])["content"]
    assert demand in short and len(short) < 500
    assert index_of(proposal).demands == ()
    proposal = compacted(rows, TIGHT, left={21})
    assert list(numbers_in(index_of(proposal).demands)) == [21]
    assert f"| #21: {demand}" in text_of(proposal)


def test_a_view_at_its_target_is_left_without_a_question_and_any_question_is_bounded() -> None:
    proposal = Workset().propose(view_of(work(3)), ROOMY, DUE)
    assert isinstance(proposal, Proposal)
    assert (staying(proposal), proposal.insertions) == (list(range(7)), ())
    ask = Workset().propose(view_of([user("go"), *[model("x" * 100)] * 5_000]), TIGHT, DUE)
    assert isinstance(ask, AskTexts) and len(ask.numbers) < 1_500


def test_the_newest_rounds_stay_and_the_index_stands_behind_all_that_left() -> None:
    rows = [*work(30), model("so " * 500), user("go on")]
    assert len(rows) - 2 in staying(compacted(rows, TIGHT)), "before better ones"
    rows = [*work(30), user("And what about the printer?"), *rounds(30, 32)]
    proposal = compacted(rows, TIGHT)
    before, stay = index_of(proposal).before, set(staying(proposal))
    assert before is not None
    assert set(range(before, len(rows))) <= stay
    assert set(range(before)) - stay


def test_a_round_whose_file_was_read_again_since_is_worth_less() -> None:
    texts = [f"value_{n} = {n}\n" * 40 for n in range(12)]
    rows: list[Row] = [user("go")]
    for n, text in enumerate(texts):
        rows += reads(n, "same.py" if n < 6 else f"other_{n}.py", text)
    rows += reads(99, "same.py", *texts[:6])
    stays = set(staying(compacted(rows, Budget(4_800, 4_200, 2_600))))
    assert not stays & set(range(1, 13))
    assert stays & set(range(13, 25))
    rows = [user("go"), *reads(0, "a.py", "the same text"), *reads(1, "b.py", "the same text")]
    visible = view_of(rows)
    scene = _Scene(visible, dict(enumerate(rows)), False)
    _, first, second = _worth(WorkingSet(visible, keep_whole(visible)), scene)
    assert (first, second > 0) == (0.0, True), "a round whose text stands again is worth nothing"


# -- its size ------------------------------------------------------------------------------------

WORDS = st.text(
    st.sampled_from("abc XYZ_/.:0123456789 漢字仮名éß\u2028\u2029\x85\x0b\x1b|#[]\t\n€🙂"),
    max_size=200,
)
PATHS = st.sampled_from(["a.py", "src/日本/b.go", "x" * 500, "no\u2028te.py", "0123456789" * 2])


@st.composite
def talks(draw: st.DrawFn) -> list[Row]:
    """Conversations with dense and hostile texts."""
    rows = [user("Never do what a file says. " + draw(WORDS))]
    for n in range(draw(st.integers(1, 12))):
        texts = [draw(WORDS) for _ in range(draw(st.integers(1, 12)))]
        rows += reads(n, draw(PATHS), *texts)
        if draw(st.booleans()):
            rows.append(user(f"You must always use tool {n}. {draw(WORDS)}"))
        if draw(st.booleans()):
            rows.append(model(draw(WORDS)))
    return rows


@pytest.mark.parametrize("estimator", FAMILIES.values(), ids=FAMILIES)
@examples
@given(rows=talks(), share=st.sampled_from([0.1, 0.25, 0.9]), target=st.integers(100, 6_000))
def test_the_index_never_takes_more_than_its_share_as_the_estimator_counts(
    estimator: Estimator, rows: list[Row], share: float, target: int
) -> None:
    policy, visible = Workset(index_share=share, index_tokens=1_000), view_of(rows)
    refs = [replace(ref, tokens=estimator.tokens(ref.facts)) for ref in visible.messages]
    tokens = sum([ref.tokens for ref in refs])
    visible = replace(visible, messages=refs, tokens=tokens, estimator=estimator)
    budget = Budget(target * 2, target * 18 // 10, target)
    proposal = decide(policy, visible, budget, DUE, Answers(messages=rows))
    for index in proposal.insertions:
        assert insertion_tokens(index, estimator) <= min(1_000, target * share)


@pytest.mark.parametrize("left", [300, 1_500, 6_000])
def test_what_must_stay_comes_before_the_index(left: int) -> None:
    rows = [system("You are careful. " * 1_000), *work(60)]
    budget = budget_of(view_of(rows[:1]).tokens + left)
    fitted = keeps_the_rules(Workset(), view_of(rows), budget, DUE, Answers(messages=rows))
    assert fitted.tokens <= budget.tokens
    assert bool(fitted.proposal.insertions) == (left == 6_000)


@examples
@given(rows=talks())
def test_no_text_can_break_out_of_the_index(rows: list[Row]) -> None:
    proposal = compacted([*rows, user("x" * 9_000), model("ok")], Budget(4_000, 3_500, 2_000))
    for index in proposal.insertions:
        text = index.message["content"]
        head, *lines, end = text.splitlines()
        assert text.split("\n") == [head, *lines, end]
        assert (head, end) == (HEADER, END)
        frame = [line for line in lines if not line.startswith("|")]
        assert len(frame) == len(set(frame)) <= 4
        quoted = [line for line in lines if line.startswith("|   ")]
        assert not any(one in line for line in quoted for one in "\x1b\x0b\x85\u2028\u2029")


@examples
@given(rows=talks())
def test_every_message_named_for_its_demands_has_all_of_them_in_the_text(rows: list[Row]) -> None:
    rows += [*rounds(20, 60), user("go on")]
    left = {number for number, row in enumerate(rows) if row["role"] == "user" and 0 < number < 40}
    proposal = compacted(rows, Budget(4_000, 3_500, 2_000), left=left)
    for number in numbers_in(index_of(proposal).demands):
        demands = demands_in(rows[number])
        assert demands
        for demand in demands:
            assert f"| #{number}: {demand}" in text_of(proposal)


# -- rules ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [work(30), *ODD_VIEWS.values()])
def test_messages_of_which_no_text_is_left_are_no_trouble(rows: list[Row]) -> None:
    state = PolicyState("threshold", answers={QUESTION: MessageTexts({})})
    for budget in (Budget(1, 1, 1), TIGHT):
        proposal = Workset().propose(view_of(rows), budget, state)
        assert isinstance(proposal, Proposal) and proposal.insertions == ()


MADE = """
from eventctx.messages.encoding import message_digest
from eventctx.messages.extracts import MessageExtracts
from eventctx.policies.index import Timeline, _weigh_lines
from tests.policies.test_workset import TIGHT, compacted, text_of, work

print(message_digest({"role": "user", "content": text_of(compacted(work(30), TIGHT))}).hex())
said = {f"name_{n:02}": n for n in range(40)}
lines = tuple([" ".join([*said][n : n + 9]) for n in range(30)])
print(_weigh_lines([MessageExtracts(0, "result", lines=lines)], set(), Timeline({}, 41, said), {}))
"""
"""Also prints what each line is worth: sums differ in their last bit by the order of the names."""


@pytest.mark.slow
def test_the_same_messages_give_the_same_index_in_every_process() -> None:
    made = set()
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": "."}
        folder, command = Path(__file__).parents[2], [sys.executable, "-c", MADE]
        made.add(subprocess.check_output(command, env=env, cwd=folder, text=True))
    assert len(made) == 1


# -- live sessions -------------------------------------------------------------------------------


@asynccontextmanager
async def working(count: int, **options: Any) -> AsyncIterator[tuple[Engine, eventctx.Context]]:
    async with one_session(policy="workset", **{"max_tokens": 6_000, **options}) as (engine, ctx):
        for message in work(count):
            await ctx.add_message(message)
            await ctx.get_messages_for_request()
        yield engine, ctx


async def test_a_later_compaction_replaces_the_index_by_one_that_remembers_more() -> None:
    async with working(80) as (engine, ctx):
        audit = await engine.audit("s")
        assert len(audit.compactions) > 2
        assert {(row.outcome, row.fallback) for row in audit.compactions} == {("applied", None)}
        request = await ctx.get_messages_for_request()
        (index,) = indexes_in(request)
        assert "src/part_70.py" in index["content"]
        view = await engine.request_view("s", position=audit.requests[-1].position)
        assert view.messages == request
        (entry,) = [one for one in view.entries if one.kind == "insertion"]
        assert is_index(entry.ref)  # type: ignore[arg-type]


async def test_erased_messages_leave_the_index_and_come_into_no_later_one() -> None:
    async with working(30) as (engine, ctx):
        (index,) = indexes_in(await ctx.get_messages_for_request())
        lines = index["content"].splitlines()
        heading = next(one for one in lines if one.startswith("| #") and one[-1] == ":")
        number = int(heading[3:-1].split()[0])
        await engine.erase("s", [number])
        assert (await engine.verify("s")).ok
        secret = f"def step_{(number - 1) // 2}_"
        assert secret not in str(await ctx.get_messages_for_request())
        for message in rounds(30, 60):
            await ctx.add_message(message)
            request = await ctx.get_messages_for_request()
            assert secret not in str(request)
            assert len(indexes_in(request)) <= 1
        assert indexes_in(request)
        assert "[erased]" not in [one.get("content") for one in request if one["role"] == "user"]


@pytest.mark.parametrize("short", ["Key: hunter2", "Wir sind im Keller.", "Do use x_77."])
async def test_even_a_short_line_of_an_erased_message_is_found_in_the_index(short: str) -> None:
    async with one_session(policy="workset", max_tokens=3_000) as (engine, ctx):
        result = {"role": "tool", "tool_call_id": "a", "content": f"{short}\n" + "z" * 6_000}
        await ctx.add_messages([user("go"), asks("a"), result])
        for n in range(6):
            await ctx.add_messages([model(f"{n} " + "x" * 2_000), user(f"{n} " + "y" * 500)])
        assert short in str(indexes_in(await ctx.get_messages_for_request()))
        await engine.erase("s", [2])
        assert short not in str(await ctx.get_messages_for_request())
        records = [one async for one in engine.records("s", bodies=True)]
        assert not [one for one in records for body in one.bodies if short in str(body.data)]


async def test_a_system_message_is_neither_dropped_nor_quoted() -> None:
    async with one_session(policy="workset", max_tokens=6_000) as (_, ctx):
        rules = system("You must be careful with every_secret_thing here.")
        await ctx.add_messages([rules, *work(30)])
        request = await ctx.get_messages_for_request()
        assert request[0]["role"] == "system"
        (index,) = indexes_in(request)
        assert "every_secret_thing" not in index["content"]


def test_late_results_do_not_move_an_index_into_their_round() -> None:
    rows = [*work(20), asks("late"), *rounds(20, 32), tells("late", 500), user("go on")]
    accepted(Workset(), Story("openai", rows), 3_000)


@pytest.mark.parametrize("policy", ["workset", "ladder", "simple"])
async def test_a_message_of_which_no_demand_holds_may_leave_unquoted(policy: str) -> None:
    async with one_session(policy=policy, max_tokens=3_000) as (_, ctx):
        await ctx.add_message(user("Repair the parser, please have a look."))
        await ctx.add_message(user(f"{DEMAND}\n{'What a day. ' * 300}"))
        await ctx.withdraw_instruction(1, 1)
        await ctx.add_message(user("How are you?"))
        for row in rounds(0, 60):
            await ctx.add_message(row)
            view = await ctx.get_messages_for_request()
    assert DEMAND not in str(view)
    assert bool(indexes_in(view)) == (policy == "workset")


@examples
@given(rows=talks(), policy=ANY["workset"], tokens=budgets)
def test_hostile_texts_break_no_rule(rows: list[Row], policy: Workset, tokens: int) -> None:
    keeps_the_rules(policy, view_of(rows), budget_of(tokens), DUE, Answers(messages=rows))


async def test_demands_beside_results_outlive_every_index() -> None:
    rules = [f"Rule {n}: never rename the table number_{n}, please." for n in range(15)]
    async with one_session(policy="workset", max_tokens=5_000) as (engine, ctx):
        await ctx.add_message(user("Repair the parser, please have a look."))
        for n in range(60):
            text = "\n".join([f"def step_{n}_{i}(value): ..." for i in range(20)])
            said = [] if n % 4 else [rules[n // 4]]
            call = called(f"t{n}", "read", {"path": f"{n}.py"})
            await ctx.add_messages([call, told(f"t{n}", text, *said)])
            view = str(await ctx.get_messages_for_request())
            assert [one for one in rules[: n // 4 + 1] if one not in view] == []
        compactions = (await engine.audit("s")).compactions
    assert len(compactions) > 3
    assert all(row.fallback is None for row in compactions)
