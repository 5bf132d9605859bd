"""Scripted summarizers and scorers, and sessions that are due for a compaction."""

from __future__ import annotations

import asyncio
from typing import Any

from eventctx.engine import Engine
from eventctx.policies.advisers import ScoreRequest, SummaryRequest
from tests.policies.given import model, user
from tests.sessions import names
from tests.transcripts import Message, refusal

Request = SummaryRequest | ScoreRequest


class Scripted:
    """Gives the answers of its script, then made-up ones, and keeps its requests.

    An exception among the answers is raised; a function is called with the request.
    """

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[Any] = []

    async def __call__(self, request: Request) -> Any:
        self.requests.append(request)
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, BaseException):
                raise answer
            return answer(request) if callable(answer) else answer
        if isinstance(request, SummaryRequest):
            return f"Summary {len(self.requests)}."
        return [number * 37 % 101 / 100 for number in request.numbers]


class Paused(Scripted):
    """Sets ``called`` when it is called, and waits for ``may_answer``."""

    def __init__(self, *answers: Any) -> None:
        super().__init__(*answers)
        self.called, self.may_answer = asyncio.Event(), asyncio.Event()

    async def __call__(self, request: Request) -> Any:
        self.called.set()
        await self.may_answer.wait()
        return await super().__call__(request)


def mute() -> Scripted:
    """An adviser that must not be called."""
    return Scripted(*[AssertionError("asked again")] * 9)


def talk(count: int, size: int = 1_000) -> list[Message]:
    """Questions and answers, ``count`` of each, of about ``size / 3.3`` tokens each."""
    pairs = [(user(f"{n} " + "q" * size), model(f"{n} " + "a" * size)) for n in range(count)]
    return [message for pair in pairs for message in pair]


async def check_fallback(engine: Engine, ctx: Any, error: str) -> None:
    """The next request is compacted by the ladder, which is recorded with a reason, once."""
    messages = await ctx.get_messages_for_request()
    assert refusal(messages) is None
    assert not any("[Summary" in str(message) for message in messages)
    (row,) = (await engine.audit("s")).compactions
    assert (row.outcome, row.fallback) == ("applied", "ladder")
    assert row.strategy == ctx.policy.name
    assert row.error is not None
    assert error in row.error
    found = await names(engine)
    assert found.count("context:pre_compact") == found.count("context:post_compact") == 1
    await ctx.add_message(user("go on"))
    assert (await ctx.get_messages_for_request())[-1] == user("go on")
    assert (await engine.verify("s")).ok
