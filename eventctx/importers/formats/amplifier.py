"""Amplifier's two files of a session: ``transcript.jsonl`` and ``events.jsonl``.

The transcript is a message per line, in Amplifier's own dialect, and is taken as it is. The event
log (``amplifier_log.py``) tells of requests, usage and tools too. Both tell one session, each in
its own way, so they are imported as two: by the session's name, and with ``.events`` behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final

from eventctx.errors import InvalidMessage
from eventctx.importers.formats import amplifier_log, amplifier_rows, chat
from eventctx.importers.source.document import first_record, stem
from eventctx.importers.source.items import Ended, FileLine, Item, never
from eventctx.importers.source.lines import object_or_empty
from eventctx.messages.facts_reader import read_facts

NAME: Final = "amplifier"


def is_row(value: dict[str, Any]) -> bool:
    """Whether an object is a line of a transcript."""
    if not isinstance(value.get("role"), str) or "content" not in value:
        return False
    try:
        dialect = read_facts(value).dialect
    except InvalidMessage:
        return False
    stamp = object_or_empty(value.get("metadata")).get("timestamp")
    return dialect == "amplifier" or isinstance(stamp, str)


def parse(lines: Iterable[FileLine], name: str, ended: Ended = never) -> Iterator[Item]:
    """The items of either file; ``name`` is that of the session where no line gives it."""
    source = iter(lines)
    head: list[FileLine] = []
    for line in source:
        head.append(line)
        record = first_record(line) if line.data.strip() else None
        if isinstance(record, dict):
            if "role" not in record or amplifier_rows.is_row(record):
                return amplifier_log.parse(chain(head, source), name, ended)
            break
    return chat.parse_rows(chain(head, source), stem(name))
