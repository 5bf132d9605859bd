"""What a report takes from one message, whatever the view: made once for each body."""

from __future__ import annotations

from array import array
from typing import Any, Final, Literal, NamedTuple

from eventctx.messages.demands import demands_in
from eventctx.messages.facts import Facts
from eventctx.messages.notable.calls import deed_of
from eventctx.messages.notable.outcomes import CallOutcome, outcome_of, text_of_result
from eventctx.messages.notable.sentences import decisions, instructions, words_of_person
from eventctx.messages.notable.shell import How, core
from eventctx.messages.part_queries import words_of
from eventctx.messages.parts import Part, read_parts
from eventctx.messages.recall_text import text_of
from eventctx.queries.lost.needles import marks_in, needles_in

_NOTHING: Final = array("q")


class CallExtract(NamedTuple):
    """A call: its ids, its name and what it did, the files it touched, and the command it ran."""

    ids: tuple[str, ...]
    source: str
    files: tuple[tuple[str, How], ...]
    command: str | None


class Extract(NamedTuple):
    """One message: what it says, calls and answers, and the needles in it.

    ``used`` are the needles of a message of the model or of a system message, as they are compared
    and as they stand there; ``held`` are marks of those that another message may hold.
    ``outcomes`` are those of the calls that it answers, by their ids.
    """

    kind: Literal["system", "model", "other"]
    decisions: tuple[str, ...] = ()
    instructions: tuple[str, ...] = ()
    calls: tuple[CallExtract, ...] = ()
    outcomes: dict[str, CallOutcome] = {}  # noqa: RUF012 - never changed
    used: dict[str, str] = {}  # noqa: RUF012 - never changed
    held: array[int] = _NOTHING


def extract(facts: Facts, message: dict[str, Any]) -> Extract:
    """What a report takes from a message."""
    text = text_of(message)
    if facts.kind == "system":
        return Extract("system", used=needles_in(text))
    parts = read_parts(message)
    calls = tuple([_call(part) for part in parts if part.kind in ("call", "hosted")])
    outcomes: dict[str, CallOutcome] = {}
    for part in parts:
        if part.kind == "result":
            outcomes.update(dict.fromkeys(part.ids, outcome_of(part, text_of_result(part))))
    asked: tuple[str, ...] = ()
    if facts.human:
        asked = tuple(instructions(words_of_person(message), demands_in(message)))
    if facts.kind == "assistant":
        decided = tuple(decisions(words_of(message)))
        return Extract("model", decided, asked, calls, outcomes, used=needles_in(text))
    return Extract("other", (), asked, calls, outcomes, held=marks_in(text))


def taken_back_in(message: dict[str, Any], places: set[int]) -> list[str]:
    """The sentences of a person that are no item once the demands at ``places`` hold no longer.

    Places are from 1.
    """
    words, demands = words_of_person(message), demands_in(message)
    named = [one for place, one in enumerate(demands, 1) if place in places]
    left = set(instructions(words, demands, named))
    return [one for one in instructions(words, demands) if one not in left]


def _call(part: Part) -> CallExtract:
    deed = deed_of(part)
    command = None if deed.command is None else core(deed.command)
    what = command or ", ".join([path for path, _ in deed.files])
    source = f"{part.name or 'a call'} {what}".strip()
    files = tuple(dict.fromkeys(deed.files))
    return CallExtract(tuple(dict.fromkeys(part.ids)), source, files, command)
