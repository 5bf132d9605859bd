"""One answer of a model, in as many attempts as it takes.

Each attempt is a span of its own, and the host's hooks get an event of its start and its end. All
attempts send the same prepared messages, plus what hooks inject into one attempt. They are prepared
again only after a compaction, when the API refused the request as too long. An answer of which the
reader has seen a piece is never requested again.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, Literal, Protocol

from eventctx.errors import EventctxError, InvalidSetting, ProviderFailed
from eventctx.log.turn_recorder import CallSettings
from eventctx.orchestrators.host.hooks import HookAnswers, within
from eventctx.orchestrators.loops.recording import ids_of, prepared, record_additions
from eventctx.orchestrators.loops.run import Denied, TurnRun
from eventctx.orchestrators.loops.settings import Sleep
from eventctx.orchestrators.protocol import Answer, Chunk, Ids, Request, Usage
from eventctx.orchestrators.providers.failures import as_failure, problem_with, usable_usage
from eventctx.session.turns import ProviderCall

FIRST_WAIT: Final = 1.0
"""Longest first wait between attempts, in seconds; each further one may be twice as long."""

LONGEST_WAIT: Final = 30.0
"""Longest wait that we choose ourselves, in seconds."""

LONGEST_REQUESTED: Final = 120.0
"""Longest wait that a provider's ``retry_after`` may impose, in seconds."""

MAX_PROBLEM: Final = 1_000
"""Longest text, in characters, about an unusable answer; it may quote all of the answer."""

SHORTER: Final = 0.75
"""The budget of a compaction after a refusal as too long, as a share of the refused size.

Our count of that size was too low, or the model's window is smaller than we know. A compaction
goes well below its budget, so one is enough.
"""


class Cycle(Protocol):
    """The scope of a model call: an iteration, or a planning phase in it."""

    def provider_call(self, model: str | None = None, provider: str | None = None) -> ProviderCall:
        """The span of a call."""
        ...


class Outlet(Protocol):
    """Takes an answer's pieces as they come."""

    async def put(self, chunk: Chunk, ids: Ids) -> None:
        """Take a piece, and tell the hooks of it; returns when there is room for the next."""
        ...

    async def show(self, chunk: Chunk) -> None:
        """Take a piece of which the hooks hear otherwise."""
        ...

    async def end(self, ids: Ids) -> None:
        """Take note that there are no more pieces, for whatever reason."""
        ...

    def next_answer(self) -> None:
        """Take note that the pieces of another answer follow."""
        ...

    @property
    def began(self) -> bool:
        """Whether there was a piece of the answer, which then cannot be asked for again."""
        ...

    @property
    def shown(self) -> str:
        """The answer's text as far as its reader has it."""
        ...


