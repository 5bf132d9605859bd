"""Uses of the API for type checkers, which must refuse each line that says what they ignore.

Nothing here is run.
"""

from collections.abc import Sequence
from typing import Any

from anthropic.types import Message, MessageParam
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

import eventctx
import eventctx.sync


async def settings() -> None:
    async with eventctx.open("contexts.db", lock_timeout=1.0, most_open_sessions=9) as engine:
        await engine.session("s", max_tokens=100_000, policy="truncate", keep_recent=5)
        await engine.session("s", compaction_threshold=0.8, on_overflow="send_floor")
        await engine.session("s", polcy="truncate")  # type: ignore
        await engine.session("s", max_token=100_000)  # type: ignore
        await engine.session("s", max_tokens="many")  # type: ignore
        await engine.session("s", on_overflow="shrug")  # type: ignore
        await engine.session("s", 100_000)  # type: ignore
        await engine.dry_run("s", keep_recent=3)
        await engine.dry_run("s", keep_recnt=3)  # type: ignore
    eventctx.open("contexts.db", sinks=print)  # type: ignore
    eventctx.open("contexts.db", most_open_session=9)  # type: ignore
    eventctx.open("contexts.db", durability="fast")  # type: ignore
    eventctx.open(None)  # type: ignore


async def names(engine: eventctx.Engine, ctx: eventctx.Context) -> None:
    engine.on("context:post_compact", print)
    engine.on("tool:*", print)
    engine.on("context:post_compac", print)  # type: ignore
    ctx.on("context:*", print)
    ctx.on("contxt:*", print)  # type: ignore
    await engine.session("s", policy="ladder")
    await engine.session("s", policy="lader")  # type: ignore
    await ctx.compact(policy="worksett")  # type: ignore


def without_async(message: MessageParam) -> int:
    with eventctx.sync.open("contexts.db") as engine:
        ctx = engine.session("s", max_tokens=100_000)
        engine.session("s", polcy="truncate")  # type: ignore
        with ctx.turn() as turn, turn.iteration() as cycle, cycle.provider_call() as call:
            call.usage(10, 2)
            call.usage("ten")  # type: ignore
            rows: list[dict[str, Any]] = ctx.get_messages_for_request(call=call)
        ctx.set_messages(rows)
        await_ = [record.type for record in engine.records("s")]
        ctx.add_message(await_)  # type: ignore
        return ctx.add_message(message).number


async def objects(
    ctx: eventctx.Context,
    message: MessageParam,
    response: Message,
    completion: ChatCompletion,
    output: Response,
    rows: list[dict[str, Any]],
) -> None:
    receipt = await ctx.add_message({"role": "user", "content": "hello"})
    await ctx.pin(receipt.number)
    await ctx.add_message(message)
    await ctx.add_message(response)
    await ctx.add_message({"role": "assistant", "content": response.content})
    await ctx.add_message(completion)
    await ctx.add_message(completion.choices[0].message)
    for item in output.output:
        await ctx.add_message(item)
    await ctx.set_messages(rows)
    await ctx.set_messages([message, response])
    await ctx.add_message("hello")  # type: ignore
    await ctx.add_message(3)  # type: ignore
    sent: Sequence[dict[str, Any]] = await ctx.get_messages_for_request()
    await ctx.set_messages(sent)
