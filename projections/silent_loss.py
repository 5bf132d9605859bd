"""Losses that no record tells of: a reported prompt is smaller than what the log says was sent.

A program or a server may drop old results, and say nothing. The provider's counts show it: the
estimate of a request starts from the prompt reported before it and adds what came since, and is
within a few percent of the next report. Invariant: everything here is an inference from counts, is
named as such wherever it is shown, and changes no view.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from eventctx.log.events import Break, CountedPart, LossCause
from eventctx.projections.view.refs import MessageRef
from eventctx.projections.view.state import ViewState

LEAST: Final = 1_000
"""Tokens that a prompt may be smaller than its estimate without a word: 0 of 1,084 reports of
recorded sessions were, once the thinking of earlier turns and interrupted answers are set aside."""

SHARE: Final = 0.06
"""The same, as a share of what was added since the report before: estimates of it err."""

EARLY_SHARE: Final = 0.1
"""The share until ``LEARNT`` reports have taught the estimator the session's rates."""

LEARNT: Final = 3
"""Reports that teach the estimator; its median error on recorded sessions is 0 % from then on."""

LEAST_CACHED: Final = 2_000
"""Tokens by which the cached part must fall to be told; a cache works in blocks."""

EXPIRY: Final = 300 * 10**9
"""Nanoseconds after which a provider's prompt cache expires (Anthropic's and OpenAI's default)."""

RESUMED: Final = 3_600 * 10**9
"""Nanoseconds without a request after which a session counts as resumed."""

CHARACTERS_OF_A_TOKEN: Final = 3
"""Characters of thinking."""
_RECORDED: Final[frozenset[Break]] = frozenset(("compaction", "set", "clear", "restore", "erase"))
"""Breaks after which a prompt is smaller by what the log itself tells."""


class SuspectedLoss(msgspec.Struct, frozen=True):
    """A loss that is inferred of the request at ``position``.

    ``kind`` is ``prompt`` where the whole prompt is smaller than the log says by ``tokens``:
    ``expected`` were sent, ``found`` were counted. It is ``cache`` where only the part that the
    cache served fell, from ``expected`` to ``found``. ``messages`` are runs of the numbers of
    messages that were probably dropped, the oldest results first.

    ``cause`` is likely, not known: another ``model``; other ``tools``, whose definitions lead every
    prompt; ``edited``, something before the end was taken out (micro-compaction, an edit by the
    server); ``resumed`` after a long pause; the cache ``expired``.
    """

    position: int
    kind: CountedPart
    tokens: int
    expected: int
    found: int
    cause: LossCause
    messages: tuple[tuple[int, int], ...] = ()


class ReportedRequest(NamedTuple):
    """A request whose prompt has ``prompt`` tokens, ``cached`` of them from the provider's cache.

    ``expected`` is the estimate recorded with the request, ``turn`` tells its turn from others,
    ``turn_from`` is the position of the first request of that turn, ``breaks`` are those since the
    reported request before it. ``reports`` counts the prompts that were reported when it was
    estimated. ``time`` is in UTC nanoseconds. ``tools`` names the tool definitions, if they are
    known; ``tools_counted``: the estimate counts them. ``untold`` counts messages that its host
    added, of no known size.
    """

    position: int
    time: int
    turn: Hashable
    turn_from: int
    expected: int
    prompt: int
    cached: int
    model: str | None
    breaks: frozenset[Break]
    reports: int = LEARNT
    tools: str | None = None
    tools_counted: bool = False
    untold: int = 0

    def other_tools(self, before: ReportedRequest) -> bool:
        """Whether it is known that other tool definitions were sent than ``before``."""
        return None not in (self.tools, before.tools) and self.tools != before.tools


