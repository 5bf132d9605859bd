"""The same API without async, for scripts and notebooks.

    import eventctx.sync

    with eventctx.sync.open("contexts.db") as engine:
        ctx = engine.session("my-session", max_tokens=200_000)
        ctx.add_message({"role": "user", "content": "hello"})

Every method is the one of ``eventctx``: it runs in an event loop in a thread of its own, and the
call returns its result. Blocks are entered with ``with``, and an
async iterator is a plain one. So it also works where a loop is running, as in a notebook. The stub
``__init__.pyi`` has the signatures; it is generated from those of the classes. One proxy serves
every method, so a new one is there at once; a second implementation would drift from the first.
"""

from __future__ import annotations

from typing import Any

from eventctx.sync.loop_thread import LoopThread
from eventctx.sync.proxy import SyncContext as Context
from eventctx.sync.proxy import SyncEngine as Engine
from eventctx.sync.proxy import SyncHostReporter as HostReporter
from eventctx.sync.proxy import SyncIteration as Iteration
from eventctx.sync.proxy import SyncPlanPhase as PlanPhase
from eventctx.sync.proxy import SyncProviderCall as ProviderCall
from eventctx.sync.proxy import SyncRecall as Recall
from eventctx.sync.proxy import SyncRecallTool as RecallTool
from eventctx.sync.proxy import SyncToolCall as ToolCall
from eventctx.sync.proxy import SyncTurn as Turn
from eventctx.sync.proxy import opened

__all__ = [
    "Context",
    "Engine",
    "HostReporter",
    "Iteration",
    "PlanPhase",
    "ProviderCall",
    "Recall",
    "RecallTool",
    "ToolCall",
    "Turn",
    "open",
]


def open(*arguments: Any, **options: Any) -> Engine:  # noqa: A001
    """Open a store, as ``eventctx.open`` does: ``with eventctx.sync.open(url) as engine``.

    Or close the engine yourself; one that is still open is closed as the program exits. Raises what
    ``eventctx.open`` raises on entering.
    """
    return opened(LoopThread("eventctx-sync"), arguments, options)
