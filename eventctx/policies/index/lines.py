"""Which lines of what left the view an index quotes: those that the model most likely needs again.

A line is worth more the newer its message is, the more lately the model wrote a name that stands in
it, and the rarer that name is; code and paths are worth twice as much as prose. All of it was
measured on recorded sessions (docs/decisions/0034-workset.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from eventctx.policies.index.reading import ReadMessage, names_in_line
from eventctx.text import pattern

AGE_HALF_LIFE: Final = 32
"""Requests after which a line counts half."""

SAID_HALF_LIFE: Final = 16
"""Requests after which a name that the model wrote counts half."""

SAID_WEIGHT: Final = 10.0
"""What a rare name adds that the model wrote just now, if the line alone counts 1."""

CODE_WEIGHT: Final = 2.0

LINE_CHARACTERS: Final = 10
"""About what a line takes beside its text: its mark, its end, its part of the message's number."""

MOST_WEIGHED: Final = 3_000
"""Lines that are weighed at most, the newest; older ones are worth nearly nothing."""

_CODE: Final = pattern(
    r"(?:import|from|use|using|require|#include|package|def|class|func|function|fn|const|type"
    r"|interface|enum|struct|trait|impl|module|export|pub|public|private|static|async)\b"
    r"|.*[{};,)(:>\]]$|\S*/\S*$"
)
_NO_CODE: Final = pattern(r"//|#(?!include)|\*|/\*|[-|] ")


class QuotedLine(NamedTuple):
    """A line of message ``number``, ``place`` lines behind its first one."""

    number: int
    place: int
    text: str


class LineSizes(NamedTuple):
    """The size of a message's number on a line of its own, and of a line of text, as they stand."""

    number: Callable[[int], int]
    line: Callable[[str], int]


class Timeline(NamedTuple):
    """When things were: ``request_of`` gives the request before which a message came.

    ``now`` is the next request; ``said`` gives the last request at which the model wrote a name.
    """

    request_of: Mapping[int, int]
    now: int
    said: Mapping[str, int]

    def age(self, number: int) -> int:
        """Requests since a message came."""
        return self.now - self.request_of.get(number, 0)


def chosen_lines(
    gone: Sequence[ReadMessage],
    shown: Collection[str],
    time: Timeline,
    room: int,
    sizes: LineSizes,
) -> list[QuotedLine]:
    """The best lines of ``gone`` that fit into ``room``, in the order of the messages.

    ``shown`` are lines that are in view anyway.
    """
    chosen: list[QuotedLine] = []
    named: set[int] = set()
    for _, line in sorted(_weighed(gone, shown, time), key=_best_first):
        if len(line.text) > room:
            continue
        size = sizes.line(line.text)
        if line.number not in named:
            size += sizes.number(line.number)
        if size <= room:
            room -= size
            named.add(line.number)
            chosen.append(line)
        elif room < 3 * LINE_CHARACTERS:
            break
    return sorted(chosen)


def _best_first(weighed: tuple[float, QuotedLine]) -> float:
    return -weighed[0]


def _weighed(
    gone: Sequence[ReadMessage], shown: Collection[str], time: Timeline
) -> list[tuple[float, QuotedLine]]:
    """Lines with their worth by character; each text once, as its newest message has it."""
    lines: dict[str, QuotedLine] = {}
    for message in reversed(gone):
        for place, text in enumerate(message.lines):
            if text not in lines and text not in shown:
                lines[text] = QuotedLine(message.number, place, text)
        if len(lines) > MOST_WEIGHED:
            break
    said = time.said
    # Each name once, in the order of the line: sums of numbers depend on the order.
    named = {
        text: [one for one in dict.fromkeys(names_in_line(text)) if one in said] for text in lines
    }
    frequent = Counter([name for names in named.values() for name in names])
    weight = {
        name: SAID_WEIGHT * 2.0 ** ((said[name] - time.now) / SAID_HALF_LIFE) / count**0.5
        for name, count in frequent.items()
    }
    weighed: list[tuple[float, QuotedLine]] = []
    for text, line in lines.items():
        worth = 1.0 + sum([weight[name] for name in named[text]])
        worth *= 2.0 ** (-time.age(line.number) / AGE_HALF_LIFE)
        if _CODE.match(text) and not _NO_CODE.match(text):
            worth *= CODE_WEIGHT
        weighed.append((worth / (len(text) + LINE_CHARACTERS), line))
    return weighed
