"""Missy's ``ContextManager``: a system prompt and messages from a history, within a token budget.

For programs that call ``build_messages`` themselves and keep their history where they like: the
class has no session and no log. The same strategy for a session is the policy ``token-budget``.

Missy's documentation ("Context Management") is followed to the letter but where a provider would
refuse the result. A tool round stands or falls as one, so the fresh tail may begin earlier. A
round without all of its results, and a result without its call, are left out, of the tail too.
Results follow their call directly, and memory is cut between words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.log.arguments import shown
from eventctx.messages.facts import Facts
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.tokens import BY_KIND
from eventctx.messages.tool_rounds import Group, group_rows
from eventctx.policies.token_budget import (
    LEARNINGS_HEADING,
    MEMORY_HEADING,
    TokenBudget,
    learnings_text,
    memory_text,
    section,
)

__all__ = ["ContextManager", "ConversationSummary", "TokenBudget", "four_characters_a_token"]

Message = dict[str, Any]


class ConversationSummary(msgspec.Struct, frozen=True):
    """A summary of ``descendant_count`` messages; its attributes are those of missy's records.

    ``depth`` is how many times its content was summarised. The times are shown as they are given,
    and only where both are given.
    """

    content: str
    depth: int = 0
    descendant_count: int = 0
    time_range_start: str | None = None
    time_range_end: str | None = None


def four_characters_a_token(message: Message) -> int:
    """Tokens of a message at four characters each, at least one; images by their size.

    This is the documentation's heuristic. It counts every text that a model gets, of calls and
    results, too. Claude's models need a third more: for them pass ``lambda message:
    eventctx.messages.tokens.FAMILIES["claude"].tokens(read_facts(message))``.
    """
    facts = read_facts(message)
    shown = facts.prose + facts.arguments + facts.outcome + facts.thinking
    return max(1, shown // 4) + facts.images + BY_KIND.tokens_of_media(facts)


class MissyContextManager:
    """Assembles the context of a request within ``budget``, by default ``TokenBudget()``.

    ``estimate`` gives a message's tokens. ``opening`` is a text that is put, in role user, before a
    conversation that would begin with another role, for providers that refuse such a one. Raises
    InvalidSetting for a budget that is no ``TokenBudget``.
    """

    def __init__(
        self,
        budget: TokenBudget | None = None,
        *,
        estimate: Callable[[Message], int] = four_characters_a_token,
        opening: str | None = None,
    ) -> None:
        if budget is not None and not isinstance(budget, TokenBudget):
            raise InvalidSetting(f"budget: expected a TokenBudget, found {shown(budget)}")
        self._budget = TokenBudget() if budget is None else budget
        self._estimate = estimate
        self._opening = opening

    def build_messages(
        self,
        system: str,
        new_message: str | Message,
        history: Sequence[Message],
        memory_results: Sequence[str] | None = None,
        learnings: Sequence[str] | None = None,
        tool_definitions: Sequence[Any] | None = None,
        summaries: Sequence[ConversationSummary] | None = None,
    ) -> tuple[str, list[Message]]:
        """The enriched system prompt and the messages of a request.

        ``history`` is in conversation order, in any dialect, without ``new_message`` (a text, or a
        whole message). The messages of it that stay are the same objects, in the same order, except
        that results follow their calls. The fresh tail, system messages in the history and the new
        message stay whatever their size, so together they may exceed the budget.

        ``summaries`` are given oldest first. ``tool_definitions`` and the system prompt reduce the
        history only by the tokens that exceed their reserves. Raises InvalidMessage for a message
        without a role.
        """
        budget = self._budget
        memory = memory_text(memory_results or (), budget.memory, self._count)
        learnt = learnings_text(learnings or (), budget.learnings, self._count)
        parts = (system, section(MEMORY_HEADING, memory), section(LEARNINGS_HEADING, learnt))
        enriched = "\n\n".join([part for part in parts if part])
        new = {"role": "user", "content": new_message}
        if not isinstance(new_message, str):
            new = new_message
        room = self._room(enriched, new, tool_definitions or ())
        told = [_summary(one) for one in summaries or ()]
        messages = [*_choose_history(history, told, room, budget, self._estimate), new]
        first = next((n for n, m in enumerate(messages) if read_facts(m).kind != "system"), 0)
        if self._opening is not None and read_facts(messages[first]).role != "user":
            messages.insert(first, {"role": "user", "content": self._opening})
        return enriched, messages

    def _count(self, text: str) -> int:
        return self._estimate({"role": "system", "content": text}) if text else 0

    def _room(self, enriched: str, new: Message, tools: Sequence[Any]) -> int:
        """The tokens that are left for the history; negative where there are none."""
        budget = self._budget
        prompt = budget.system_reserve + budget.memory + budget.learnings
        room = budget.history - self._estimate(new)
        room -= max(0, self._count(enriched) - prompt)
        if tools:
            written = msgspec.json.encode(list(tools), enc_hook=str).decode()
            room -= max(0, self._count(written) - budget.tool_definitions_reserve)
        return room - self._count(self._opening or "")


ContextManager = MissyContextManager
"""The name that Missy's documentation imports, next to ``TokenBudget``."""


def _choose_history(
    history: Sequence[Message],
    summaries: Sequence[Message],
    room: int,
    budget: TokenBudget,
    estimate: Callable[[Message], int],
) -> list[Message]:
    """The fresh tail, and the summaries and older messages that fit the rest of ``room`` tokens."""
    facts = [read_facts(message) for message in history]
    costs = [estimate(message) for message in history]
    groups = [group for group in group_rows(facts) if _whole(group, facts)]
    system = [group for group in groups if facts[group.rows[0]].kind == "system"]
    first_of_tail = max(0, len(history) - budget.fresh_tail_count)
    rest = [group for group in groups if facts[group.rows[0]].kind != "system"]
    tail = [group for group in rest if max(group.rows) >= first_of_tail]
    older = [group for group in rest if max(group.rows) < first_of_tail]

    def cost(group: Group) -> int:
        return sum([costs[row] for row in group.rows])

    room -= sum([cost(group) for group in [*system, *tail]])
    shown: list[Message] = []
    for summary in summaries:
        if estimate(summary) <= room:
            shown.append(summary)
            room -= estimate(summary)
    filled: list[Group] = []
    for group in reversed(older):
        if cost(group) > room:
            break
        filled.append(group)
        room -= cost(group)
    kept = sorted([*system, *filled, *tail], key=lambda group: group.rows[0])
    leading = 0
    while leading < len(kept) and facts[kept[leading].rows[0]].kind == "system":
        leading += 1
    conversation = [[history[row] for row in group.rows] for group in kept]
    return [
        *[message for group in conversation[:leading] for message in group],
        *shown,
        *[message for group in conversation[leading:] for message in group],
    ]


def _whole(group: Group, facts: Sequence[Facts]) -> bool:
    """Whether every call of a round has its result, and every result its call."""
    if facts[group.rows[0]].item:
        return not group.orphan and not group.pending
    calls = sorted([call for row in group.calls for call in facts[row].calls])
    results = sorted([call for row in group.results for call in facts[row].results])
    return not group.orphan and calls == results


def _summary(summary: ConversationSummary) -> Message:
    start, end = summary.time_range_start, summary.time_range_end
    covers = f", covers {start} to {end}" if start and end else ""
    heading = f"[Summary: depth {summary.depth}, {summary.descendant_count} messages{covers}]"
    return {"role": "user", "content": f"{heading}\n{summary.content}"}
