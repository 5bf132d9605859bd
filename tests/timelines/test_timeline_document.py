"""A session's timeline document, whole and as it grows, and the audit that is kept."""

from __future__ import annotations

from typing import Any

import pytest

import eventctx
from eventctx.engine import Engine
from eventctx.errors import InvalidSetting, StreamNotFound
from eventctx.queries.key_frames import KEY_FRAME
from eventctx.stores.memory import MemoryStore
from tests.sessions import model, user


async def asked(engine: Engine, rounds: int, session: str = "s") -> None:
    """Add rounds of a question, its request and the answer."""
    ctx = await engine.session(session, max_tokens=2_000, policy="ladder")
    for number in range(rounds):
        async with ctx.turn():
            await ctx.add_message(user(f"zirconium {number} " * 60))
            await ctx.get_messages_for_request()
            await ctx.add_message(model("a palace " * 60))


def columns(document: dict[str, Any], table: str) -> dict[str, list[Any]]:
    return {name: one for name, one in document[table].items() if isinstance(one, list)}


async def test_a_timeline_has_every_message_and_request_and_no_text() -> None:
    async with eventctx.open("memory://") as engine:
        await asked(engine, 12)
        found = await engine.timeline("s")
        audit = await engine.audit("s")
        transcript = await engine.transcript("s")
    assert found["messages"]["position"] == [one.position for one in transcript]
    assert found["requests"]["position"] == [one.position for one in audit.requests]
    assert found["requests"]["total"] == [one.figures.total for one in audit.requests]
    applied = [one for one in audit.compactions if one.outcome == "applied"]
    assert len(applied) == max(one["number"] for one in found["compactions"]) > 0
    assert "zirconium" not in repr(found)
    assert "palace" not in repr(found)


async def test_documents_that_continue_each_other_add_up_to_the_whole_one() -> None:
    async with eventctx.open("memory://") as engine:
        await asked(engine, 3)
        parts = [await engine.timeline("s")]
        for _ in range(3):
            await asked(engine, 4)
            parts.append(await engine.timeline("s", after=parts[-1]["head"]))
        whole = await engine.timeline("s")
        nothing = await engine.timeline("s", after=whole["head"])
    for table in ("messages", "changes"):
        for name, column in columns(whole, table).items():
            assert [one for part in parts for one in part[table][name]] == column, name
    for name in ("position", "keep", "add", "digest"):
        joined = [one for part in parts for one in part["requests"][name]]
        assert joined == whole["requests"][name]
    assert [part["after"] for part in parts] == [-1, *(part["head"] for part in parts[:-1])]
    assert not any(columns(nothing, "messages").values())


async def test_a_forks_documents_begin_at_its_own_first_record_and_end_at_its_last() -> None:
    async with eventctx.open("memory://") as engine:
        await asked(engine, 6)
        head = (await engine.timeline("s"))["head"]
        for after in (head + 1, -1):
            with pytest.raises(InvalidSetting, match="after"):
                await engine.timeline("s", after=after)
        with pytest.raises(StreamNotFound):
            await engine.timeline("another")
        await engine.fork("s", head - 3, "f")
        first = await engine.timeline("f")
        await asked(engine, 2, "f")
        whole = await engine.timeline("f")
        later = await engine.timeline("f", after=first["head"])
        with pytest.raises(InvalidSetting, match=f"expected a position from {head - 2} to"):
            await engine.timeline("f", after=head - 3)
    joined = first["requests"]["position"] + later["requests"]["position"]
    assert joined == whole["requests"]["position"]
    assert len(joined) == 2


async def test_a_kept_audit_has_what_came_since_and_not_what_a_caller_did_to_it() -> None:
    engine = Engine(MemoryStore())
    ctx = await engine.session("s")
    for number in range(KEY_FRAME):
        await ctx.add_message(user(f"{number}"))
    first = await engine.audit("s")
    first.usage["nobody's model"] = None  # type: ignore[assignment]
    again = await engine.audit("s")
    assert again.requests is first.requests, "kept"
    assert again.usage == {}
    await ctx.get_messages_for_request()
    later = await engine.audit("s")
    assert (len(first.requests), len(later.requests)) == (0, 1)
    assert later.requests[0].position == (await engine.store.head("s")).head  # type: ignore[union-attr]
