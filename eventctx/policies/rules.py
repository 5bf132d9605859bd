"""Rules that every proposal must keep, whoever made it.

A policy may be a user's own function, so nothing about its proposal is taken for granted. The
checks run in two steps, because ``fit`` comes between them: ``check_form`` makes sure that the
proposal decides on exactly the messages in view and can be recorded at all, which ``fit`` relies
on; ``check_rules`` holds the fitted proposal to the rules of a view.

Invariant: a proposal that passed both gives a view that a provider accepts, with all system
messages, pins, the latest human message and the message to be answered in it, and with every tool
round whole or absent.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import compress
from operator import not_
from typing import Any, Final, get_args

from eventctx.errors import InvalidPlan
from eventctx.log.plan import Disposition, InsertionKind
from eventctx.messages.facts_reader import read_facts
from eventctx.policies.policy import Budget, Proposal, Visible
from eventctx.policies.proposals import missing_words, persons_words
from eventctx.text import pattern

_STAYS: Final = ("kept", "shortened")
_REASON: Final = pattern(r"[a-z][a-z0-9_]{0,39}")


def check_form(visible: Visible, proposal: Proposal) -> None:
    """Raise InvalidPlan if ``proposal`` does not decide on exactly the messages in view.

    Also where a disposition, a reason code or an insertion has a form that no log can hold.
    """
    numbers = visible.row_of.keys()
    decided_on = proposal.dispositions.keys()
    if decided_on != numbers:
        missing = numbers - decided_on
        if missing:
            raise _broken_rule("every message has a disposition", missing, "they have none")
        raise _broken_rule("a plan speaks of what is in view", decided_on - numbers, "not in view")
    strange = proposal.limits.keys() - numbers
    if strange:
        raise _broken_rule("a plan speaks of what is in view", strange, "limits, but not in view")
    known = get_args(Disposition)
    # A session has thousands of messages and few different decisions: check each of those once.
    different: Iterable[Any] = dict.fromkeys(proposal.dispositions.values())
    for decided in different:
        disposition, reason = decided if isinstance(decided, tuple) else (decided, "")
        if disposition not in known:
            number = _last_with(decided, proposal)
            raise _broken_rule(
                f"a disposition is one of {list(known)}", [number], f"{disposition!r}"
            )
        if not isinstance(reason, str) or not _REASON.fullmatch(reason):
            number = _last_with(decided, proposal)
            raise _broken_rule("a reason is a code such as 'older'", [number], f"found {reason!r}")
    _check_insertions(proposal)


def _last_with(decided: Any, proposal: Proposal) -> int:
    """The last message that a proposal decides on in this way."""
    return [number for number, one in proposal.dispositions.items() if one == decided][-1]


def _check_insertions(proposal: Proposal) -> None:
    """Raise InvalidPlan for an insertion that no log can hold or no provider would take."""
    for new in proposal.insertions:
        runs = new.stands_for
        numbers = [number for run in runs for number in run] if isinstance(runs, tuple) else [""]
        if isinstance(new.demands, tuple):
            numbers += [number for run in new.demands for number in run]
        sound = (
            new.kind in get_args(InsertionKind)
            and type(new.depth) is int
            and (new.before is None or type(new.before) is int)
            and all(type(number) is int for number in numbers)
            and isinstance(new.message, dict)
        )
        if not sound:
            raise _broken_rule(
                "an insertion has a kind, a message and numbers", [], f"{new!r}"[:200]
            )
        facts = read_facts(new.message)
        if facts.calls or facts.results:
            raise _broken_rule("an insertion calls no tool and answers none", [], f"{new!r}"[:200])


def check(visible: Visible, proposal: Proposal) -> None:
    """Raise InvalidPlan, naming the rule and the messages, if ``proposal`` breaks a rule."""
    check_form(visible, proposal)
    check_rules(visible, proposal)


def check_rules(visible: Visible, proposal: Proposal) -> None:
    """Raise InvalidPlan if ``proposal``, whose form was checked before, breaks a rule of views."""
    messages, facts = visible.messages, visible.facts
    decided = proposal.dispositions
    here = [decided[number][0] in _STAYS for number in visible.row_of]
    for row in sorted(visible.pinned.union(visible.system)):
        number = messages[row].number
        if not here[row]:
            what = "system" if facts[row].kind == "system" else "pinned"
            raise _broken_rule(f"{what} messages stay", [number], "left out")
        if number in proposal.limits:
            raise _broken_rule("system messages and pins stay whole", [number], "shortened")
    human, last = visible.latest_human, visible.to_answer
    if human is not None and not here[human]:
        raise _broken_rule("the latest human message stays", [messages[human].number], "left out")
    if last is not None and not here[last]:
        raise _broken_rule("the message to be answered stays", [messages[last].number], "left out")
    _check_rounds(visible, here)
    _check_texts(visible, proposal)
    _check_places(visible, proposal, here)


def check_words(visible: Visible, fitted: Proposal, budget: Budget) -> None:
    """Raise InvalidPlan if what a person said went while something else could have gone."""
    words = persons_words(visible, budget)
    missing = missing_words(visible, fitted, words)
    if not missing:
        return
    groups = visible.groups
    last = {*visible.orphans, *visible.open_round}
    for place in visible.groups_with(visible.protected.union(words.rows)):
        last.update(groups[place].rows)
    numbers = [
        ref.number
        for row, ref in enumerate(visible.messages)
        if fitted.dispositions[ref.number][0] in _STAYS and row not in last
    ]
    if numbers:
        raise _broken_rule("what a person said goes last", numbers, "these stay, and it went")


def _check_rounds(visible: Visible, here: list[bool]) -> None:
    group_at = visible.group_at
    split = {*compress(group_at, here)} & {*compress(group_at, map(not_, here))}
    if split:
        rows = visible.groups[min(split)].rows
        numbers = [visible.messages[row].number for row in rows]
        raise _broken_rule("a tool round stands or falls as one", numbers, "only part of it stays")


def _check_texts(visible: Visible, proposal: Proposal) -> None:
    limits, messages, row_of = proposal.limits, visible.messages, visible.row_of
    without_limit = [
        number
        for number, (disposition, _) in proposal.dispositions.items()
        if disposition == "shortened"
        and number not in limits
        and not messages[row_of[number]].shortened
    ]
    if without_limit:
        raise _broken_rule("a shortened message has a limit", without_limit, "no limit given")


def _check_places(visible: Visible, proposal: Proposal, here: list[bool]) -> None:
    places = {new.before for new in proposal.insertions if new.before is not None}
    if not places:
        return
    groups = visible.groups
    # Late results of an open round may still move every row after its first one.
    open_groups = [group.rows[0] for group in visible.waiting if here[group.rows[0]]]
    last_open = open_groups[-1] if open_groups else None
    starts = {
        visible.messages[group.rows[0]].number
        for group in groups
        if last_open is None or group.rows[0] <= last_open
    }
    if places - starts:
        raise _broken_rule(
            "nothing is inserted into a round", places - starts, "not a round's start"
        )


def _broken_rule(rule: str, numbers: Iterable[int], problem: str) -> InvalidPlan:
    return InvalidPlan(rule, tuple(sorted(numbers)), problem)
