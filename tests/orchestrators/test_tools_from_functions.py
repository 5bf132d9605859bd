"""Functions as tools: what a model is told of them, and what it may send."""

from __future__ import annotations

import asyncio
import datetime
import functools
import threading
from enum import Enum
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eventctx
from eventctx import Context
from eventctx.orchestrators import EventsOrchestrator
from eventctx.orchestrators.protocol import Ids
from eventctx.orchestrators.tools.functions import as_tools, definition_of, run_tool, tool
from eventctx.testing import Reply, ScriptedProvider
from tests.orchestrators.agents import records

IDS = Ids("s", "t1", "00f067aa0ba902b7")


class Unit(Enum):
    C = "celsius"
    F = "fahrenheit"


class Place(msgspec.Struct):
    city: str
    country: str = "DE"


def weather(
    place: Place,
    days: Annotated[int, msgspec.Meta(description="How many days ahead.", ge=1, le=7)] = 1,
    unit: Unit = Unit.C,
) -> str:
    """Tells the weather
    of a place.

    What follows is for people who read the code.
    """
    return f"{place.city}, {place.country}: {days} {unit.name}"


def test_the_model_is_told_the_name_the_first_paragraph_and_the_types() -> None:
    definition = definition_of(tool(weather))
    assert (definition.name, definition.description) == ("weather", "Tells the weather of a place.")
    limits = {"minimum": 1, "maximum": 7, "default": 1}
    country = {"type": "string", "default": "DE"}
    assert definition.parameters == {
        "type": "object",
        "properties": {
            "place": {"$ref": "#/$defs/Place"},
            "days": {"type": "integer", "description": "How many days ahead.", **limits},
            "unit": {"$ref": "#/$defs/Unit", "default": "celsius"},
        },
        "required": ["place"],
        "additionalProperties": False,
        "$defs": {
            "Place": {
                "title": "Place",
                "type": "object",
                "properties": {"city": {"type": "string"}, "country": country},
                "required": ["city"],
            },
            "Unit": {"title": "Unit", "enum": ["celsius", "fahrenheit"]},
        },
    }


async def test_what_the_model_sends_becomes_the_types_of_the_function() -> None:
    def due(day: datetime.date, kind: Literal["tax", "rent"], tags: list[str] | None = None) -> Any:
        return day, kind, tags

    def loose(value, other=None):  # type: ignore[no-untyped-def]
        return value, other

    sent = {**ULM, "days": 3, "unit": "fahrenheit"}
    assert await tool(weather).execute(sent) == "Ulm, DE: 3 F"
    assert await tool(weather).execute(ULM) == "Ulm, DE: 1 C"
    read = await tool(due).execute({"day": "2026-11-22", "kind": "tax"})
    assert read == (datetime.date(2026, 11, 22), "tax", None)
    assert await tool(loose).execute({"value": [1, {"a": None}]}) == ([1, {"a": None}], None)


ULM = {"place": {"city": "Ulm"}}
UNFIT: list[tuple[dict[str, Any], str]] = [
    *(({"place": "Ulm"}, "place"), ({**ULM, "days": 9}, "days"), ({}, "place")),
    *(({**ULM, "hour": 3}, "hour"), ({**ULM, "unit": "kelvin"}, "kelvin")),
]


@pytest.mark.parametrize(("sent", "named"), UNFIT)
async def test_arguments_that_do_not_fit_are_told_of(sent: dict[str, Any], named: str) -> None:
    with pytest.raises(eventctx.InvalidSetting, match=f"^arguments of weather: .*{named}"):
        await tool(weather).execute(sent)


async def test_what_a_partial_has_settled_is_not_the_models_to_say() -> None:
    def read(root: str, path: str) -> str:
        """Read a file."""
        return f"{root}/{path}"

    made = tool(functools.partial(read, root="/safe"), name="read")
    assert list(made.input_schema["properties"]) == ["path"]
    assert made.description == "Read a file."
    assert await made.execute({"path": "a"}) == "/safe/a"
    with pytest.raises(eventctx.InvalidSetting, match="root"):
        await made.execute({"path": "a", "root": "/etc"})


async def test_a_default_is_not_shared_by_two_calls() -> None:
    def gather(word: str, words: list[str] = ["first"]) -> list[str]:  # noqa: B006 - the point
        words.append(word)
        return words

    gathering = tool(gather)
    assert await gathering.execute({"word": "a"}) == ["first", "a"]
    assert await gathering.execute({"word": "b"}) == ["first", "b"]


async def test_functions_that_never_return_do_not_take_threads_from_others() -> None:
    released = threading.Event()
    stuck = tool(released.wait, name="stuck")
    try:
        waiting = [asyncio.create_task(stuck.execute({})) for _ in range(40)]
        assert await asyncio.wait_for(tool(lambda: "fine", name="other").execute({}), 60) == "fine"
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "fine"), 60) == "fine"
        threads = [one for one in threading.enumerate() if one.name == "eventctx-tool-stuck"]
        # Python waits for no daemon when a program ends.
        assert len(threads) == 40 and all(one.daemon for one in threads)
    finally:
        released.set()
    await asyncio.gather(*waiting)


@pytest.mark.parametrize("raised", [SystemExit(2), StopIteration("over"), KeyboardInterrupt()])
async def test_a_function_cannot_end_the_program(raised: BaseException) -> None:
    def ends() -> None:
        raise raised

    with pytest.raises(RuntimeError) as told:
        await asyncio.wait_for(tool(ends).execute({}), 60)
    assert told.value.__cause__ is raised


async def test_an_error_of_the_function_is_the_callers_to_handle() -> None:
    with pytest.raises(KeyError, match="missing"):
        await tool(lambda: {}["missing"], name="broken").execute({})