class ModelCaller:
    """Asks for one answer. With ``may_call`` the model may call the run's tools.

    Without it the tools are sent all the same where the provider takes a ``tool_choice``: a request
    that lacks them shares no beginning with the others, so the provider's cache would be of no use,
    and Bedrock refuses one whose messages have calls.
    """

    def __init__(
        self,
        run: TurnRun,
        cycle: Cycle,
        *,
        may_call: bool = False,
        outlet: Outlet | None = None,
    ) -> None:
        self._run = run
        self._cycle = cycle
        self._may_call = may_call
        self._tools = run.definitions if may_call or run.takes_tool_choice else ()
        self._outlet = outlet
        self._messages: list[dict[str, Any]] | None = None
        self._carried: HookAnswers | None = None
        self._unusable = 0
        self._unheeded = False
        self._shortened = False
        self._attempt = 0

    async def answer(self) -> Answer:
        """An answer that can be added to the context. Raises ProviderFailed and Over."""
        settings, retries = self._run.settings, 0
        while True:
            self._attempt += 1
            try:
                return await self._attempt_once()
            except ProviderFailed as failure:
                shown = self._outlet is not None and self._outlet.began
                if self._refuses_choice(failure) and not shown:
                    self._withhold_tools()
                    continue
                if failure.too_long and not shown and await self._compact_after(failure):
                    continue
                if shown or not failure.retryable or retries == settings.max_retries:
                    raise
                retries += 1
                wait = _slept(settings.sleep, self._wait(retries, failure.retry_after))
                await within(wait, None, self._run.stop)
                self._run.check_stop()

    def _refuses_choice(self, failure: ProviderFailed) -> bool:
        """Whether the API does not know ``tool_choice``, or the answer does not heed it."""
        named = "tool_choice" in failure.problem.lower().replace(" ", "_")
        refused = self._unheeded or (named and not failure.retryable)
        return self._choice is not None and refused

    def _withhold_tools(self) -> None:
        """Send no tools where none may be called, for the rest of the turn."""
        self._run.takes_tool_choice, self._tools, self._messages = False, (), None

    @property
    def _choice(self) -> Literal["none"] | None:
        return None if self._may_call or not self._tools else "none"

    def _wait(self, retry: int, requested: float | None) -> float:
        """Seconds before the next attempt: full jitter over a wait that doubles."""
        longest: float = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(retry - 1, 16))
        drawn = longest * self._run.settings.jitter()
        return drawn if requested is None else max(drawn, min(requested, LONGEST_REQUESTED))

    async def _attempt_once(self) -> Answer:
        run = self._run
        call = self._cycle.provider_call(run.provider.model, run.chosen.name)
        if call.sends is not None:
            known = getattr(run.provider, "call_settings", None)
            known = known if isinstance(known, CallSettings) else CallSettings()
            call.sends.of.settings = known._replace(stream=self._streams)
        ids = ids_of(call.scope)
        facts = {"provider": run.chosen.name, "model": call.model, "attempt": self._attempt}
        async with run.host.telling_errors("provider:error", ids, facts):
            answers = await run.host.tell("provider:request", ids, facts)
            if answers.denied is not None:
                async with call:  # the log has it, and that nothing was sent
                    raise Denied(answers.denied)
            try:
                if self._messages is None:
                    self._messages = await self._prepared(call, ids)
                self._carried = self._carried or run.host.take_carried()
                messages = answers.added_to(self._carried.added_to(self._messages))
            except BaseException as error:
                await call.not_entered(error)
                raise
            try:
                async with call:
                    await record_additions(run.context, call.prepared, self._messages, messages)
                    answer = await self._checked(call, messages, ids)
            except BaseException:
                if self._outlet is not None:
                    await self._outlet.end(ids)
                raise
        await self._tell(answer, ids, facts)
        return answer

    async def _prepared(self, call: ProviderCall, ids: Ids) -> list[dict[str, Any]]:
        run = self._run
        definitions = run.provider.definitions(self._tools) if self._tools else []
        async with run.forwarding.around(ids):
            given, model = run.chosen.given, run.provider.model
            return await prepared(run.context, given, definitions, model, call)

    async def _checked(
        self, call: ProviderCall, messages: Sequence[dict[str, Any]], ids: Ids
    ) -> Answer:
        """The answer, inside its span. Raises ProviderFailed for every failure of the provider."""
        name = self._run.chosen.name
        request = Request(messages, ids, self._tools, self._choice)
        try:
            received = await self._received(request)
        except InvalidSetting:
            raise  # the program must be corrected, not the request repeated
        except Exception as error:
            failure = as_failure(name, error)
            raise failure from (None if failure is error else error)
        problem = problem_with(received, calls_allowed=bool(self._may_call and self._tools))
        if problem is not None:
            self._unusable += 1
            self._unheeded = bool(getattr(received, "calls", ()))
            # The provider charges for an unusable answer, too.
            await self._record_usage(call, usable_usage(received))
            raise ProviderFailed(name, problem[:MAX_PROBLEM], retryable=self._unusable == 1)
        answer: Answer = received
        call.model = answer.model or call.model
        call.finished(answer.finish_reason, answer.response_id, answer.transformed)
        await self._record_usage(call, answer.usage)
        self._run.text = answer.text
        return answer

    async def _record_usage(self, call: ProviderCall, used: Usage | None) -> None:
        if used is None:
            return
        await call.usage(
            used.prompt,
            used.output,
            cache_read=used.cache_read,
            cache_write=used.cache_write,
            reasoning=used.reasoning,
            cache_write_1h=used.cache_write_1h,
        )
        self._run.spend(used)

    @property
    def _streams(self) -> bool:
        """Whether the answer is asked for in pieces."""
        return self._outlet is not None and callable(getattr(self._run.provider, "stream", None))

    async def _received(self, request: Request) -> Any:
        run, outlet, seconds = self._run, self._outlet, self._run.settings.provider_timeout
        stream = getattr(run.provider, "stream", None)
        if outlet is not None and stream is not None and self._streams:
            received = _streamed(stream(request), outlet, request.ids, seconds)
            return await within(received, None, run.stop)
        return await within(run.provider.complete(request), seconds, run.stop)

    async def _tell(self, answer: Answer, ids: Ids, facts: dict[str, Any]) -> None:
        """Tell the host's hooks, and the reader of an answer that came in one piece."""
        host, outlet = self._run.host, self._outlet
        streamed = outlet is not None and outlet.began
        usage = None if answer.usage is None else usage_payload(answer.usage)
        more = {
            "model": answer.model or facts["model"],
            "response_id": answer.response_id,
            "finish_reason": answer.finish_reason,
            "usage": usage,
            "tool_calls": bool(answer.calls),
        }
        try:
            if outlet is not None:
                await outlet.end(ids)
        finally:
            await host.tell_end("provider:response", ids, facts | more)
        if streamed:
            return  # the outlet reported the blocks to the hooks as they came
        if outlet is not None and answer.text:
            await outlet.show(Chunk("text", answer.text))
        blocks = _blocks(answer)
        for index, block in enumerate(blocks):
            kind = block.get("type") if isinstance(block, dict) else None
            place = {"block_type": kind, "block_index": index, "total_blocks": len(blocks)}
            ended = place | {"block": block, "usage": usage}
            try:
                await host.tell("content_block:start", ids, place)
            finally:
                await host.tell_end("content_block:end", ids, ended)

    async def _compact_after(self, failure: ProviderFailed) -> bool:
        """Compact once after a refusal as too long. Returns whether the next request is shorter."""
        context = self._run.context
        compact = getattr(context, "compact", None)
        count = getattr(context, "get_token_count", None)
        if self._shortened or not callable(compact) or not callable(count):
            return False
        if "budget" not in inspect.signature(compact).parameters:
            return False  # a context of another library, whose compaction has no known size
        self._shortened = True
        try:
            size = await count()
            saved = await compact(
                budget=max(1, int(size * SHORTER)), reason=f"refused as too long: {failure.problem}"
            )
        except EventctxError as error:
            raise failure from error
        finally:
            await self._run.forwarding.flush()
        self._messages = None
        return int(saved or 0) > 0


