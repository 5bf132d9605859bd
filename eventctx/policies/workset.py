"""The workset policy: the rounds that are needed most stay, and an index says where the rest is.

Rounds leave by need, not by age alone: a round is worth less the longer ago it came, the more of
its text is again later in the view, and the less its kind is used again. A message that leaves is
not gone: an index, made anew from the log in each compaction, quotes the person's demands and the
lines that the model most likely needs again, and names files and message numbers, so that the agent
can recall the rest (``search.tool``).

The policy needs texts, which it asks for (``AskTexts``); no model is called. How well it keeps what
an agent needs is measured by ``projections.evidence`` (docs/explanation/evidence.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import compress
from typing import Any, ClassVar, Final

import msgspec

from eventctx.messages.extracts import MessageExtracts
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.overlap import runs_of_numbers
from eventctx.messages.shorten import Limit
from eventctx.messages.tool_rounds import Group
from eventctx.policies.constraints import Count, Share, check
from eventctx.policies.fit import OLD_CHARACTERS, line_to_drop_to
from eventctx.policies.index import (
    DEMANDS_SHARE,
    FILES_SHARE,
    Timeline,
    answered_calls,
    demands_section,
    file_touches,
    files_section,
    index_message,
    last_said,
    lines_section,
    measure_of,
    read_messages,
    room_for_sections,
    without_removed,
)
from eventctx.policies.policy import (
    AskTexts,
    Budget,
    MessageTexts,
    NewInsertion,
    PolicyState,
    Proposal,
    Visible,
)
from eventctx.policies.proposals import BEGINNING, PersonsWords, persons_words
from eventctx.policies.working_set import WorkingSet, begin_reduction
from eventctx.projections.view.refs import InsertionRef

QUESTION: Final = "texts"
"""The key of the one question."""

MOST_GONE: Final = 600
"""Messages out of view that are read, the newest."""

MOST_IN_VIEW: Final = 1_200
"""Messages in view that are read, the newest."""

AGE: Final = 6
"""Requests after which a round is worth half; twice as many later it is worth a third."""

PERSONS_AGE: Final = 18
"""The same for a person's words, which are needed for longer."""

_FRESH: Final[Mapping[str, float]] = {"read": 2.8, "edited": 2.2, "written": 2.2, "deleted": 1.0}
_STALE: Final[Mapping[str, float]] = {"read": 1.2, "edited": 1.0, "written": 1.0, "deleted": 1.0}
"""The worth of a call that touched a file; stale where the file was touched again since.

By how often models used one again, by token, in recorded sessions; any other call, and what the
model says, counts 1.
"""

_OF_KIND: Final[Mapping[str, float]] = {"human": 3.0, "user": 2.0}

NEWEST: Final = 3
"""Rounds at the end that stay before all others, since the next answer speaks of them.

They may take the index's part of the target; it takes what is left up to the line of ``fit``."""

LEAST_ROOM: Final = 200
"""Tokens below which an index is not worth its frame."""


class Workset(msgspec.Struct, frozen=True):
    """Settings of the workset policy.

    ``index_share`` is the part of the target that the index may take, ``index_tokens`` the most
    tokens that it may have; with 0 there is none.
    """

    index_share: Share = 0.6
    index_tokens: Count = 16_000
    name: str = "workset"
    version: int = 3

    max_messages: ClassVar[int | None] = None
    """The policy counts tokens, not messages."""

    def __post_init__(self) -> None:
        check(self)

    def propose(self, visible: Visible, budget: Budget, state: PolicyState) -> Proposal | AskTexts:
        """Dispositions of every visible message, and an index in place of the one before."""
        index = [one for one in visible.insertions if is_index(one)]
        others = tuple([one for one in visible.insertions if not is_index(one)])
        working_set = begin_reduction(visible, budget, others)
        size = working_set.total + sum([one.tokens for one in index])
        if size <= budget.target:
            return Proposal(
                working_set.decided, working_set.limits, kept_insertions=tuple(visible.insertions)
            )
        texts = state.answers.get(QUESTION)
        if not isinstance(texts, MessageTexts):
            return AskTexts(QUESTION, _numbers_to_read(visible))
        scene = _Scene(visible, texts.messages, state.recall)
        room = min(self.index_tokens, int(budget.target * self.index_share))
        indexed = self._propose_with_index(working_set, visible, budget, scene, others, room)
        if indexed.insertions or not room:
            return indexed
        # There is nothing to say in an index, so the rounds may have its room.
        anew = begin_reduction(visible, budget, others)
        return self._propose_with_index(anew, visible, budget, scene, others, 0)

    def _propose_with_index(
        self,
        working_set: WorkingSet,
        visible: Visible,
        budget: Budget,
        scene: _Scene,
        others: tuple[InsertionRef, ...],
        room: int,
    ) -> Proposal:
        """The rounds that fit with an index of ``room`` tokens, and the index."""
        words = persons_words(visible, budget)
        _reduce(working_set, scene, words, budget.target, room)
        _name_what_must_stay(working_set, visible, words)
        proposal = Proposal(working_set.decided, working_set.limits, kept_insertions=others)
        # Where much must stay, a large index would only bring the next compaction nearer.
        room = min(room, line_to_drop_to(budget) - working_set.total)
        new = _index(scene, working_set, room) if room >= LEAST_ROOM else None
        return proposal if new is None else msgspec.structs.replace(proposal, insertions=(new,))


