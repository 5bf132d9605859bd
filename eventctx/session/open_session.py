"""A session that is open in this process: what its command handlers work on.

It only holds the parts together that have a file each: the aggregate (folded state), the append
queue (the way to the store), the body cache, and the transcript lines; and the sources of ids and
times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from eventctx.log.events import Event
from eventctx.log.record import Body, Draft, make_body
from eventctx.log.store import EventStore
from eventctx.messages.encoding import encode_message
from eventctx.messages.facts import encode_facts
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.tokenizers import Tokenizer, counted
from eventctx.session.aggregate import Aggregate
from eventctx.session.append_queue import AppendQueue
from eventctx.session.body_cache import BodyCache
from eventctx.session.scope import Scope, scope_of
from eventctx.session.transcript_lines import TranscriptLines


class OpenSession:
    """One session in this process. Made by ``repository.open_session``.

    ``random(n)`` returns n bytes; ``stopwatch`` returns nanoseconds of a clock that only durations
    are measured by. ``tokenizer`` counts the texts of messages that are added from here on.
    ``held`` is where a host said that the session is, for tasks in no turn of their own.
    """

    __slots__ = (
        *("aggregate", "appends", "bodies", "held", "random", "stopwatch", "store", "stream"),
        "lines",
        "tokenizer",
    )

    def __init__(
        self,
        store: EventStore,
        aggregate: Aggregate,
        appends: AppendQueue,
        bodies: BodyCache,
        random: Callable[[int], bytes],
        stopwatch: Callable[[], int],
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self.store = store
        self.stream = aggregate.stream
        self.aggregate = aggregate
        self.appends = appends
        self.bodies = bodies
        self.lines = TranscriptLines(store, aggregate.stream)
        self.random = random
        self.stopwatch = stopwatch
        self.tokenizer = tokenizer
        self.held: Scope | None = None

    @property
    def scope(self) -> Scope:
        """Where the running task is in this session, else where a host said that it is."""
        scope = scope_of(self.stream)
        return self.held if scope.turn_id is None and self.held is not None else scope

    def body(self, message: Any) -> Body:
        """A new body for ``message``, with its facts. Raises InvalidMessage."""
        data = encode_message(message)
        facts = read_facts(message)
        if self.tokenizer is not None:
            facts = counted(facts, message, self.tokenizer)
        return make_body(data, encode_facts(facts), self.random)

    def draft(self, event: Event, bodies: Sequence[Body] = (), scope: Scope | None = None) -> Draft:
        """A draft of ``event`` where the session is now, or in ``scope``."""
        return self.appends.draft(event, self.scope if scope is None else scope, bodies)
