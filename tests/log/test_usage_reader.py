"""Every reader of token counts reads them by one table: ``eventctx.log.usage``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from eventctx.log import usage as usage_table
from eventctx.log.usage import (
    AMPLIFIER,
    ANTHROPIC,
    GEMINI,
    MOST_TOKENS,
    OPENAI_CHAT,
    OPENAI_RESPONSES,
    Usage,
    UsageForm,
    form_of_host,
    form_of_provider,
    read_usage,
)

FORMS = [form for form in vars(usage_table).values() if isinstance(form, UsageForm)]
CALL = Usage(prompt=130, output=7, cache_read=100, cache_write=20, reasoning=3, cache_write_1h=5)


def nested(names: dict[str, Any]) -> dict[str, Any]:
    """``{"a.b": 1}`` as ``{"a": {"b": 1}}``."""
    found: dict[str, Any] = {}
    for name, count in names.items():
        outer, _, inner = name.rpartition(".")
        (found.setdefault(outer, {}) if outer else found)[inner] = count
    return found


def in_form(usage: Usage, form: UsageForm) -> dict[str, Any]:
    """The usage as an API with this form reports it."""
    counts = {name: getattr(usage, name) for name in Usage.__struct_fields__}
    counts["prompt"] -= sum(counts.get(name, 0) for name in form.outside_prompt)
    counts["output"] -= sum(counts.get(name, 0) for name in form.outside_output)
    return nested({getattr(form, name)[0]: n for name, n in counts.items() if getattr(form, name)})


@pytest.mark.parametrize("form", FORMS)
def test_one_call_reads_the_same_in_every_form(form: UsageForm) -> None:
    not_told = {name: 0 for name in Usage.__struct_fields__ if not getattr(form, name)}
    assert read_usage(in_form(CALL, form), form) == replace(CALL, **not_told)


@pytest.mark.parametrize("form", FORMS)
def test_what_counts_no_tokens_is_read_as_0(form: UsageForm) -> None:
    counts: list[Any] = [-5, MOST_TOKENS + 1, 2**63, 10**400, 1e308, True, "7", [7], None]
    for count in counts:
        read = read_usage(in_form(CALL, form) | {form.prompt[0]: count}, form)
        assert read is not None
        assert read.prompt == sum(getattr(read, name, 0) for name in form.outside_prompt), count
        assert read.output == CALL.output


def test_the_parts_of_a_prompt_do_not_add_up_to_more_than_a_count() -> None:
    most = {"input_tokens": MOST_TOKENS, "cache_read_input_tokens": 1}
    assert read_usage(most, ANTHROPIC) == Usage(prompt=0, cache_read=1)


def test_a_providers_own_counts_are_recognised_by_their_names() -> None:
    for form in (ANTHROPIC, OPENAI_CHAT, OPENAI_RESPONSES):
        assert form_of_provider(in_form(CALL, form)) is form
    assert form_of_host(in_form(CALL, AMPLIFIER)) is AMPLIFIER
    assert form_of_host(in_form(CALL, ANTHROPIC)) is ANTHROPIC


def test_a_proxys_extra_names_do_not_count_a_cache_twice() -> None:
    # LiteLLM reports Anthropic's names next to OpenAI's, whose prompt holds the caches.
    both = {"prompt_tokens": 130, "completion_tokens": 7, "cache_read_input_tokens": 100}
    assert read_usage(both, form_of_provider(both)) == Usage(130, 7)


def test_an_object_is_read_by_its_attributes() -> None:
    kernel = SimpleNamespace(input_tokens=100, output_tokens=5, cache_write_tokens=30)
    assert read_usage(kernel, AMPLIFIER) == Usage(130, 5, cache_write=30)


ODD = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.just([]))


@settings(deadline=None)
@given(st.sampled_from(FORMS), st.lists(ODD, min_size=12, max_size=12))
def test_whatever_is_reported_is_read_as_counts(form: UsageForm, odd: list[Any]) -> None:
    names = [name for field in form[:5] for name in field]
    reported = nested(dict(zip(names, odd, strict=False)))
    for one in (reported, {name.partition(".")[0]: odd[0] for name in names}):
        usage = read_usage(one, form)
        assert usage and all(getattr(usage, name) >= 0 for name in Usage.__struct_fields__)


def test_what_a_frameworks_counts_leave_out_is_added() -> None:
    counts = {"prompt_token_count": 100, "tool_use_prompt_token_count": 20}
    counts |= {"candidates_token_count": 7, "thoughts_token_count": 3}
    assert read_usage(SimpleNamespace(**counts), GEMINI) == Usage(120, 10, reasoning=3)
