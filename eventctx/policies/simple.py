"""The simple policy: all system messages and the last ten of the conversation.

As the README of Amplifier's context-simple has it: tool pairs are atomic (a round stays whole if
one of its messages stays); messages without tools are de-duplicated by role and first 100
characters. Of duplicates the last one stays, so that order and recency survive.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.plan import Disposition
from eventctx.policies.policy import Budget, PolicyState, Proposal, Visible
from eventctx.refs import MessageRef
from eventctx.rounds import group_rows


class Simple(msgspec.Struct, frozen=True):
    """Keep system messages and the ``keep_recent`` last messages of the conversation."""

    keep_recent: int = 10
    max_messages: int | None = None
    name: str = "simple"
    version: int = 1

    def __post_init__(self) -> None:
        if type(self.keep_recent) is not int or self.keep_recent < 1:
            raise InvalidSetting(f"keep_recent: expected an int from 1, found {self.keep_recent!r}")
        most = self.max_messages
        if most is not None and (type(most) is not int or most < self.keep_recent):
            raise InvalidSetting(
                f"max_messages: expected an int from keep_recent ({self.keep_recent}), "
                f"found {most!r}"
            )

    def _kept(self, state: PolicyState) -> int:
        # Down to half of the limit, or the next message would be over it again.
        if state.trigger == "max_messages" and self.max_messages is not None:
            return min(self.keep_recent, max(1, self.max_messages // 2))
        return self.keep_recent

    def propose(self, visible: Visible, budget: Budget, state: PolicyState) -> Proposal:
        """Dispositions of every visible message; insertions stay as they are."""
        messages = visible.messages
        conversation = [row for row, ref in enumerate(messages) if ref.facts.kind != "system"]
        recent = set(conversation[-self._kept(state) :])
        human = next((row for row in reversed(conversation) if messages[row].facts.human), None)
        pinned = {row for row, ref in enumerate(messages) if ref.number in visible.pins}
        wanted = recent | pinned | ({human} if human is not None else set())
        decided: dict[int, tuple[Disposition, str]] = {}
        for group in group_rows([ref.facts for ref in messages]):
            stays = not wanted.isdisjoint(group.rows)
            for row in group.rows:
                ref = messages[row]
                if ref.facts.kind == "system":
                    decided[ref.number] = ("kept", "system")
                elif not stays:
                    decided[ref.number] = ("dropped", "older")
                else:
                    reason = _reason(row, recent, pinned, human)
                    decided[ref.number] = ("shortened" if ref.shortened else "kept", reason)
        _merge_duplicates(messages, decided, visible.pins)
        return Proposal(decided, kept_insertions=tuple(visible.insertions))


def _reason(row: int, recent: set[int], pinned: set[int], human: int | None) -> str:
    if row in pinned:
        return "pinned"
    if row == human:
        return "latest_human"
    return "recent" if row in recent else "same_round"


def _merge_duplicates(
    messages: Sequence[MessageRef],
    decided: dict[int, tuple[Disposition, str]],
    pins: frozenset[int],
) -> None:
    seen: set[bytes] = set()
    for ref in reversed(messages):
        facts = ref.facts
        stays = decided[ref.number][0] in ("kept", "shortened")
        with_tools = facts.calls or facts.results or facts.kind in ("result", "system")
        # Items of one Responses answer belong to a round even where they call nothing.
        if not stays or with_tools or facts.dialect == "responses" or ref.number in pins:
            continue
        if not facts.prose:
            continue
        if facts.mark in seen:
            decided[ref.number] = ("merged", "duplicate")
        seen.add(facts.mark)
