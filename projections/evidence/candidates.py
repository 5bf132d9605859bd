"""What an action may have reused: runs that stand in earlier messages, and names.

A line of an action is first covered with runs, each as long as one earlier message has it. What is
left of the line is searched for names and numbers. Whether a candidate counts is decided by who
carries it (``reuse``).

This is not the extractor of ``messages.extracts``, on purpose: the metric judges what policies
keep, so what it looks for must not be defined by what an index keeps. Both cut a name out of a text
in the same way; all thresholds are the metric's own.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from eventctx.messages.extracts import NAME_CHARACTERS, TELLING
from eventctx.projections.evidence.settings import EvidenceSettings
from eventctx.text import pattern

SpanKind = Literal["quote", "name", "number"]
"""``quote``: a run with a blank in it. ``name``: a run without, or a name. ``number``: digits."""

_TOKEN: Final = pattern(r"[A-Za-z0-9_]+|[^\sA-Za-z0-9_]")
_WORD: Final = pattern(r"\w+")
_NAME: Final = pattern(rf"[A-Za-z0-9_.$@~#][{NAME_CHARACTERS}]*[A-Za-z0-9_]")
_HEX: Final = pattern(r"(?=[a-f]*[0-9])[0-9a-f]{7,40}", re.IGNORECASE)
"""With a digit, and with a letter, too: digits alone are a number."""
LEAST_DIGITS: Final = 4


class Beginnings:
    """The last messages that have given characters at the start of a token, on one line.

    Only the beginnings that some action has are kept: an index of all would be several times as
    large as the session.
    """

    def __init__(self, actions: Sequence[str], settings: EvidenceSettings) -> None:
        """Make an empty index for the texts of the model's messages."""
        length = settings.least_run
        # The blank between two tokens is none: a run begins and ends with what can be seen.
        self._at_tokens = re.compile(rf"(?=([^\s][^\n]{{{length - 1}}}))(?:[A-Za-z0-9_]+|.)")
        self._wanted: set[str] = set()
        for text in actions:
            self._wanted.update(self._at_tokens.findall(text))
        self._most = settings.messages_tried
        self._messages: dict[str, list[int]] = {}

    def add(self, number: int, text: str) -> None:
        """Add a message; its number is above those before."""
        for beginning in self._wanted.intersection(self._at_tokens.findall(text)):
            known = self._messages.setdefault(beginning, [])
            known.append(number)
            if len(known) > self._most:
                del known[0]

    def messages(self, beginning: str) -> Sequence[int]:
        """The last messages that have this beginning, rising."""
        return self._messages.get(beginning, ())


def candidates(
    text: str, texts: Sequence[str], beginnings: Beginnings, settings: EvidenceSettings
) -> dict[str, SpanKind]:
    """The candidates in the text of an action, each once, in their order.

    ``texts`` are those of the earlier messages that ``beginnings`` names.
    """
    found: dict[str, SpanKind] = {}
    runs = 0
    for line in text.split("\n"):
        at = 0
        if len(line) >= settings.least_run and runs < settings.most_runs:
            for start, end in _runs_of(line, texts, beginnings, settings):
                _add_names(line[at:start], found, settings)
                run = line[start:end]
                runs += run not in found
                found.setdefault(run, "quote" if " " in run else "name")
                at = end
                if runs == settings.most_runs:
                    break
        _add_names(line[at:], found, settings)
    return found


def _runs_of(
    line: str, texts: Sequence[str], beginnings: Beginnings, settings: EvidenceSettings
) -> Iterator[tuple[int, int]]:
    """Starts and ends of the runs in a line, one behind the other."""
    starts, ends = [], []
    for token in _TOKEN.finditer(line):
        starts.append(token.start())
        ends.append(token.end())
    skipped = 0
    for start in starts:
        if start < skipped:
            continue
        known = beginnings.messages(line[start : start + settings.least_run])
        if not known:
            continue
        end = _longest(line, start, ends, [texts[number] for number in known], settings)
        if end is None:
            continue
        if not _is_telling(line[start:end]):
            # Trying every token of a long line of dashes would take the square of its length.
            latest = end - settings.least_run
            within = starts[bisect_right(starts, start) : bisect_right(starts, latest)]
            skipped = _telling_start(line, within, end, latest + 1)
            continue
        yield start, end
        skipped = end


def _telling_start(line: str, starts: list[int], end: int, otherwise: int) -> int:
    """The first of the starts from which the line to ``end`` has letters and digits enough."""
    first, letters, behind = otherwise, 0, end
    for start in reversed(starts):
        letters += sum(map(str.isalnum, line[start:behind]))
        behind = start
        if 2 * letters >= end - start:
            first = start
    return first


def _longest(
    line: str, start: int, ends: list[int], texts: Sequence[str], settings: EvidenceSettings
) -> int | None:
    """The end of the longest run from ``start`` that stands in one of the texts."""
    # If a text holds a run it holds every shorter one, so the end is found by halving.
    first = following = bisect_left(ends, start + settings.least_run)
    for text in reversed(texts):
        if following == len(ends):
            break
        if line[start : ends[-1]] in text:
            return ends[-1]
        following = bisect_left(
            range(len(ends)),
            True,
            following,
            key=lambda index: line[start : ends[index]] not in text,
        )
    return ends[following - 1] if following > first else None


def _is_telling(run: str) -> bool:
    """Whether a run has two words and is no mere ruling, such as a line of dashes."""
    return 2 * sum(map(str.isalnum, run)) >= len(run) and len(_WORD.findall(run)) >= 2


def _add_names(text: str, found: dict[str, SpanKind], settings: EvidenceSettings) -> None:
    for name in _NAME.findall(text):
        if name.isdecimal():
            if len(name) >= LEAST_DIGITS:
                found.setdefault(name, "number")
        elif _HEX.fullmatch(name) or (len(name) >= settings.least_name and TELLING.search(name)):
            found.setdefault(name, "name")
