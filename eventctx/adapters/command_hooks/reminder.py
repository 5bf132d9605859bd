"""The words of a person that a model is told again after a compaction: which, and in what text.

Nothing here reads what the model and its tools did, as ``lost`` does: of a session of 100 MB that
takes 8 s of processor time, and a host waits for its hook.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from eventctx.hooks.redact import DEFAULT, Redactor
from eventctx.log.ids import MAX_SESSION_ID
from eventctx.log.naming import message_name
from eventctx.messages.extracts import instructions, words_of_person
from eventctx.messages.parts import role_of
from eventctx.messages.recall_text import text_of

if TYPE_CHECKING:
    from eventctx.engine import Engine
    from eventctx.queries.instructions import Instruction


class Words(NamedTuple):
    """A sentence of a person on one line, and the number of its message."""

    number: int
    text: str


async def words_that_hold(engine: Engine, session: str) -> list[Words]:
    """The person's first sentence, which is the task, and the demands that hold.

    Raises StreamNotFound.
    """
    found = (await engine.instructions(session)).instructions
    holding = [one for one in found if one.stands is not None]
    return _after(await _task(engine, session, found), holding)


async def lost_words(engine: Engine, session: str) -> list[Words]:
    """Those of ``words_that_hold`` that are in none of the view's messages and summaries.

    Raises StreamNotFound.
    """
    found = (await engine.instructions(session)).instructions
    task = await _task(engine, session, found)
    if task is not None and await _is_in_view(engine, session, task):
        task = None
    return _after(task, [one for one in found if one.is_absent])


def _after(task: Words | None, demands: list[Instruction]) -> list[Words]:
    words = [Words(one.number, _line(one.text)) for one in demands]
    return words if task is None or task in words else [task, *words]


async def _task(engine: Engine, session: str, demands: tuple[Instruction, ...]) -> Words | None:
    """The first sentence of the first person's message that was not taken back."""
    for number, _, message, origin in await engine.transcript(session):
        if message is None or origin == "harness" or role_of(message) != "user":
            continue
        taken_back = [one.text for one in demands if one.number == number and one.stands is None]
        text = words_of_person(message)
        sentences = [_line(one) for one in instructions(text, None, taken_back)]
        if sentences:
            return Words(number, min(sentences, key=_line(text).find))
    return None


async def _is_in_view(engine: Engine, session: str, words: Words) -> bool:
    """Whether the view has the sentence: in the message, or in the text that replaces it."""
    answer = await engine.why(session, words.number)
    shown = [answer.shows, *[one.message for one in answer.stands_in]]
    return any(words.text in _line(text_of(one)) for one in shown if one is not None)


def _line(text: str) -> str:
    return " ".join(text.split())


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
