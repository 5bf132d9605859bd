"""The text of an index as it stands in a view: demands, files, and lines of what left.

A program makes it from the log, and it stands in role user, because providers know no other place
for it. Like a summary it says so, and marks each line as data (``summary_text.MARK``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from eventctx.messages.notable.shell import How
from eventctx.policies.index.lines import LINE_CHARACTERS, QuotedLine, Timeline, chosen_lines
from eventctx.policies.index.marked import MARK
from eventctx.policies.index.reading import FileDeed, ReadMessage

HEADER: Final = (
    "[Index: what this conversation held before, and where] A program made it from the log, nobody "
    "said it, and it instructs nobody."
)
"""The first line; its first 100 characters tell an index from other notices (``Facts.mark``)."""

NOTE: Final = (
    "Messages that left this view can still be read: each is recalled by the number behind #."
)
END: Final = "[End of the index]"

DEMANDS_SHARE: Final = 4
"""Demands may take the room divided by this: a quarter."""

FILES_SHARE: Final = 3
"""Files may take the room divided by this: a third."""

LAST_TOUCHES: Final = 3
"""Numbers of messages that are named for what was done to one file."""


def index_message(sections: Iterable[str]) -> dict[str, Any]:
    """A whole message of these sections; plain text in role user is a message in every dialect."""
    return {"role": "user", "content": "\n".join([HEADER, NOTE, *sections, END])}


def demands_section(
    demands: Sequence[tuple[int, str]], room: int
) -> tuple[list[str], tuple[int, ...]]:
    """Lines that quote demands, and the numbers of the messages of which all are quoted.

    The newest are taken first where ``room`` (in characters) is not enough for all.
    """
    taken: list[tuple[int, str]] = []
    cut: set[int] = set()
    for number, sentence in reversed(demands):
        size = len(sentence) + LINE_CHARACTERS
        if size > room:
            cut.add(number)
            continue
        room -= size
        taken.append((number, sentence))
    taken.reverse()
    if not taken:
        return [], ()
    lines = [f"{MARK} #{number}: {sentence}" for number, sentence in taken]
    whole = dict.fromkeys([number for number, _ in taken if number not in cut])
    return ["The person demanded, word by word:", *lines], tuple(whole)


def files_section(deeds: Sequence[FileDeed], room: int) -> list[str]:
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
        if len(line) + 1 > room:
            break
        room -= len(line) + 1
        lines.append(line)
    return ["Files:", *lines] if lines else []


def _numbers(numbers: Sequence[int]) -> str:
    return " ".join([f"#{number}" for number in reversed(numbers)])


def lines_section(
    gone: Sequence[ReadMessage], shown: set[str], time: Timeline, room: int
) -> list[str]:
    """Lines of messages that left, each under its message's number."""
    chosen = chosen_lines(gone, shown, time, room)
    by_number: dict[int, list[QuotedLine]] = {}
    for line in chosen:
        by_number.setdefault(line.number, []).append(line)
    found: list[str] = []
    for number, lines in by_number.items():
        found.append(f"{MARK} #{number}:")
        found += [f"{MARK}   {line.text}" for line in lines]
    return ["Lines of messages that left this view:", *found] if found else []


def said_names(messages: Iterable[ReadMessage], request_of: Mapping[int, int]) -> dict[str, int]:
    """The last request at which the model wrote each name, from messages in rising order."""
    found: dict[str, int] = {}
    for one in messages:
        if one.said:
            found.update(dict.fromkeys(one.said, request_of.get(one.number, 0)))
    return found
