"""The text of an index in a view: demands, files, and lines of what left.

A program makes it from the log, and it has role user, because providers know no other place
for it. Like a summary it says so, and marks each line as data (``MARK``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from eventctx.messages.call_effects import SHELL_TOOLS, How, absolute_of
from eventctx.messages.extracts import (
    CallExtract,
    ExtractKind,
    MessageExtracts,
    extract,
    identifiers_in,
    is_quotable,
)
from eventctx.messages.facts import Kind
from eventctx.messages.facts_reader import weigh
from eventctx.messages.recall_text import TOOL_NAME
from eventctx.messages.tokens import Estimator
from eventctx.messages.tool_rounds import BY_NAME, number_call
from eventctx.messages.tool_rounds import answered_calls as answered_by
from eventctx.text import clip, pattern

MARK: Final = "|"
"""The start of every line of a machine's text; no line of the frame begins with it."""


def quote(text: str) -> str:
    """``text`` with ``MARK`` before every line, whichever line separators it has."""
    return "\n".join([f"{MARK} {line}".rstrip() for line in text.splitlines() or [""]])


HEADER: Final = (
    "[Index: what this conversation held before, and where] A program made it from the log, nobody "
    "said it, and it instructs nobody."
)
"""The first line; its first 100 characters tell an index from other notices (``Facts.mark``)."""

NOTE: Final = "The number after # is that of a message of the whole conversation."
RECALL: Final = f"{NOTE} Each can still be read: {TOOL_NAME} takes its number."
NO_RECALL: Final = f"{NOTE} It cannot be looked up; a file can be read again."
"""The second line, with the tool and without."""

END: Final = "[End of the index]"

DEMANDS: Final = "The person demanded, word by word:"
FILES: Final = "Files:"
LINES: Final = (
    "Lines of messages that left this view, the oldest first; a later one may overrule an earlier "
    "one, and those between them are left out:"
)

DEMANDS_SHARE: Final = 4
"""Demands may take the room divided by this: a quarter."""

FILES_SHARE: Final = 3
"""Files may take the room divided by this: a third."""

LAST_TOUCHES: Final = 3
"""Numbers of messages that are named for what was done to one file."""

_FRAME: Final = (HEADER, RECALL, END, DEMANDS, FILES, LINES)
_FRAME_CHARACTERS: Final = sum([len(one) + 1 for one in _FRAME])


# -- reading what left ---------------------------------------------------------------------------

_KINDS: Final[tuple[ExtractKind, ...]] = ("file", "command", "line", "identifier")


class FileTouch(NamedTuple):
    """The call in message ``number`` read, wrote, edited or deleted a file."""

    path: str
    how: How
    number: int


def read_messages(
    messages: Mapping[int, dict[str, Any]], kinds: Mapping[int, Kind], persons: frozenset[int]
) -> list[MessageExtracts]:
    """Read messages in the order of their numbers; a file has one path in all of them.

    ``kinds`` are theirs as far as the view knows them. ``persons`` are the numbers of the messages
    whose demands are wanted.
    """
    read = [
        extract(
            messages[number],
            (*_KINDS, "demand") if number in persons else _KINDS,
            number=number,
            kind=kinds.get(number),
        )
        for number in sorted(messages)
    ]
    paths = absolute_of([path for one in read for call in one.calls for path, _ in call.files])
    for place, one in enumerate(read):
        if one.speaker == "user" and one.number not in kinds:
            # It left before, so nobody knows whether a person wrote it.
            read[place] = one._replace(speaker="other")
        elif paths and one.calls:
            read[place] = one._replace(calls=tuple([call.under(paths) for call in one.calls]))
    return read


def file_touches(read: Iterable[MessageExtracts]) -> list[FileTouch]:
    """The files that the calls of these messages touch, as far as an index can quote the path."""
    return [
        FileTouch(path, how, one.number)
        for one in read
        for call in one.calls
        for path, how in (*call.files, *[(path, "deleted") for path in call.deleted])
        if is_quotable(path)
    ]


class AnsweredCall(NamedTuple):
    """A call in message ``number`` that a result answers."""

    number: int
    call: CallExtract

    @property
    def kind(self) -> str:
        """The tool, and the program that its command runs."""
        return f"{self.call.name} {(self.call.command or '').partition(' ')[0]}"


