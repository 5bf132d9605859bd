"""The list of sessions of the page: the newest that fit, and which lack a person's words."""

from __future__ import annotations

from pathlib import Path

import eventctx
from eventctx.web.reading import NewestSessions, lost_words


async def _add(engine: eventctx.Engine, *names: str) -> None:
    for name in names:
        await (await engine.session(name)).add_message({"role": "user", "content": name})


async def test_the_list_has_the_newest_sessions_as_they_are_now_and_counts_the_older_ones() -> None:
    async with eventctx.open("memory://") as engine:
        newest = NewestSessions(engine.store, most=3)

        async def shown() -> tuple[list[str], int]:
            return [info.stream for info in await newest.look()], newest.older

        assert await shown() == ([], 0)
        await _add(engine, "a", "b")
        assert await shown() == (["a", "b"], 0)
        await _add(engine, "c", "d", "e")
        assert await shown() == (["c", "d", "e"], 2)
        await _add(engine, "f")
        assert await shown() == (["d", "e", "f"], 3)
        before = await newest.look()
        await _add(engine, "e")
        after = await newest.look()
        grown = [one.head - other.head for one, other in zip(after, before, strict=True)]
        assert grown == [0, 1, 0]
        await engine.delete("e")
        assert await shown() == (["d", "f"], 3)


async def test_the_list_counts_the_words_of_a_person_that_the_last_request_lacks(
    tmp_path: Path,
) -> None:
    async with eventctx.open(tmp_path / "s.db") as engine:
        context = await engine.session("talk", max_tokens=1_500)
        for number in range(8):
            async with context.turn():
                told = f"Round {number}: " + "the harbour was quiet again today. " * 20
                await context.add_message({"role": "user", "content": told})
                await context.get_messages_for_request()
                await context.add_message({"role": "assistant", "content": "I see. " * 30})
        await context.add_message({"role": "user", "content": "Not in any request yet."})

        rows = (await engine.audit("talk")).requests
        last = await engine.request_view("talk", position=rows[-1].position)
        shown = {entry.ref.number for entry in last.entries if entry.kind == "message"}
        people = [number for number in range(0, 16, 2) if number not in shown]
        assert people, "the budget is too large to lose anything"
        assert await lost_words(engine, "talk") == len(people)
