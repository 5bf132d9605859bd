"""Recall: everything that was ever added is found, and nothing that was erased."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import re
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventctx.engine import Engine
from eventctx.errors import InvalidSetting, StreamNotFound
from eventctx.importers.load import import_file
from eventctx.log.events import Erased
from eventctx.log.store import Address
from eventctx.messages import recall_text
from eventctx.messages.recall_text import text_of
from eventctx.search.documents import matches, parse, parts_of, snippet, words
from eventctx.search.index import TextIndex
from eventctx.search.postgres_index import PostgresTextIndex
from eventctx.search.recall import Recall
from eventctx.search.sqlite_index import SqliteTextIndex
from eventctx.search.tool import Quote, RecallTool, fence_quote, page, read_arguments
from eventctx.stores.memory import MemoryStore
from eventctx.stores.postgres.store import PostgresStore
from tests.how_much import some
from tests.sessions import append_event, user
from tests.transcripts import DIALECTS, answer, calls, human, result

examples = settings(max_examples=some(40, 100), deadline=None)


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with Engine(MemoryStore()) as engine:
        yield engine


@pytest.fixture(params=["sqlite", "postgres"])
async def index(request: pytest.FixtureRequest) -> AsyncIterator[TextIndex]:
    """Every index in turn."""
    if request.param == "sqlite":
        yield SqliteTextIndex(None)
        return
    server = await PostgresStore.open(request.getfixturevalue("postgres_url"))
    yield PostgresTextIndex(server)
    await server.close()


@pytest.fixture
async def recall(engine: Engine, index: TextIndex) -> AsyncIterator[Recall]:
    recall = Recall(engine.store, index)
    yield recall
    await recall.close()


async def added(engine: Engine, session: str, *texts: str) -> None:
    ctx = await engine.session(session)
    for text in texts:
        await ctx.add_message(user(text))


async def erase(engine: Engine, session: str, number: int, *heirs: str) -> None:
    """Erase a message as the log is to show it: bodies first, then a record in every stream."""
    (line,) = [m for m in await engine.transcript(session) if m.number == number]
    await engine.store.erase({session: {Address(line.position): b""}})
    await record_erasure(engine, line.number, line.position, session, *heirs)


async def record_erasure(engine: Engine, number: int, position: int, *sessions: str) -> None:
    erased = Erased(numbers=(number,), bodies=((position, 0),))
    for session in sessions:
        await append_event(engine.store, erased, session=session)


# -- the text of a message -----------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_was_said_called_and_answered_is_text_and_thinking_is_not(dialect: str) -> None:
    rows = [
        human(dialect, "please look"),
        *answer(dialect, "certainly"),
        *calls(dialect, ["c1"], "secretthought", 3),
        result(dialect, "c1", "the outcome"),
    ]
    text = "\n".join(text_of(row) for row in rows)
    for word in ("please look", "certainly", "read", "path", "src/aaa", "the outcome"):
        assert word in text
    for word in ("secretthought", "sig+", "gA==", "c1"):
        assert word not in text
    assert text.count("src/aaa") == 1


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (
            {
                "type": "web_search_call",
                "id": "w1",
                "status": "completed",
                "action": {"type": "search", "query": "cats"},
            },
            "web_search_call\ntype: search\nquery: cats",
        ),
        (
            {"type": "mcp_call", "name": "find", "arguments": '{"near": "a\\nb"}', "output": "it"},
            "find\nnear: a\nb\noutput: it",
        ),
        (
            {
                "role": "assistant",
                "content": [
                    {"type": "server_tool_use", "id": "s1", "name": "look", "input": {"id": "x9"}},
                    {
                        "type": "web_search_tool_result",
                        "tool_use_id": "s1",
                        "content": [{"type": "web_search_result", "title": "Cats"}],
                    },
                ],
            },
            "look\nid: x9\ntitle: Cats",
        ),
    ],
    ids=["search", "mcp", "anthropic"],
)
def test_a_call_that_the_provider_answers_is_text_as_any_other_call(
    message: dict[str, Any], text: str
) -> None:
    assert text_of(message) == text


@pytest.mark.parametrize("place", ["image", "document", "data uri", "lines", "result"])
def test_base64_is_no_text(place: str) -> None:
    data = base64.b64encode(random.Random(1).randbytes(900)).decode()  # noqa: S311
    source = {"type": "base64", "media_type": "image/png", "data": data}
    lines = "\n".join(data[at : at + 76] for at in range(0, len(data), 76))
    block: dict[str, Any] = {
        "image": {"type": "image", "source": source},
        "document": {"type": "document", "title": "plan", "source": source},
        "data uri": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
        "lines": {"type": "text", "text": f"-----BEGIN-----\n{lines}\n-----END-----"},
        "result": {"type": "tool_result", "tool_use_id": "c", "content": f"<img src={data}>"},
    }[place]
    text = text_of({"role": "user", "content": [{"type": "text", "text": "look"}, block]})
    assert "look" in text
    assert data[:40] not in text
    assert data[400:440] not in text


def test_paths_and_digests_are_no_base64() -> None:
    path = "/".join(["Some", "longish2", "folder"] * 15)
    digests = "\n".join(random.Random(n).randbytes(32).hex() for n in range(9))  # noqa: S311
    text = text_of(user(f"{path}\n{digests}"))
    assert text == f"{path}\n{digests}"


@pytest.mark.parametrize("gap", ["\n", "\r\n", " ", "\x1c", "\u2028"])
@pytest.mark.parametrize("end", ["", "=", "=="])
@pytest.mark.parametrize("length", [60, 80])
def test_three_lines_of_encoded_bytes_are_no_text(length: int, end: str, gap: str) -> None:
    line = ("gZ7b" * 20)[:length] + end + gap
    assert "gZ7b" not in text_of(user(f"{'look at this: ' * 9}\n{line * 3}and that"))


def test_a_run_of_encoded_bytes_in_a_word_is_no_text() -> None:
    assert "gZ7b" not in text_of(user(f"src={'gZ7b' * 50};"))


def test_a_text_of_words_is_not_searched_for_encoded_bytes() -> None:
    path = "/".join(["folder"] * 12)
    assert not recall_text._may_hold_encoded(f"see {path} and {path}\nor the docs " * 100)


def test_a_line_break_in_json_arguments_does_not_glue_words_together() -> None:
    function = {"name": "write", "arguments": json.dumps({"text": "first\nsecond", "port": 8080})}
    text = text_of({"role": "assistant", "tool_calls": [{"id": "c", "function": function}]})
    assert {"first", "second", "8080", "write"} <= set(words(text))


def test_colours_of_a_terminal_do_not_stick_to_words() -> None:
    assert text_of(user("\x1b[1;31mError\x1b[0m: gone")) == "Error: gone"


@examples
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "role",
                        "type",
                        "content",
                        "text",
                        "input",
                        "tool_calls",
                        "function",
                        "name",
                        "output",
                        "text",
                        "tool_use",
                        "tool_result",
                        "id",
                    ]
                )
                | st.text(max_size=3),
                inner,
                max_size=5,
            )
        ),
    )
)
def test_anything_can_be_read(value: Any) -> None:
    for message in (value, {"role": "user", "content": value}, {"type": "x", "output": value}):
        if isinstance(message, dict):
            assert isinstance(text_of(message), str)


# -- queries and snippets ------------------------------------------------------------------------


@pytest.mark.parametrize("phrase", ["a " * 1_800, "漢字" * 1_800, "ab.cd-" * 600])
def test_of_a_long_phrase_the_first_words_count(phrase: str) -> None:
    ((text, _),) = parse(f'"{phrase}"')
    assert len(words(text)) == 64
    assert matches(phrase, parse(f'"{phrase}"'))[0][0] == 0


def test_words_phrases_and_prefixes_are_terms_and_all_else_is_literal() -> None:
    assert parse('find "the lost key" conf* a*b') == [
        ("find", False), ("the lost key", False), ("conf", True), ("a*b", False)
    ]  # fmt: skip
    assert parse('"lost ke"* "open') == [("lost ke", True), ("open", False)]
    assert parse('  "" * - () "!"* ') == []


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("get_messages", "get messages"),
        ("getHTTPResponse2", "get HTTP Response2"),
        ("__init__", "init"),
        ("plain words", ""),
        ("Capital WORDS", ""),
        ("MAX_SIZE max_size MAX_SIZE", "MAX SIZE\nmax size"),
    ],
)
def test_identifiers_are_made_of_words(text: str, parts: str) -> None:
    assert parts_of(text) == parts


WORD = re.compile(r"\w+")
HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def parts_of_every_word(text: str) -> str:
    """The definition: of each word, once, the parts that are not the word itself."""
    found = []
    for word in dict.fromkeys(WORD.findall(text)):
        parts = HUMP.sub(" ", word.replace("_", " ")).split()
        if len(word) <= 64 and parts and parts != [word]:
            found.append(" ".join(parts))
    return "\n".join(found)


@given(
    st.lists(
        st.text(st.sampled_from("aBcÉß9_-.\n\u2028\x1c 中ǅ"), max_size=12)
        | st.sampled_from(("max_retryCount", "HTTPServer", "__init__", "plain words", "Ab" * 40)),
        max_size=12,
    ).map(" ".join)
    | st.text(max_size=60)
)
def test_the_parts_of_identifiers_are_those_of_each_word_of_any_text(text: str) -> None:
    assert parts_of(text) == parts_of_every_word(text)


texts = st.text(
    st.sampled_from("ab AB_.\n\téÉß\u0301数据かΣς'\"*-") | st.characters(codec="utf-8"), max_size=60
)


@examples
@given(st.lists(texts, max_size=12).map(" ".join), texts, st.integers(10, 80))
def test_a_snippet_is_one_line_of_bounded_length(text: str, query: str, characters: int) -> None:
    shown = snippet(text, parse(query), characters)
    assert len(shown) <= characters
    assert "\n" not in shown


@examples
@given(st.integers(0, 400), st.integers(0, 400), st.sampled_from([" ", "\n    ", "\t\t"]))
def test_a_snippet_shows_the_match(before: int, after: int, space: str) -> None:
    text = space.join(["word"] * before + ["Schlüssel"] + ["other"] * after)
    shown = snippet(text, parse("schlussel"), 60)
    assert "Schlüssel" in shown
    assert shown.startswith("…") == (before > 10) or before <= 10


def test_a_snippet_shows_the_place_where_most_terms_are() -> None:
    text = "alpha " + "x " * 300 + "beta alpha gamma " + "y " * 300 + "beta"
    assert "beta alpha gamma" in snippet(text, parse("alpha beta gamma"), 80)


def test_matches_are_found_inside_identifiers_and_in_scripts_without_spaces() -> None:
    assert matches("call getMessages now", parse("messages")) == [(8, 16, 0)]
    assert matches("我们的数据库密码", parse("数据库")) == [(3, 6, 0)]


# -- searching -----------------------------------------------------------------------------------


async def test_the_best_match_comes_first_and_of_equal_ones_the_latest(
    engine: Engine, recall: Recall
) -> None:
    await added(engine, "s", "the key", "the key", "key " + "and more words " * 40, "no match")
    found = await recall.search("key")
    assert [one.number for one in found] == [1, 0, 2]
    assert found[0].score == found[1].score > found[2].score > 0
    first = found[1]
    line = (await engine.transcript("s"))[0]
    assert (first.session, first.position, first.role) == ("s", line.position, "user")
    assert (first.message, first.snippet) == (line.message, "the key")
    (record,) = [r async for r in engine.records("s", line.position, line.position)]
    assert first.time == record.time


FINDS: dict[str, set[int]] = {
    "get_messages_for_request": {0},
    "messages": {0, 1, 2},
    "GETMESSAGES": {1},
    "get_*": {0},
    '"for request"': {0, 2},
    '"for the request"': set(),
    "schluessel": set(),
    "schlussel": {3},
    "schl*": {3},
    "数据库": {4},
    "据库": {4},
    "库据": set(),
    "os.path.join": {5},
    "AND": {6},
    "this AND": {6},
    "text:foo": {7},
    "-not": {6},
    "nowhere messages": {0, 1, 2},
}
ODD = ("\ud800", "a\0b", '"' * 99, "a " * 9000, "^a", "NEAR(a b, 2)")


async def test_what_a_query_finds_and_that_odd_ones_are_queries(
    engine: Engine, recall: Recall
) -> None:
    await added(
        engine,
        "s",
        "call get_messages_for_request",
        "or getMessages",
        "messages for request",
        "der Schlüssel",
        "数据库密码",
        "os.path.join(a)",
        "this and that, not those",
        "text: foo",
    )
    for query, found in FINDS.items():
        assert {one.number for one in await recall.search(query)} == found, query
    await added(engine, "odd", "a b")
    for query in ODD:
        await recall.search(query)


async def test_cleared_and_replaced_messages_are_found_under_their_numbers(
    engine: Engine, recall: Recall
) -> None:
    ctx = await engine.session("s")
    for text in ("red apple", "green apple", "blue apple"):
        await ctx.add_message(user(text))
    await ctx.set_messages([user("a new apple"), user("green apple"), user("another apple")])
    assert [m.number for m in await engine.transcript("s")] == [3, 1, 4]
    await ctx.clear()
    await ctx.add_message(user("last apple"))
    found = {one.number: one.message["content"] for one in await recall.search("apple", "s")}
    assert found == {
        0: "red apple",
        1: "green apple",
        2: "blue apple",
        3: "a new apple",
        4: "another apple",
        5: "last apple",
    }
    for number, text in found.items():
        assert (await recall.message("s", number)).message == user(text)
    with pytest.raises(InvalidSetting, match="a number from 0 to 5, found 6"):
        await recall.message("s", 6)
    with pytest.raises(InvalidSetting, match="a message number from 0"):
        await recall.message("s", 2**70)


async def test_a_fork_finds_what_it_inherited_and_its_own(engine: Engine, recall: Recall) -> None:
    await added(engine, "parent", "stone one", "stone two")
    at = (await engine.transcript("parent"))[0].position
    await engine.fork("parent", at, "child")
    await added(engine, "child", "stone three")
    await added(engine, "parent", "stone four")
    head = (await engine.transcript("child"))[-1].position
    await engine.fork("child", head, "grandchild")
    await added(engine, "grandchild", "stone five")

    async def found(session: str | None) -> set[tuple[str, int, str]]:
        hits = await recall.search("stone", session)
        return {(one.session, one.number, one.message["content"]) for one in hits}

    assert await found("child") == {("child", 0, "stone one"), ("child", 1, "stone three")}
    assert await found("grandchild") == {
        ("grandchild", 0, "stone one"),
        ("grandchild", 1, "stone three"),
        ("grandchild", 2, "stone five"),
    }
    assert len(await found("parent")) == 3
    assert len(await found(None)) == 5
    assert (await recall.message("grandchild", 1)).message == user("stone three")
    for session in ("child", "grandchild", "parent"):
        for line in await engine.transcript(session):
            again = await recall.message(session, line.number)
            assert (again.position, again.message) == (line.position, line.message)


async def test_what_was_erased_is_not_found_and_never_comes_back(
    engine: Engine, recall: Recall
) -> None:
    await added(engine, "s", "the password is swordfish", "unrelated")
    at = (await engine.transcript("s"))[0].position
    await engine.fork("s", at, "fork")
    assert len(await recall.search("swordfish")) == 1
    await erase(engine, "s", 0, "fork")
    await added(engine, "s", "more")
    anew = Recall(engine.store, SqliteTextIndex(None))
    for one in (recall, anew):
        for session in (None, "s", "fork"):
            assert await one.search("swordfish", session) == []
        assert (await one.message("s", 0)).message is None
        assert [hit.number for hit in await one.search("more", "s")] == [2]


async def test_an_erasure_whose_record_is_missing_hides_the_message_all_the_same(
    engine: Engine, recall: Recall
) -> None:
    await added(engine, "s", "swordfish one", "swordfish two")
    assert len(await recall.search("swordfish", limit=1)) == 1
    position = (await engine.transcript("s"))[1].position
    await engine.store.erase({"s": {Address(position): b""}})
    assert [hit.number for hit in await recall.search("swordfish", limit=1)] == [0]
    await record_erasure(engine, 1, position, "s")
    assert [hit.number for hit in await recall.search("swordfish")] == [0]


@examples
@given(texts | st.text())
def test_any_text_is_a_query(query: str) -> None:
    async def search() -> None:
        recall = await _searched_before()
        assert isinstance(await recall.search(query), list)
        assert isinstance(await recall.search(f'{query}"*', "s"), list)

    with asyncio.Runner() as runner:
        runner.run(search())


_prepared: list[Recall] = []


async def _searched_before() -> Recall:
    if not _prepared:
        engine = Engine(MemoryStore())
        await added(engine, "s", "a b AB é ß 数据 x_y", "a")
        _prepared.append(Recall(engine.store, SqliteTextIndex(None)))
    return _prepared[0]


async def test_wrong_arguments_are_named(engine: Engine, recall: Recall) -> None:
    await added(engine, "s", "a b")
    with pytest.raises(StreamNotFound):
        await recall.search("a", "nobody")
    with pytest.raises(InvalidSetting, match="limit"):
        await recall.search("a", limit=0)
    with pytest.raises(InvalidSetting, match="a text to search for"):
        await recall.search(None)  # type: ignore[arg-type]
    assert await recall.search("") == []


async def test_searches_at_the_same_time_agree(engine: Engine, recall: Recall) -> None:
    await added(engine, "s", *(f"note number {number}" for number in range(50)))
    answers = await asyncio.gather(*(recall.search("note", limit=50) for _ in range(10)))
    assert [len(one) for one in answers] == [50] * 10
    others: list[int] = []

    def elsewhere() -> None:
        others.append(len(asyncio.run(recall.search("note", limit=50))))

    threads = [threading.Thread(target=elsewhere) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert others == [50] * 4


async def test_what_a_caller_does_with_a_message_reaches_nobody(
    engine: Engine, recall: Recall
) -> None:
    await added(engine, "s", "precious")
    (await recall.search("precious"))[0].message["content"] = "spoilt"
    assert (await recall.search("precious"))[0].message == user("precious")


# -- the tool ------------------------------------------------------------------------------------


async def test_the_definitions_fit_the_providers() -> None:
    tool = RecallTool("s", await _searched_before())
    assert tool.anthropic == {
        "name": "recall_messages",
        "description": tool.description,
        "input_schema": tool.parameters,
    }
    assert tool.openai["function"]["parameters"] == tool.parameters
    assert set(tool.parameters["properties"]) == {"query", "message", "start"}
    assert json.loads(json.dumps([tool.anthropic, tool.openai]))


async def test_the_tool_finds_a_message_and_reads_it_in_full(
    engine: Engine, recall: Recall
) -> None:
    whole = " ".join(f"word{number}" for number in range(2000))
    await added(engine, "s", "the colour is teal", whole)
    await (await engine.session("s")).clear()
    tool = RecallTool("s", recall, max_characters=2_000)
    found = await tool({"query": "colour"})
    assert 'message="0" role="user"' in found
    assert "the colour is teal" in found
    assert "the colour is teal" in await tool({"message": "#0"})
    parts: list[str] = []
    while sum(map(len, parts)) < len(whole):
        text = await tool({"message": 1, "start": sum(map(len, parts))})
        assert len(text) <= 2_000
        parts.append(text.split(">\n", 1)[1].rsplit("\n</", 1)[0])
    assert "".join(parts) == whole
    assert len(parts) < 15


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
arguments = (
    st.fixed_dictionaries(
        {}, optional={"query": json_values, "message": json_values, "start": json_values}
    )
    | json_values
    | st.binary(max_size=20)
)


@examples
@given(arguments)
def test_whatever_a_model_sends_is_answered_with_a_bounded_text(sent: Any) -> None:
    async def ask() -> str:
        return await RecallTool("s", await _searched_before(), max_characters=600)(sent)

    with asyncio.Runner() as runner:
        text = runner.run(ask())
    assert 0 < len(text) <= 600


@pytest.mark.parametrize(
    ("sent", "said_back"),
    [
        ({}, "nothing to look for"),
        ({"query": 5}, "`query` must be a text, not 5"),
        ({"message": "twelve"}, "must be a message number from 0, not 'twelve'"),
        ({"message": 99}, "expected a number from 0 to 1, found 99"),
        ({"message": 1, "start": -1}, "`start` must be"),
        ({"message": 1, "start": 10**6}, "start must be below"),
        ("{", "no JSON"),
        ([], "a list, not an object"),
        ({"query": "zebra"}, "No message of this conversation matches"),
        ({"query": "", "message": 1}, "characters 0 to 1 of 1"),
        ('{"query": null, "message": 1.0}', "characters 0 to 1 of 1"),
    ],
)
async def test_what_is_wrong_is_said_to_the_model(sent: Any, said_back: str) -> None:
    assert said_back in await RecallTool("s", await _searched_before())(sent)


async def test_the_tool_of_a_session_that_does_not_exist_says_so() -> None:
    tool = RecallTool("nobody", await _searched_before())
    assert "no session 'nobody'" in await tool({"query": "a"})


@examples
@given(texts, st.text(max_size=40), st.integers(0, 3))
def test_a_fence_cannot_be_closed_from_inside(text: str, role: str, copies: int) -> None:
    # Somebody who has seen earlier answers writes their fences into a message.
    for _ in range(copies):
        text += fence_quote(Quote(1, "user", 0, text))
    block = fence_quote(Quote(1, role, 0, text))
    opening, *middle, closing = block.split("\n")
    fence = closing.removeprefix("</").removesuffix(">")
    assert opening.startswith(f"<{fence} ")
    assert fence not in text
    assert "\n".join(middle) == text
    assert opening.count("<") == opening.count(">") == 1


@examples
@given(st.text(max_size=3000), st.integers(0, 3000), st.integers(600, 1500))
def test_a_page_is_bounded(text: str, start: int, characters: int) -> None:
    assert len(page(Quote(10**18, "user" * 20, 2**60, text), start, characters)) <= characters


def test_a_number_as_an_index_names_it_is_no_search() -> None:
    for sent in ({"message": "#12"}, {"query": "#12"}, {"query": " #12 "}, '{"query": "#12"}'):
        asked = read_arguments(sent)
        assert not isinstance(asked, str)
        assert (asked.message, asked.query) == (12, "")
    for query in ("12", "#12 and more", "#tag", "#"):
        asked = read_arguments({"query": query})
        assert not isinstance(asked, str)
        assert (asked.message, asked.query) == (None, query)


async def test_a_search_does_not_find_the_searches_before_it(
    engine: Engine, recall: Recall
) -> None:
    ctx = await engine.session("s")
    await ctx.add_message(user("the harbour is closed"))
    tool = RecallTool("s", recall)
    for turn in range(3):
        block = {"type": "tool_use", "id": f"t{turn}", "name": tool.name,
                 "input": {"query": "harbour closed"}}  # fmt: skip
        await ctx.add_message({"role": "assistant", "content": [block]})
        quoted = await tool(block["input"])
        assert quoted.count("message=") == 1
        done = {"type": "tool_result", "tool_use_id": f"t{turn}", "content": quoted}
        await ctx.add_message({"role": "user", "content": [done]})
    assert [one.number for one in await recall.search("harbour")] == [0]


async def test_settings_of_the_tool_are_checked() -> None:
    recall = await _searched_before()
    with pytest.raises(InvalidSetting, match="max_characters"):
        RecallTool("s", recall, max_characters=10)
    with pytest.raises(InvalidSetting, match="limit"):
        RecallTool("s", recall, limit=0)
    assert read_arguments({"message": True}) != read_arguments({"message": 1})


# -- recorded sessions ---------------------------------------------------------------------------

SPOTTER = "claude-code/spotter-258c7280/258c7280-ae70-4798-800f-63464d01a85d.jsonl"
ENTIRE = "claude-code/entire-26dcd5518fea.jsonl"


in_one_process = pytest.mark.xdist_group("recall")  # which imports them once


@pytest.fixture(scope="module")
def recorded(recorded_sessions: Path) -> tuple[Engine, list[str]]:
    """An engine with recorded sessions, and their names."""
    engine = Engine(MemoryStore())

    async def names() -> list[str]:
        done = [
            await import_file(engine.store, recorded_sessions / name, complete=True)
            for name in (SPOTTER, ENTIRE)
        ]
        return [one.session or "" for summaries in done for one in summaries]

    return engine, asyncio.run(names())


@in_one_process
async def test_a_phrase_that_was_compacted_away_is_found(
    recorded: tuple[Engine, list[str]], index: TextIndex
) -> None:
    engine, (session, *_) = recorded
    recall = Recall(engine.store, index)
    audit = await engine.audit(session)
    assert [row.outcome for row in audit.compactions] == ["applied"]
    view = await engine.request_view(session, position=audit.requests[-1].position)
    phrase = "remove invalid keyset? page option"
    assert phrase not in json.dumps(view.messages)

    (found, *_) = await recall.search(f'"{phrase}"', session)
    assert found.position < audit.compactions[0].position
    assert phrase in found.snippet
    assert phrase in json.dumps(found.message)
    shown = await RecallTool(session, recall)({"query": phrase})
    assert f'message="{found.number}"' in shown
    assert phrase in await RecallTool(session, recall)({"message": found.number})
    await recall.close()


@in_one_process
async def test_messages_of_real_sessions_are_found_by_their_numbers(
    recorded: tuple[Engine, list[str]], index: TextIndex
) -> None:
    engine, sessions = recorded
    recall = Recall(engine.store, index)
    for session in sessions:
        for line in (await engine.transcript(session))[:: some(3, 1)]:
            again = await recall.message(session, line.number)
            assert (again.position, again.message) == (line.position, line.message)
    await recall.close()
