"""The interface between the engine and a compaction policy.

A policy is pure: it gets references (no texts), a budget and a state, and returns a ``Proposal``,
which is a plan before its texts are filled in. Every proposal goes through ``fit`` and the rules
before it becomes the plan that the log records.

A policy that needs more than references (a summary, scores, memories) returns a question instead,
as data. The engine answers it and calls ``propose`` again with the answer in
``PolicyState.answers``; the same answers must give the same proposal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeGuard

import msgspec

from eventctx.log.events import Trigger
from eventctx.log.plan import Disposition, InsertionKind
from eventctx.messages.shorten import Limit
from eventctx.projections.view.refs import InsertionRef
from eventctx.projections.view.visible import Visible as Visible

PERSONS_SHARE: Final = 4
"""What people said stays whole while it takes at most the budget divided by this."""


class Budget(msgspec.Struct, frozen=True):
    """Sizes in tokens: the most of a view, the trigger of a compaction, and a compaction's goal.

    A policy gets them in the view's own count: the size of everything that is sent with the
    messages is taken off, and the factor learnt from reported usage is divided out. ``words`` is
    the size up to which everything that people said stays whole; 0 stands for a quarter of
    ``tokens``, which is half of the default target.
    """

    tokens: int
    threshold: int
    target: int
    words: int = 0


class AskSummary(msgspec.Struct, frozen=True):
    """A request for a summary of visible messages ``numbers``, in at most ``max_tokens`` tokens.

    ``merged`` are the summaries in view that the new one takes in. With ``until`` the provider's
    API is to write the summary itself, of all that is in view before that message.
    """

    key: str
    numbers: tuple[int, ...]
    max_tokens: int
    merged: tuple[InsertionRef, ...] = ()
    until: int | None = None


class AskScores(msgspec.Struct, frozen=True):
    """A request for the importance of each of these visible messages, from 0 to 1."""

    key: str
    numbers: tuple[int, ...]


class AskMemory(msgspec.Struct, frozen=True):
    """A request for earlier texts that bear on message ``number``.

    At most ``max_snippets`` of them, and none of the messages ``staying``, which stay in view.
    """

    key: str
    number: int
    max_snippets: int
    staying: tuple[int, ...] = ()


class AskTexts(msgspec.Struct, frozen=True):
    """A request for the messages ``numbers`` of the transcript, in view or not."""

    key: str
    numbers: tuple[int, ...]


Ask = AskSummary | AskScores | AskMemory | AskTexts


class Summary(msgspec.Struct, frozen=True):
    """The answer to ``AskSummary``; times are UTC nanoseconds of the first and last message.

    ``demands`` are what people demand in the messages that it is about, each with its message's
    number, in order; those of the summaries that it takes in, too. A message that may demand
    something and does not has an empty text. ``message`` is the provider's own summary, where that
    was asked for (``AskSummary.until``); ``text`` is what can be read of it.
    """

    text: str
    first_time: int | None = None
    last_time: int | None = None
    demands: tuple[tuple[int, str], ...] = ()
    message: Mapping[str, Any] | None = None


class Scores(msgspec.Struct, frozen=True):
    """The answer to ``AskScores``: a score from 0 to 1 for every requested number."""

    by_number: Mapping[int, float]


class Memory(msgspec.Struct, frozen=True):
    """The answer to ``AskMemory``: snippets, the most relevant first."""

    snippets: tuple[str, ...]


class MessageTexts(msgspec.Struct, frozen=True):
    """The answer to ``AskTexts``: messages by number, as they were added; erased ones are absent.

    A policy must not change them.
    """

    messages: Mapping[int, dict[str, Any]]


Answer = Summary | Scores | Memory | MessageTexts


class PolicyState(msgspec.Struct, frozen=True):
    """The part of the session's state that a policy gets besides the view.

    ``compactions`` counts those before this one. ``hint`` names in words what the caller of
    ``compact`` wants kept. ``answers`` are the answers to the policy's own questions in this
    compaction, by key. ``recall``: the agent has a tool that reads a message again
    (``Context.recall_tool``).
    """

    trigger: Trigger
    compactions: int = 0
    hint: str | None = None
    answers: Mapping[str, Answer] = {}
    recall: bool = False


class NewInsertion(msgspec.Struct, frozen=True):
    """An insertion with a text of the policy's own; ``message`` is a whole message.

    The other fields are those of ``plan.Insertion``.
    """

    kind: InsertionKind
    message: dict[str, Any]
    before: int | None = None
    stands_for: tuple[tuple[int, int], ...] = ()
    depth: int = 0
    demands: tuple[tuple[int, int], ...] = ()


class Proposal(msgspec.Struct, frozen=True):
    """A plan before its texts are filled in.

    ``dispositions`` maps every visible number to a disposition and a reason code; a message that
    is ``shortened`` has a limit in ``limits``, unless it was shortened before and stays so.
    ``kept_insertions`` are those of the view that stay. ``scores`` are by message number, and are
    recorded where the policy decided by scores.
    """

    dispositions: Mapping[int, tuple[Disposition, str]]
    limits: Mapping[int, Limit] = {}
    insertions: tuple[NewInsertion, ...] = ()
    kept_insertions: tuple[InsertionRef, ...] = ()
    scores: Mapping[int, float] = {}


class Policy(Protocol):
    """A strategy. ``name`` and ``version`` go into the log with every plan that it makes."""

    @property
    def name(self) -> str:
        """The strategy's name in settings and in the log."""
        ...

    @property
    def version(self) -> int:
        """A number that goes up when the same input would give another proposal."""
        ...

    @property
    def max_messages(self) -> int | None:
        """Conversation messages in view above which a compaction is due; None: no limit."""
        ...

    def propose(self, visible: Visible, budget: Budget, state: PolicyState) -> Proposal | Ask:
        """Decide on every visible message, or return a question that must be answered first.

        Must not read a clock or draw random numbers. A question whose key is already in
        ``state.answers`` is an error.
        """
        ...


PolicyFunction = Callable[[Visible, Budget, PolicyState], Any]
"""A policy as a plain function; it returns a ``Proposal`` or a question."""


def is_policy(thing: object) -> TypeGuard[Policy]:
    """Whether an object has the attributes of a policy. A class of policies is not a policy."""
    has_all = all(hasattr(thing, name) for name in ("name", "version", "max_messages"))
    return has_all and not isinstance(thing, type) and callable(getattr(thing, "propose", None))
