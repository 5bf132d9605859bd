"""An audit that is kept is the audit of the log as it is, and nobody's but the engine's."""

from __future__ import annotations

from eventctx.engine import Engine
from eventctx.queries.key_frames import KEY_FRAME
from eventctx.stores.memory import MemoryStore


async def test_a_kept_audit_has_what_came_since_and_not_what_a_caller_did_to_it() -> None:
    engine = Engine(MemoryStore())
    ctx = await engine.session("s")
    for number in range(KEY_FRAME):
        await ctx.add_message({"role": "user", "content": f"{number}"})
    first = await engine.audit("s")
    first.usage["nobody's model"] = None  # type: ignore[assignment]
    again = await engine.audit("s")
    assert again.requests is first.requests, "kept"
    assert again.usage == {}
    await ctx.get_messages_for_request()
    later = await engine.audit("s")
    assert (len(first.requests), len(later.requests)) == (0, 1)
    assert later.requests[0].position == (await engine.store.head("s")).head  # type: ignore[union-attr]
