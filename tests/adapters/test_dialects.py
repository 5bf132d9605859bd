"""Every host's messages come back from the log as they were, and are shortened in their place."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventctx.adapters.kit import plain_identity
from eventctx.testing import HostDialect, check_dialect
from tests.how_much import some

Row = dict[str, Any]

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1)
TEXTS = st.builds(lambda word, times: f"{word} " * times + "end", WORDS, st.integers(1, 60))


class Round(NamedTuple):
    """A question, the calls of the first answer with their results, and the last answer."""

    question: str
    calls: list[tuple[str, str]]
    answer: str


ROUNDS = st.lists(
    st.builds(Round, TEXTS, st.lists(st.tuples(TEXTS, TEXTS), max_size=3), TEXTS), min_size=1
)


def texts_of(rounds: Sequence[Round]) -> list[str]:
    found = []
    for one in rounds:
        found += [one.question, one.answer]
        found += [text for call in one.calls for text in call]
    return found


def called(rounds: Sequence[Round]) -> list[tuple[Round, list[tuple[str, str, str]]]]:
    """The rounds with an id for each call."""
    return [
        (one, [(f"call_{at}_{place}", *call) for place, call in enumerate(one.calls)])
        for at, one in enumerate(rounds)
    ]


# -- the dialects --------------------------------------------------------------------------------


class OpenAIItems:
    """Items of the Responses API, which the log holds as they are."""

    def rows_of(self, messages: Sequence[Row]) -> list[Row]:
        return list(messages)

    def messages_of(self, rows: Sequence[Row]) -> list[Row]:
        return list(rows)

    def identity(self, row: Mapping[str, Any]) -> Hashable:
        return plain_identity(row)

    def native(self, rounds: Sequence[Round]) -> list[Row]:
        found: list[Row] = []
        for one, calls in called(rounds):
            found.append({"role": "user", "content": one.question})
            for call_id, asked, _ in calls:
                item = {"call_id": call_id, "name": "look", "arguments": asked}
                found.append({"type": "function_call", **item})
            found += [
                {"type": "function_call_output", "call_id": call_id, "output": result}
                for call_id, _, result in calls
            ]
            content = [{"type": "output_text", "text": one.answer, "annotations": []}]
            found.append({"type": "message", "role": "assistant", "content": content})
        return found


def openai_agents() -> Any:
    return OpenAIItems()


def langchain() -> Any:
    pytest.importorskip("langchain", reason="an extra: eventctx[langchain]")
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    from eventctx.adapters.langchain import middleware as rows

    class LangChain:
        def rows_of(self, messages: Sequence[Any]) -> list[Row]:
            return [rows.row_of(one) for one in messages]

        def messages_of(self, given: Sequence[Row]) -> list[Any]:
            return list(rows.KnownRows().messages_of(given))

        identity = staticmethod(rows.identity)

        def native(self, rounds: Sequence[Round]) -> list[Any]:
            found: list[Any] = []
            for one, calls in called(rounds):
                found.append(HumanMessage(one.question))
                made = [{"name": "look", "args": {"at": at}, "id": name} for name, at, _ in calls]
                if made:
                    found.append(AIMessage("", tool_calls=made))
                found += [ToolMessage(result, tool_call_id=name) for name, _, result in calls]
                found.append(AIMessage(one.answer))
            return found

    return LangChain()


def pydantic_ai() -> Any:
    pytest.importorskip("pydantic_ai", reason="an extra: eventctx[pydantic-ai]")
    from pydantic_ai.messages import (
        ModelRequest,
        ModelResponse,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )

    from eventctx.adapters.pydantic_ai import rows

    class PydanticAI:
        def rows_of(self, messages: Sequence[Any]) -> list[Row]:
            return [row for each in rows.rows_of(messages, whole=True) for row in each]

        def messages_of(self, given: Sequence[Row]) -> list[Any]:
            return list(rows.messages_of(given))

        identity = staticmethod(rows.identity)

        def native(self, rounds: Sequence[Round]) -> list[Any]:
            found: list[Any] = []
            for one, calls in called(rounds):
                found.append(ModelRequest([UserPromptPart(one.question)]))
                if calls:
                    made = [ToolCallPart("look", {"at": at}, name) for name, at, _ in calls]
                    found.append(ModelResponse(made))
                    returned = [ToolReturnPart("look", text, name) for name, _, text in calls]
                    found.append(ModelRequest(returned))
                found.append(ModelResponse([TextPart(one.answer)]))
            return found

    return PydanticAI()


def agent_framework() -> Any:
    pytest.importorskip("agent_framework", reason="an extra: eventctx[agent-framework]")
    from agent_framework import Content, Message

    from eventctx.adapters.agent_framework import rows

    class AgentFramework:
        """Messages as what they serialise to, since those of the framework are not compared."""

        def rows_of(self, messages: Sequence[Any]) -> list[Row]:
            return rows.rows_of([Message.from_dict(one) for one in messages])

        def messages_of(self, given: Sequence[Row]) -> list[Any]:
            return [one.to_dict() for one in rows.messages_of(given)]

        identity = staticmethod(rows.identity)

        def native(self, rounds: Sequence[Round]) -> list[Any]:
            found: list[Any] = []
            for one, calls in called(rounds):
                thought = Content.from_text_reasoning(text="Hm.", protected_data="sealed")
                more = Content.from_text("And more.")
                found.append(Message("user", [one.question]))
                made = [
                    Content.from_function_call(name, "look", arguments={"at": at} if place else at)
                    for place, (name, at, _) in enumerate(calls)
                ]
                returned = [
                    Content.from_function_result(
                        name,
                        result=[Content.from_text(text), more] if place else text,
                        exception="it failed" if place else None,
                    )
                    for place, (name, _, text) in enumerate(calls)
                ]
                if made:
                    found += [Message("assistant", [thought, *made]), Message("tool", returned)]
                found.append(Message("assistant", [one.answer], author_name="a", message_id="m"))
            return [one.to_dict() for one in found]

    return AgentFramework()


DIALECTS: list[Callable[[], Any]] = [openai_agents, langchain, pydantic_ai, agent_framework]


@pytest.mark.parametrize("made", DIALECTS)
def test_a_dialect_keeps_what_is_said_on_its_way_into_the_log_and_back(
    made: Callable[[], Any],
) -> None:
    dialect = made()

    @settings(max_examples=some(8, 25), deadline=None)
    @given(ROUNDS)
    def holds(rounds: list[Round]) -> None:
        check_dialect(dialect, dialect.native(rounds), texts_of(rounds))

    holds()


# -- dialects that are wrong ---------------------------------------------------------------------

CONVERSATION = [Round("Where? " * 30, [("near " * 30, "Nothing. " * 30)], "Nowhere. " * 30)]


class KeepsACopy(OpenAIItems):
    """A native copy beside the content that the engine reads: it undoes what is shortened."""

    def rows_of(self, messages: Sequence[Row]) -> list[Row]:
        return [{**one, "native": dict(one)} for one in messages]

    def messages_of(self, rows: Sequence[Row]) -> list[Row]:
        return [row.get("native", row) for row in rows]

    def identity(self, row: Mapping[str, Any]) -> Hashable:
        return plain_identity({name: row[name] for name in row if name != "native"})


class HidesResults(OpenAIItems):
    """A name that the engine does not know."""

    def rows_of(self, messages: Sequence[Row]) -> list[Row]:
        return [
            {"role": "user", "content": [{"type": "answer_of_tool", "body": one}]}
            if one.get("type") == "function_call_output"
            else one
            for one in messages
            if one.get("type") != "function_call"
        ]

    def messages_of(self, rows: Sequence[Row]) -> list[Row]:
        return self.native(CONVERSATION)


class TakesAllForOne(OpenAIItems):
    def identity(self, row: Mapping[str, Any]) -> Hashable:
        return row.get("role")


class LosesItsCalls(OpenAIItems):
    def rows_of(self, messages: Sequence[Row]) -> list[Row]:
        return [one for one in messages if one.get("type") != "function_call"]


class GivesNoDicts(OpenAIItems):
    def rows_of(self, messages: Sequence[Row]) -> list[Any]:
        return [{**one, "at": (1, 2)} for one in messages]


class ChangesTexts(OpenAIItems):
    def messages_of(self, rows: Sequence[Row]) -> list[Row]:
        return [{**row, "more": 1} for row in rows]


class HasNoHashes(OpenAIItems):
    def identity(self, row: Mapping[str, Any]) -> Any:
        return dict(row)


class Opaque:
    """A message that is equal only to itself."""

    def __init__(self, row: Row) -> None:
        self.row = row


class OfObjects(OpenAIItems):
    def rows_of(self, messages: Sequence[Any]) -> list[Row]:
        return [one.row for one in messages]

    def messages_of(self, rows: Sequence[Row]) -> list[Any]:
        return [Opaque(row) for row in rows]


def test_messages_that_are_equal_only_to_themselves_are_compared_by_what_they_hold() -> None:
    said, texts = [Opaque(one) for one in OfObjects().native(CONVERSATION)], texts_of(CONVERSATION)
    dialect: Any = OfObjects()
    with pytest.raises(AssertionError, match="give compared="):
        check_dialect(dialect, said, texts)
    check_dialect(dialect, said, texts, compared=lambda one: one.row)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (GivesNoDicts(), r"rows_of\(\): row 0 cannot be stored: .*at"),
        (ChangesTexts(), "message 0 was .*came back as .*'more': 1"),
        (HasNoHashes(), "not hashable"),
        (KeepsACopy(), "shortened messages grew again"),
        (HidesResults(), "the engine does not read"),
        (TakesAllForOne(), "messages that say different things have one identity"),
        (LosesItsCalls(), "messages changed in the log"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_wrong_dialect_is_found(wrong: HostDialect[Row], says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        check_dialect(wrong, OpenAIItems().native(CONVERSATION), texts_of(CONVERSATION))