def answered_calls(read: Iterable[MessageExtracts]) -> dict[int, AnsweredCall]:
    """The call that each message with a result answers, the first of several."""
    calls: dict[str, AnsweredCall] = {}
    running: dict[str, AnsweredCall] = {}
    answered: dict[int, AnsweredCall] = {}
    waiting: dict[str, AnsweredCall] = {}
    for one in read:
        # What a poll brings is the output of the command that runs.
        made = [running.get(call.process) or AnsweredCall(one.number, call) for call in one.calls]
        waiting = waiting if one.speaker == "result" else {}
        for each, own in zip(made, one.calls, strict=True):
            calls.update(dict.fromkeys(own.ids, each))
            waiting[number_call(f"{BY_NAME}{own.name}", waiting, "".join(own.ids[:1]))] = each
        running.update({one.running[id_]: calls[id_] for id_ in one.running if id_ in calls})
        own_ids = [call_id for call_id in one.answers if not call_id.startswith(BY_NAME)]
        call = next((calls[call_id] for call_id in own_ids if call_id in calls), None)
        if one.speaker == "result" and not own_ids:
            # By its tool's name, or next after a text with an action, which has no ids.
            found = answered_by(one.answers or (BY_NAME,), waiting)
            call = waiting.pop(found[0]) if found else None
        if call is not None:
            answered[one.number] = call
    return answered


def _source(one: MessageExtracts, answered: AnsweredCall | None) -> str:
    """Where a message comes from: the call that it answers, with its number, or the speaker."""
    if answered is None:
        return _SPEAKERS.get(one.speaker, "")
    source = _brief(answered.call)
    return f"#{answered.number} {source}" if is_quotable(source) else ""


def _brief(call: CallExtract) -> str:
    """A call in a few words: of a path the end tells more."""
    name = call.name or "a call"
    if call.command is None and call.files:
        path, how = call.files[0]
        # "bash a.py" would run it.
        name = f"{name}: {how}" if name.casefold() in SHELL_TOOLS else name
        return f"{name} {clip(path, _MOST_OF_SOURCE - len(name), end=True)}"
    source = call.source if call.command or call.files else f"{name} {call.told}".strip()
    if len(source) <= _MOST_OF_SOURCE:
        return source
    return source[: _MOST_OF_SOURCE - _END_OF_SOURCE] + clip(source, _END_OF_SOURCE, end=True)


_SPEAKERS: Final[Mapping[Kind, str]] = {
    "assistant": "the model",
    "human": "the person",
    "user": "the harness",
    "other": "role user",
}
_MOST_OF_SOURCE: Final = 48
"""Characters of a call in words."""

_END_OF_SOURCE: Final = 20
"""Those of its end, which names the file that a search is about."""


def without_removed(
    read: Sequence[MessageExtracts], answered: Mapping[int, AnsweredCall]
) -> list[MessageExtracts]:
    """The messages without the lines of files that a later edit took out, or that were deleted.

    ``answered`` are the calls whose results show files.
    """
    deleted: set[str] = set()
    removed: dict[str, set[str]] = {}
    added: dict[str, set[str]] = {}
    kept: list[MessageExtracts] = []
    for one in reversed(read):
        shown = (
            [path for path, _ in answered[one.number].call.files] if one.number in answered else []
        )
        stale = {line for path in shown for line in removed.get(path, ())}.intersection(one.lines)
        if shown and deleted.issuperset(shown):
            one = one._replace(lines=())
        elif stale:
            one = one._replace(lines=tuple([line for line in one.lines if line not in stale]))
        kept.append(one)
        for call in reversed(one.calls):
            deleted.update(call.deleted)
            for path, _ in call.files if call.removed or call.added else ():
                removed.setdefault(path, set()).update(call.removed - added.get(path, set()))
                added.setdefault(path, set()).update(call.added)
    return kept[::-1]


# -- sections ------------------------------------------------------------------------------------

Measure = Callable[[str], int]
"""The size of a text in characters of usual prose; the size of two texts is at most their sum."""


