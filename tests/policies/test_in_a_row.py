"""A compaction right after another gains something, or nothing but what must stay is left."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eventctx.comparison.simulator import play
from eventctx.policies.fit import fit, least_spare
from eventctx.policies.policy import Policy
from eventctx.policies.working_set import keep_whole
from tests.policies.given import Row, asks, budget_of, examples, model, system, tells, user, view
from tests.policies.test_what_was_asked import RULE, TASK, answered, every_policy


@st.composite
def sessions(draw: st.DrawFn) -> list[Row]:
    """Runs of chat, of tool rounds and of words beside results, behind a system prompt."""
    rows = [system("s" * draw(st.sampled_from([10, 3_000, 9_000]))), user(TASK)]
    for n in range(draw(st.integers(4, 12))):
        kind = draw(st.sampled_from(["chat", "rounds", "answered", "long"]))
        size = draw(st.sampled_from([20, 300, 1_500, 6_000]))
        for m in range(draw(st.sampled_from([1, 4, 12]))):
            name = f"c{n}.{m}"
            if kind == "chat":
                rows += [
                    user(f"{name}? " + draw(st.sampled_from(["why? ", RULE]))),
                    model("a" * size),
                ]
            elif kind == "rounds":
                rows += [asks(name, size=size // 4), tells(name, size)]
            elif kind == "answered":
                rows += answered(name, size, draw(st.sampled_from(["so", RULE])))
            else:
                rows += [user("Never " + "t " * size), model("ok")]
    return rows


@every_policy
@examples
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
