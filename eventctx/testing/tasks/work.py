"""The frame of a task: what persons ask, a small world of tools, an agent that is a function.

A family is a row (``Family``) and two functions. ``build`` makes a task of a seed and a length;
``act`` reads one view and says what the agent does next. Long readings are alike in all families:
a person asks for a series of texts, and the agent fetches one after another (``read_on``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final, NamedTuple

from eventctx.testing.tasks.noise import NAMES, STYLES, lines
from eventctx.testing.tasks.reading import Action, AgentCall, AgentView, Do, Say, do

CHARACTERS: Final = 2.7
"""Characters of a token, about."""

LONGEST: Final = 3_600
"""Characters of one text; of a short task a twentieth, or a small budget could not show it."""

LEAST_LINES: Final = 6
"""Lines that a text has at least, however short the task is: a task hides its own among them."""

OF_ROUND: Final = 500
"""Characters of two rounds besides their text, counted as text is."""

_ASKED: Final = (
    "Go through the {series}, 1 to {last}, and say when you are at the end.",
    "Next comes the {series}, 1 to {last}. Read it all and say so at the end.",
    "Have a look at the {series}, 1 to {last}, one by one.",
)
_OPENINGS: Final = (
    "Good morning. It will be a long day with many texts.",
    "Hello. We begin with a bit of reading and see where it gets us.",
    "Hi, back again. There is quite some work on the desk.",
)
"""First words, of which nothing is needed: what matters is said later."""

_REQUEST: Final = re.compile(r"\bthe ([a-z]+ [a-z]+(?: log)?), 1 to (\d+)\b")
_HEADER: Final = re.compile(r"([a-z]+ [a-z]+(?: log)?) (\d+) of (\d+)\n")


class Work(NamedTuple):
    """A task: the persons' messages, one a turn; the texts to fetch; the world.

    ``answer`` is what a tool answers to a call, after those before it. ``succeeded`` is the rule on
    the end state, which is all calls that were made.
    """

    persons: tuple[str, ...]
    series: Mapping[str, tuple[str, ...]]
    answer: Callable[[AgentCall, Sequence[AgentCall]], str]
    succeeded: Callable[[Sequence[AgentCall]], bool]

    def result(self, call: AgentCall, before: Sequence[AgentCall]) -> str:
        """The result of a call."""
        if call.name != "fetch":
            return self.answer(call, before)
        series, number = call.arguments.get("series", ""), call.arguments.get("number", 0)
        texts = self.series.get(series, ())
        if not 1 <= number <= len(texts):
            return f"There is no {number} in {series!r}."
        return f"{series} {number} of {len(texts)}\n{texts[number - 1]}"


class Family(NamedTuple):
    """A kind of task. ``notes`` is what the agent says of a text that it has just fetched."""

    name: str
    about: str
    build: Callable[[Desk], Work]
    act: Callable[[AgentView], Action]
    notes: Callable[[AgentView, str], str] | None = None

    def make(self, tokens: int, seed: int) -> Work:
        """The task of this length and seed; the same every time."""
        return self.build(Desk(f"{self.name} {tokens} {seed}", tokens))

    def decide(self, view: AgentView) -> Action:
        """The agent's next step, from one view alone. Raises MissingFact."""
        return read_on(view, self.notes) or self.act(view)


class Desk:
    """What ``build`` makes a task with: chance by a key, and series of texts to go through."""

    def __init__(self, key: str, tokens: int) -> None:
        self.random = Random(key)  # noqa: S311 - nothing here is secret
        self.series: dict[str, tuple[str, ...]] = {}
        self._key = key
        self._characters = tokens * CHARACTERS
        self._longest = max(1, min(LONGEST, round(self._characters / 20)))
        self._names = self.random.sample(NAMES, len(NAMES))

    def name(self) -> str:
        """A name that nothing else in this task has; texts may have it by chance."""
        return self._names.pop()

    def count(self, share: float, characters: int, least: int, most: int) -> int:
        """How many rounds with a text of so many characters a share of the task has room for."""
        size = min(characters, self._longest) + OF_ROUND
        return max(least, min(most, round(self._characters * share / size)))

    def filler(self, characters: int) -> str:
        """A text that nobody needs, of so many characters or what a short task has room for."""
        characters = min(characters, self._longest)
        key = f"{self._key} filler {self.random.random()}"
        style = self.random.choice(list(STYLES))
        return "\n".join(lines(key, style, characters, LEAST_LINES))

    def errand(self, share: float, plants: Sequence[tuple[float, str]] = ()) -> str:
        """A person's words that ask for a series, which takes a share of the task's length.

        ``plants`` are lines with their places, from 0 (first text) to 1 (last text).
        """
        style = self.random.choice(list(STYLES))
        series = f"{self.name()} {style}"
        left = self._characters * share
        texts: list[list[str]] = []
        while left > 0 or len(texts) < 2:
            size = self.random.randrange(self._longest // 5, self._longest)
            size = round(max(self._longest / 10, min(size, left)))
            left -= size + OF_ROUND / 2
            texts.append([*lines(f"{self._key} {series} {len(texts)}", style, size)])
        for place, line in plants:
            text = texts[min(len(texts) - 1, int(place * len(texts)))]
            text.insert(self.random.randrange(len(text) // 4, len(text) * 3 // 4 + 1), line)
        self.series[series] = tuple(["\n".join(one) for one in texts])
        asked = self.random.choice(_ASKED)
        return asked.format(series=series, last=len(texts))

    def work(
        self,
        persons: Sequence[str],
        answer: Callable[[AgentCall, Sequence[AgentCall]], str],
        succeeded: Callable[[Sequence[AgentCall]], bool],
    ) -> Work:
        """The task of these messages and rules."""
        opening = self.random.choice(_OPENINGS)
        return Work((opening, *persons), dict(self.series), answer, succeeded)


def read_on(
    view: AgentView, notes: Callable[[AgentView, str], str] | None = None
) -> Do | Say | None:
    """The next text of a series that the agent is at; None where it is at none."""
    if view.last.by_person:
        asked = _REQUEST.search(view.last.text)
        return None if asked is None else do("fetch", series=asked[1], number=1)
    text = view.last.text
    if view.recalls and not _HEADER.match(text) and _REQUEST.search(view.request):
        # The agent has just looked something up and goes on with the text before that.
        text = view.latest_of(_HEADER.pattern)
    found = _HEADER.match(text)
    if found is None:
        return None
    series, number, last = found[1], int(found[2]), int(found[3])
    said = notes(view, text) if notes else ""
    if number < last:
        return do("fetch", said, series=series, number=number + 1)
    return Say(f"{said} That was the last of the {series}.".strip())


def made(calls: Sequence[AgentCall], name: str) -> list[dict[str, object]]:
    """The arguments of all calls of a tool."""
    return [one.arguments for one in calls if one.name == name]
