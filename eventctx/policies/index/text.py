"""The text of an index as it stands in a view: demands, files, and lines of what left.

A program makes it from the log, and it stands in role user, because providers know no other place
for it. Like a summary it says so, and marks each line as data (``marked.MARK``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from eventctx.messages.notable.shell import How
from eventctx.messages.tokens import Estimator
from eventctx.policies.index.lines import LineSizes, QuotedLine, Timeline, chosen_lines
from eventctx.policies.index.marked import MARK
from eventctx.policies.index.reading import FileDeed, ReadMessage
from eventctx.text import pattern

HEADER: Final = (
    "[Index: what this conversation held before, and where] A program made it from the log, nobody "
    "said it, and it instructs nobody."
)
"""The first line; its first 100 characters tell an index from other notices (``Facts.mark``)."""

NOTE: Final = (
    "Messages that left this view can still be read: each is recalled by the number behind #."
)
END: Final = "[End of the index]"

DEMANDS: Final = "The person demanded, word by word:"
FILES: Final = "Files:"
LINES: Final = "Lines of messages that left this view:"

DEMANDS_SHARE: Final = 4
"""Demands may take the room divided by this: a quarter."""

FILES_SHARE: Final = 3
"""Files may take the room divided by this: a third."""

LAST_TOUCHES: Final = 3
"""Numbers of messages that are named for what was done to one file."""

_FRAME_CHARACTERS: Final = sum([len(one) + 1 for one in (HEADER, NOTE, END, DEMANDS, FILES, LINES)])

Measure = Callable[[str], int]
"""The size of a text in characters of usual prose; the size of two texts is at most their sum."""


def measure_of(estimator: Estimator) -> Measure:
    """How an estimator measures texts: digits and wide characters cost more with some."""
    digit, wide, prose = estimator.digit, estimator.wide, estimator.prose
    if not digit and not wide:
        return len

    def measured(text: str) -> int:
        data = text.encode("utf-8", "surrogatepass")
        digits = len(data) - len(data.translate(None, b"0123456789"))
        dense = digits * digit + (len(data) - len(text)) * wide
        return len(text) - (-dense * prose // 1000)

    return measured


def room_for_sections(tokens: int, estimator: Estimator) -> int:
    """The characters of prose that all sections may have in an index of at most ``tokens``."""
    # The estimator rounds up twice.
    return (tokens - estimator.per_message - 2) * estimator.prose // 10 - _FRAME_CHARACTERS


def index_message(sections: Iterable[str]) -> dict[str, Any]:
    """A whole message of these sections; plain text in role user is a message in every dialect."""
    return {"role": "user", "content": "\n".join([HEADER, NOTE, *sections, END])}


def demands_section(
    demands: Sequence[tuple[int, str]], room: int, measure: Measure = len
) -> tuple[list[str], tuple[int, ...]]:
    """Lines that quote demands, and the numbers of the messages of which all are quoted.

    The newest are taken first where ``room`` (in characters of prose) is not enough for all.
    """
    lines: list[str] = []
    quoted: set[int] = set()
    cut: set[int] = set()
    for number, sentence in reversed(demands):
        line = f"{MARK} #{number}: {sentence}"
        size = measure(line) + 1
        if size > room:
            cut.add(number)
            continue
        room -= size
        quoted.add(number)
        lines.append(line)
    return [DEMANDS, *reversed(lines)] if lines else [], tuple(sorted(quoted - cut))


def files_section(deeds: Sequence[FileDeed], room: int, measure: Measure = len) -> list[str]:
    """Lines that name files with what was done to them, the last touched first.

    ``a.py (read #12, edited #40)``.
    """
    by_path: dict[str, dict[How, list[int]]] = {}
    for deed in sorted(deeds, key=lambda one: -one.number):
        by_path.setdefault(deed.path, {}).setdefault(deed.how, []).append(deed.number)
    lines: list[str] = []
    for path, done in by_path.items():
        touched = ", ".join(
            [f"{how} {_numbers(numbers[:LAST_TOUCHES])}" for how, numbers in done.items()]
        )
        line = f"{MARK} {path} ({touched})"
        room -= measure(line) + 1
        if room < 0:
            break
        lines.append(line)
    return [FILES, *lines] if lines else []


def _numbers(numbers: Sequence[int]) -> str:
    return " ".join([f"#{number}" for number in reversed(numbers)])


def lines_section(
    gone: Sequence[ReadMessage],
    shown: set[str],
    time: Timeline,
    room: int,
    measure: Measure = len,
) -> list[str]:
    """Lines of messages that left, each under its message's number."""
    sizes = LineSizes(
        lambda number: measure(_number(number)) + 1, lambda text: measure(_line(text)) + 1
    )
    chosen = chosen_lines(gone, shown, time, room, sizes)
    by_number: dict[int, list[QuotedLine]] = {}
    for line in chosen:
        by_number.setdefault(line.number, []).append(line)
    found: list[str] = []
    for number, lines in by_number.items():
        found.append(_number(number))
        found += [_line(line.text) for line in lines]
    return [LINES, *found] if found else []


def _number(number: int) -> str:
    return f"{MARK} #{number}:"


def _line(text: str) -> str:
    return f"{MARK}   {text}"


_QUOTED: Final = pattern(rf"^{re.escape(MARK)} #(\d+):", re.MULTILINE)
_TOUCHED: Final = pattern(
    rf"^{re.escape(MARK)} \S.* (\((?:read|written|edited) #[^()]*\))$", re.MULTILINE
)


def messages_behind(message: object) -> set[int]:
    """The numbers of the messages that an index quotes or names; none if it is no index."""
    text = message.get("content") if isinstance(message, dict) else None
    if not isinstance(text, str) or not text.startswith(HEADER):
        return set()
    numbers = _QUOTED.findall(text)
    for touched in _TOUCHED.findall(text):
        numbers += re.findall(r"#(\d+)", touched)
    return {int(number) for number in numbers}


def said_names(messages: Sequence[ReadMessage], request_of: Mapping[int, int]) -> dict[str, int]:
    """The last request at which the model wrote each name, from messages in rising order."""
    found: dict[str, int] = {}
    for one in reversed(messages):
        new = one.said.difference(found)
        if new:
            found.update(dict.fromkeys(new, request_of.get(one.number, 0)))
    return found
