"""LangChain: trimming, and the middlewares that clear results and that summarize."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from langchain.agents.middleware import ClearToolUsesEdit, SummarizationMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    RemoveMessage,
    convert_to_messages,
    convert_to_openai_messages,
    trim_messages,
)
from langchain_core.outputs import ChatGeneration, ChatResult

from tests.benchmarks.peers.views.child import THRESHOLD, Message, Summarizer, size

PACKAGE = "langchain"


def _count(messages: Iterable[BaseMessage]) -> int:
    return size([_row(one) for one in messages])


def _row(message: BaseMessage) -> Message:
    found: Any = convert_to_openai_messages(message)
    return dict(found)


class Scripted(BaseChatModel):
    """A model that answers every prompt with the scripted summary of it."""

    summarizer: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> ChatResult:
        said = "\n".join([str(one.content) for one in messages])
        answer = AIMessage(self.summarizer.summary(said))
        return ChatResult(generations=[ChatGeneration(message=answer)])


class Trimming:
    """``trim_messages`` before each request: the newest that fit, and no result alone."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._messages: list[BaseMessage] = []

    async def view(self, new: list[Message]) -> list[Message]:
        self._messages += convert_to_messages(new)
        kept = trim_messages(
            self._messages,
            max_tokens=self._budget,
            token_counter=_count,
            strategy="last",
            include_system=True,
            start_on=("human", "ai"),
            allow_partial=False,
        )
        return [_row(one) for one in kept]


class Clearing:
    """``ClearToolUsesEdit`` with its own defaults but for the trigger."""

    def __init__(self, budget: int) -> None:
        self._edit = ClearToolUsesEdit(trigger=int(budget * THRESHOLD))
        self._messages: list[BaseMessage] = []

    async def view(self, new: list[Message]) -> list[Message]:
        self._messages += convert_to_messages(new)
        shown = [one.model_copy(deep=True) for one in self._messages]
        self._edit.apply(shown, count_tokens=_count)
        return [_row(one) for one in shown]


class Summarizing:
    """``SummarizationMiddleware``, which keeps its usual twenty messages."""

    def __init__(self, budget: int) -> None:
        self._summarizer = Summarizer(budget)
        self._middleware: Any = SummarizationMiddleware(
            model=Scripted(summarizer=self._summarizer),
            trigger=("tokens", max(1, int(budget * THRESHOLD))),
            token_counter=_count,
            trim_tokens_to_summarize=None,
        )
        self._messages: list[BaseMessage] = []

    async def view(self, new: list[Message]) -> list[Message]:
        self._summarizer.hear(new)
        self._messages += convert_to_messages(new)
        # The system message is the agent's own, and no part of its state.
        system, rest = self._messages[:1], self._messages[1:]
        found = self._middleware.before_model({"messages": rest}, None)
        if found is not None:
            kept = [one for one in found["messages"] if not isinstance(one, RemoveMessage)]
            self._messages = [*system, *kept]
        return [_row(one) for one in self._messages]


KINDS = {"trim": Trimming, "clear": Clearing, "summarize": Summarizing}
