"""Texts are rendered in a process that may be ended, and a text without its tree is still shown."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from eventctx.web.renderer import Rendered, Renderer

SLOW = "![" * 20_000 + "**bold**"


@pytest_asyncio.fixture
async def renderer() -> AsyncIterator[Renderer]:
    made = Renderer()
    yield made
    await made.close()


def trees(found: Rendered | None) -> Any:
    assert found is not None
    return [(place, json.loads(bytes(tree))) for place, tree in found]


BOLD = [["p", {}, [["strong", {}, ["a"]], " b"]]]
MARKED = {"role": "user", "content": "**a** b"}


async def test_each_text_with_markup_has_a_tree_at_its_place(renderer: Renderer) -> None:
    content: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": "**a** b", "signature": "x"},
        {"type": "text", "text": "plain"},
        {"type": "text", "text": "**a** b"},
        {"type": "tool_use", "id": "c", "name": "f", "input": {"text": "**a** b"}},
    ]
    assert trees(await renderer.message({"role": "assistant", "content": content})) == [
        (["content", 0, "thinking"], BOLD),
        (["content", 2, "text"], BOLD),
    ]


async def test_results_sealed_thinking_half_a_surrogate_pair_and_no_messages_are_not_read(
    renderer: Renderer,
) -> None:
    result = {"type": "tool_result", "tool_use_id": "c", "content": "**a** b"}
    sealed = {"type": "redacted_thinking", "data": "**a** b"}
    for role, content in (
        *(("user", [result]), ("assistant", [sealed]), ("tool", "**a** b"), ("user", "**\ud83d**")),
    ):
        assert await renderer.message({"role": role, "content": content}) == []
    for nothing in (None, "text", ["text"]):
        assert await renderer.message(nothing) is None


async def test_a_text_that_takes_too_long_is_left_and_the_next_is_rendered() -> None:
    renderer = Renderer(limit=0)
    try:
        assert await renderer.message(MARKED) == []
        renderer._limit = 30
        # It is known by now, and is not tried again.
        assert await renderer.message(MARKED) == []
        assert trees(await renderer.message({"role": "user", "content": "**a** b "}))
    finally:
        await renderer.close()


async def test_a_child_that_dies_costs_one_text_its_markup(renderer: Renderer) -> None:
    assert trees(await renderer.message(MARKED))
    assert renderer._child is not None
    renderer._child.kill()
    await renderer._child.wait()
    assert await renderer.message({"role": "user", "content": "*c*"}) == []
    assert trees(await renderer.message(MARKED))


async def given_up(waiting: asyncio.Future[Any]) -> None:
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_question_or_half_an_answer_that_is_given_up_leaves_none_behind(
    renderer: Renderer,
) -> None:
    waiting = asyncio.ensure_future(renderer.message({"role": "user", "content": SLOW}))
    await asyncio.sleep(0)
    await given_up(waiting)
    assert trees(await renderer.message(MARKED)) == [(["content"], BOLD)]
    long = {"role": "user", "content": "**a**" + " word" * 39_000}
    waiting = asyncio.ensure_future(renderer.message(long))
    while renderer._child is None or not renderer._child.stdout._paused:  # type: ignore[union-attr]
        assert not waiting.done()
        await asyncio.sleep(0)
    await given_up(waiting)
    assert trees(await renderer.message({"role": "user", "content": "**a** b "}))


async def test_of_many_messages_those_after_the_limit_are_left(renderer: Renderer) -> None:
    assert await renderer.messages([MARKED, MARKED], within=0) == [None, None]
    assert all(await renderer.messages([MARKED, MARKED], within=30))
