"""Sessions without any text: a file that a format's parser reads, and that says nothing in it.

The marks of a format may fit a file of another program. What such a file yields are messages that
are all empty, or lines that nobody understands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from eventctx.errors import InvalidMessage
from eventctx.importers.source.items import (
    CompactionItem,
    Item,
    MessageItem,
    Paused,
    Raw,
    RecordedContent,
    RecordedRequest,
    Waiting,
)
from eventctx.importers.source.lines import MAX_BYTES
from eventctx.messages.facts_reader import read_facts


def problem_and_items(items: Iterator[Item]) -> tuple[str | None, Iterable[Item]]:
    """What is wrong with a session that holds no text, and all items again.

    Items are held back up to the first one that says something. A file that has no message yet is
    no problem, nor is one whose beginning is too long to be held.
    """
    held: list[Item] = []
    size = messages = unknown = 0
    begins = False
    for item in items:
        held.append(item)
        size += len(item.data) if isinstance(item, Raw) else 0
        # What waits for the rest of the file may say something.
        if _says(item) or isinstance(item, Waiting) or size > MAX_BYTES:
            return None, chain(held, items)
        if isinstance(item, Paused):
            begins = True
            break
        messages += isinstance(item, MessageItem)
        unknown += isinstance(item, Raw) and not item.understood
        begins = begins or (isinstance(item, Raw) and item.kind != "document")
    problem = None
    if messages:
        problem = f"{messages} message{'s' * (messages > 1)} without any text"
    elif unknown:
        problem = f"no message, and {unknown} line{'s' * (unknown > 1)} of another form"
    elif not begins:
        problem = "no message"
    return problem, chain(held, items)


def _says(item: Item) -> bool:
    if isinstance(item, MessageItem):
        return _holds_something(item)
    return isinstance(item, CompactionItem | RecordedContent | RecordedRequest)


def _holds_something(item: MessageItem) -> bool:
    try:
        facts = item.facts or read_facts(item.message)
    except InvalidMessage:
        return False
    sizes = facts.prose + facts.arguments + facts.outcome + facts.thinking + facts.images
    return bool(sizes or facts.media or facts.calls or facts.results)
