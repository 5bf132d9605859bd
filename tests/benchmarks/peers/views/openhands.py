"""OpenHands' summarizing condenser over its own events."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it asks for prices first

from openhands.sdk import LLM, TextContent
from openhands.sdk.context.condenser import LLMSummarizingCondenser
from openhands.sdk.context.condenser.base import NoCondensationAvailableException
from openhands.sdk.context.view import View
from openhands.sdk.event import ActionEvent, Condensation, MessageEvent, ObservationEvent
from openhands.sdk.llm import Message as ModelMessage
from openhands.sdk.llm import MessageToolCall
from openhands.sdk.tool.builtins.think import ThinkAction, ThinkObservation
from pydantic import SecretStr

from tests.benchmarks.peers.views.child import THRESHOLD, Message, Summarizer, tokens_of

PACKAGE = "openhands-sdk"


class Scripted(LLM):
    """A model that counts as all neighbours count, and answers with the scripted summary."""

    summarizer: Any = None

    def get_token_count(self, messages: list[ModelMessage], **options: Any) -> int:
        return sum([tokens_of(_text_of(one)) + 4 for one in messages])

    def generate(self, messages: list[ModelMessage], **options: Any) -> Any:
        text = self.summarizer.summary("\n".join([_text_of(one) for one in messages]))
        message = SimpleNamespace(content=[TextContent(text=text)])
        return SimpleNamespace(message=message, id="scripted")


def _text_of(message: ModelMessage) -> str:
    texts = [one.text for one in message.content if isinstance(one, TextContent)]
    calls = [f"{one.name}{one.arguments}" for one in message.tool_calls or ()]
    return "\n".join([*texts, *calls])


class Condensed:
    """Events, condensed before each request when they are due."""

    def __init__(self, budget: int) -> None:
        self._summarizer = Summarizer(budget)
        self._llm = Scripted(
            model="openai/gpt-4o",
            api_key=SecretStr("none"),
            usage_id="bench",
            summarizer=self._summarizer,
        )
        self._condenser = LLMSummarizingCondenser(
            llm=self._llm, max_tokens=max(1, int(budget * THRESHOLD))
        )
        self._system: list[Message] = []
        self._events: list[Any] = []
        self._rows: dict[str, Message] = {}
        self._action: Any = None

    async def view(self, new: list[Message]) -> list[Message]:
        self._summarizer.hear(new)
        for one in new:
            if one["role"] == "system":
                self._system.append(one)
                continue
            event = self._event(one)
            self._rows[event.id] = one
            self._events.append(event)
        view = View.from_events(self._events)
        for _ in range(4):
            try:
                found = self._condenser.condense(view, agent_llm=self._llm)
            except NoCondensationAvailableException:
                break  # a host sends what there is
            if not isinstance(found, Condensation):
                view = found
                break
            self._events.append(found)
            view = View.from_events(self._events)
        return [*self._system, *[self._row(one) for one in view.events]]

    def _row(self, event: Any) -> Message:
        known = self._rows.get(event.id)
        if known is not None:
            return known
        return {"role": "user", "content": _text_of(event.to_llm_message())}

    def _event(self, message: Message) -> Any:
        if message["role"] == "tool":
            return ObservationEvent(
                observation=ThinkObservation.from_text(message["content"]),
                action_id=self._action,
                tool_name="think",
                tool_call_id=message["tool_call_id"],
            )
        text = [TextContent(text=message["content"])]
        if not (calls := message.get("tool_calls")):
            role = message["role"]
            source: Any = "user" if role == "user" else "agent"
            return MessageEvent(source=source, llm_message=ModelMessage(role=role, content=text))
        (call,) = calls
        event = ActionEvent(
            thought=text,
            action=ThinkAction(thought=call["function"]["arguments"]),
            tool_name="think",
            tool_call_id=call["id"],
            tool_call=MessageToolCall(
                id=call["id"],
                name=call["function"]["name"],
                arguments=call["function"]["arguments"],
                origin="completion",
            ),
            llm_response_id=call["id"],
        )
        self._action = event.id
        return event


KINDS = {"summarize": Condensed}
