"""The result of ``compact()``."""

from __future__ import annotations

from eventctx.log import events
from eventctx.log.plan import Plan


class CompactionResult(int):
    """The tokens saved, as an int, with the counts and the decision behind it.

    The names of the counts are those of the orchestrator specification's compaction events.
    ``position`` is that of the ``context:post_compact``, None in a dry run, which records nothing.
    ``strategy`` is the policy that was used, ``fallback`` the one that decided instead, and
    ``error`` the reason for that. ``plan`` is None unless ``outcome`` is ``applied``.
    """

    position: int | None
    outcome: events.Outcome
    strategy: str
    before_tokens: int
    after_tokens: int
    removed_tokens: int
    before_messages: int
    after_messages: int
    removed_messages: int
    plan: Plan | None
    fallback: str | None
    error: str | None
    dry_run: bool

    @classmethod
    def of(cls, event: events.PostCompact, position: int | None) -> CompactionResult:
        """Make the result from a compaction's record."""
        result = cls(event.tokens_before - event.tokens_after)
        result.position = position
        result.outcome = event.outcome
        result.strategy = event.strategy
        result.before_tokens, result.after_tokens = event.tokens_before, event.tokens_after
        result.removed_tokens = int(result)
        result.before_messages, result.after_messages = event.messages_before, event.messages_after
        result.removed_messages = event.messages_before - event.messages_after
        result.plan = event.plan
        result.fallback = event.fallback
        result.error = event.error
        result.dry_run = position is None
        return result
