"""The store that the pages show: the demonstration, a chat, recorded sessions, and hostile ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import eventctx
from eventctx.engine import Engine
from eventctx.importers.load import import_file
from tests.browser import hostile
from tests.browser.inspecting import answer_of

DEMO: Final = "demo"

RECORDED: Final = {
    "claude-code": "claude-code/codemie-session-9eda1058.jsonl",
    "codex": "codex/rollout-2026-05-11T11-26-55-019e1625-789d-76c0-80ab-3724b5ddb799.jsonl",
}
"""Recorded sessions by the name that they have in the store, each with its file."""

FORK: Final = "demo, another way"


CHAT: Final = "a long chat"
FORGOTTEN: Final = "Which of the two tables do you mean?"
"""What a person asks first in the chat, as message 2; a compaction takes it out with its answer."""


TOLD: Final = "told and set aside"
DEMAND: Final = "Always name the columns."
"""What a person asks for in that session, as message 0; its host then takes it out."""


async def make(path: Path) -> None:
    """A store with the demonstration, a fork of it, a chat, and the hostile sessions."""
    await answer_of("demo", "--store", path)
    async with eventctx.open(path, durability="normal") as engine:
        await engine.fork(DEMO, 300, FORK)
        await _chat(engine)
        await _told(engine)
        await hostile.write(engine)


async def _chat(engine: Engine) -> None:
    """Questions and answers that come to more than a quarter of the budget, so the oldest leave."""
    ctx = await engine.session(CHAT, max_tokens=1_500)
    rows = "and what about the rows in which both columns hold the same value as the row before?"
    more = [f"What about column {number}, and the column after it, {rows}" for number in range(24)]
    for question in ("What is a join?", FORGOTTEN, *more):
        async with ctx.turn() as turn, turn.iteration():
            await ctx.add_message({"role": "user", "content": question})
            await ctx.get_messages_for_request()
            answer = f"This is about {question} " + "Each row has its own. " * 12
            await ctx.add_message({"role": "assistant", "content": answer})


async def _told(engine: Engine) -> None:
    ctx = await engine.session(TOLD)
    for words in (f"Here is a table. {DEMAND} Thanks.", "And the rows?"):
        async with ctx.turn():
            await ctx.set_messages([{"role": "user", "content": words}])
            await ctx.get_messages_for_request()


async def add_recorded(path: Path, folder: Path) -> None:
    async with eventctx.open(path, durability="normal") as engine:
        for name, file in RECORDED.items():
            await import_file(engine.store, folder / file, session=name, complete=True)


def recorded_folder() -> Path | None:
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "sessions"
    folder = Path(os.environ.get("EVENTCTX_SESSIONS", beside))
    return folder if (folder / "MANIFEST.json").is_file() else None
