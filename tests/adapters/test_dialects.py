"""Every host's messages come back from the log as they were, and are shortened in their place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventctx.adapters.kit import plain_identity
from eventctx.testing import check_dialect
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


class Dialect(NamedTuple):
    """A host's dialect, and its own messages of a conversation."""

    native: Callable[[Sequence[Round]], list[Any]]
    rows_of: Callable[[Sequence[Any]], list[Row]] = list
    messages_of: Callable[[Sequence[Row]], list[Any]] = list
    identity: Callable[[Mapping[str, Any]], Any] = plain_identity


def items_of(rounds: Sequence[Round]) -> list[Row]:
    """Items of the Responses API, which the log holds as they are."""
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


RIGHT = Dialect(items_of)


def langchain() -> Dialect:
    pytest.importorskip("langchain", reason="an extra: eventctx[langchain]")
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    from eventctx.adapters.langchain import middleware as rows

    def native(rounds: Sequence[Round]) -> list[Any]:
        found: list[Any] = []
        for one, calls in called(rounds):
            found.append(HumanMessage(one.question))
            made = [{"name": "look", "args": {"at": at}, "id": name} for name, at, _ in calls]
            found += [AIMessage("", tool_calls=made)] if made else []
            found += [ToolMessage(result, tool_call_id=name) for name, _, result in calls]
            found.append(AIMessage(one.answer))
        return found

    return Dialect(
        native,
        lambda messages: [rows.row_of(one) for one in messages],
        lambda given: list(rows.KnownRows().messages_of(given)),
        rows.identity,
    )


def pydantic_ai() -> Dialect:
    pytest.importorskip("pydantic_ai", reason="an extra: eventctx[pydantic-ai]")
    from pydantic_ai import messages as of

    from eventctx.adapters.pydantic_ai import rows

    def native(rounds: Sequence[Round]) -> list[Any]:
        found: list[Any] = []
        for one, calls in called(rounds):
            found.append(of.ModelRequest([of.UserPromptPart(one.question)]))
            made = [of.ToolCallPart("look", {"at": at}, name) for name, at, _ in calls]
            returned = [of.ToolReturnPart("look", text, name) for name, _, text in calls]
            found += [of.ModelResponse(made), of.ModelRequest(returned)] if calls else []
            found.append(of.ModelResponse([of.TextPart(one.answer)]))
        return found

    return Dialect(
        native,
        lambda messages: [row for each in rows.rows_of(messages, whole=True) for row in each],
        lambda given: list(rows.messages_of(given)),
        rows.identity,
    )


def agent_framework() -> Dialect:
    """Messages as what they serialise to, since those of the framework are not compared."""
    pytest.importorskip("agent_framework", reason="an extra: eventctx[agent-framework]")
    from agent_framework import Content, Message

    from eventctx.adapters.agent_framework import rows

    def native(rounds: Sequence[Round]) -> list[Any]:
        found: list[Any] = []
        thought = Content.from_text_reasoning(text="Hm.", protected_data="sealed")
        for one, calls in called(rounds):
            found.append(Message("user", [one.question]))
            made, returned = [thought], []
            for place, (name, at, text) in enumerate(calls):
                asked = {"at": at} if place else at
                result = [Content.from_text(text), Content.from_text("And more.")]
                made.append(Content.from_function_call(name, "look", arguments=asked))
                told: Any = {"result": text}
                if place:
                    told = {"result": result, "exception": "it failed"}
                returned.append(Content.from_function_result(name, **told))
            found += [Message("assistant", made), Message("tool", returned)] if calls else []
            found.append(Message("assistant", [one.answer], author_name="a", message_id="m"))
        return [one.to_dict() for one in found]

    return Dialect(
        native,
        lambda messages: rows.rows_of([Message.from_dict(one) for one in messages]),
        lambda given: [one.to_dict() for one in rows.messages_of(given)],
        rows.identity,
    )


@pytest.mark.parametrize("made", [lambda: RIGHT, langchain, pydantic_ai, agent_framework])
def test_a_dialect_keeps_what_is_said_into_the_log_and_back(made: Callable[[], Dialect]) -> None:
    dialect = made()

    @settings(max_examples=some(8, 25), deadline=None)
    @given(ROUNDS)
    def holds(rounds: list[Round]) -> None:
        check_dialect(dialect, dialect.native(rounds), texts_of(rounds))

    holds()


CONVERSATION = [Round("Where? " * 30, [("near " * 30, "Nothing. " * 30)], "Nowhere. " * 30)]
SAID = items_of(CONVERSATION)


def hidden(messages: Sequence[Row]) -> list[Row]:
    """The result under a name that the engine does not know."""
    return [
        {"role": "user", "content": [{"type": "answer_of_tool", "body": one}]}
        if one.get("type") == "function_call_output"
        else one
        for one in without_calls(messages)
    ]


def without_calls(messages: Sequence[Row]) -> list[Row]:
    return [one for one in messages if one.get("type") != "function_call"]


WRONG: dict[str, tuple[Dialect, str]] = {
    "gives no dicts": (
        RIGHT._replace(rows_of=lambda messages: [{**one, "at": (1, 2)} for one in messages]),
        r"rows_of\(\): row 0 cannot be stored: .*at",
    ),
    "changes texts": (
        RIGHT._replace(messages_of=lambda rows: [{**row, "more": 1} for row in rows]),
        "message 0 was .*came back as .*'more': 1",
    ),
    "has no hashes": (RIGHT._replace(identity=dict), "not hashable"),
    # A native copy beside the content that the engine reads: it undoes what is shortened.
    "keeps a copy": (
        RIGHT._replace(
            rows_of=lambda messages: [{**one, "native": dict(one)} for one in messages],
            messages_of=lambda rows: [row.get("native", row) for row in rows],
            identity=lambda row: plain_identity({k: row[k] for k in row if k != "native"}),
        ),
        "shortened messages grew again",
    ),
    "hides results": (
        RIGHT._replace(rows_of=hidden, messages_of=lambda rows: SAID),
        "the engine does not read",
    ),
    "takes all for one": (
        RIGHT._replace(identity=lambda row: row.get("role")),
        "messages that say different things have one identity",
    ),
    "loses its calls": (RIGHT._replace(rows_of=without_calls), "messages changed in the log"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_dialect_is_found(wrong: str) -> None:
    dialect, says = WRONG[wrong]
    with pytest.raises(AssertionError, match=says):
        check_dialect(dialect, SAID, texts_of(CONVERSATION))


class Opaque:
    """A message that is equal only to itself."""

    def __init__(self, row: Row) -> None:
        self.row = row


def test_messages_that_are_equal_only_to_themselves_are_compared_by_what_they_hold() -> None:
    said, texts = [Opaque(one) for one in SAID], texts_of(CONVERSATION)
    dialect = Dialect(
        items_of,
        lambda given: [one.row for one in given],
        lambda rows: [Opaque(one) for one in rows],
    )
    with pytest.raises(AssertionError, match="give compared="):
        check_dialect(dialect, said, texts)
    check_dialect(dialect, said, texts, compared=lambda one: one.row)
