"""What a host sent, compared with what was prepared for it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eventctx.adapters.amplifier.event_listener import error_of
from eventctx.adapters.amplifier.sent import compare, messages_of
from eventctx.log.usage import Usage, read_host_usage

PREPARED: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Read a."},
    {"role": "assistant", "content": [{"type": "tool_call", "id": "c", "name": "r", "input": {}}]},
    {"role": "tool", "tool_call_id": "c", "content": "text of a"},
]


def text(said: str) -> dict[str, str]:
    return {"type": "text", "text": said}


def test_the_same_messages_in_another_dialect_differ_in_nothing() -> None:
    result = {"type": "tool_result", "tool_use_id": "c", "content": [text("text of a")]}
    rows = [
        {"role": "user", "content": [text("Read a.")]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c"}]},
        {"role": "user", "content": [result]},
    ]
    wire = messages_of({"raw": {"system": [text("Be brief.")], "messages": rows}})
    assert wire is not None
    found = compare(PREPARED, wire)
    assert (found.additions, found.missing) == ((), 0)


LINES = st.text("ab \n\t\r", max_size=8)


@given(texts=st.lists(LINES, min_size=1, max_size=6), at=st.integers(0, 5), reminder=LINES)
def test_of_any_text_with_any_reminder_behind_it_the_reminder_alone_is_the_addition(
    texts: list[str], at: int, reminder: str
) -> None:
    prepared = [
        {"role": "tool", "tool_call_id": str(n), "content": text} for n, text in enumerate(texts)
    ]
    sent = list(prepared)
    at %= len(sent)
    sent[at] = {**sent[at], "content": f"{texts[at]}\n\n{reminder}"}
    found = compare(prepared, sent)
    added = [("tool", one) for one in [reminder.strip()] if one]
    assert [one for _, one in found.additions] == added
    assert found.missing == 0


def test_an_addition_is_recorded_as_it_was_sent_whatever_words_of_it_were_said_before() -> None:
    prepared = [{"role": "user", "content": "a"}, {"role": "user", "content": "go on"}]
    reminder = {"role": "user", "content": "Mind a tab:\n\n  go on."}
    found = compare(prepared, [prepared[0], reminder])
    assert found.additions == ((1, ("user", "Mind a tab:\n\n  go on.")),)
    assert found.missing == 1


def test_a_reminder_between_two_messages_that_a_provider_joins_is_the_addition_alone() -> None:
    prepared = [{"role": "user", "content": "one\ntwo"}, {"role": "user", "content": "one"}]
    joined = {"role": "user", "content": "one\ntwo\n\nMind the tabs.\nAll.\n\none"}
    found = compare(prepared, [joined])
    assert found.additions == ((2, ("user", "Mind the tabs.\nAll.")),)
    assert found.missing == 0


def test_the_requests_of_a_responses_api_are_read_too() -> None:
    item = {"type": "function_call_output", "call_id": "c", "output": "text of a"}
    found = messages_of({"raw": {"instructions": "Be brief.", "input": [item, "odd"]}})
    assert found == [{"role": "system", "content": "Be brief."}, item]
    assert compare(PREPARED, found).additions == ()


def test_a_payload_without_messages_says_nothing() -> None:
    assert messages_of({"provider": "p", "message_count": 3}) is None
    assert messages_of({"raw": "redacted"}) is None
    assert messages_of({"messages": "none"}) is None


def test_usage_is_read_in_the_forms_in_which_hosts_tell_it() -> None:
    kernel = {"input_tokens": 100, "output_tokens": 5, "cache_read_tokens": 60}
    assert read_host_usage({**kernel, "cache_write_tokens": 30}) == Usage(130, 5, 60, 30)
    assert read_host_usage({"input": 7, "output": 1, "cache_write": 3}) == Usage(10, 1, 0, 3)
    wire = {"input_tokens": 10, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 30}
    assert read_host_usage(wire) == Usage(100, 0, 60, 30)
    text = "input_tokens=100 output_tokens=5 total_tokens=105 cache_read_tokens=60 cost_usd=None"
    assert read_host_usage(text) == Usage(100, 5, 60)
    for nothing in (None, "no usage", "", {}, {"input_tokens": True}, {"input": -4}):
        assert read_host_usage(nothing) is None


def test_errors_are_read_in_the_forms_in_which_hosts_tell_them() -> None:
    assert error_of({"type": "ValueError", "msg": "bad"}, {}) == ("ValueError", "bad")
    assert error_of(None, {"error_type": "T", "error_message": "slow"}) == ("T", "slow")
    assert error_of("broken", {}) == ("Error", "broken")
    assert error_of(None, {}) == ("Error", "")
