"""A host's list held against the transcript: what is new is added once, and what is left out."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventctx.adapters.kit import HostSession, held_against, plain_identity
from eventctx.engine import Engine
from eventctx.errors import ContextOverflow, InvalidMessage, StoreFull
from tests.session.counting_store import CountingStore

Row = dict[str, Any]

ROWS = st.lists(st.text(max_size=3), unique=True, max_size=8).map(
    lambda texts: [said(text) for text in texts]
)


def said(text: str, role: str = "user") -> Row:
    return {"role": role, "content": text}


def in_another_form(row: Row) -> Row:
    """The message as an API gives it back."""
    block = {"type": "input_text", "text": row["content"]}
    return {**row, "content": [block], "id": "msg_1", "status": "completed", "type": "message"}


@given(ROWS, st.integers(0, 8), st.sets(st.integers(0, 7)), st.booleans())
def test_what_stands_behind_the_transcript_is_new_and_what_the_host_left_out_is_not(
    rows: list[Row], known: int, left_out: set[int], other: bool
) -> None:
    transcript, new = rows[:known], rows[known:]
    kept = [row for at, row in enumerate(transcript) if at not in left_out]
    given_back = [in_another_form(one) if other else dict(one) for one in [*kept, *new]]
    found = held_against(transcript, given_back, plain_identity)
    assert found.whole == (kept == transcript)
    assert [plain_identity(one) for one in found.new] == [plain_identity(one) for one in new]


@pytest.mark.parametrize("interrupted", [0, 1])
def test_words_of_an_earlier_turn_are_new_where_the_host_shows_no_earlier_turn(
    interrupted: int,
) -> None:
    calls = {"role": "assistant", "content": [tool_use("read", "1")]}
    turn = [said("go"), calls, {"role": "user", "content": [tool_result("1")]}]
    before = [*turn, said("done", "assistant")][: len(turn) + 1 - interrupted]
    transcript = list(before)
    for row in turn:
        shown = [*transcript[len(before) :], row]
        found = held_against(transcript, shown, by_name)
        assert (list(found.new), found.whole) == ([row], False)
        again = held_against([*transcript, row], shown, by_name)
        assert (list(again.new), again.whole) == ([], False)
        transcript.append(row)


ROUND = st.lists(st.sampled_from("ab"), min_size=1, max_size=3)


@given(st.lists(st.tuples(ROUND, st.sampled_from(["done", "open", "said"])), max_size=6))
def test_a_list_without_open_calls_is_whole_at_each_step_of_the_rounds_behind_them(
    rounds: list[tuple[list[str], str]],
) -> None:
    """Calls of one name are equal: identities have no ids where the host shows none."""
    transcript: list[Row] = []
    host: list[Row] = []
    for number, (names, ends) in enumerate(rounds):
        ids = [f"{number} {at}" for at in range(len(names))]
        words = [{"type": "text", "text": "I look."}] if ends == "said" else []
        calls = [tool_use(*one) for one in zip(names, ids, strict=True)]
        for row in (said("go"), {"role": "assistant", "content": [*words, *calls]}):
            found = held_against(transcript, [*host, row], by_name)
            assert (list(found.new), found.whole) == ([row], True)
            assert held_against([*transcript, row], [*host, row], by_name) == ([], True)
            transcript, host = [*transcript, row], [*host, row]
        if ends == "done":
            row = {"role": "user", "content": [tool_result(one) for one in ids]}
            assert held_against(transcript, [*host, row], by_name) == ([row], True)
            transcript, host = [*transcript, row], [*host, row]
        else:
            host = [*host[:-1], *([{"role": "assistant", "content": words}] if words else [])]


def tool_use(name: str, call_id: str) -> Row:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {}}


def tool_result(call_id: str) -> Row:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "text"}


def by_name(row: Mapping[str, Any]) -> Hashable:
    content = row["content"]
    if isinstance(content, list):
        ids = ("id", "tool_use_id")
        content = [{k: one[k] for k in one if k not in ids} for one in content]
    return plain_identity({**row, "content": content})


@given(st.text(), st.text())
def test_messages_that_say_different_things_are_different(one: str, other: str) -> None:
    same = plain_identity(in_another_form(said(one))) == plain_identity(said(other))
    assert same == (one == other)
    assert plain_identity(said(one)) != plain_identity(said(one, "assistant"))


def test_in_a_list_that_was_cut_a_call_under_way_is_known() -> None:
    call = {"type": "function_call", "call_id": "1", "name": "read", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "1", "output": "text"}
    transcript = [said("a"), said("b", "assistant"), said("c"), call]
    found = held_against(transcript, [said("c"), call, result], plain_identity)
    assert found == ([result], False)


# -- a host's conversation as a session ------------------------------------------------------------


async def opened(**more: Any) -> tuple[CountingStore, HostSession]:
    store = CountingStore()
    host = HostSession(await Engine(store).session("s", **more))
    await host.mirror([said("begin")])
    return store, host


STEPS = st.sampled_from(("grow", "take", "prepare", "full", "pop", "clear", "messages"))


@settings(max_examples=60)
@given(st.lists(STEPS, max_size=12))
async def test_a_hosts_list_is_in_the_log_once_whatever_is_asked_behind_it(
    steps: list[str],
) -> None:
    """The host keeps a list and mirrors it; ``full`` is a request while the disk is full."""
    store, host = await opened()
    rows = [said("begin")]
    for number, step in enumerate(steps):
        if step == "grow":
            rows = [*rows, said(f"{number}"), said(f"{number} again")]
            await host.mirror(rows)
        elif step == "take":
            rows = [*rows, said(f"{number}")]
            await host.mirror(rows, with_request=True)
        elif step == "prepare":
            assert await host.prepare() == rows
        elif step == "full":
            await host.mirror(rows, with_request=True)
            store.full = True
            with pytest.raises(StoreFull):
                await host.prepare()
            store.full = False
            await host.mirror(rows, with_request=True)
        elif step == "pop":
            assert await host.pop() == (rows[-1] if rows else None)
            rows = rows[:-1]
        elif step == "clear":
            await host.clear()
            rows = []
        else:
            assert await host.messages() == rows
    assert await host.messages() == rows
    assert await host.context.get_messages() == rows


async def test_a_request_that_overflows_has_brought_its_messages_once() -> None:
    _, host = await opened(max_tokens=1_000)
    long = said("word " * 3_000)
    for _ in range(2):
        await host.take([said("begin"), long])
        with pytest.raises(ContextOverflow):
            await host.prepare()
    assert await host.context.get_messages() == [said("begin"), long]
    await host.add([long])
    assert await host.messages() == [said("begin"), long]


async def test_a_message_that_the_log_refuses_is_dropped_and_the_session_goes_on() -> None:
    _, host = await opened()
    await host.mirror([said("begin"), {"role": "user", "content": object()}], with_request=True)
    with pytest.raises(InvalidMessage):
        await host.prepare()
    await host.mirror([said("begin"), said("go on")], with_request=True)
    assert await host.prepare() == [said("begin"), said("go on")]
