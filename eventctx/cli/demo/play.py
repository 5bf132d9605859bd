"""Playing a recorded session live: an agent's calls, made from the items of any import format.

There is a turn for each human message, an iteration and a request for each model call, a span for
each tool call. Compactions of the program that made the recording are ignored; the engine makes
its own, under the given budget.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, suppress
from typing import Any, Final, NamedTuple

from eventctx.errors import InvalidMessage
from eventctx.importers.source.items import (
    CallEnded,
    CompactionItem,
    Item,
    MessageItem,
    ModelCall,
    TurnBegan,
    TurnEnded,
)
from eventctx.log.usage import Usage
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.parts import call_names, failed_results
from eventctx.messages.tokens import BY_KIND
from eventctx.session.context import Context
from eventctx.session.turns import Iteration, ProviderCall, Turn


class Size(NamedTuple):
    """The size of a recording; ``tokens`` is our estimate of all its messages together."""

    messages: int
    turns: int
    calls: int
    tokens: int
    largest: int
    compactions: int


class TurnFigures(NamedTuple):
    """Figures of a turn that has ended. ``view`` is the number of messages in its last request."""

    number: int
    requests: int
    tool_calls: int
    parallel: int
    failed: int
    view: int
    tokens: int


_PROVIDER: Final = "recording"
"""The provider of a call whose file names none: the recording answers, and nobody is asked."""


class ToolFailedError(Exception):
    """The failure of a tool call in the recording, raised again in the tool's span."""


def measure(items: Iterable[Item]) -> Size:
    """Count the items of a recording; messages that cannot be read are left out."""
    messages = turns = calls = tokens = largest = compactions = 0
    for item in items:
        if isinstance(item, MessageItem):
            with suppress(InvalidMessage):
                counted = BY_KIND.tokens(read_facts(item.message))
                messages += 1
                tokens += counted
                largest = max(largest, counted)
        turns += isinstance(item, TurnBegan)
        calls += isinstance(item, ModelCall)
        compactions += isinstance(item, CompactionItem)
    return Size(messages, turns, calls, tokens, largest, compactions)


class Player:
    """Plays items into one context; ``began`` and ``ended`` are called for each turn."""

    def __init__(
        self,
        context: Context,
        budget: int,
        *,
        began: Callable[[int, dict[str, Any]], None],
        ended: Callable[[TurnFigures], None],
    ) -> None:
        self._context = context
        self._budget = budget
        self._began, self._ended = began, ended
        self._turn: Turn | None = None
        self._iteration: Iteration | None = None
        self._call: ProviderCall | None = None
        self._usage: Usage | None = None
        self._turn_blocks = AsyncExitStack()
        self._blocks = AsyncExitStack()
        self._call_blocks = AsyncExitStack()
        self._tools: dict[str, str] = {}
        self._announce = False
        self._reset()

    def _reset(self) -> None:
        self._requests = self._tool_calls = self._parallel = self._failed = self._view = 0

    async def play(self, items: Iterable[Item]) -> None:
        """Play all items; a turn that is open after the last one is ended."""
        for item in items:
            match item:
                case TurnBegan():
                    await self._begin_turn()
                case TurnEnded():
                    await self._end_turn()
                case ModelCall():
                    await self._request(item)
                case CallEnded():
                    self._usage = item.usage or self._usage
                    await self._end_call()
                case MessageItem():
                    await self._message(item.message)
                case _:
                    pass
        await self._end_turn()

    # -- turns and requests ----------------------------------------------------------------------

    async def _begin_turn(self) -> None:
        await self._end_turn()
        self._turn = await self._turn_blocks.enter_async_context(self._context.turn(agent="demo"))
        self._announce = True

    async def _end_turn(self) -> None:
        await self._end_iteration()
        turn, self._turn = self._turn, None
        await self._turn_blocks.aclose()
        if turn is not None:
            tokens = await self._context.get_token_count()
            self._ended(
                TurnFigures(
                    turn.number,
                    self._requests,
                    self._tool_calls,
                    self._parallel,
                    self._failed,
                    self._view,
                    tokens,
                )
            )
        self._reset()

    async def _request(self, item: ModelCall) -> None:
        await self._end_iteration()
        if self._turn is not None:
            self._iteration = await self._blocks.enter_async_context(self._turn.iteration())
        messages = await self._context.get_messages_for_request(self._budget)
        self._requests += 1
        self._view = len(messages)
        if self._iteration is not None:
            call = self._iteration.provider_call(item.model, item.provider or _PROVIDER)
            self._call = await self._call_blocks.enter_async_context(call)
            self._call.finished(item.finish_reason, item.response_id)
        self._usage = item.usage

    async def _end_call(self) -> None:
        call, self._call = self._call, None
        if call is not None and self._usage is not None:
            used = self._usage
            await call.usage(
                used.prompt,
                used.output,
                cache_read=used.cache_read,
                cache_write=used.cache_write,
                reasoning=used.reasoning,
            )
        self._usage = None
        await self._call_blocks.aclose()

    async def _end_iteration(self) -> None:
        await self._end_call()
        self._iteration = None
        await self._blocks.aclose()

    # -- messages --------------------------------------------------------------------------------

    async def _message(self, message: dict[str, Any]) -> None:
        try:
            facts = read_facts(message)
        except InvalidMessage:
            return
        if facts.results:
            await self._end_call()
            await self._run_tools(facts.results, failed_results(message))
        await self._context.add_message(message)
        if facts.calls:
            self._tools.update(call_names(message))
            self._parallel += len(facts.calls) > 1
        if self._announce and self._turn is not None:
            self._announce = False
            self._began(self._turn.number, message)

    async def _run_tools(self, results: Iterable[str], failed: set[str]) -> None:
        """Make a span for each call that a message answers; spans of parallel calls overlap."""
        iteration = self._iteration
        if iteration is None:
            return

        async def one(call_id: str) -> None:
            with suppress(ToolFailedError):
                async with iteration.tool_call(self._tools.pop(call_id, "unknown"), call_id):
                    await asyncio.sleep(0)
                    if call_id in failed:
                        raise ToolFailedError("so recorded")

        ids = list(results)
        self._tool_calls += len(ids)
        self._failed += len(failed.intersection(ids))
        await asyncio.gather(*[one(call_id) for call_id in ids])
