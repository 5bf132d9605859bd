"""A compaction that is decided and not made: nothing is written, and no model is called."""

from __future__ import annotations

from collections.abc import Callable

from eventctx.asking import Advisers, Asking
from eventctx.deciding import Why
from eventctx.emitting import SessionEmitter
from eventctx.errors import StreamNotFound
from eventctx.live import Clock, Listener, LiveSession
from eventctx.loading import load
from eventctx.policies.policy import Policy
from eventctx.requesting import Requests
from eventctx.result import CompactionResult
from eventctx.settings import Settings
from eventctx.store import EventStore


async def dry_run(
    store: EventStore,
    stream: str,
    policy: Policy,
    settings: Settings,
    clock: Clock,
    random: Callable[[int], bytes],
    *,
    asked: Why,
    limit: int | None = None,
) -> CompactionResult:
    """What a compaction on demand would do now. Nothing is written, and no model is called.

    ``limit`` is a budget in tokens to use instead of the last request's. Raises StreamNotFound.
    """
    loaded = await load(store, stream)
    if loaded is None:
        raise StreamNotFound(stream)
    live = LiveSession(store, stream, loaded, Listener(lambda record: None), clock, random)
    emitter = SessionEmitter(live, None)
    requests = Requests(live, policy, settings, Asking(live, emitter, Advisers()), emitter, None)
    return await requests.compact(policy, asked, limit=limit, dry_run=True)
