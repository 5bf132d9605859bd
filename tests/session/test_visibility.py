"""What each audience is shown of a transcript, and that nothing of it is lost in the log."""

from __future__ import annotations

import copy
import itertools
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eventctx
from eventctx import InvalidSetting, for_audience
from tests.sessions import user
from tests.transcripts import DIALECTS, stories

MARKS: tuple[Literal["internal", "developer", "user"], ...] = ("internal", "developer", "user")

THINKS = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
CALLS = {"type": "tool_use", "id": "a", "name": "read", "input": {"path": "x"}}
SAYS = {"type": "text", "text": "I read it."}
TOLD = {"type": "tool_result", "tool_use_id": "a", "content": "bytes"}

TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Read x."},
    {"role": "user", "content": "<system-reminder>Mind the time.</system-reminder>"},
    {"role": "assistant", "content": [THINKS, SAYS, CALLS]},
    {"role": "user", "content": [TOLD, {"type": "text", "text": "And now y."}]},
    {"role": "assistant", "content": "Done."},
]


def marked(block: dict[str, Any], mark: str) -> dict[str, Any]:
    return {**block, "visibility": mark}


async def test_rows_come_back_byte_for_byte_from_request_and_log(tmp_path: Path) -> None:
    odd = [{"type": "hologram", "b": 1, "a": None}, marked(user("x"), "developer")]
    rows: list[dict[str, Any]] = [
        {"zeta": 1, "role": "user", "content": odd},
        {"role": "assistant", "content": [marked(THINKS, "internal"), marked(SAYS, "user")]},
        {"role": "user", "content": "Go on.", "visibility": None},
    ]
    wanted = msgspec.json.encode(rows)
    async with eventctx.open(tmp_path / "s.db") as engine:
        ctx = await engine.session("s")
        await ctx.add_messages(rows)
        assert msgspec.json.encode(await ctx.get_messages_for_request()) == wanted
        assert msgspec.json.encode(await ctx.get_messages()) == wanted
    async with eventctx.open(tmp_path / "s.db") as engine:
        transcript = await engine.transcript("s")
        assert msgspec.json.encode([one.message for one in transcript]) == wanted


def model(*blocks: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks), **more}


def told(*inside: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{**TOLD, "content": list(inside)}]}


AND_Y: dict[str, Any] = {"role": "user", "content": [{"type": "text", "text": "And now y."}]}
WELCOME = {"role": "system", "content": "Welcome!", "visibility": "user"}
FUNCTION = {"id": "a", "function": {"name": "f", "arguments": "{}"}}
LOOKS = {"role": "assistant", "content": "Let me look."}
LOOKING = {**LOOKS, "reasoning_content": "hm", "tool_calls": [FUNCTION], "metadata": {"id": "r"}}
LIKE_A_HARNESS = {"role": "assistant", "content": "<system-reminder> is a tag of some harnesses"}
SECRET = marked({"type": "text", "text": "secret"}, "internal")
MIXED = model(SAYS, marked(SAYS, "user"), visibility="developer")
NO_TALK: list[dict[str, Any]] = [
    {"type": "reasoning", "id": "r"},
    {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "a", "output": "o"},
    {"role": "tool", "tool_call_id": "a", "content": ""},
    {"role": "system", "content": []},
    {"role": "user", "content": "It is late.", "metadata": {"source": "hook"}},
]
MARKED = [
    *[model(marked(THINKS, "user")), model(marked(CALLS, "user")), WELCOME],
    {"role": "user", "content": [marked(TOLD, "user")]},
]
AUDIENCES: list[tuple[Any, list[Any], list[Any]]] = [
    ("internal", TALK, TALK),
    # A developer is shown everything but what is marked internal, in a result, too.
    ("developer", TALK, TALK),
    ("developer", [model(marked(THINKS, "internal"), SAYS)], [model(SAYS)]),
    ("developer", [told(SECRET, SAYS)], [told(SAYS)]),
    # A user is shown what people said and were answered.
    ("user", TALK, [TALK[1], model(SAYS), AND_Y, TALK[5]]),
    ("user", [LOOKING], [LOOKS]),
    ("user", [LIKE_A_HARNESS], [LIKE_A_HARNESS]),
    # Items without a role and what a hook wrote are no talk.
    ("user", NO_TALK, []),
    ("developer", NO_TALK, NO_TALK),
    # A mark wins over the kind of a block; that of a message holds for its blocks without one.
    *[("user", [row], [row]) for row in MARKED],
    ("developer", [MIXED], [MIXED]),
    ("user", [MIXED], []),
    # A block that is no list is shown as it would be in one.
    (
        "user",
        [{**LOOKS, "content": THINKS}, {**LOOKS, "content": SAYS}],
        [{**LOOKS, "content": SAYS}],
    ),
]


