"""The page's list of sessions where a store has more than fit into it."""

from __future__ import annotations

import eventctx
from eventctx.web.reading import NewestSessions


async def _add(engine: eventctx.Engine, *names: str) -> None:
    for name in names:
        await (await engine.session(name)).add_message({"role": "user", "content": name})


async def test_the_list_has_the_newest_sessions_and_counts_the_older_ones() -> None:
    async with eventctx.open("memory://") as engine:
        newest = NewestSessions(engine.store, most=3)
        assert await newest.look() == []
        await _add(engine, "a", "b")
        assert [info.stream for info in await newest.look()] == ["a", "b"]
        assert newest.older == 0
        await _add(engine, "c", "d", "e")
        assert [info.stream for info in await newest.look()] == ["c", "d", "e"]
        assert newest.older == 2
        await _add(engine, "f")
        assert [info.stream for info in await newest.look()] == ["d", "e", "f"]
        assert newest.older == 3


async def test_the_list_shows_how_its_sessions_stand_now_and_no_deleted_one() -> None:
    async with eventctx.open("memory://") as engine:
        newest = NewestSessions(engine.store, most=3)
        await _add(engine, "a", "b", "c", "d")
        before = await newest.look()
        await _add(engine, "c")
        after = await newest.look()
        assert [one.head - other.head for one, other in zip(after, before, strict=True)] == [
            0,
            1,
            0,
        ]
        await engine.delete("c")
        assert [info.stream for info in await newest.look()] == ["b", "d"]
        assert newest.older == 1
