"""Drives loops on the SDKs of Anthropic and OpenAI, each with a server of its own."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import eventctx
from eventctx.engine import Engine
from eventctx.testing import Reply, ScriptedAgent
from tests.adapters.drivers.base import Driver, calls_of
from tests.api_answers import Body, Said, chat, claude, response
from tests.orchestrators.providers.server import (
    ReceivedRequest,
    claude_client,
    json_reply,
    openai_client,
    streamed,
)
from tests.orchestrators.providers.server import Reply as ServerReply
from tests.scripted_http import done, serving

Call = tuple[str, str, Body]
"""Id, name and arguments."""


class ClientDriver(Driver):
    """An agent as a user of an SDK writes it: a list of messages in a file, and a loop."""

    answer: ClassVar[Callable[[int, str, Said], tuple[Body, list[Body]]]]
    field: ClassVar[str] = "messages"

    def __init__(self, engine: Engine, folder: Path, agent: ScriptedAgent) -> None:
        self._engine, self._agent = engine, agent
        self._file = folder / "messages.json"
        self._script = list(agent.script)
        self._tools = {one.__name__: one for one in agent.tools}
        self._bodies: list[Body] = []
        kept = self._file.exists() and json.loads(self._file.read_text())
        self._rows: list[Body] = kept or self._begun()
        self._client: Any = None
        self._open = ExitStack()

    async def ask(self, text: str, *, stream: bool = False) -> str:
        if self._client is None:
            self._server = self._open.enter_context(serving(self._answered))
            inner = self._opened(self._server.url)
            name, settings = self._agent.session, self._agent.settings
            self._client = eventctx.wrap(inner, self._engine, name, compact=True, **settings)
        self._keep({"role": "user", "content": text})
        while True:
            rows, said, calls = await self._call(stream)
            self._keep(*rows)
            if not calls:
                return said
            running = [self._tools[name](**given) for _, name, given in calls]
            results = zip([one[0] for one in calls], await asyncio.gather(*running), strict=True)
            self._keep(*self._results(list(results)))

    def received(self) -> list[list[Any]]:
        return [self._shown(one) for one in self._bodies]

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
        self._open.close()

    def _keep(self, *rows: Body) -> None:
        self._rows.extend(rows)
        self._file.write_text(json.dumps(self._rows))

    def _answered(self, request: ReceivedRequest) -> ServerReply:
        if not request.body:  # half a request, of a client that was cancelled: nobody waits
            return json_reply({}, 400)
        self._bodies.append(request.body)
        step = self._script.pop(0)
        if not isinstance(step, Reply):
            error = {"type": "error", "error": {"type": "api_error", "message": str(step)}}
            return json_reply(error, 500, retry_after_ms="1")
        form = type(self).answer
        whole, events = form(len(self._bodies), request.body["model"], _said(step))
        if not request.body.get("stream"):
            return json_reply(whole)
        return streamed([*events, *done(form)])

    # -- what differs from API to API --------------------------------------------------------------

    def _begun(self) -> list[Body]:
        return []

    def _opened(self, url: str) -> Any:
        raise NotImplementedError

    def _shown(self, body: Body) -> list[Any]:
        return body[self.field]  # type: ignore[no-any-return]

    async def _call(self, stream: bool) -> tuple[list[Body], str, list[Call]]:
        """Ask the model: the rows of its answer, its text and its calls."""
        calls, final, given = self._asked()
        if not stream:
            return self._read(await calls.create(**given))
        if final == "get_final_completion":
            given["stream_options"] = {"include_usage": True}
        async with calls.stream(**given) as events:
            return self._read(await getattr(events, final)())

    def _asked(self) -> tuple[Any, str, Body]:
        """The methods of the client, the one that ends its stream, and what they are given."""
        raise NotImplementedError

    def _read(self, answer: Any) -> tuple[list[Body], str, list[Call]]:
        raise NotImplementedError

    def _results(self, results: list[tuple[str, str]]) -> list[Body]:
        raise NotImplementedError


def _said(reply: Reply) -> Said:
    used = None if reply.usage is None else (reply.usage.prompt, reply.usage.output)
    calls = [(one.id, one.name, dict(one.arguments)) for one in calls_of(reply)]
    return Said(reply.text, calls, used=used)


def _schema(tool: Callable[..., Any]) -> Body:
    names = list(inspect.signature(tool).parameters)
    return {"type": "object", "properties": {name: {} for name in names}, "required": names}


class MessagesDriver(ClientDriver):
    """``AsyncAnthropic().messages``."""

    answer = staticmethod(claude)

    def _opened(self, url: str) -> Any:
        return claude_client(url, max_retries=self._agent.retries)

    def _shown(self, body: Body) -> list[Any]:
        return [{"role": "system", "content": body["system"]}, *super()._shown(body)]

    def _asked(self) -> tuple[Any, str, Body]:
        tools = [{"name": one.__name__, "input_schema": _schema(one)} for one in self._agent.tools]
        given: Body = {"model": "m-1", "max_tokens": 900, "system": self._agent.instructions}
        given |= {"messages": self._rows, "tools": tools}
        return self._client.messages, "get_final_message", given

    def _read(self, answer: Any) -> tuple[list[Body], str, list[Call]]:
        blocks = [one.model_dump(exclude_none=True) for one in answer.content]
        calls = [
            (one["id"], one["name"], one["input"]) for one in blocks if one["type"] == "tool_use"
        ]
        text = "".join(one["text"] for one in blocks if one["type"] == "text")
        return [{"role": "assistant", "content": blocks}], text, calls

    def _results(self, results: list[tuple[str, str]]) -> list[Body]:
        content = [
            {"type": "tool_result", "tool_use_id": call, "content": text} for call, text in results
        ]
        return [{"role": "user", "content": content}]


class _OpenAIDriver(ClientDriver):
    def _opened(self, url: str) -> Any:
        return openai_client(url, max_retries=self._agent.retries)


class ChatDriver(_OpenAIDriver):
    """``AsyncOpenAI().chat.completions``."""

    answer = staticmethod(chat)

    def _begun(self) -> list[Body]:
        return [{"role": "system", "content": self._agent.instructions}]

    def _asked(self) -> tuple[Any, str, Body]:
        tools = [
            {"type": "function", "function": {"name": one.__name__, "parameters": _schema(one)}}
            for one in self._agent.tools
        ]
        given: Body = {"model": "m-1", "messages": self._rows, "max_completion_tokens": 900}
        given |= {"tools": tools} if tools else {}
        return self._client.chat.completions, "get_final_completion", given

    def _read(self, answer: Any) -> tuple[list[Body], str, list[Call]]:
        message = answer.choices[0].message
        row: Body = {"role": "assistant", "content": message.content}
        made = [
            (one.id, one.function.name, one.function.arguments) for one in message.tool_calls or []
        ]
        asked = [
            {"id": call, "type": "function", "function": {"name": name, "arguments": text}}
            for call, name, text in made
        ]
        row |= {"tool_calls": asked} if asked else {}
        calls = [(call, name, json.loads(text)) for call, name, text in made]
        return [row], message.content or "", calls

    def _results(self, results: list[tuple[str, str]]) -> list[Body]:
        return [{"role": "tool", "tool_call_id": call, "content": text} for call, text in results]


class ResponsesDriver(_OpenAIDriver):
    """``AsyncOpenAI().responses``."""

    answer = staticmethod(response)
    field = "input"

    def _shown(self, body: Body) -> list[Any]:
        return [{"role": "system", "content": body["instructions"]}, *super()._shown(body)]

    def _asked(self) -> tuple[Any, str, Body]:
        tools = [
            {"type": "function", "name": one.__name__, "parameters": _schema(one)}
            for one in self._agent.tools
        ]
        given: Body = {"model": "m-1", "instructions": self._agent.instructions, "tools": tools}
        given |= {"input": self._rows, "max_output_tokens": 900, "store": False}
        return self._client.responses, "get_final_response", given

    def _read(self, answer: Any) -> tuple[list[Body], str, list[Call]]:
        items = [one.to_dict() for one in answer.output]
        for one in items:
            one.pop("parsed_arguments", None)
        calls = [
            (one["call_id"], one["name"], json.loads(one["arguments"]))
            for one in items
            if one["type"] == "function_call"
        ]
        return items, answer.output_text, calls

    def _results(self, results: list[tuple[str, str]]) -> list[Body]:
        return [
            {"type": "function_call_output", "call_id": call, "output": text}
            for call, text in results
        ]