def is_index(one: InsertionRef) -> bool:
    """Whether an insertion is the index of an earlier compaction, or what an erasure left of it."""
    return one.kind == "notice" and one.facts.mark in (INDEX_MARK, b"")


INDEX_MARK: Final = read_facts(index_message(())).mark


def _numbers_to_read(visible: Visible) -> tuple[int, ...]:
    """The numbers of the messages to read: the newest in view and out of it, and all demands."""
    newest = visible.conversation[-MOST_IN_VIEW:]
    in_view = [visible.messages[row].number for row in newest]
    gone: list[int] = []
    for run in reversed(visible.gone):
        gone += range(run.last, run.first - 1, -1)
        if len(gone) >= MOST_GONE:
            break
    demands = [one.number for one in visible.spoken.demands]
    return tuple(sorted({*in_view, *gone[:MOST_GONE], *demands}))


class _Scene:
    """The messages read, by number, their requests, and the names that the model wrote.

    ``recall``: the agent can read a message again.
    """

    def __init__(self, visible: Visible, texts: Mapping[int, dict[str, Any]], recall: bool) -> None:
        self.visible = visible
        facts, row_of = visible.facts, visible.row_of
        kinds = {number: facts[row_of[number]].kind for number in texts if number in row_of}
        self.demanding = {one.number: one for one in visible.spoken.demands}
        self.taken_back = frozenset(visible.spoken.withdrawn)
        asked = {*self.demanding, *[number for number, _ in self.taken_back]}
        self.recall = recall
        read = read_messages(texts, kinds, frozenset(asked))
        self.answered = answered_calls(read)
        self.read = without_removed(read, self.answered)
        self.by_number = {one.number: one for one in self.read}
        self.request_of: dict[int, int] = {}
        request, acting = 0, False
        for one in self.read:
            models = one.speaker == "assistant"
            request += models and not acting
            acting = models
            self.request_of[one.number] = request
        said = last_said(self.read, self.request_of)
        self.time = Timeline(self.request_of, request + 1, said)

    def lines_taken_back(self) -> set[str]:
        """Lines that hold a demand that was taken back: an index must not say it again."""
        found: set[str] = set()
        for one in self.read:
            for at, sentence in enumerate(one.demands, 1):
                if (one.number, at) in self.taken_back:
                    found.update([line for line in one.lines if sentence in line])
        return found


def _reduce(
    working_set: WorkingSet, scene: _Scene, words: PersonsWords, goal: int, index: int
) -> None:
    """Keep the rounds that are worth most: as many as fit into ``goal`` tokens with the rest.

    All but the newest leave ``index`` of these tokens free.
    """
    visible, groups = scene.visible, working_set.groups
    costs, worth = working_set.costs(), _worth(working_set, scene)
    for question, answer in words.pairs.items():
        worth[visible.group_at[answer]] = worth[visible.group_at[question]]
    said = visible.groups_with(words.rows)
    stays = visible.groups_with(visible.protected | visible.open_round)
    stays |= {place for place in said if not words.short.intersection(groups[place].rows)}
    fixed = stays | visible.groups_with(visible.system) | visible.groups_with(working_set.orphans)
    free = [place for place in range(len(groups)) if place not in fixed]
    room = goal - (working_set.total - sum([costs[place] for place in free]))
    # The newest rounds first, then the best, of equal worth the newest; what is too large makes
    # room for the next ones.
    free.reverse()
    ranked = free[:NEWEST] + sorted(free[NEWEST:], key=worth.__getitem__, reverse=True)
    for row in sorted(words.whole - visible.protected):
        # Words stay whole, so what was pasted next to them makes room.
        before = working_set.total
        if working_set.messages[row].facts.outcome > OLD_CHARACTERS:
            working_set.shorten(row, Limit(outcome=OLD_CHARACTERS), "old_result")
        room += before - working_set.total
    going: list[Group] = []
    freed = 0
    beginning = Limit(BEGINNING, BEGINNING, BEGINNING)
    for at, place in enumerate(ranked):
        group, cost = groups[place], costs[place]
        if cost <= (room if at < NEWEST else room - index):
            room -= cost
        elif place in said:
            for row in group.rows:
                working_set.shorten(row, beginning, words.rows.get(row, "same_round"))
            room -= working_set.cost(group)
        else:
            freed += cost
            going.append(group)
    working_set.drop_all(going, "least_needed", freed)