class ShownMessages(NamedTuple):
    """The messages of a view in order; ``unanswered`` has the numbers of those with calls that have
    no result, and the tokens of what stands in for it.

    ``messages`` are read until enough is known, and may be made as they are read. ``later`` are
    those that the view before did not show, or more; None are all.
    """

    messages: Iterable[MessageRef]
    unanswered: dict[int, int]
    later: Sequence[MessageRef] | None = None

    def not_sent(self, before: ReportedRequest, now: ReportedRequest) -> float:
        """Tokens of what programs and APIs leave out by themselves: answers since ``before`` that
        were interrupted, with what stands in for their results; at a new turn, the thinking of the
        turn before it. And half of new images and documents, whose estimates are rough.
        """
        tokens: float = 0
        for message in self.messages if self.later is None else self.later:
            if message.position > now.position:
                continue  # its own answer
            if message.position > before.position and message.number in self.unanswered:
                tokens += message.tokens + self.unanswered[message.number]
            elif message.position > before.position and message.facts.media:
                tokens += message.tokens / 2
            elif before.turn != now.turn and message.position > before.turn_from:
                tokens += message.facts.thinking / CHARACTERS_OF_A_TOKEN
        return tokens

    def oldest_results(self, tokens: int) -> tuple[tuple[int, int], ...]:
        """Runs of the numbers of the oldest results that have ``tokens`` together."""
        runs: list[tuple[int, int]] = []
        for message in self.messages:
            if tokens <= 0:
                break
            if message.facts.results:
                tokens -= message.tokens
                follows = bool(runs) and runs[-1][1] == message.number - 1
                runs.append((runs.pop()[0] if follows else message.number, message.number))
        return tuple(runs)


def suspect(
    before: ReportedRequest, now: ReportedRequest, shown: Callable[[], ShownMessages]
) -> SuspectedLoss | None:
    """Return the loss that is suspected of ``now``, if any; ``before`` is the last report.

    ``shown`` gives the messages of the view of ``now``; it is called where something is missing.
    """
    if not _RECORDED.isdisjoint(now.breaks):
        return None
    # The estimate begins with the prompt before, and so with what the host added to that one.
    comparable = now.reports and now.untold >= before.untold
    missing = now.expected - now.prompt if comparable else 0
    allowed = _allowed(before, now)
    if missing > allowed and missing > allowed + (view := shown()).not_sent(before, now):
        return SuspectedLoss(
            now.position,
            "prompt",
            missing,
            now.expected,
            now.prompt,
            _cause(before, now),
            view.oldest_results(missing),
        )
    fallen = before.cached - now.cached
    if fallen < LEAST_CACHED or before.model != now.model:
        return None
    cause: LossCause = "expired" if now.time - before.time >= EXPIRY else "unknown"
    if now.other_tools(before):
        cause = "tools"
    return SuspectedLoss(now.position, "cache", fallen, before.cached, now.cached, cause)


def _allowed(before: ReportedRequest, now: ReportedRequest) -> float:
    """Tokens by which a prompt may be smaller than its estimate; models count differently."""
    if before.model != now.model:
        return now.expected / 4
    share = SHARE if now.reports >= LEARNT else EARLY_SHARE
    return LEAST + share * max(0, now.expected - before.prompt)


def _cause(before: ReportedRequest, now: ReportedRequest) -> LossCause:
    if before.model != now.model:
        return "model"
    if now.other_tools(before) and not now.tools_counted:
        return "tools"
    if now.time - before.time >= RESUMED:
        return "resumed"
    return "edited" if before.cached - now.cached >= LEAST_CACHED else "unknown"


def shown_in(view: ViewState) -> ShownMessages:
    """The messages of a view as it stands."""
    messages: list[MessageRef] = []
    unanswered: dict[int, int] = {}
    for entry in view.layout.entries():
        if not isinstance(entry.ref, MessageRef):
            continue
        if entry.kind == "synthetic":
            number = entry.ref.number
            unanswered[number] = unanswered.get(number, 0) + entry.tokens
        else:
            messages.append(entry.ref)
    return ShownMessages(tuple(messages), unanswered)
