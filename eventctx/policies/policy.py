"""The seam between the engine and a compaction policy.

A policy is pure: it gets references (no texts), a budget and a state, and returns a ``Proposal``,
which is a plan before its texts are filled in. Every proposal goes through ``fit`` and the rules
before it becomes the plan that the log records. A policy that needs more than references (scores,
summaries made by a model) gets them in ``PolicyState``, as they were recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from eventctx.events import Trigger
from eventctx.plan import Disposition, InsertionKind
from eventctx.refs import InsertionRef, MessageRef
from eventctx.shorten import Limit


class Visible(msgspec.Struct, frozen=True):
    """What is in view: messages in conversation order, insertions, and pinned numbers.

    ``tokens`` is the whole view's estimate, synthetic results included.
    """

    messages: Sequence[MessageRef]
    insertions: Sequence[InsertionRef]
    pins: frozenset[int]
    tokens: int


class Budget(msgspec.Struct, frozen=True):
    """Tokens: the most a view may have, the size that triggers a compaction, and where it aims."""

    tokens: int
    threshold: int
    target: int


class PolicyState(msgspec.Struct, frozen=True):
    """What a policy may know of the session besides what is in view."""

    trigger: Trigger
    compactions: int = 0
    recorded: Mapping[str, Any] = {}


class NewInsertion(msgspec.Struct, frozen=True):
    """An insertion whose text the policy gives; ``message`` is a whole message."""

    kind: InsertionKind
    message: dict[str, Any]
    before: int | None = None
    stands_for: tuple[tuple[int, int], ...] = ()


class Proposal(msgspec.Struct, frozen=True):
    """A plan before its texts are filled in.

    ``dispositions`` maps every visible number to a disposition and a reason code; a message that
    is ``shortened`` has a limit in ``limits``, unless it was shortened before and stays so.
    ``kept_insertions`` are those of the view that stay.
    """

    dispositions: Mapping[int, tuple[Disposition, str]]
    limits: Mapping[int, Limit] = {}
    insertions: tuple[NewInsertion, ...] = ()
    kept_insertions: tuple[InsertionRef, ...] = ()


class Policy(Protocol):
    """A strategy. ``name`` and ``version`` go into the log with every plan that it makes."""

    @property
    def name(self) -> str:
        """The strategy's name in settings and in the log."""
        ...

    @property
    def version(self) -> int:
        """Goes up when the same input would give another proposal."""
        ...

    @property
    def max_messages(self) -> int | None:
        """Conversation messages in view above which a compaction is due; None: no limit."""
        ...

    def propose(self, visible: Visible, budget: Budget, state: PolicyState) -> Proposal:
        """Say what should become of every visible message. Must not read a clock or draw."""
        ...
