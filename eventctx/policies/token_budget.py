"""The token budget: shares for memory, learnings and history; a fresh tail; newest first.

This is the strategy of missy's ``ContextManager``, as its documentation ("Context Management")
describes it. Of the tokens that the reserves leave, a share goes to recalled memory, a share to
learnings, the rest to the history: its last messages (the fresh tail) stay, summaries come next,
and older messages are filled in newest first until the first one that does not fit.

``build_messages`` is the strategy as one pure function; the policy of the same name, for
sessions, is in ``eventctx.policies.token_budget_policy``. The published code breaks some rules of
a view. The function keeps them: a tool round stands or falls as one, contents are not changed,
memory is cut between words, and a tail that is too large is brought into the budget.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.messages.facts import Facts
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.tool_rounds import Group, group_rows
from eventctx.policies.constraints import Count, Share, check

Message = dict[str, Any]

MAX_LEARNINGS: Final = 5
"""From the documentation: "Lessons extracted from previous runs (up to 5)"."""

MEMORY_HEADING: Final = "## Relevant Memory"
LEARNINGS_HEADING: Final = "## Past Learnings"


class TokenBudget(msgspec.Struct, frozen=True):
    """A total of tokens and its shares. Raises InvalidSetting.

    ``total`` and the reserves are tokens, the fractions are of what the reserves leave,
    ``fresh_tail_count`` is in messages. The defaults are those of the documentation.
    """

    total: Count = 30_000
    system_reserve: Count = 2_000
    tool_definitions_reserve: Count = 2_000
    memory_fraction: Share = 0.15
    learnings_fraction: Share = 0.05
    fresh_tail_count: Count = 16

    def __post_init__(self) -> None:
        check(self)
        check_fractions(self)
        reserves = self.system_reserve + self.tool_definitions_reserve
        if reserves > self.total:
            raise InvalidSetting(
                "system_reserve + tool_definitions_reserve: expected at most total "
                f"({self.total}), found {reserves}"
            )

    @property
    def available(self) -> int:
        """The tokens that the reserves leave: 26,000 by default."""
        return self.total - self.system_reserve - self.tool_definitions_reserve

    @property
    def memory(self) -> int:
        """The most tokens that memory snippets take: 3,900 by default."""
        return int(self.available * self.memory_fraction)

    @property
    def learnings(self) -> int:
        """The most tokens that learnings take: 1,300 by default."""
        return int(self.available * self.learnings_fraction)

    @property
    def history(self) -> int:
        """The tokens that are left for the conversation: 20,800 by default.

        The other shares are subtracted even where they are not used.
        """
        return max(0, self.available - self.memory - self.learnings)


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
    return max(1, shown // 4) + facts.images


def build_messages(
    system: str,
    new_message: str | Message,
    history: Sequence[Message],
    *,
    budget: TokenBudget | None = None,
    memory_results: Sequence[str] | None = None,
    learnings: Sequence[str] | None = None,
    tool_definitions: Sequence[Any] | None = None,
    summaries: Sequence[ConversationSummary] | None = None,
    estimate: Callable[[Message], int] = four_characters_a_token,
    opening: str | None = None,
) -> tuple[str, list[Message]]:
    """The enriched system prompt and the messages of a request, within ``budget``.

    ``history`` is in conversation order, in any dialect, without ``new_message`` (a text, or a
    whole message). The messages of it that stay are the same objects, in the same order, except
    that results follow their calls. A round that lacks a result, and a result that lacks its
    call, are left out: a provider refuses both. System messages in the history stay.

    ``summaries`` are given oldest first. ``tool_definitions`` and the system prompt reduce the
    history only by the tokens that exceed their reserves. ``estimate`` gives a message's tokens.
    ``opening`` is a text that is put, in role user, before a conversation that would begin with
    another role, for providers that refuse such a one. The new message stays whatever its size:
    alone it may exceed the budget. Raises InvalidMessage for a message without a role.
    """
    budget = TokenBudget() if budget is None else budget
    new = {"role": "user", "content": new_message} if isinstance(new_message, str) else new_message

    def count(text: str) -> int:
        return estimate({"role": "system", "content": text}) if text else 0

    memory = memory_text(memory_results or (), budget.memory, count)
    learnt = learnings_text(learnings or (), budget.learnings, count)
    parts = (system, section(MEMORY_HEADING, memory), section(LEARNINGS_HEADING, learnt))
    enriched = "\n\n".join([part for part in parts if part])
    room = budget.history - estimate(new)
    room -= max(0, count(enriched) - budget.system_reserve - budget.memory - budget.learnings)
    if tool_definitions:
        written = msgspec.json.encode(list(tool_definitions), enc_hook=str).decode()
        room -= max(0, count(written) - budget.tool_definitions_reserve)
    if opening is not None:
        room -= count(opening)
    kept = _kept(history, [_summary(one) for one in summaries or ()], room, budget, estimate)
    messages = [*kept, new]
    first = next((n for n, m in enumerate(messages) if read_facts(m).kind != "system"), 0)
    if opening is not None and read_facts(messages[first]).role != "user":
        messages.insert(first, {"role": "user", "content": opening})
    return enriched, messages


def _kept(
    history: Sequence[Message],
    summaries: Sequence[Message],
    room: int,
    budget: TokenBudget,
    estimate: Callable[[Message], int],
) -> list[Message]:
    """Summaries and history that fit ``room`` tokens."""
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
    while room < 0 and tail:
        room += cost(tail.pop(0))
        older = []  # nothing that is older than a dropped round may stay
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


def memory_text(snippets: Sequence[str], budget: int, count: Callable[[str], int]) -> str:
    """The snippets, a line each, cut after a word where they take more than ``budget`` tokens.

    Empty where not even one word fits. ``count`` gives a text's tokens; it must not fall as the
    text grows, because the place of the cut is found by bisection.
    """
    text = "\n".join(snippets).strip()
    if not text or count(text) <= budget:
        return text
    ends = [found.start() for found in re.finditer(r"\s+", text)]
    fitting = bisect_right(ends, budget, key=lambda end: count(f"{text[:end]} …"))
    return f"{text[: ends[fitting - 1]]} …" if fitting else ""


def learnings_text(learnings: Sequence[str], budget: int, count: Callable[[str], int]) -> str:
    """The first five learnings as a list, or nothing if together they exceed ``budget`` tokens."""
    text = "\n".join([f"- {item}" for item in learnings[:MAX_LEARNINGS]])
    return text if text and count(text) <= budget else ""


def section(heading: str, text: str) -> str:
    """A text under its heading; empty where the text is empty."""
    return f"{heading}\n{text}" if text else ""


def check_fractions(settings: TokenBudget | Any) -> None:
    """Raise InvalidSetting for two fractions that are more than the whole."""
    both = settings.memory_fraction + settings.learnings_fraction
    if both > 1:
        raise InvalidSetting(
            f"memory_fraction + learnings_fraction: expected at most 1, found {both}"
        )
