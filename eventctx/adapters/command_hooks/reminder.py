"""The words of a person that a model is told again after a compaction."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Final

from eventctx.adapters.command_hooks.words import Words
from eventctx.hooks.redact import DEFAULT, Redactor
from eventctx.log.ids import MAX_SESSION_ID
from eventctx.log.naming import message_name

MOST: Final = 6_000
"""Characters of a reminder: Claude Code takes 10,000 of all hooks of an event."""

LONGEST: Final = 600
"""Characters of one demand."""

ALL: Final = (
    "The context was compacted. The log of this session (eventctx) has these instructions of the "
    "person, in the person's own words, whether or not the summary has them; they hold unless the "
    "person said otherwise:"
)
LOST: Final = (
    "The context was compacted. These instructions of the person were in it, and are no longer, "
    "word by word, in what is left; they are from the log of this session (eventctx), and hold "
    "unless the person said otherwise:"
)
_ROOM_OF_FRAME: Final = max(len(ALL), len(LOST)) + 2 * MAX_SESSION_ID + 300


def reminder(
    session: str,
    words: Iterable[Words],
    introduction: str = ALL,
    *,
    most: int = MOST,
    redactor: Redactor = DEFAULT,
) -> str | None:
    """A text that quotes the words after an introduction, redacted; None where there are none.

    Of words that do not fit, the first stays, which is the task, and then the last ones.
    """
    lines = [f"- {message_name(one.number)}: {_quoted(one.text, redactor)}" for one in words]
    if not lines:
        return None
    room = most - _ROOM_OF_FRAME - len(lines[0])
    kept: list[str] = []
    for line in reversed(lines[1:]):
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    left = len(lines) - 1 - len(kept)
    rest = [f"- … {left} more between these"] if left else []
    return "\n".join([introduction, lines[0], *rest, *reversed(kept), _ways_on(session)])


def _ways_on(session: str) -> str:
    name = shlex.quote(session)
    return (
        f"All of them: `eventctx instructions {name}`. What else left the context: the tools "
        "`lost` and `recall` of the MCP server eventctx, where it is set up, or `eventctx lost "
        f"{name}`."
    )


def _quoted(text: str, redactor: Redactor) -> str:
    """The text on one line."""
    return redactor.cut(" ".join(text.split()), LONGEST)
