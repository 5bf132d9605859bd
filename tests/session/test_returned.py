"""What a host brings back on resume: a poorer copy is ignored, anything else loses nothing."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventctx.log.codec import decode_event
from eventctx.log.events import SetIgnored
from eventctx.log.store import Address
from eventctx.session.reconcile import AddedAgain, earlier_copy, reconcile
from tests.session.given import opened, records_of
from tests.sessions import names, user

SYSTEM = {"role": "system", "content": "Be brief."}
DEVELOPER = {"role": "developer", "content": "Use tabs."}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": text, "visibility": None}]}


def became(stored: list[Any], brought: list[Any]) -> list[Any] | None:
    rows = reconcile(stored, brought).rows
    if rows is None:
        return None
    return [stored[place] if place is not None else brought[at or 0] for place, at in rows]


STATEFUL = {**assistant("b"), "thinking_block": {"type": "thinking"}}
PLAIN = {"role": "assistant", "content": [{"text": "b", "type": "text"}], "thinking_text": "…"}
TIMED = {**user("a"), "timestamp": "2026-01-01T00:00:00.000"}


@pytest.mark.parametrize(
    ("stored", "copy", "missing"),
    [
        ([SYSTEM, user("a"), DEVELOPER, assistant("b")], [user("a"), assistant("b")], True),
        ([user("a"), STATEFUL], [TIMED, PLAIN], False),
    ],
    ids=["without system and developer rows", "with the keys that storage adds and drops"],
)
def test_a_poorer_copy_changes_nothing(stored: list[Any], copy: list[Any], missing: bool) -> None:
    found = reconcile(stored, copy)
    assert found.rows is None
    assert found.missing_roles == (("system", "developer") if missing else ())


NEWER = {"role": "system", "content": "Be thorough."}
A, B, C, MENDED = user("a"), assistant("b"), user("c"), assistant("mended")


@pytest.mark.parametrize(
    ("stored", "brought", "becomes"),
    [
        # What was mended takes effect, and the system rows keep their places.
        ([SYSTEM, A, DEVELOPER, B, C], [A, MENDED, C], [SYSTEM, A, DEVELOPER, MENDED, C]),
        ([SYSTEM, A, DEVELOPER], [A, C], [SYSTEM, A, DEVELOPER, C]),
        ([SYSTEM, A, C], [C], [SYSTEM, C]),
        ([SYSTEM, A], [], [SYSTEM]),
        # A system prompt replaces the one at the beginning, unless it is known.
        ([SYSTEM, A, DEVELOPER, B], [NEWER, A, B], [NEWER, A, DEVELOPER, B]),
        ([SYSTEM, DEVELOPER, A, B], [SYSTEM, A, MENDED], [SYSTEM, DEVELOPER, A, MENDED]),
        ([], [SYSTEM, A], [SYSTEM, A]),
        ([], [], []),
        # An erased row equals nothing.
        ([None, C], [A, C], [A, C]),
    ],
)
def test_what_is_brought_takes_effect_and_no_inner_system_row_is_lost(
    stored: list[Any], brought: list[Any], becomes: list[Any]
) -> None:
    assert became(stored, brought) == becomes


def test_rows_that_repeat_are_recognised_however_many_there_are() -> None:
    stored = [row for _ in range(100) for row in (user("go on"), SYSTEM, assistant("ok"))]
    brought = [row for row in stored if row != SYSTEM]
    assert reconcile(stored, brought).rows is None
    longer = became(stored, [*brought, user("go on")])
    assert longer == [*stored, user("go on")]


def test_an_edit_that_is_no_loss_is_no_copy() -> None:
    known = {"timestamp": "1", "n": 1, "at": [None, 1]}
    stored = [{**user("a"), "metadata": known}]
    edits: list[Any] = [{"timestamp": "2"}, {"n": 1.0}, {"n": True}, {"at": [1]}, {"more": ""}]
    for edit in edits:
        brought = [{**user("a"), "metadata": {**known, **edit}}]
        assert became(stored, brought) == brought


ROWS = st.lists(
    st.builds(
        lambda role, text: {"role": role, "content": text},
        st.sampled_from(["user", "assistant", "system", "developer"]),
        st.sampled_from("abc"),
    ),
    max_size=8,
)


@given(ROWS, ROWS)
def test_every_given_row_is_there_in_order_and_no_inner_system_row_is_lost(
    stored: list[dict[str, Any]], brought: list[dict[str, Any]]
) -> None:
    rows = became(stored, brought)
    rows = stored if rows is None else rows
    left = iter(rows)
    assert all(any(one == row for one in left) for row in brought)
    inner = itertools.dropwhile(lambda row: row["role"] in ("system", "developer"), stored)
    assert all(row in rows for row in inner if row["role"] in ("system", "developer"))
    conversation = [row for row in stored if row["role"] in ("user", "assistant")]
    assert reconcile(stored, conversation).rows is None or not stored


LONG = [SYSTEM, user("a"), STATEFUL, DEVELOPER, user("a"), assistant("d")]


@pytest.mark.parametrize("ahead", [1, 2, 3, 4])
def test_a_poorer_copy_that_ends_before_ours_is_known_as_one(ahead: int) -> None:
    copy = [user("a"), assistant("b"), user("a"), assistant("d")][: 4 - ahead]
    found = earlier_copy(LONG, [{**row, "timestamp": "2026-01-01"} for row in copy])
    assert found == (None, ("system", "developer"), ahead)
    # A copy may have its system rows, too.
    assert earlier_copy(LONG, LONG[:4]) == (None, (), 2)
    assert earlier_copy(LONG, LONG[:2]) == (None, ("developer",), 3)


@pytest.mark.parametrize(
    "brought",
    [
        [user("a"), assistant("b"), user("a"), assistant("d")],
        [user("a"), assistant("mended")],
        [user("a"), user("a")],
        [assistant("b")],
        [{"role": "system", "content": "Be thorough."}, user("a")],
        [*LONG, user("e")],
    ],
)
def test_a_copy_that_differs_otherwise_does_not_merely_end_before_ours(brought: list[Any]) -> None:
    assert earlier_copy(LONG, brought) is None


@given(ROWS, st.integers(0, 8))
def test_any_beginning_of_a_conversation_is_an_earlier_copy_and_loses_nothing(
    stored: list[Any], length: int
) -> None:
    said = [row for row in stored if row["role"] in ("user", "assistant")]
    found = earlier_copy(stored, said[:length])
    ahead = len(said) - length
    assert (found is not None) == (ahead > 0)
    assert found is None or (found.rows, found.ahead) == (None, ahead)


def test_rows_that_are_added_again_are_known_in_their_order() -> None:
    again = AddedAgain([SYSTEM, user("a"), assistant("b"), user("a"), DEVELOPER])
    poorer = {"role": "assistant", "content": [{"text": "b", "type": "text"}], "timestamp": "now"}
    came = [user("a"), poorer, user("new"), user("a"), user("a"), SYSTEM, DEVELOPER]
    assert [again.holds(row) for row in came] == [True, True, False, True, False, False, True]
    assert again.count == 4
    assert again.missing_roles == ("system",)


async def test_an_ignored_set_is_recorded_and_the_view_goes_on_growing() -> None:
    engine, ctx = await opened(SYSTEM, A, B)
    before = await ctx.get_messages_for_request()
    assert await ctx.resume_messages([A, B]) is False
    assert await ctx.get_messages() == [SYSTEM, A, B]
    await ctx.add_message(C)
    assert (await ctx.get_messages_for_request())[: len(before)] == before
    types = await names(engine)
    assert types.count("context:set_ignored") == 1 and "context:messages_set" not in types
    # A copy that ends earlier is ignored only where it may be behind.
    for copy, ahead in (([A], 2), ([], 3)):
        assert await ctx.resume_messages(copy, may_be_behind=True) is False
        event: Any = decode_event((await records_of(engine.store))[-1])
        wanted = SetIgnored(messages=len(copy), missing_roles=("system",), ahead=ahead)
        assert event == wanted
    assert len(await ctx.get_messages()) == 4
    assert await ctx.resume_messages([A]) is True
    assert await ctx.get_messages() == [SYSTEM, A]
    assert (await engine.verify("s")).ok


@pytest.mark.parametrize("way", ["resume_messages", "set_messages"])
async def test_an_erased_row_that_comes_back_as_it_was_shown_is_the_erased_row(way: str) -> None:
    engine, ctx = await opened(A, user("secret"), C)
    position = (await engine.transcript("s"))[1].position
    await engine.store.erase({"s": {Address(position): b""}})
    await engine.close_session("s")
    ctx = await engine.session("s")
    shown = await ctx.get_messages()
    assert shown[1] == user("[erased]")
    await getattr(ctx, way)([*shown, user("d")])
    assert [one.number for one in await engine.transcript("s")] == [0, 1, 2, 3]
    assert await ctx.get_messages() == [*shown, user("d")]


async def test_a_set_that_takes_effect_keeps_the_numbers_and_the_fuller_rows() -> None:
    full = {**B, "metadata": {"state": None, "id": 7}}
    engine, ctx = await opened(SYSTEM, A, full)
    poorer: dict[str, Any] = {"role": "assistant", "content": [{"type": "text", "text": "b"}]}
    assert await ctx.resume_messages([A, {**poorer, "metadata": {"id": 7}}, user("new")]) is True
    assert await ctx.get_messages() == [SYSTEM, A, full, user("new")]
    assert [message.number for message in await engine.transcript("s")] == [0, 1, 2, 3]
    assert (await engine.verify("s")).ok


def test_a_time_that_the_host_got_with_a_row_is_nothing_new() -> None:
    stored = [user("a"), {**user("b"), "metadata": {}}, {**user("c"), "metadata": {"n": 1}}]
    timed = {"timestamp": "2026-01-01T00:00:00.000+00:00"}
    brought = [
        {**user("a"), "metadata": timed},
        {**user("b"), "metadata": timed},
        {**user("c"), "metadata": {"n": 1, **timed}},
    ]
    assert became(stored, brought) is None
    assert became(stored, [*brought[:2], {**user("c"), "metadata": {"n": 2, **timed}}]) is not None
    # A time of the message's own is a part of it, and a copy that lacks it is another message.
    own = [{**user("a"), "metadata": timed}]
    assert became(own, [user("a")]) == [user("a")]
