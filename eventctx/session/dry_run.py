"""The dry run of a compaction: it is decided, but nothing is written and no model is called."""

from __future__ import annotations

from collections.abc import Callable

from eventctx.errors import StreamNotFound
from eventctx.log.store import EventStore
from eventctx.policies.policy import Policy
from eventctx.session.activity import SessionEmitter
from eventctx.session.append_queue import Clock, Listener
from eventctx.session.compaction_run import CompactionCause
from eventctx.session.questions import Advisers, PolicyQuestions
from eventctx.session.repository import load, make_session
from eventctx.session.requests import RequestHandler
from eventctx.session.result import CompactionResult
from eventctx.session.settings import Settings


async def dry_run(
    store: EventStore,
    stream: str,
    policy: Policy,
    settings: Settings,
    clock: Clock,
    random: Callable[[int], bytes],
    *,
    cause: CompactionCause,
    limit: int | None = None,
) -> CompactionResult:
    """Return the result of a compaction on demand. Nothing is written, and no model is called.

    ``limit`` is a budget in tokens to use instead of the last request's. Raises StreamNotFound.
    """
    loaded = await load(store, stream)
    if loaded is None:
        raise StreamNotFound(stream)
    unheard = Listener(lambda record: None)
    session = make_session(store, stream, loaded, unheard, clock, random)
    emitter = SessionEmitter(session, None)
    questions = PolicyQuestions(session, emitter, Advisers())
    requests = RequestHandler(session, policy, settings, questions, emitter, None)
    return await requests.compact(policy, cause, limit=limit, dry_run=True)
