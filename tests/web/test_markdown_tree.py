"""A text with markup is a tree of allowed elements that shows all of it, and nothing else.

It is made in a process that may be ended, and a text without its tree is still shown.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

from eventctx.web.markdown_tree import CLASSES, MOST_CODE, TAGS, tree_of
from eventctx.web.renderer import Rendered, Renderer
from tests.browser import hostile
from tests.how_much import some

PAGE = Path(__file__).resolve().parents[2] / "eventctx" / "web" / "page" / "parts" / "rendered.js"


def elements(nodes: Any) -> Iterator[tuple[str, dict[str, str]]]:
    for node in nodes:
        if not isinstance(node, str):
            tag, attributes, children = node
            yield tag, attributes
            yield from elements(children)


def words_of(nodes: Any) -> str:
    return "".join(node if isinstance(node, str) else words_of(node[2]) for node in nodes)


LINK = ["a", {"href": "https://a.example/i.png"}, ["image: the plan"]]


def test_markup_becomes_elements_and_an_image_from_elsewhere_a_link() -> None:
    heading, words = tree_of("# One\n\n*two* **three** `four` ~~five~~\nsix") or ()
    assert heading == ["p", {"class": "h1"}, ["One"]]
    two, three = ["em", {}, ["two"]], ["strong", {}, ["three"]]
    four, five = ["code", {}, ["four"]], ["del", {}, ["five"]]
    assert words == ["p", {}, [two, " ", three, " ", four, " ", five, "\nsix"]]
    assert tree_of("![the plan](https://a.example/i.png)") == [["p", {}, [LINK]]]


def test_lists_keep_their_numbers_and_tables_their_cells() -> None:
    marks = [["span", {"class": "mark"}, [f"{number}."]] for number in (3, 4)]
    inner = ["ul", {}, [["li", {}, ["c"]]]]
    items = [["li", {}, [marks[0], " a"]], ["li", {}, [marks[1], " b", inner]]]
    assert tree_of("3. a\n4. b\n   - c") == [["ol", {}, items]]
    cells = [tag for tag, _ in elements(tree_of("|a|b|\n|-|-|\n|c|d|"))]
    assert Counter(cells)["th"] == Counter(cells)["td"] == 2


def test_code_is_highlighted_by_its_language_and_is_whole() -> None:
    code = 'def f(x):\n    return "a" + 1  # why\n\n'
    label, block = tree_of(f"```python title\n{code}```") or ()
    assert label == ["p", {"class": "lang"}, ["python title"]]
    assert words_of([block]) == code.removesuffix("\n")
    assert {one["class"] for tag, one in elements([block]) if tag == "span"} == set("cknms")


@pytest.mark.parametrize("code", ["x = 1\n" * MOST_CODE, "x" * 5_000])
def test_long_code_is_not_highlighted(code: str) -> None:
    _, block = tree_of(f"```python\n{code}\n```") or ()
    assert block[2] == [code.removesuffix("\n")] or block[2] == [code]


@pytest.mark.parametrize("address", ["https://a.example/b", "HTTP://a.b", "mailto:a@b.example"])
def test_links_to_the_web_and_to_people_are_links(address: str) -> None:
    assert tree_of(f"[here]({address})") == [["p", {}, [["a", {"href": address}, ["here"]]]]]


@pytest.mark.parametrize(
    "address",
    ["javascript:ran=1", "JaVaScRiPt:ran=1", "data:text/html,x", "file:///etc", "/api", "x:y"],
)
def test_every_other_link_is_the_text_that_was_written(address: str) -> None:
    text = f"[here]({address}) <{address}> ![image]({address})"
    assert words_of(tree_of(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "[//]: # (a comment that no reader of Markdown shows)",
        "[name]: https://a.example 'a title'",
        "&#72;idden &lt;",
        "<!-- a comment -->",
        "<b title='x'>bold</b>",
    ],
)
def test_what_markdown_would_hide_or_replace_is_shown_as_written(text: str) -> None:
    assert re.sub(r"\W", "", words_of(tree_of(text) or [text])) == re.sub(r"\W", "", text)


@pytest.mark.parametrize("text", ["> " * 40 + "words", "*a*\n\n" * 15_000], ids=["deep", "many"])
def test_a_text_that_is_nested_too_deeply_or_has_too_many_elements_has_no_tree(text: str) -> None:
    assert tree_of(text) is None


@pytest.mark.parametrize("attack", [*hostile.MARKUP.values(), *hostile.CONTROLS.values()])
def test_hostile_words_are_words(attack: str) -> None:
    texts = ("{}", "# {}", "- {}", "`{}`")
    for form in (*texts, "[{}](https://a.b)", "```html\n{}\n```", "|{}|\n|-|\n|{}|"):
        tree = tree_of(form.replace("{}", attack))
        if tree is None:
            continue
        for tag, attributes in elements(tree):
            assert tag in TAGS
            assert attributes.keys() <= {"class", "href"}
            assert attributes.get("class", "c") in CLASSES
            assert re.match(r"https?://|mailto:", attributes.get("href", "https://"), re.I)
        assert "ran=1" not in attack or "ran=1" in words_of(tree)


_MARKS = st.sampled_from(
    ["*", "_", "`", "```\n", "[", "](https://a.example)", "<", ">", "> ", "- ", "1. ", "# ", "|",
     "\n", "\n\n", "    ", "\\", "&amp;", "~~", "!", ":", "=\n", "-\n", "a", "b1", "ß", " "]
)  # fmt: skip


@given(st.lists(_MARKS, max_size=60).map("".join))
@settings(max_examples=some(60, 300), deadline=None)
def test_a_tree_shows_every_letter_and_digit_of_its_text(text: str) -> None:
    tree = tree_of(text)
    if tree is None:
        return
    shown = Counter(words_of(tree) + "".join(one.get("href", "") for _, one in elements(tree)))
    assert all(shown[one] >= count for one, count in Counter(text).items() if one.isalnum())
    assert {tag for tag, _ in elements(tree)} <= TAGS
    json.dumps(tree)


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    ["> ", "[", "![", "[a](", "*a ", "**", "_a", "- ", "<", "`", "```\n", "# \n", "|a", "a\n"],
)
def test_a_text_made_of_one_mark_takes_seconds_at_most(unit: str) -> None:
    started = time.process_time()
    tree_of(unit * (some(50_000, 200_000) // len(unit)))
    assert time.process_time() - started < 20


def test_the_page_knows_the_same_elements_and_classes() -> None:
    source = PAGE.read_text()
    listed = [
        set(re.findall(r"'([\w-]+)'", block))
        for block in re.findall(r"const TREE_\w+ = new Set\(\[(.*?)\]\)", source, re.DOTALL)
    ]
    assert listed == [TAGS - {"a"}, CLASSES]


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


async def test_results_sealed_thinking_and_half_pairs_are_not_read(renderer: Renderer) -> None:
    result = {"type": "tool_result", "tool_use_id": "c", "content": "**a** b"}
    sealed = {"type": "redacted_thinking", "data": "**a** b"}
    odd = (("user", [result]), ("assistant", [sealed]), ("tool", "**a** b"), ("user", "**\ud83d**"))
    for role, content in odd:
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


async def test_a_question_that_is_given_up_leaves_no_answer_behind(renderer: Renderer) -> None:
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