# -- ids -----------------------------------------------------------------------------------------


async def test_a_parameter_of_type_ids_gets_the_ids_of_the_call() -> None:
    async def where(path: str, ids: Ids) -> str:
        return f"{path} in {ids.span_id}"

    def perhaps(ids: Ids | None = None) -> str | None:
        return ids and ids.span_id

    made = tool(where)
    assert list(made.input_schema["properties"]) == ["path"]
    assert await run_tool(made, {"path": "a"}, IDS) == f"a in {IDS.span_id}"
    with pytest.raises(eventctx.InvalidSetting, match="execute_with"):
        await made.execute({"path": "a"})
    with pytest.raises(eventctx.InvalidSetting, match=r"arguments of where: .*ids"):
        await run_tool(made, {"path": "a", "ids": {"session_id": "forged"}}, IDS)
    assert await tool(perhaps).execute({}) is None
    assert await run_tool(tool(perhaps), {}, IDS) == IDS.span_id


# -- many tools ----------------------------------------------------------------------------------


class Module:
    """A tool as Amplifier's modules are."""

    name = "module"
    description = "Returns its input."

    async def execute(self, input: dict[str, Any]) -> dict[str, Any]:  # noqa: A002
        return input


@pytest.mark.parametrize("name", ["", "a b", "é", "a.b", "x" * 65, "new\n", None, 3])
def test_a_name_that_the_apis_refuse_is_refused_first(name: Any) -> None:
    with pytest.raises(eventctx.InvalidSetting, match="1 to 64"):
        as_tools([type("Named", (Module,), {"name": name})()])


def yields() -> Any:
    yield 1


async def yields_later() -> Any:
    yield 1


def takes_no_json(path: threading.Event) -> None: ...


def takes_an_unknown(path: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


NAMED = functools.partial(tool, name="named")


@pytest.mark.parametrize(
    ("make", "of", "words"),
    [
        (NAMED, lambda *paths: None, "named"),
        (NAMED, lambda **paths: None, "named"),
        (NAMED, lambda path, /: None, "named"),
        (tool, takes_no_json, "takes_no_json"),
        (tool, takes_an_unknown, "takes_an_unknown"),
        (tool, yields, "collect what it yields"),
        (tool, yields_later, "collect what it yields"),
        (tool, lambda: None, "<lambda>"),
        (as_tools, [weather, tool(weather)], "two are named 'weather'"),
        (as_tools, {"other": Module()}, "'module'"),
    ],
)
def test_what_can_be_no_tool_is_refused(make: Any, of: Any, words: str) -> None:
    with pytest.raises(eventctx.InvalidSetting, match=words):
        make(of)


WORDS = st.sampled_from(["", "city", "country", "Ulm", "celsius", "1"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from(["place", "days", "unit", "x"]), JSON))
def test_whatever_a_model_sends_the_function_runs_or_it_is_told(sent: dict[str, Any]) -> None:
    try:
        said = asyncio.run(tool(weather).execute(sent))
    except eventctx.InvalidSetting as error:
        assert str(error).startswith("arguments of weather: ")
    else:
        assert said.endswith((" C", " F"))


# -- in an agent -----------------------------------------------------------------------------------


async def test_plain_functions_are_tools_and_get_the_ids_of_their_call(ctx: Context) -> None:
    seen: list[Ids] = []

    def add(a: int, b: Annotated[int, msgspec.Meta(description="the second")] = 1) -> int:
        """Add two numbers."""
        return a + b

    @tool(name="where")
    async def place(ids: Ids) -> str:
        """Say where we are."""
        seen.append(ids)
        return "here"

    wanted: Any = [("add", {"a": 2, "b": 3}), ("where", {}), ("add", {"a": "two"})]
    provider = ScriptedProvider(Reply(calls=wanted), "Done.")
    response = await EventsOrchestrator().execute("Add.", ctx, {"p": provider}, [add, place])
    assert str(response) == "Done."
    results = str(await ctx.get_messages())
    assert all(part in results for part in ("'5'", "here", "arguments of add"))
    (ids,) = seen
    (began,) = [one for one in await records(ctx, "tool:pre") if one.span_id == ids.span_id]
    assert (ids.session_id, ids.turn_id, ids.iteration) == ("s", began.turn_id, 1)
    assert ids.parent_span_id == began.parent_span_id
    assert len(await records(ctx, "tool:error")) == 1


async def test_a_function_may_be_a_method_a_partial_or_an_object() -> None:
    class Desk:
        def __init__(self, size: int) -> None:
            self.size = size

        def room(self, books: int) -> int:
            return self.size - books

        async def __call__(self, pens: int) -> int:
            return self.size - pens

    desk = Desk(10)
    assert await tool(desk.room).execute({"books": 4}) == 6
    assert await tool(desk, name="pens").execute({"pens": 3}) == 7
    half = functools.partial(weather, days=2)
    assert await tool(half, name="half").execute(ULM) == "Ulm, DE: 2 C"
    late = tool(lambda: desk(1), name="late")
    assert await late.execute({}) == 9


async def test_functions_tools_and_modules_go_together() -> None:
    module = Module()
    found = as_tools([weather, tool(weather, name="again"), module])
    assert list(found) == ["weather", "again", "module"]
    assert found["module"] is module
    assert as_tools({"forecast": weather, "module": module})["forecast"].name == "forecast"
    assert as_tools(None) == {}


def test_a_schema_of_another_kind_is_kept_and_completed() -> None:
    schema = {"properties": {"a": {}}, "required": ["a"]}
    typed = type("Typed", (Module,), {"input_schema": schema})()
    assert definition_of(typed).parameters == {**schema, "type": "object"}
    assert definition_of(Module()).parameters == {"type": "object", "properties": {}}