@pytest.mark.parametrize(("audience", "rows", "shown"), AUDIENCES)
def test_each_audience_is_shown_its_part(audience: Any, rows: list[Any], shown: list[Any]) -> None:
    assert for_audience(rows, audience) == shown
    with pytest.raises(InvalidSetting, match="internal, developer, user, found everybody"):
        for_audience(rows, "everybody")  # type: ignore[arg-type]


def test_the_copies_that_an_amplifier_row_holds_are_shown_as_their_blocks_are() -> None:
    call = {**CALLS, "type": "tool_call"}
    row = model(
        *[marked(THINKS, "internal"), marked(call, "internal"), {**call, "id": "b"}],
        tool_calls=[{"id": name, "tool": "read", "arguments": {}} for name in ("a", "b")],
        thinking_block=THINKS,
        metadata={"provider": "x"},
    )
    (shown,) = for_audience([row], "developer")
    assert [call["id"] for call in shown["tool_calls"]] == ["b"]
    assert "thinking_block" not in shown
    assert shown["metadata"] == {"provider": "x"}
    assert for_audience([row], "user") == []


unhurried = settings(deadline=None)  # a busy machine takes longer than Hypothesis allows
marks = st.sampled_from([None, None, "odd", 7, *MARKS])


@st.composite
def marked_stories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A story of any dialect with marks here and there, every leaf told from every other."""
    rows = copy.deepcopy(draw(stories(draw(st.sampled_from(DIALECTS)), most=6)).messages)
    for row in rows:
        blocks = row["content"] if isinstance(row.get("content"), list) else []
        for block in (row, *blocks, *(row.get("tool_calls") or ())):
            if draw(st.booleans()):
                block["visibility"] = draw(marks)
    return rows


def leaves(rows: list[dict[str, Any]]) -> list[str]:
    """Every block, call and other content that is shown, in order."""
    found = []
    for row in rows:
        content = row.get("content")
        blocks = content if isinstance(content, list) else [content] if content else []
        keys = {key: row[key] for key in row if key not in ("content", "tool_calls")}
        parts = [*blocks, *(row.get("tool_calls") or ()), *keys.items()]
        found += [repr(part) for part in parts]
    return found


def is_part(some: list[str], of: list[str]) -> bool:
    rest = iter(of)
    return all(any(one == other for other in rest) for one in some)


@unhurried
@given(marked_stories())
def test_audiences_are_nested_see_the_same_order_and_their_part_of_their_part_is_the_same(
    rows: list[dict[str, Any]],
) -> None:
    before = copy.deepcopy(rows)
    parts = [for_audience(rows, audience) for audience in MARKS]
    assert rows == before
    shown = [leaves(part) for part in parts]
    assert shown[0] == leaves(rows)
    for wider, narrower in itertools.pairwise(shown):
        assert is_part(narrower, wider)
    for audience, part in zip(MARKS, parts, strict=True):
        assert for_audience(part, audience) == part
    assert not [leaf for part in shown[1:] for leaf in part if "'visibility': 'internal'" in leaf]