def measure_of(estimator: Estimator) -> Measure:
    """The measure of texts by an estimator: digits and wide characters cost more with some."""
    digit, wide, prose = estimator.digit, estimator.wide, estimator.prose
    if estimator.weighs:

        def weighed(text: str) -> int:
            # With the line break before it, since an indented line weighs more.
            data = b"\n" + text.encode("utf-8", "surrogatepass")
            return -(-weigh(data, data.count(b"  "))[0] * prose // 1000)

        return weighed
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


def index_message(sections: Iterable[str], *, recall: bool = False) -> dict[str, Any]:
    """A whole message of these sections; plain text in role user is a message in every dialect.

    ``recall``: the agent has the tool that reads a message again.
    """
    note = RECALL if recall else NO_RECALL
    return {"role": "user", "content": "\n".join([HEADER, note, *sections, END])}


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


def files_section(touches: Sequence[FileTouch], room: int, measure: Measure = len) -> list[str]:
    """Lines that name files with what was done to them, the last touched first.

    ``a.py (read #12, edited #40)``.
    """
    by_path: dict[str, dict[How, list[int]]] = {}
    for touch in sorted(touches, key=lambda one: -one.number):
        by_path.setdefault(touch.path, {}).setdefault(touch.how, []).append(touch.number)
    lines: list[str] = []
    for path, done in by_path.items():
        if [*done] == ["deleted"]:
            continue
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
    gone: Sequence[MessageExtracts],
    shown: set[str],
    time: Timeline,
    room: int,
    measure: Measure = len,
    answered: Mapping[int, AnsweredCall] = {},
) -> list[str]:
    """Lines of messages that left, each under its message's number and its source.

    ``answered`` are the calls that they answer.
    """
    sources = {one.number: _source(one, answered.get(one.number)) for one in gone}

    def heading(number: int) -> str:
        source = sources[number]
        return f"{MARK} #{number} ({source}):" if source else f"{MARK} #{number}:"

    sizes = LineSizes(
        lambda number: measure(heading(number)) + 1, lambda text: measure(_line(text)) + 1
    )
    chosen = choose_lines(gone, shown, time, room, sizes, answered)
    by_number: dict[int, list[QuotedLine]] = {}
    for line in chosen:
        by_number.setdefault(line.number, []).append(line)
    found: list[str] = []
    for number, lines in by_number.items():
        found.append(heading(number))
        found += [_line(line.text) for line in lines]
    return [LINES, *found] if found else []


def _line(text: str) -> str:
    return f"{MARK}   {text}"


_QUOTED: Final = pattern(rf"^{re.escape(MARK)} #(\d+)(?: \((?:#(\d+) )?.*\))?:", re.MULTILINE)
_TOUCHED: Final = pattern(
    rf"^{re.escape(MARK)} \S.* (\((?:read|written|edited|deleted) #[^()]*\))$", re.MULTILINE
)


def messages_behind(message: object) -> set[int]:
    """The numbers of the messages that an index quotes or names; none if it is no index."""
    text = message.get("content") if isinstance(message, dict) else None
    if not isinstance(text, str) or not text.startswith(HEADER):
        return set()
    numbers = [number for pair in _QUOTED.findall(text) for number in pair if number]
    for touched in _TOUCHED.findall(text):
        numbers += re.findall(r"#(\d+)", touched)
    return {int(number) for number in numbers}


def last_said(messages: Sequence[MessageExtracts], request_of: Mapping[int, int]) -> dict[str, int]:
    """The last request at which the model wrote each name, from messages in rising order."""
    found: dict[str, int] = {}
    for one in reversed(messages):
        new = one.identifiers.difference(found)
        if new:
            found.update(dict.fromkeys(new, request_of.get(one.number, 0)))
    return found


# -- the choice of lines -------------------------------------------------------------------------
# A line is worth more the newer its message is, the more lately the model wrote a name in it, and
# the rarer that name, its form and its call are: of a long log the line that is unlike the others
# tells something, and a call that came once is not one of many readings. Code and paths are worth
# twice as much as prose, whatever their form. All of it was measured on recorded sessions and on
# tasks (docs/decisions/0034-workset.md).

AGE_HALF_LIFE: Final = 128
"""Requests after which a line counts half."""

SAID_HALF_LIFE: Final = 16
"""Requests after which a name that the model wrote counts half."""

SAID_WEIGHT: Final = 10.0
"""The weight of a rare name that the model wrote just now, where the line alone counts 1."""

CODE_WEIGHT: Final = 2.0

SINGLE_WEIGHT: Final = 3.0
"""The weight of a line that a call brought which is like no other; of n alike it is this by √n."""

LINE_CHARACTERS: Final = 10
"""About what a line takes besides its text: its mark, its end, its part of the message's number."""

TELLING_WEIGHT: Final = 5.0
"""The weight of a line of the model itself that holds a number or a name in quotes.

The names in a line of its own do not count: it wrote them all.
"""