def _name_what_must_stay(working_set: WorkingSet, visible: Visible, words: PersonsWords) -> None:
    """Give what stays in any case its own reason: not that there was room for it."""
    messages, decided = visible.messages, working_set.decided
    reasons = {**dict.fromkeys(visible.open_round, "open_round"), **words.rows}
    last, human = visible.to_answer, visible.latest_human
    reasons |= {row: "latest" for row in (last,) if row is not None}
    reasons |= {row: "latest_human" for row in (human,) if row is not None}
    for row, reason in reasons.items():
        disposition, before = decided[messages[row].number]
        if before == "fits":
            decided[messages[row].number] = (disposition, reason)


def _worth(working_set: WorkingSet, scene: _Scene) -> list[float]:
    """The worth of each round, in the order of the rounds; 0 for those that were not read."""
    messages, by_number = working_set.messages, scene.by_number
    later: set[str] = set()
    touched: set[str] = set()
    worth = [0.0] * len(working_set.groups)
    unread = max(0, len(messages) - MOST_IN_VIEW)
    for place in range(len(worth) - 1, -1, -1):
        group = working_set.groups[place]
        last = group.rows[-1]
        if last < unread:
            continue
        kind, number = messages[group.rows[0]].facts.kind, messages[last].number
        value = _OF_KIND.get(kind, 1.0)
        age = scene.time.age(number) / (PERSONS_AGE if kind == "human" else AGE)
        known = [by_number.get(messages[row].number) for row in group.rows]
        read = [one for one in known if one is not None]
        if read:
            touches = file_touches(read)
            if touches:
                paths = {touch.path for touch in touches}
                of_touch = _STALE if paths <= touched else _FRESH
                value = max([of_touch[touch.how] for touch in touches])
                touched |= paths
            value *= _unique(read, later)
        worth[place] = value / (1 + age)
    return worth


def _unique(read: list[MessageExtracts], later: set[str]) -> float:
    """The share of a round's text that is not in ``later`` again, where it goes now."""
    lines = [line for one in read for line in one.lines]
    if not lines:
        return 1.0
    new = sum([len(line) for line in lines if line not in later])
    later.update(lines)
    return new / sum(map(len, lines))


def _index(scene: _Scene, working_set: WorkingSet, room: int) -> NewInsertion | None:
    """The index of everything that is out of view, within ``room`` tokens."""
    staying = [*compress(working_set.messages, working_set.here)]
    here = {ref.number for ref in staying}
    in_view = here.difference(working_set.limits, [ref.number for ref in staying if ref.shortened])
    gone = [one for one in scene.read if one.number not in in_view and one.speaker != "system"]
    if not gone:
        return None
    measure = measure_of(working_set.estimator)
    characters = room_for_sections(room, working_set.estimator)
    # A message that is in view shortened has its demands with it.
    demands = [
        (one.number, text)
        for one in gone
        if one.number in scene.demanding and one.number not in here
        for text in scene.demanding[one.number].holding(one.demands)
    ]
    asked, quoted = demands_section(demands, characters // DEMANDS_SHARE, measure)
    files = files_section(file_touches(scene.read), characters // FILES_SHARE, measure)
    left = characters - sum([measure(line) + 1 for line in (*asked, *files)])
    shown = {line for one in scene.read if one.number in in_view for line in one.lines}
    hidden = shown | scene.lines_taken_back()
    lines = lines_section(gone, hidden, scene.time, left, measure, scene.answered)
    sections = [*asked, *files, *lines]
    if not sections:
        return None
    message = index_message(sections, recall=scene.recall)
    return NewInsertion(
        "notice", message, _anchor(scene.visible, working_set), demands=runs_of_numbers(quoted)
    )


def _anchor(visible: Visible, working_set: WorkingSet) -> int | None:
    """The message before which the index is put: the first that stays after all that left.

    None (the start) where there is none, or where a round without all its results stays before it:
    late results may still change the order after such a round.
    """
    here, behind = working_set.here, None
    for group in reversed(working_set.groups):
        if group.orphan:
            continue
        start = group.calls[0]
        if not here[start]:
            break
        if visible.facts[start].kind != "system":
            behind = start
    if behind is None:
        return None
    starts = [group.calls[0] for group in visible.waiting]
    if any(here[start] and start < behind for start in starts):
        return None
    return visible.messages[behind].number
