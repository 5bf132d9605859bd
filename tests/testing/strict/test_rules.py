"""Every published rule of an API: what breaks it is refused, and nothing else."""

from __future__ import annotations

import pytest

from eventctx.errors import InvalidSetting
from eventctx.testing.strict_provider import RULES, violations
from tests.testing.strict.claude_cases import CLAUDE
from tests.testing.strict.cloud_cases import BEDROCK, GEMINI
from tests.testing.strict.openai_cases import CHAT, RESPONSES

CASES = {
    f"{api}/{name}": case
    for api, cases in (
        ("anthropic", CLAUDE),
        ("openai-chat", CHAT),
        ("openai-responses", RESPONSES),
        ("gemini", GEMINI),
        ("bedrock", BEDROCK),
    )
    for name, case in cases.items()
}


def test_every_rule_has_its_two_requests_and_one_name() -> None:
    assert sorted(rule.name for rule in RULES) == sorted(CASES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_refuses_what_breaks_it_and_accepts_its_neighbour(rule):
    accepted, refused, words = CASES[rule.name]
    assert violations(rule.api, accepted) == ()
    broken = violations(rule.api, refused)
    assert {one.rule for one in broken} == {rule.name}
    assert words in broken[0].message


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_what_breaks_one_rule_is_accepted_once_the_rule_is_taken_away(rule):
    _, refused, _ = CASES[rule.name]
    assert violations(rule.api, refused, without={rule.name}) == ()


def test_an_api_that_is_unknown_is_named_with_those_that_are_known():
    with pytest.raises(InvalidSetting, match=r"api: expected one of .*'gemini'.*, found 'grok'"):
        violations("grok", {})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "body", [{}, {"messages": None}, {"messages": ["x", {"role": "user"}]}, {"input": [1, {}]}]
)
@pytest.mark.parametrize("api", sorted({rule.api for rule in RULES}))
def test_a_body_without_a_form_is_refused_and_breaks_no_check(api, body):
    assert violations(api, body)