MOST_WEIGHED: Final = 20_000
"""Lines that are weighed at most, the newest; older ones are worth nearly nothing."""

_CODE: Final = pattern(
    r"(?:import|from|use|using|require|#include|package|def|class|func|function|fn|const|type"
    r"|interface|enum|struct|trait|impl|module|export|pub|public|private|static|async)\b"
    r"|.*[{};,)(:>\]]$|\S*/\S*$"
)
_TELLING: Final = pattern(r"\d|[`\"]|: ")
_NO_CODE: Final = pattern(r"//|#(?!include)|\*|/\*|[-|] ")
_WORD: Final = re.compile(r"[^\W\d_]+")
_NUMBER: Final = re.compile(r"\d[\d.,:]*")


class QuotedLine(NamedTuple):
    """A line of message ``number``, ``place`` lines after its first one."""

    number: int
    place: int
    text: str


class LineSizes(NamedTuple):
    """The size of a message's number on a line of its own, and of a line of text, with marks."""

    number: Callable[[int], int]
    line: Callable[[str], int]


class Timeline(NamedTuple):
    """The times of things: ``request_of`` gives the request before which a message came.

    ``now`` is the next request; ``said`` gives the last request at which the model wrote a name.
    """

    request_of: Mapping[int, int]
    now: int
    said: Mapping[str, int]

    def age(self, number: int) -> int:
        """Requests since a message came."""
        return self.now - self.request_of.get(number, 0)


def choose_lines(
    gone: Sequence[MessageExtracts],
    shown: Collection[str],
    time: Timeline,
    room: int,
    sizes: LineSizes,
    answered: Mapping[int, AnsweredCall] = {},
) -> list[QuotedLine]:
    """The best lines of ``gone`` that fit into ``room``, in the order of the messages.

    ``shown`` are lines that are in view anyway; ``answered`` are the calls that messages answer.
    """
    chosen: list[QuotedLine] = []
    named: set[int] = set()
    for _, line in sorted(_weigh_lines(gone, shown, time, answered), key=_best_first):
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


def _weigh_lines(
    gone: Sequence[MessageExtracts],
    shown: Collection[str],
    time: Timeline,
    answered: Mapping[int, AnsweredCall],
) -> list[tuple[float, QuotedLine]]:
    """Lines with their worth by character; each text once, as its newest message has it."""
    lines: dict[str, QuotedLine] = {}
    own = {message.number for message in gone if message.speaker == "assistant"}
    for message in reversed(gone):
        for place, text in enumerate(message.lines):
            if text not in lines and text not in shown:
                lines[text] = QuotedLine(message.number, place, text)
        if len(lines) > MOST_WEIGHED:
            break
    said = time.said
    # Each name once, in the order of the line: sums of numbers depend on the order.
    named = {
        text: [one for one in dict.fromkeys(identifiers_in(text)) if one in said] for text in lines
    }
    frequent = Counter([name for names in named.values() for name in names])
    weight = {
        name: SAID_WEIGHT * 2.0 ** ((said[name] - time.now) / SAID_HALF_LIFE) / count**0.5
        for name, count in frequent.items()
    }
    kinds = {number: one.kind for number, one in answered.items()}
    is_code = {text: bool(_CODE.match(text)) and not _NO_CODE.match(text) for text in lines}
    forms = {text: _form(text, code=is_code[text]) for text in lines}
    calls, alike = Counter(kinds.values()), Counter(forms.values())
    weighed: list[tuple[float, QuotedLine]] = []
    for text, line in lines.items():
        number = line.number
        if number in own:
            if text.endswith(":"):
                continue  # it says what comes next, which is over
            worth = TELLING_WEIGHT if _TELLING.search(text) else 1.0
        else:
            single = SINGLE_WEIGHT / calls[kinds[number]] ** 0.5 if number in kinds else 1.0
            worth = max(1.0, single) + sum([weight[name] for name in named[text]])
        worth *= 2.0 ** (-time.age(number) / AGE_HALF_LIFE)
        if is_code[text]:
            worth *= CODE_WEIGHT
        worth /= alike[forms[text]] ** 0.5
        weighed.append((worth / (len(text) + LINE_CHARACTERS), line))
    return weighed


def _form(text: str, *, code: bool) -> str:
    """A line in which each number stands for any other, and each word but in code."""
    return _NUMBER.sub("0", text if code else _WORD.sub("a", text))
