"""The view that a policy decides on, and the questions that each stage of a compaction asks.

Everything here follows from the frozen fields, so each answer is derived once, when it is first
asked for, however many stages need it. Rows are places in ``messages``. A caller must not change
the lists and dicts that it gets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import msgspec

from eventctx.log.plan import Run
from eventctx.messages.facts import Facts
from eventctx.messages.tokens import BY_KIND, UNANSWERED_TOKENS, Estimator
from eventctx.messages.tool_rounds import Group, group_rows
from eventctx.projections.view.refs import InsertionRef, MessageRef
from eventctx.projections.view.state import NOTHING_SPOKEN, Spoken


class Visible(msgspec.Struct, frozen=True, dict=True):
    """A view as a policy sees it: messages in conversation order, insertions, pinned numbers.

    ``tokens`` is the whole view's count by ``estimator``, synthetic results included. ``made_up``
    are the tokens of the synthetic results, by message number and call id; of others they are
    ``UNANSWERED_TOKENS``. ``spoken`` are the first task and a person's demands, in view or not;
    ``gone`` the messages that earlier compactions took out of view. ``manual_thinking`` is true
    where the model wants an open tool loop to begin with its thinking (``messages/thinking.py``).
    """

    messages: Sequence[MessageRef]
    insertions: Sequence[InsertionRef]
    pins: frozenset[int]
    tokens: int
    estimator: Estimator = BY_KIND
    made_up: Mapping[tuple[int, str], int] = {}
    spoken: Spoken = NOTHING_SPOKEN
    gone: tuple[Run, ...] = ()
    manual_thinking: bool = False

    # -- rows ------------------------------------------------------------------------------------

    @cached_property
    def facts(self) -> list[Facts]:
        """The facts of every row."""
        return [ref.facts for ref in self.messages]

    @cached_property
    def row_of(self) -> dict[int, int]:
        """The row of every message number, in the order of the rows."""
        return {ref.number: row for row, ref in enumerate(self.messages)}

    @cached_property
    def conversation(self) -> list[int]:
        """The rows that are not system messages."""
        return [row for row, facts in enumerate(self.facts) if facts.kind != "system"]

    @cached_property
    def system(self) -> list[int]:
        """The rows that are system messages."""
        if len(self.conversation) == len(self.messages):
            return []
        return [row for row, facts in enumerate(self.facts) if facts.kind == "system"]

    @cached_property
    def pinned(self) -> frozenset[int]:
        """The rows of pinned messages."""
        row_of = self.row_of
        return frozenset([row_of[number] for number in self.pins if number in row_of])

    @cached_property
    def spoken_by_people(self) -> list[int]:
        """The rows that hold a person's words."""
        return [row for row, facts in enumerate(self.facts) if facts.human]

    @property
    def latest_human(self) -> int | None:
        """The row of the latest message that holds a person's words."""
        return self.spoken_by_people[-1] if self.spoken_by_people else None

    # -- tool rounds -----------------------------------------------------------------------------

    @cached_property
    def groups(self) -> list[Group]:
        """The rows that stay or go together: tool rounds and single rows, in order."""
        return group_rows(self.facts)

    @cached_property
    def group_at(self) -> list[int]:
        """The place in ``groups`` of every row's group."""
        places = [0] * len(self.messages)
        for place, group in enumerate(self.groups):
            for row in group.calls:
                places[row] = place
            for row in group.results:
                places[row] = place
        return places

    @cached_property
    def waiting(self) -> list[Group]:
        """The rounds with unanswered calls, for which a view makes up results."""
        return [group for group in self.groups if group.pending]

    @cached_property
    def orphans(self) -> frozenset[int]:
        """The rows that are in no view: results without a call."""
        return frozenset([row for group in self.groups if not group.calls for row in group.results])

    @cached_property
    def tokens_of(self) -> list[int]:
        """The tokens that every row adds to the view: none, where it is in no view."""
        tokens = [ref.tokens for ref in self.messages]
        for row in self.orphans:
            tokens[row] = 0
        return tokens

    def groups_with(self, rows: Iterable[int]) -> set[int]:
        """The places in ``groups`` of the groups that any of these rows belongs to."""
        group_at = self.group_at
        return {group_at[row] for row in rows}

    def tokens_made_up(self, group: Group) -> int:
        """Tokens of the results that a view makes up for the calls of a round."""
        if not group.pending:
            return 0
        calls = [self.messages[row] for row in group.calls]
        return sum(
            self.made_up.get(
                next((ref.number, call) for ref in calls if call in ref.facts.calls),
                UNANSWERED_TOKENS,
            )
            for call in group.pending
        )

    # -- what must stay --------------------------------------------------------------------------

    @cached_property
    def to_answer(self) -> int | None:
        """The last row, which the model has to answer, whoever wrote it.

        None where the last row belongs to a tool round, which is protected as such. In a
        conversation without a person's words it is the model's own last answer, because a provider
        refuses a request without messages.
        """
        orphans = self.orphans
        last = next((row for row in reversed(self.conversation) if row not in orphans), None)
        if last is None:
            return None
        facts = self.facts[last]
        if facts.kind in ("human", "user", "other"):
            return last
        answer = facts.kind == "assistant" and not facts.calls
        return last if answer and self.latest_human is None else None

    @cached_property
    def protected(self) -> frozenset[int]:
        """Rows that must stay whole: system messages, pins, the latest human one, the last one."""
        ends = [row for row in (self.latest_human, self.to_answer) if row is not None]
        return self.pinned.union(self.system, ends)

    @cached_property
    def open_round(self) -> frozenset[int]:
        """Rows of the tool round that the model has not answered yet; empty when there is none.

        They must stay, but may be shortened. So must the round with which its loop begins, if the
        model thinks there and not in every answer (``loop_thinking``).
        """
        return self._unanswered | self.loop_thinking

    @cached_property
    def _unanswered(self) -> frozenset[int]:
        facts, human = self.facts, self.latest_human
        for group in reversed(self.groups):
            if any(facts[row].kind == "assistant" for row in group.calls):
                # A text with an action is answered by observations, which have no call ids.
                in_progress = group.results or any(facts[row].calls for row in group.calls)
                follows = human is None or human < group.calls[0] or human in group.rows
                return frozenset(group.rows if in_progress and follows else ())
        return frozenset()

    @cached_property
    def loop_thinking(self) -> frozenset[int]:
        """Rows of the round with the thinking that an open tool loop begins with, where a later
        answer of the loop has none.

        A model of manual thinking thinks once in a loop, and its API refuses one that begins
        without. A person's words directly after results are in the loop: the API takes both for
        one message.
        """
        if not self.manual_thinking:
            return frozenset()
        facts, answers, words = self.facts, list[int](), False
        for row in reversed(self.conversation):
            one = facts[row]
            if one.kind == "assistant":
                if not one.calls and (words or not answers):
                    break
                answers.append(row)
            words = one.kind != "assistant" and not one.results
        if not answers or not facts[answers[-1]].bound or all(facts[row].bound for row in answers):
            return frozenset()
        return frozenset(self.groups[self.group_at[answers[-1]]].rows)

    @cached_property
    def open_loop(self) -> frozenset[int]:
        """Rows after the latest human message while its tool loop is open; else none."""
        if not self._unanswered:
            return frozenset()
        human = self.latest_human
        return frozenset(range(0 if human is None else human + 1, len(self.messages)))

    @cached_property
    def shortenable(self) -> list[int]:
        """Rows whose results, or what a person pasted, may be shortened.

        Pins do not count. A protected row counts only if it holds a person's words: these stay
        whole.
        """
        pinned, protected = self.pinned, self.protected
        return [
            row
            for row, facts in enumerate(self.facts)
            if facts.outcome and row not in pinned and (row not in protected or facts.human)
        ]

    @cached_property
    def old_media(self) -> list[int]:
        """Rows with images, documents or recordings of a person, but for those that stay whole."""
        rows, protected = self.spoken_by_people, self.protected
        return [row for row in rows if self.facts[row].media and row not in protected]

    # -- what people said ------------------------------------------------------------------------

    @cached_property
    def said(self) -> dict[int, str]:
        """Rows with a person's words, in order, each with a reason code: task, demand or said.

        Left out are those whose demands were all taken back. Where it is not known which message
        the task is, it is the first of a person in view.
        """
        messages, facts = self.messages, self.facts
        task, free = self.spoken.task, self._taken_back
        said: dict[int, str] = {}
        for row in self.spoken_by_people:
            number = messages[row].number
            task = number if task is None else task
            if number == task:
                said[row] = "task"
            elif number not in free:
                said[row] = "demand" if facts[row].may_demand else "said"
        if any(facts[row].results for row in said):
            # Words in a row with a result that answers no call are in no view, whatever is decided.
            for row in self.orphans:
                said.pop(row, None)
        return said

    @cached_property
    def answered(self) -> dict[int, int]:
        """Rows with words that the model answered without a tool, each with its answer's row.

        The answer is the next row, and a person speaks after it.
        """
        facts, found = self.facts, dict[int, int]()
        for row, then in zip(self.spoken_by_people, self.spoken_by_people[1:], strict=False):
            one = facts[row + 1]
            if then == row + 2 and one.kind == "assistant" and not one.calls and not one.action:
                found[row] = row + 1
        return found

    @property
    def _taken_back(self) -> frozenset[int]:
        """Numbers of the messages in view of which no demand holds any longer."""
        spoken = self.spoken
        if not spoken.withdrawn:
            return frozenset()
        holding = {one.number for one in spoken.demands}
        touched = {number for number, _ in spoken.withdrawn} - holding
        # Facts of an older reader do not say how many demands there are, so some may hold.
        return frozenset(
            [ref.number for ref in self.messages if ref.number in touched and ref.facts.demands]
        )
