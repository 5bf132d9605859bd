"""The need of each request of a recorded session: the spans that its action reused.

A maximal run of the model's messages is an action; the request is everything before it. A span of
an action is text that the model wrote and that an earlier message holds. It says that the model
used that message, unless the text is everywhere, or is the model's own.

Candidates for spans are runs that are in earlier messages, and names. A line of an action is first
covered with runs, each as long as one earlier message has it; the rest of the line is searched for
names and numbers. Whether a candidate counts depends on the messages that carry it.

This is not the extractor of ``messages.extracts``, on purpose: the metric judges what policies
keep, so what it looks for must not be defined by what an index keeps. Both cut a name out of a text
in the same way; all thresholds are the metric's own.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby
from math import log2
from typing import Annotated, Any, Final, Literal

import msgspec

from eventctx.messages.extracts import NAME_CHARACTERS, TELLING
from eventctx.messages.facts import Kind
from eventctx.messages.facts_reader import read_facts
from eventctx.projections.evidence.texts import Carriers, normalise
from eventctx.text import pattern

AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class EvidenceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What counts as reused. Figures of different settings cannot be compared.

    The defaults are those with which the metric was checked (docs/explanation/evidence.md). With
    ``least_name`` 6 a reader found a third of the lost spans to be coincidence, with 10 a tenth.
    ``least_run`` was tried with 16, 24 and 40, ``least_name`` with 6, 10 and 14, ``rarity`` with 3,
    10 and 30 %: recall moved by up to 3 points, the order of the policies held in all but one.

    ``least_run``: characters of a run. ``least_name``: characters of a name that is no hexadecimal
    and no number. ``rarity``: the share of the earlier messages that may hold a span, and
    ``few_carriers`` the number of messages that always may. ``most_runs``: runs of an action.
    ``messages_tried``: a run is looked for in so many of the last messages that have its beginning.
    """

    least_run: AtLeastOne = 24
    least_name: AtLeastOne = 10
    rarity: Share = 0.1
    few_carriers: AtLeastOne = 3
    most_runs: AtLeastOne = 60
    messages_tried: AtLeastOne = 4


DEFAULT: Final = EvidenceSettings()

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
    """Starts and ends of the runs in a line, in order."""
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
    """The end of the longest run from ``start`` that is in one of the texts."""
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


class ReusedSpan(msgspec.Struct, frozen=True, gc=False):
    """A text that an action shares with earlier messages.

    ``carriers`` are the numbers of all earlier messages that hold it, rising, without system
    messages (a text in one of those is no span). ``age`` is the number of requests that have
    shown the latest carrier before this one: 0 is fresh. ``weight`` is
    log2(1 + earlier messages / carriers).
    """

    text: str
    kind: SpanKind
    weight: float
    age: int
    carriers: tuple[int, ...]


class Need(msgspec.Struct, frozen=True):
    """The need of one request: the messages below ``before`` precede its action.

    ``request`` counts the session's requests from 0. ``spans`` are of every age, fresh ones too.
    """

    request: int
    before: int
    spans: tuple[ReusedSpan, ...]


def needs(
    messages: Sequence[dict[str, Any]], settings: EvidenceSettings = DEFAULT
) -> tuple[Need, ...]:
    """The need of every request of a session, in their order; also of those that reuse nothing.

    ``messages`` are a transcript in any dialect; their places in it are their numbers. A session is
    of use up to its first recorded compaction: after it, a model wrote that had forgotten already.
    Raises InvalidMessage for a message with neither a role nor an item's type.
    """
    kinds = [read_facts(message).kind for message in messages]
    texts = [normalise(message) for message in messages]
    actions = list(_actions(kinds))
    starts = [start for start, _ in actions]
    written = ["\n".join(texts[start:end]) for start, end in actions]
    beginnings, carriers = Beginnings(written, settings), Carriers(texts)
    found: list[Need] = []
    added = 0
    for request, before in enumerate(starts):
        for number in range(added, before):
            beginnings.add(number, texts[number])
        added = before
        spans: list[ReusedSpan] = []
        for text, kind in candidates(written[request], texts, beginnings, settings).items():
            everywhere = carriers.of(text)
            earlier = everywhere[: bisect_left(everywhere, before)]
            if _is_evidence(earlier, kinds, before, settings):
                age = request - bisect_right(starts, earlier[-1])
                weight = log2(1 + before / len(earlier))
                spans.append(ReusedSpan(text, kind, weight, age, earlier))
        found.append(Need(request, before, tuple(spans)))
    return tuple(found)


def _actions(kinds: Sequence[Kind]) -> Iterator[tuple[int, int]]:
    """Starts and ends of the runs of the model's messages that something precedes."""
    at = 0
    for is_models, run in groupby(kinds, lambda kind: kind == "assistant"):
        start, at = at, at + len(list(run))
        if is_models and start:
            yield start, at


def _is_evidence(
    carriers: Sequence[int], kinds: Sequence[Kind], before: int, settings: EvidenceSettings
) -> bool:
    """Whether a text in these of the ``before`` earlier messages was taken from one of them."""
    if not carriers or len(carriers) > max(settings.few_carriers, settings.rarity * before):
        return False
    # A text that the model said first is its own; one in a system message is always in view.
    return kinds[carriers[0]] != "assistant" and all(kinds[one] != "system" for one in carriers)
