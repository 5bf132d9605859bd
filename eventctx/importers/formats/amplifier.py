"""Amplifier's two files of a session: ``transcript.jsonl`` and ``events.jsonl``.

The transcript has a message per line, in Amplifier's own dialect, and is imported as it is. The
event log (``amplifier_log.py``) holds requests, usage and tools, too. The two describe one session
in different ways; ``amplifier_folder.py`` says which of them is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any, Final

from eventctx.importers.formats import amplifier_log, amplifier_rows, chat
from eventctx.importers.source.document import first_record, stem
from eventctx.importers.source.items import Ended, FileLine, Item, never
from eventctx.importers.source.lines import facts_or_none, object_or_empty

NAME: Final = "amplifier"

_LOOKED_AT: Final = 1000


def is_row(value: dict[str, Any]) -> bool:
    """Whether an object is a line of a transcript."""
    if not isinstance(value.get("role"), str) or "content" not in value:
        return False
    facts = facts_or_none(value)
    stamp = object_or_empty(value.get("metadata")).get("timestamp")
    return facts is not None and (facts.dialect == "amplifier" or isinstance(stamp, str))


def parse(lines: Iterable[FileLine], name: str, ended: Ended = never) -> Iterator[Item]:
    """The items of either file. ``name`` stands in for a session id that no line gives."""
    source = iter(lines)
    head: list[FileLine] = []
    for line in islice(source, _LOOKED_AT):
        head.append(line)
        record = first_record(line) if line.data.strip() else None
        if isinstance(record, dict):
            if "role" not in record or amplifier_rows.is_row(record):
                return amplifier_log.parse(chain(head, source), name, ended)
            break
    return chat.parse_rows(chain(head, source), stem(name))
