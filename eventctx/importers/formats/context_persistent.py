"""context-persistent's ``context-messages.jsonl``: Amplifier's context as it stores it itself.

The file has a message per line, with a ``timestamp`` beside the role, and includes system messages
and loaded memory files. The session is named with ``.context`` at the end, because Amplifier's
other logs describe the same session differently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from eventctx.importers.formats import chat
from eventctx.importers.source.document import stem
from eventctx.importers.source.items import Ended, FileLine, Item, never
from eventctx.importers.source.lines import nanoseconds

NAME: Final = "context-persistent"


def is_row(value: dict[str, Any]) -> bool:
    """Whether an object is a stored message, with a role and the time of its addition."""
    stamp = value.get("timestamp")
    written = isinstance(stamp, str) and "T" in stamp and nanoseconds(stamp) is not None
    return written and isinstance(value.get("role"), str) and "content" in value


def parse(lines: Iterable[FileLine], name: str, ended: Ended = never) -> Iterator[Item]:
    """The items of one file; ``name`` is that of its session."""
    return chat.parse_rows(lines, f"{stem(name)}.context")
