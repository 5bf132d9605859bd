"""A session that is open in this process: the parts that its command handlers use.

Each part has a file of its own: the aggregate (folded state), the append queue (the way to the
store), the body cache, and the transcript lines. The sources of random bytes and durations are
beside them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from eventctx.log.store import EventStore
from eventctx.messages.tokenizers import Tokenizer
from eventctx.session.aggregate import Aggregate
from eventctx.session.append_queue import AppendQueue
from eventctx.session.body_cache import BodyCache
from eventctx.session.transcript_lines import TranscriptLines


class OpenSession(NamedTuple):
    """One session in this process. Made by ``repository.open_session``.

    ``random(n)`` returns n bytes; ``stopwatch`` returns nanoseconds, and only differences between
    them mean anything. ``tokenizer`` counts the texts of messages that are added from here on.
    """

    stream: str
    store: EventStore
    aggregate: Aggregate
    appends: AppendQueue
    bodies: BodyCache
    lines: TranscriptLines
    random: Callable[[int], bytes]
    stopwatch: Callable[[], int]
    tokenizer: Tokenizer | None = None
