"""Which of a person's words a model is told again after a compaction.

Nothing here reads what the model and its tools did, as ``lost`` does: of a session of 100 MB that
takes 8 s of processor time, and a host waits for its hook.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from eventctx.messages.extracts import instructions, words_of_person
from eventctx.messages.parts import role_of
from eventctx.messages.recall_text import text_of

if TYPE_CHECKING:
    from eventctx.engine import Engine
    from eventctx.queries.instructions.answers import Instruction


class Words(NamedTuple):
    """A sentence of a person on one line, and the number of its message."""

    number: int
    text: str


async def words_that_hold(engine: Engine, session: str) -> list[Words]:
    """The person's first sentence, which is the task, and the demands that hold.

    Raises StreamNotFound.
    """
    found = (await engine.instructions(session)).instructions
    holding = [one for one in found if one.taken_back is None and one.left is None]
    return _after(await _task(engine, session, found), holding)


async def lost_words(engine: Engine, session: str) -> list[Words]:
    """Of ``words_that_hold`` those that the view has in none of its messages and summaries.

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
        taken_back = [one.text for one in demands if one.number == number and one.taken_back]
        text = words_of_person(message)
        sentences = [_line(one) for one in instructions(text, None, taken_back)]
        if sentences:
            return Words(number, min(sentences, key=_line(text).find))
    return None


async def _is_in_view(engine: Engine, session: str, words: Words) -> bool:
    """Whether the message's form in the view, or what stands there for it, has the sentence."""
    answer = await engine.why(session, words.number)
    shown = [answer.shows, *[one.message for one in answer.stands_in]]
    return any(words.text in _line(text_of(one)) for one in shown if one is not None)


def _line(text: str) -> str:
    return " ".join(text.split())
