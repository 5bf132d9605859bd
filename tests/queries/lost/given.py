"""Sessions for questions about what left a view."""

from __future__ import annotations

from typing import Any

import eventctx
from eventctx.engine import Engine
from eventctx.log.plan import Insertion, Run
from eventctx.log.store import EventStore
from eventctx.queries.lost.answers import Lost, ViewItem
from eventctx.stores.memory import MemoryStore
from tests.queries.instructions.given import compact as by_hand
from tests.sessions import model, user

Row = dict[str, Any]


def call(number: int, name: str, arguments: Row, text: str = "") -> Row:
    blocks: list[Row] = [{"type": "text", "text": text}] if text else []
    blocks.append({"type": "tool_use", "id": f"c{number}", "name": name, "input": arguments})
    return {"role": "assistant", "content": blocks}


def result(number: int, text: str, *, failed: bool = False) -> Row:
    block = {"type": "tool_result", "tool_use_id": f"c{number}", "content": text}
    return {"role": "user", "content": [{**block, "is_error": True} if failed else block]}


ERROR = "FAILED tests/shop/test_models.py - missing total_in_cents"
BEFORE = (
    user("Clean up the models of the shop. Never touch the migrations."),  # 0
    call(1, "Read", {"file_path": "/repo/shop/models.py"}),
    result(1, "class CustomerAccount:\n    balance_in_cents = 0\n"),
    call(2, "Bash", {"command": "cd /repo && pytest tests/shop"}, "I'll use the old class here."),
    result(2, f"Exit code 1\n{ERROR}", failed=True),
    call(3, "Edit", {"file_path": "/repo/shop/models.py", "old_string": "x"}),  # 5
    result(3, "ok"),
    call(4, "Read", {"file_path": "/repo/shop/views.py"}),
    result(4, "def show_invoice(request): ..."),
    model("Done with the models."),
)  # fmt: skip
AFTER = (
    call(5, "Read", {"file_path": "/repo/shop/models.py"}),
    result(5, "class CustomerAccount:\n"),
    call(6, "Bash", {"command": "cd /repo && pytest tests/shop"}),
    result(6, "1 passed"),
    call(7, "Write", {"file_path": "/repo/a.py", "content": "show_invoice(1)\nbalance_in_cents"}),
    result(7, "ok"),
)


async def session(*rows: Row, store: EventStore | None = None) -> tuple[Engine, eventctx.Context]:
    """A session with these messages, in one turn that ends in a request."""
    engine = Engine(store or MemoryStore())
    ctx = await engine.session("s")
    async with ctx.turn():
        await ctx.add_messages(rows)
        await ctx.get_messages_for_request()
    return engine, ctx


async def compact(engine: Engine, runs: tuple[Run, ...], summary: str = "", **more: Any) -> int:
    """Append an applied compaction with these runs, a summary, and shortened messages."""
    gone = tuple([(run.first, run.last) for run in runs if run.disposition == "summarised"])
    insertion = Insertion("summary", 0, stands_for=gone) if summary else None
    return await by_hand(engine, *runs, insertion=insertion, text=summary, **more)


def item(found: Lost, kind: str, text: str) -> ViewItem:
    """The only item of a kind whose text holds ``text``."""
    [one] = [one for one in found.items if one.kind == kind and text in one.text]
    return one


def states(found: Lost, kind: str) -> dict[str, str]:
    """The state of every item of a kind, by its text."""
    return {one.text: one.state for one in found.items if one.kind == kind}
