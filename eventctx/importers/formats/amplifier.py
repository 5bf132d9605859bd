"""Amplifier's files of a session: its transcript, its event log, and its stored context.

The transcript has a message per line, in Amplifier's own dialect, and is imported as it is. The
event log (``amplifier_log.py``) holds requests, usage and tools, too. The two describe one session
in different ways; ``amplifier_folder.py`` says which of them is read.

context-persistent stores its messages itself, with a ``timestamp`` besides the role, and with
system messages and loaded memory files. The session of that file is named with ``.context`` at the
end, because the other files describe the same session differently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any, Final

from eventctx.importers.formats import amplifier_log, amplifier_rows, chat
from eventctx.importers.source.document import first_record, stem
from eventctx.importers.source.items import Ended, FileLine, Item, never
from eventctx.importers.source.lines import facts_or_none, nanoseconds, object_or_empty

_LOOKED_AT: Final = 1000


def is_own_row(value: dict[str, Any]) -> bool:
    """Whether an object is a line of an event log, or a transcript's by itself."""
    if amplifier_rows.is_row(value):
        return True
    return is_row(value) and chat.is_plain(value) and not _is_stored(value)


def is_row(value: dict[str, Any]) -> bool:
    """Whether an object is a line of a transcript."""
    if not isinstance(value.get("role"), str) or "content" not in value:
        return False
    facts = facts_or_none(value)
    stamp = object_or_empty(value.get("metadata")).get("timestamp")
    return facts is not None and (facts.dialect == "amplifier" or isinstance(stamp, str))


def is_context_row(value: dict[str, Any]) -> bool:
    """Whether an object is a message as context-persistent stores it."""
    return _is_stored(value) and chat.is_plain(value)


def _is_stored(value: dict[str, Any]) -> bool:
    """Whether an object has a role and the time of its addition."""
    stamp = value.get("timestamp")
    written = isinstance(stamp, str) and "T" in stamp and nanoseconds(stamp) is not None
    return written and isinstance(value.get("role"), str) and "content" in value


def parse(lines: Iterable[FileLine], name: str, ended: Ended = never) -> Iterator[Item]:
    """The items of a transcript or an event log; ``name`` is used where no line names a session."""
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


def parse_context(lines: Iterable[FileLine], name: str, ended: Ended = never) -> Iterator[Item]:
    """The items of one file of context-persistent; ``name`` is that of its session."""
    return chat.parse_rows(lines, f"{stem(name)}.context")