def _blocks(answer: Answer) -> list[Any]:
    """The blocks of an answer's messages; a plain text is one."""
    blocks: list[Any] = []
    for message in answer.messages:
        content = message.get("content")
        if isinstance(content, str) and content:
            blocks.append({"type": "text", "text": content})
        elif isinstance(content, list):
            blocks += content
    return blocks


async def _slept(sleep: Sleep, seconds: float) -> None:
    await sleep(seconds)


def usage_payload(usage: Usage) -> dict[str, int]:
    """Token counts under the names of Amplifier's ``Usage``."""
    return {
        "input_tokens": usage.prompt,
        "output_tokens": usage.output,
        "total_tokens": usage.prompt + usage.output,
        "cache_read_tokens": usage.cache_read,
        "cache_write_tokens": usage.cache_write,
        "reasoning_tokens": usage.reasoning,
    }


async def _streamed(
    pieces: AsyncIterator[Chunk | Answer], outlet: Outlet, ids: Ids, seconds: float | None
) -> Any:
    """Pass the chunks on and return the answer. Raises TimeoutError when one takes too long."""
    answer = None
    clock = asyncio.get_running_loop().time
    try:
        async with asyncio.timeout(seconds) as limit:
            async for piece in pieces:
                if not isinstance(piece, Chunk):
                    answer = piece
                    continue
                limit.reschedule(None)  # the limit is the provider's, not that of a slow reader
                await outlet.put(piece, ids)
                limit.reschedule(None if seconds is None else clock() + seconds)
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise TimeoutError(f"its next piece took longer than {seconds:g} s") from error
    finally:
        close = getattr(pieces, "aclose", None)
        if callable(close):
            await close()
    return answer
