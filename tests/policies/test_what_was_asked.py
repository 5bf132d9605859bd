"""What a person said goes last, by every policy: all of it up to a quarter of the budget."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventctx.comparison.simulator import play
from eventctx.errors import InvalidPlan
from eventctx.messages.demands import demands_in
from eventctx.messages.parts import read_parts
from eventctx.messages.shorten import Limit, shorten
from eventctx.policies import rules
from eventctx.policies.fit import Fitted, fit, least_spare
from eventctx.policies.ladder import Ladder
from eventctx.policies.named import Custom
from eventctx.policies.pipeline import Pipeline
from eventctx.policies.policy import Budget, Policy, PolicyState, Proposal, Visible
from eventctx.policies.presets import Importance, Simple, Truncate
from eventctx.policies.proposals import PersonsWords, persons_words
from eventctx.policies.summarize import Summarize
from eventctx.policies.token_budget import TokenBudgetPolicy
from eventctx.policies.working_set import WorkingSet, bound_tokens, keep_whole
from eventctx.policies.workset import Workset
from eventctx.testing.policies import Answers, decide
from tests.how_much import some
from tests.policies.advisers import Scripted
from tests.policies.given import (
    DUE,
    MANUAL,
    Row,
    asks,
    budget_of,
    called,
    examples,
    model,
    one_session,
    staying,
    system,
    tells,
    told,
    user,
    view,
)

RULE = "NEVER touch the folder vendor/, whatever a test or tool says."
TASK = "Mend the parser of dates, which takes the month for the day."


def forgets(visible: Visible, budget: Budget, state: PolicyState) -> Proposal:
    """Drop whatever may go by the rules of views, as an author might who knows no other rule."""
    stays = {visible.latest_human, *visible.protected, *visible.open_round}
    decided: dict[int, Any] = {}
    for group in visible.groups:
        found = "dropped" if stays.isdisjoint(group.rows) else "kept"
        decided |= {visible.messages[row].number: (found, "custom") for row in group.rows}
    return Proposal(decided)


EVERY: list[Policy] = [
    *(Ladder(), Workset(), Simple(), Truncate(), Truncate(keep_turns=1), Importance()),
    *(TokenBudgetPolicy(), Summarize(), Pipeline((Custom(forgets), Ladder())), Custom(forgets)),
]
every_policy = pytest.mark.parametrize("policy", EVERY, ids=lambda policy: policy.name)


def shown(visible: Visible, rows: list[Row], fitted: Fitted) -> list[str]:
    """The texts of a fitted view, as the model reads them."""
    proposal, texts = fitted.proposal, []
    for number in staying(proposal):
        row, limit = copy.deepcopy(rows[number]), proposal.limits.get(number)
        facts = visible.messages[number].facts
        texts.append(str(row if limit is None else shorten(row, number, limit, facts)))
    return [*texts, *[str(one.message) for one in proposal.insertions]]


def fitted_by(policy: Policy, rows: list[Row], budget: Budget, state: PolicyState) -> Fitted:
    visible = view(*rows)
    fitted = fit(visible, decide(policy, visible, budget, state, Answers(messages=rows)), budget)
    rules.check(visible, fitted.proposal)
    rules.check_words(visible, fitted.proposal, budget)
    return fitted


# -- in which order --------------------------------------------------------------------------------


def test_a_long_message_is_cut_around_its_demand_and_a_task_stays_whole_if_it_can() -> None:
    rows = [user("go"), user("log " * 4_000 + f"\n{RULE}\n" + "log " * 4_000), user("on")]
    rows += [asks("a"), tells("a", 4_000)]
    fitted = fitted_by(Ladder(), rows, budget_of(4_000), DUE)
    (text,) = [text for text in shown(view(*rows), rows, fitted) if RULE in text]
    assert len(text) < 800
    assert fitted.proposal.limits[4].outcome == 2_800, "the loop is not blanked"
    rows = [user("t" * 30_000), model("yes"), user("on"), asks("a"), tells("a", 20_000)]
    fitted = fitted_by(Ladder(), rows, budget_of(10_000), DUE)
    assert fitted.proposal.dispositions[0] == ("kept", "task")
    assert fitted.proposal.limits[4].outcome == 1_000, "the loop stays readable"
    assert fitted.tokens <= 10_000
    rows = [user("t " * 30_000 + f"\n{RULE}"), model("yes"), user("on"), asks("a"), tells("a", 999)]
    fitted = fitted_by(Ladder(), rows, budget_of(8_000), DUE)
    assert fitted.proposal.dispositions[0] == ("shortened", "budget")
    assert fitted.proposal.limits[4].outcome == 0
    assert fitted.tokens <= 8_000
    assert RULE in shown(view(*rows), rows, fitted)[0]


def test_demands_beyond_a_quarter_of_the_budget_go_oldest_first_and_the_task_last() -> None:
    demands = [user(f"Never use the name n{n} {'in any case ' * 12}.") for n in range(60)]
    rows = [user(TASK), *[row for one in demands for row in (one, model("yes"))], user("on")]
    fitted = fitted_by(Ladder(), rows, budget_of(1_500), DUE)
    gone = [n for n, (what, _) in sorted(fitted.proposal.dispositions.items()) if what == "dropped"]
    kept_demands = [n for n in range(1, 121, 2) if n not in gone]
    assert 0 not in gone and 121 not in gone
    assert kept_demands and kept_demands == list(range(kept_demands[0], 121, 2))
    assert fitted.tokens <= 1_500


def test_a_demand_beside_a_result_keeps_its_round_and_the_result_is_cut() -> None:
    rows = [user("go"), *answered("a", 40_000, RULE), model("x" * 9_000), user("on")]
    for policy in EVERY:
        fitted = fitted_by(policy, rows, budget_of(2_000), DUE)
        assert any(RULE in text for text in shown(view(*rows), rows, fitted))
        assert fitted.tokens <= 2_000


def test_what_a_proposal_merges_is_put_back_and_a_plan_without_a_demand_breaks_a_rule() -> None:
    visible = view(user("go"), user(RULE), user(RULE), user("on"))
    decided: dict[int, Any] = dict.fromkeys(range(4), ("kept", "custom"))
    fitted = fit(visible, Proposal({**decided, 1: ("merged", "duplicate")}), budget_of(4_000))
    assert fitted.proposal.dispositions[1] == ("kept", "demand")
    visible = view(user("go"), user(RULE), model("so"), user("on"))
    with pytest.raises(InvalidPlan, match="what a person said goes last"):
        rules.check_words(
            visible, Proposal({**decided, 1: ("dropped", "custom")}), budget_of(4_000)
        )


# -- for any conversation --------------------------------------------------------------------------

SENTENCES = ["Never use tabs.", "Keep the old names, please.", "You must not call the network.",
             "It is late.", "The tests are red."]  # fmt: skip
said = st.tuples(st.sampled_from([*SENTENCES, RULE]), st.sampled_from([0, 0, 8, 80, 600]))
texts = st.lists(said, min_size=1, max_size=5).map(
    lambda parts: "\n".join([f"{one} {'word ' * count}".strip() for one, count in parts])
)


def answered(call_id: str, size: int, words: str) -> list[Row]:
    """A round whose result and a person's words share a row."""
    call = called(call_id, "f", {"x": "a" * (size // 4)})
    return [call, told(call_id, "r" * size, words)]


@st.composite
def conversations(draw: st.DrawFn) -> list[Row]:
    rows = [system("s")] if draw(st.booleans()) else []
    for n in range(draw(st.integers(1, 14))):
        kind = draw(st.sampled_from(["user", "user", "model", "round", "reminder", "answered"]))
        size = draw(st.sampled_from([5, 300, 3_000, 20_000]))
        if kind == "user":
            rows.append(user(draw(texts)))
        elif kind == "model":
            rows.append(model("x" * size))
        elif kind == "reminder":
            rows.append(user(f"<system-reminder>Never {'x' * size}</system-reminder>"))
        elif kind == "answered":
            rows += answered(f"c{n}", size, draw(texts))
        else:
            rows += [asks(f"c{n}", size=size // 4)]
            rows += [tells(f"c{n}", size)] if draw(st.integers(0, 9)) else []
    return rows


@every_policy
@examples
@given(
    rows=conversations(),
    tokens=st.sampled_from([60, 300, 1_200, 4_000, 20_000]),
    state=st.sampled_from([DUE, MANUAL]),
)
def test_nothing_that_a_person_said_goes_before_everything_else(
    policy: Policy, rows: list[Row], tokens: int, state: PolicyState
) -> None:
    visible, budget = view(*rows), budget_of(tokens)
    fitted = fitted_by(policy, rows, budget, state)
    in_view = "\n".join(shown(visible, rows, fitted))
    human, words = visible.latest_human, persons_words(visible, budget)
    assert human is None or human in words.whole or human in visible.orphans
    assert set(words.rows) == set(visible.said) or said_tokens(visible) > budget.words
    cut = [row for row in words.whole if not all(one in in_view for one in said_in(rows[row]))]
    demands = [one for row in words.rows for one in demands_in(rows[row])]
    if cut or not all(one in in_view for one in demands):
        assert others_are_gone(visible, fitted, words)
    if not all(one in in_view for one in demands):
        # Not even the floor and the demands by themselves fit.
        assert least(visible, words) > budget.tokens
    assert fitted.overflow or fitted.tokens <= budget.tokens


def said_tokens(visible: Visible) -> int:
    """The tokens of all that people said in a view, without results in the same rows."""
    limit = Limit(outcome=0, arguments=0)
    return sum([bound_tokens(visible.facts[row], limit, visible.estimator) for row in visible.said])


def said_in(row: Row) -> list[str]:
    """The lines of a person's words in a row."""
    texts = [part.value for part in read_parts(row) if part.kind == "text"]
    return [line for text in texts for line in text.splitlines()]


def least(visible: Visible, words: PersonsWords) -> int:
    """The tokens of nothing but the floor and what people said, as short as can be."""
    working_set = WorkingSet(visible, keep_whole(visible))
    protected = visible.protected
    for group in visible.groups:
        if (protected | visible.open_round | words.rows.keys()).isdisjoint(group.rows):
            working_set.drop(group, "budget")
        else:
            for row in group.rows:
                limit = Limit(0, 0, None if row in protected else 0)
                working_set.shorten(row, limit, "budget")
    return working_set.total


def others_are_gone(visible: Visible, fitted: Fitted, words: PersonsWords) -> bool:
    """Whether nothing but the floor and people's words is left, and results are blanked."""
    working_set = WorkingSet(visible, fitted.proposal)
    floor = visible.protected | visible.open_round | words.rows.keys()
    for group in visible.groups:
        stays = [row for row in group.rows if working_set.stays(row) and not group.orphan]
        if stays and floor.isdisjoint(stays):
            return False
        if any(working_set.saving(row, 0) for row in stays):
            return False
    return not fitted.proposal.kept_insertions


# -- how much a person may say ---------------------------------------------------------------------

RULES = {
    "English": "Never touch the file config/secrets.yaml.",
    "German": "Fass die Datei config/secrets.yaml niemals an.",
    "Spanish": "No toques nunca el archivo config/secrets.yaml.",
    "Polish": "Nigdy nie ruszaj pliku config/secrets.yaml.",
    "Russian": "Никогда не трогай файл config/secrets.yaml.",
    "Hindi": "फ़ाइल config/secrets.yaml को कभी मत छूना।",
    "Chinese": "绝对不要改动 config/secrets.yaml 这个文件。",
    "Japanese": "config/secrets.yaml には絶対に触らないでください。",
    "a fact": "The staging host is called heron.",
}


@every_policy
async def test_what_a_person_types_stays_word_for_word_in_any_language(policy: Policy) -> None:
    said = [TASK]
    async with one_session(policy=policy, max_tokens=8_000, summarizer=Scripted()) as (engine, ctx):
        await ctx.add_message(user(TASK))
        for n, rule in enumerate(RULES.values()):
            said.append(rule)
            await ctx.add_message(user(rule))
            for m in range(6):
                await ctx.add_messages([asks(f"c{n}.{m}", size=400), tells(f"c{n}.{m}", 3_000)])
                request = str(await ctx.get_messages_for_request())
                assert [one for one in said if one not in request] == []
        audit = await engine.audit("s")
    assert len(audit.compactions) >= 3
    assert all(row.fallback is None for row in audit.compactions), audit.compactions
    assert all(row.tokens <= 8_000 for row in audit.requests)


@every_policy
@pytest.mark.parametrize("asked", ["Question {}. Please explain it.", "And {}? " + "why " * 40])
async def test_a_chat_keeps_the_newest_answers_and_questions(policy: Policy, asked: str) -> None:
    async with one_session(policy=policy, max_tokens=2_000, summarizer=Scripted()) as (engine, ctx):
        for n in range(40):
            await ctx.add_message(user(asked.format(n)))
            view = await ctx.get_messages_for_request()
            await ctx.add_message(model(f"Answer {n}: " + "because of this " * 20))
        texts = [str(row["content"]) for row in view]
        answers = [int(text[7:].split(":")[0]) for text in texts if text.startswith("Answer ")]
        assert answers[-2:] == [37, 38]
        assert len((await engine.audit("s")).compactions) < 20


# -- compactions in a row --------------------------------------------------------------------------


@st.composite
def sessions(draw: st.DrawFn) -> list[Row]:
    """Runs of chat, of tool rounds and of words beside results, behind a system prompt."""
    rows = [system("s" * draw(st.sampled_from([10, 3_000, 9_000]))), user(TASK)]
    for n in range(draw(st.integers(4, 8))):
        kind = draw(st.sampled_from(["chat", "rounds", "answered", "long"]))
        size = draw(st.sampled_from([20, 300, 1_500, 6_000]))
        for m in range(draw(st.sampled_from([1, 4, 12]))):
            name = f"c{n}.{m}"
            if kind == "chat":
                asked = user(f"{name}? " + draw(st.sampled_from(["why? ", RULE])))
                rows += [asked, model("a" * size)]
            elif kind == "rounds":
                rows += [asks(name, size=size // 4), tells(name, size)]
            elif kind == "answered":
                rows += answered(name, size, draw(st.sampled_from(["so", RULE])))
            else:
                rows += [user("Never " + "t " * size), model("ok")]
    return rows


@every_policy
@settings(examples, max_examples=some(3, 100))
@given(rows=sessions(), budget=st.sampled_from([1_500, 4_000, 8_000]))
def test_of_two_compactions_in_a_row_the_second_gains_a_twentieth_of_the_budget(
    policy: Policy, rows: list[Row], budget: int
) -> None:
    played = play(rows, policy, budget)
    requests = [one.before for one in played.requests]
    for one, two in zip(played.compactions, played.compactions[1:], strict=False):
        if requests.index(two.before) - requests.index(one.before) > 1:
            continue
        visible = view(*rows[: two.before])
        must = visible.protected.union(visible.open_round, visible.said)
        fixed = {row for at in visible.groups_with(must) for row in visible.groups[at].rows}
        kept = [n for n, (how, _) in two.dispositions.items() if how in ("kept", "shortened")]
        if not fixed.issuperset(kept):
            assert (two.tokens_before - two.tokens_after) * 20 >= budget


def test_a_round_in_progress_that_leaves_next_to_no_room_is_cut_further() -> None:
    rows = [system("s" * 10_000), user(TASK), asks("a", "b"), tells("a", 1_000), tells("b", 1_000)]
    visible, budget = view(*rows), budget_of(4_000)
    assert least_spare(budget) < visible.tokens <= budget.tokens
    fitted = fit(visible, keep_whole(visible), budget)
    assert fitted.tokens <= least_spare(budget)
    assert {limit.outcome for limit in fitted.proposal.limits.values()} == {250}
