"""Recall: everything that was ever added is found, and nothing that was erased."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import re
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
from tests.policies.given import called, told
from tests.services.fixtures import one_process
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


# -- the text of a message -----------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_was_said_called_and_answered_is_text_and_thinking_is_not(dialect: str) -> None:
    said = [human(dialect, "please look"), *answer(dialect, "certainly")]
    round_ = [*calls(dialect, ["c1"], "secretthought", 3), result(dialect, "c1", "the outcome")]
    text = "\n".join(text_of(row) for row in [*said, *round_])
    for word in ("please look", "certainly", "read", "path", "src/aaa", "the outcome"):
        assert word in text
    for word in ("secretthought", "sig+", "gA==", "c1"):
        assert word not in text
    assert text.count("src/aaa") == 1


ACTION = {"type": "search", "query": "cats"}
SEARCH = {"type": "web_search_call", "id": "w1", "status": "completed", "action": ACTION}
MCP = {"type": "mcp_call", "name": "find", "arguments": '{"near": "a\\nb"}', "output": "it"}
CATS = {"type": "web_search_result", "title": "Cats"}
BLOCKS = [
    {"type": "server_tool_use", "id": "s1", "name": "look", "input": {"id": "x9"}},
    {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [CATS]},
]
COLOURED = "\x1b[1;31mError\x1b[0m: gone"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (SEARCH, "web_search_call\ntype: search\nquery: cats"),
        (MCP, "find\nnear: a\nb\noutput: it"),
        ({"role": "assistant", "content": BLOCKS}, "look\nid: x9\ntitle: Cats"),
        (user(COLOURED), "Error: gone"),
    ],
    ids=["search", "mcp", "anthropic", "colours of a terminal"],
)
def test_calls_that_providers_answer_are_text(message: dict[str, Any], text: str) -> None:
    assert text_of(message) == text


BYTES = base64.b64encode(random.Random(1).randbytes(900)).decode()  # noqa: S311
SOURCE = {"type": "base64", "media_type": "image/png", "data": BYTES}
LINES = "\n".join(BYTES[at : at + 76] for at in range(0, len(BYTES), 76))


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "source": SOURCE},
        {"type": "document", "title": "plan", "source": SOURCE},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{BYTES}"}},
        {"type": "text", "text": f"-----BEGIN-----\n{LINES}\n-----END-----"},
        {"type": "tool_result", "tool_use_id": "c", "content": f"<img src={BYTES}>"},
    ],
    ids=["image", "document", "data uri", "lines", "result"],
)
def test_base64_is_no_text(block: dict[str, Any]) -> None:
    text = text_of({"role": "user", "content": [{"type": "text", "text": "look"}, block]})
    assert "look" in text
    assert BYTES[:40] not in text and BYTES[400:440] not in text


def test_paths_and_digests_are_no_base64_and_a_run_of_it_in_a_word_is() -> None:
    path = "/".join(["Some", "longish2", "folder"] * 15)
    digests = "\n".join(random.Random(n).randbytes(32).hex() for n in range(9))  # noqa: S311
    assert text_of(user(f"{path}\n{digests}")) == f"{path}\n{digests}"
    assert "gZ7b" not in text_of(user(f"src={'gZ7b' * 50};"))
    # A text of words is not searched for it.
    path = "/".join(["folder"] * 12)
    assert not recall_text._may_hold_encoded(f"see {path} and {path}\nor the docs " * 100)


@pytest.mark.parametrize("gap", ["\n", "\r\n", " ", "\x1c", "\u2028"])
@pytest.mark.parametrize("end", ["", "=", "=="])
@pytest.mark.parametrize("length", [60, 80])
def test_three_lines_of_encoded_bytes_are_no_text(length: int, end: str, gap: str) -> None:
    line = ("gZ7b" * 20)[:length] + end + gap
    assert "gZ7b" not in text_of(user(f"{'look at this: ' * 9}\n{line * 3}and that"))


def test_a_line_break_in_json_arguments_does_not_glue_words_together() -> None:
    function = {"name": "write", "arguments": json.dumps({"text": "first\nsecond", "port": 8080})}
    text = text_of({"role": "assistant", "tool_calls": [{"id": "c", "function": function}]})
    assert {"first", "second", "8080", "write"} <= set(words(text))


KEYS = "role type content text input tool_calls function name output tool_use tool_result id"
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS.split()) | st.text(max_size=3), inner, max_size=5)
    ),
)


@examples
@given(VALUES)
def test_anything_can_be_read(value: Any) -> None:
    for message in (value, {"role": "user", "content": value}, {"type": "x", "output": value}):
        if isinstance(message, dict):
            assert isinstance(text_of(message), str)


# -- queries and snippets ------------------------------------------------------------------------


def test_words_phrases_and_prefixes_are_terms_and_all_else_is_literal() -> None:
    assert parse('find "the lost key" conf* a*b') == [
        ("find", False), ("the lost key", False), ("conf", True), ("a*b", False)
    ]  # fmt: skip
    assert parse('"lost ke"* "open') == [("lost ke", True), ("open", False)]
    assert parse('  "" * - () "!"* ') == []
    for phrase in ("a " * 1_800, "漢字" * 1_800, "ab.cd-" * 600):
        ((text, _),) = parse(f'"{phrase}"')
        assert len(words(text)) == 64, "of a long phrase the first words count"
        assert matches(phrase, parse(f'"{phrase}"'))[0][0] == 0


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
        | st.sampled_from(
            ("max_retryCount", "getHTTPResponse2", "__init__", "plain words", "Ab" * 40)
        ),
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
    assert len(shown) <= characters and "\n" not in shown


@examples
@given(st.integers(0, 400), st.integers(0, 400), st.sampled_from([" ", "\n    ", "\t\t"]))
def test_a_snippet_shows_the_match(before: int, after: int, space: str) -> None:
    text = space.join(["word"] * before + ["Schlüssel"] + ["other"] * after)
    shown = snippet(text, parse("schlussel"), 60)
    assert "Schlüssel" in shown
    assert shown.startswith("…") == (before > 10) or before <= 10


def test_matches_are_found_inside_identifiers_and_shown_where_most_terms_are() -> None:
    assert matches("call getMessages now", parse("messages")) == [(8, 16, 0)]
    assert matches("我们的数据库密码", parse("数据库")) == [(3, 6, 0)]
    text = "alpha " + "x " * 300 + "beta alpha gamma " + "y " * 300 + "beta"
    assert "beta alpha gamma" in snippet(text, parse("alpha beta gamma"), 80)


# -- searching -----------------------------------------------------------------------------------


async def test_the_best_match_comes_first_the_latest_of_equals(
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


TEXTS = [
    *("call get_messages_for_request", "or getMessages", "messages for request"),
    *("der Schlüssel", "数据库密码", "os.path.join(a)", "this and that, not those", "text: foo"),
]
FINDS: dict[str, tuple[int, ...]] = {
    "get_messages_for_request": (0,),
    "messages": (0, 1, 2),
    "GETMESSAGES": (1,),
    "get_*": (0,),
    '"for request"': (0, 2),
    **dict.fromkeys(('"for the request"', "schluessel", "库据"), ()),
    **dict.fromkeys(("schlussel", "schl*"), (3,)),
    **dict.fromkeys(("数据库", "据库"), (4,)),
    "os.path.join": (5,),
    **dict.fromkeys(("AND", "this AND", "-not"), (6,)),
    "text:foo": (7,),
    "nowhere messages": (0, 1, 2),
}


async def test_what_queries_find_and_that_odd_ones_are(engine: Engine, recall: Recall) -> None:
    await added(engine, "s", *TEXTS)
    for query, found in FINDS.items():
        assert {one.number for one in await recall.search(query)} == {*found}, query
    await added(engine, "odd", "a b")
    for query in ODD:
        await recall.search(query)


ODD = ("\ud800", "a\0b", '"' * 99, "a " * 9000, "^a", "NEAR(a b, 2)")


async def test_messages_are_read_by_their_numbers_cleared_replaced_inherited_or_erased(
    engine: Engine, recall: Recall
) -> None:
    texts = ["red", "green", "blue", "a new", "another", "last"]
    apples = [f"{text} apple" for text in texts]
    await added(engine, "parent", *apples[:3])
    ctx = await engine.session("parent")
    await ctx.set_messages([user(apples[3]), user(apples[1]), user(apples[4])])
    await engine.fork("parent", (await engine.sessions())[0].head, "child")
    await ctx.clear()
    await added(engine, "child", apples[5])
    await (await engine.session("child")).clear()
    found = {one.number: one.message["content"] for one in await recall.search("apple", "child")}
    assert found == dict(enumerate(apples))
    for number, text in found.items():
        assert (await recall.message("child", number)).message == user(text)
    for wrong, said in ((6, "a number from 0 to 5, found 6"), (2**70, "a message number from 0")):
        with pytest.raises(InvalidSetting, match=said):
            await recall.message("child", wrong)
    await engine.erase("parent", [2])
    assert len(await recall.search("apple")) == 5
    for session in ("parent", "child"):
        assert await recall.search("blue", session) == []
        assert (await recall.message(session, 2)).message is None


async def test_an_erasure_without_its_record_hides_the_message(
    engine: Engine, recall: Recall
) -> None:
    await added(engine, "s", "swordfish one", "swordfish two")
    assert len(await recall.search("swordfish", limit=1)) == 1
    position = (await engine.transcript("s"))[1].position
    await engine.store.erase({"s": {Address(position): b""}})
    assert [hit.number for hit in await recall.search("swordfish", limit=1)] == [0]
    await append_event(engine.store, Erased(numbers=(1,), bodies=((position, 0),)))
    assert [hit.number for hit in await recall.search("swordfish")] == [0]


@examples
@given(texts | st.text())
def test_any_text_is_a_query(query: str) -> None:
    async def search() -> None:
        recall = await _searched_before()
        assert isinstance(await recall.search(query), list)
        assert isinstance(await recall.search(f'{query}"*', "s"), list)

    asyncio.run(search())


_prepared: list[Recall] = []


async def _searched_before() -> Recall:
    if not _prepared:
        engine = Engine(MemoryStore())
        await added(engine, "s", "a b AB é ß 数据 x_y", "a")
        _prepared.append(Recall(engine.store, SqliteTextIndex(None)))
    return _prepared[0]


async def test_wrong_arguments_are_named_and_what_a_caller_does_with_a_message_reaches_nobody(
    engine: Engine, recall: Recall
) -> None:
    await added(engine, "s", "precious")
    (await recall.search("precious"))[0].message["content"] = "spoilt"
    assert (await recall.search("precious"))[0].message == user("precious")
    with pytest.raises(StreamNotFound):
        await recall.search("a", "nobody")
    with pytest.raises(InvalidSetting, match="limit"):
        await recall.search("a", limit=0)
    with pytest.raises(InvalidSetting, match="a text to search for"):
        await recall.search(None)  # type: ignore[arg-type]
    assert await recall.search("") == []


async def test_searches_at_the_same_time_agree(engine: Engine, recall: Recall) -> None:
    await added(engine, "s", *(f"note number {number}" for number in range(50)))

    def elsewhere() -> int:
        return len(asyncio.run(recall.search("note", limit=50)))

    answers = await asyncio.gather(*(recall.search("note", limit=50) for _ in range(10)))
    others = await asyncio.gather(*(asyncio.to_thread(elsewhere) for _ in range(4)))
    assert [*map(len, answers), *others] == [50] * 14


# -- the tool ------------------------------------------------------------------------------------


async def test_the_definitions_fit_the_providers_and_settings_are_checked() -> None:
    recall = await _searched_before()
    tool = RecallTool("s", recall)
    told = {"name": "recall_messages", "description": tool.description}
    assert tool.anthropic == {**told, "input_schema": tool.parameters}
    assert tool.openai["function"]["parameters"] == tool.parameters
    assert set(tool.parameters["properties"]) == {"query", "message", "start"}
    assert json.loads(json.dumps([tool.anthropic, tool.openai]))
    with pytest.raises(InvalidSetting, match="max_characters"):
        RecallTool("s", recall, max_characters=10)
    with pytest.raises(InvalidSetting, match="limit"):
        RecallTool("s", recall, limit=0)
    assert "no session 'nobody'" in await RecallTool("nobody", recall)({"query": "a"})


async def test_the_tool_finds_and_reads_a_message_in_full(engine: Engine, recall: Recall) -> None:
    whole = " ".join(f"word{number}" for number in range(2000))
    await added(engine, "s", "the colour is teal", whole)
    await (await engine.session("s")).clear()
    tool = RecallTool("s", recall, max_characters=2_000)
    found = await tool({"query": "colour"})
    assert 'message="0" role="user"' in found
    assert "the colour is teal" in found
    assert "the colour is teal" in await tool({"message": "#0"})
    read, parts = "", 0
    while len(read) < len(whole):
        text = await tool({"message": 1, "start": len(read)})
        assert len(text) <= 2_000
        read, parts = read + text.split(">\n", 1)[1].rsplit("\n</", 1)[0], parts + 1
    assert read == whole
    assert parts < 15


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
fields = dict.fromkeys(("query", "message", "start"), json_values)
arguments = st.fixed_dictionaries({}, optional=fields) | json_values | st.binary(max_size=20)


@examples
@given(arguments)
def test_whatever_a_model_sends_is_answered_with_a_bounded_text(sent: Any) -> None:
    async def ask() -> str:
        return await RecallTool("s", await _searched_before(), max_characters=600)(sent)

    assert 0 < len(asyncio.run(ask())) <= 600


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
    twelve = ({"message": "#12"}, {"query": "#12"}, {"query": " #12 "}, '{"query": "#12"}')
    searched = ("12", "#12 and more", "#tag", "#")
    expected = [((12, ""), sent) for sent in twelve]
    expected += [((None, query), {"query": query}) for query in searched]
    for (number, query), sent in expected:
        asked = read_arguments(sent)
        assert not isinstance(asked, str) and (asked.message, asked.query) == (number, query)
    assert read_arguments({"message": True}) != read_arguments({"message": 1})


async def test_a_search_does_not_find_earlier_searches(engine: Engine, recall: Recall) -> None:
    await added(engine, "s", "the harbour is closed")
    ctx, tool = await engine.session("s"), RecallTool("s", recall)
    for turn in range(3):
        call = called(f"t{turn}", tool.name, {"query": "harbour closed"})
        await ctx.add_message(call)
        quoted = await tool(call["content"][0]["input"])
        assert quoted.count("message=") == 1
        await ctx.add_message(told(f"t{turn}", quoted))
    assert [one.number for one in await recall.search("harbour")] == [0]


# -- recorded sessions ---------------------------------------------------------------------------

SPOTTER = "claude-code/spotter-258c7280/258c7280-ae70-4798-800f-63464d01a85d.jsonl"
ENTIRE = "claude-code/entire-26dcd5518fea.jsonl"


in_one_process = one_process("postgres")  # which imports them once


@pytest.fixture(scope="module")
def recorded(recorded_sessions: Path) -> tuple[Engine, list[str]]:
    """An engine with recorded sessions, and their names."""
    engine = Engine(MemoryStore())

    async def names() -> list[str]:
        paths = [recorded_sessions / name for name in (SPOTTER, ENTIRE)]
        done = [await import_file(engine.store, path, complete=True) for path in paths]
        return [one.session or "" for summaries in done for one in summaries]

    return engine, asyncio.run(names())


@in_one_process
async def test_a_phrase_that_was_compacted_away_is_found_and_real_messages_by_their_numbers(
    recorded: tuple[Engine, list[str]], index: TextIndex
) -> None:
    engine, sessions = recorded
    recall, session = Recall(engine.store, index), sessions[0]
    audit = await engine.audit(session)
    assert [row.outcome for row in audit.compactions] == ["applied"]
    view = await engine.request_view(session, position=audit.requests[-1].position)
    phrase = "remove invalid keyset? page option"
    assert phrase not in json.dumps(view.messages)
    (found, *_) = await recall.search(f'"{phrase}"', session)
    assert found.position < audit.compactions[0].position
    assert phrase in found.snippet and phrase in json.dumps(found.message)
    shown = await RecallTool(session, recall)({"query": phrase})
    assert f'message="{found.number}"' in shown
    assert phrase in await RecallTool(session, recall)({"message": found.number})
    for session in sessions:
        for line in (await engine.transcript(session))[:: some(3, 1)]:
            again = await recall.message(session, line.number)
            assert (again.position, again.message) == (line.position, line.message)
    await recall.close()
