"""The interface of an interceptor of compactions: the payload that it gets, and its answer.

Of the answer, pins are the policy's to keep, but texts are no policy's: one notice with them, made
anew each time, is added to every policy's proposal, and the policy's target is that much lower. The
program around the model wrote them and no person did, but the notice stands in role user, because
providers know no other place for it. So, like a summary, it says who wrote it, and marks each line
(``index.quoted``). The notice of an earlier compaction leaves with the next one, as pins for one
compaction do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from eventctx.log.events import PreCompact
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.tokens import Estimator
from eventctx.policies.index import MARK, quoted
from eventctx.policies.policy import Budget, NewInsertion, Proposal, Visible
from eventctx.policies.working_set import insertion_tokens
from eventctx.projections.view.refs import InsertionRef


class CompactionAsked(msgspec.Struct, frozen=True):
    """A compaction that is about to begin in ``session``.

    ``event`` is the ``context:pre_compact`` as it will be recorded, with these ids in its record;
    ``numbers`` are the messages in view, in order.
    """

    session: str
    event: PreCompact
    numbers: tuple[int, ...]
    turn_id: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None
    iteration: int | None = None


class Verdict(msgspec.Struct, frozen=True):
    """An interceptor's answer: what to keep in this compaction, or a veto with its reason.

    ``pins`` are messages that stay in view, ``texts`` the host's own words that the compacted view
    gets, marked as no person's. The texts of all interceptors may take a tenth of the target; what
    is more is left out. A veto is overruled when the view exceeds the budget: the request must fit.
    """

    pins: tuple[int, ...] = ()
    veto: str | None = None
    texts: tuple[str, ...] = ()


NO_OBJECTION = Verdict()

Intercept = Callable[[CompactionAsked], Awaitable[Verdict]]
"""A function that calls every interceptor in order and joins their verdicts."""

# -- texts of the host ------------------------------------------------------------------------

HEADER: Final = (
    "[From the host: texts that it keeps in view] The program that runs this agent wrote what "
    f"follows behind {MARK}; no person said it."
)
"""The first line; its first 100 characters tell this notice from others (``Facts.mark``)."""

END: Final = "[End of the host's texts]"

SHARE: Final = 10
"""The texts of a compaction may take its target divided by this: a tenth, frame included."""


def host_notice(texts: Sequence[str], before: int | None = None) -> NewInsertion:
    """The notice with these texts, before message ``before`` (None: at the start)."""
    message: dict[str, Any] = {
        "role": "user",
        "content": "\n".join([HEADER, *[quoted(text) for text in texts], END]),
    }
    return NewInsertion("notice", message, before)


_MARK: Final = read_facts(host_notice(()).message).mark


def is_of_host(one: InsertionRef) -> bool:
    """Whether an insertion holds the host's texts of an earlier compaction."""
    return one.kind == "notice" and one.facts.mark == _MARK


def taken(texts: Sequence[str], budget: Budget, estimator: Estimator) -> tuple[str, ...]:
    """The texts that fit into their share of the target together, in the order given.

    One that is too long is passed over, and a shorter one behind it may still fit.
    """
    room = budget.target // SHARE - insertion_tokens(host_notice(()), estimator)
    kept: list[str] = []
    for text in texts:
        size = estimator.tokens(read_facts({"role": "user", "content": quoted(text)}))
        if size <= room:
            room -= size
            kept.append(text)
    return tuple(kept)


def without_texts(visible: Visible) -> Visible:
    """The view without the notice of an earlier compaction."""
    left = [one for one in visible.insertions if not is_of_host(one)]
    if len(left) == len(visible.insertions):
        return visible
    freed = sum([one.tokens for one in visible.insertions if is_of_host(one)])
    return msgspec.structs.replace(visible, insertions=left, tokens=visible.tokens - freed)


def lowered(budget: Budget, texts: Sequence[str], estimator: Estimator) -> Budget:
    """The budget of a policy whose view gets a notice with ``texts`` besides."""
    if not texts:
        return budget
    size = insertion_tokens(host_notice(texts), estimator)
    return msgspec.structs.replace(budget, target=max(1, budget.target - size))


def with_texts(proposal: Proposal, texts: Sequence[str]) -> Proposal:
    """The proposal with a notice, where its own last insertion stands, or else at the start."""
    if not texts:
        return proposal
    place = proposal.insertions[-1].before if proposal.insertions else None
    insertions = (*proposal.insertions, host_notice(texts, place))
    return msgspec.structs.replace(proposal, insertions=insertions)


def is_notice(one: NewInsertion) -> bool:
    """Whether a new insertion holds the host's texts."""
    content = one.message.get("content")
    return one.kind == "notice" and isinstance(content, str) and content.startswith(HEADER)
