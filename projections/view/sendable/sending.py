"""Makes the rows of a view such that a provider takes them, and names each change and its rule.

An API gives answers that it refuses to take back, and a log keeps them as they came. One such row
would spoil every later request of the session. So each row that a provider would refuse is changed
in the view, never in the log: by the rules of ``RULES``, one after the other.

Invariants: the result is a function of the rows alone, so a request can be derived again from its
entries; a row without a fault is the given object; an acceptable list is returned as it is; rows
keep the order of the entries. The rules hold in requests of renderer ``FIRST_RENDERER`` and later
ones: earlier requests stay as they were sent.

Source of the rules: the providers' published rules and errors, listed by API in
``docs/reference/provider-rules.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from eventctx.messages.native_compaction import compaction_blocks
from eventctx.messages.response_items import is_item
from eventctx.projections.view.entries import OPENING, RENDERER, Entry
from eventctx.projections.view.render import render
from eventctx.projections.view.sendable import call_ids, calls, contents
from eventctx.projections.view.sendable.rows import (
    SERVER_CALLS,
    THINKING,
    Row,
    RowChange,
    Rows,
    SendingRule,
    any_of,
    is_conversation,
    is_server_result,
    kinds_in,
)

FIRST_RENDERER: Final = 3
"""The first version of the renderer whose requests are made by these rules."""


_KEEPS_SUMMARY: Final = 4
"""The first version that does not put the opening in place of a provider's own summary."""


def _without_empty_rows(rows: Rows, *, keeps_summary: bool = True) -> list[RowChange]:
    """Leave out rows without any content; the opening takes the place of a person's first one."""
    first = next((at for at, row in enumerate(rows) if row is not None and is_conversation(row)), 0)
    left_out = [at for at, row in enumerate(rows) if row is not None and contents.is_empty(row)]
    for at in left_out:
        rows[at] = None
    begins = next((row for row in rows if row is not None and is_conversation(row)), None)
    emptied = first in left_out if keeps_summary else bool(left_out)
    if emptied and not _may_begin(begins, keeps_summary):
        rows[first] = {"role": "user", "content": OPENING}
    return [RowChange(at, "empty_row") for at in left_out]


def _may_begin(row: Row | None, keeps_summary: bool) -> bool:
    """Whether a conversation may begin with a row: a person's, or a provider's own summary."""
    if row is None:
        return False
    if row.get("role", "user") in ("user", None):
        return True
    return keeps_summary and bool(compaction_blocks(row))


_CALL_KINDS: Final = ("tool_use", "tool_call", "tool_calls")

RULES: Final[tuple[SendingRule, ...]] = (
    SendingRule(
        "blank_text",
        "Providers refuse a text without a visible character.",
        contents.unblank,
        any_of("text", "tool_result", "tool_calls"),
    ),
    SendingRule(
        "call_without_id",
        "A call has an id, and its result has the same.",
        call_ids.give_ids,
        any_of("tool_calls"),
    ),
    SendingRule(
        "call_in_two_forms",
        "A message holds a call in the form of one provider: the form of its result.",
        calls.in_one_form,
        lambda kinds: {"tool_use", "tool_calls"} <= kinds,
    ),
    SendingRule(
        "server_tool_unpaired",
        "A provider's own tool has its call and its result in one answer, or neither is sent.",
        calls.pair_server_tools,
        lambda kinds: any(kind in SERVER_CALLS or is_server_result(kind) for kind in kinds),
    ),
    SendingRule(
        "call_id_used_twice",
        "The id of a call is used once in a request, by one call and one result.",
        call_ids.rename_calls,
        lambda kinds: any(kind in _CALL_KINDS or kind.endswith("_call") for kind in kinds),
    ),
    SendingRule(
        "results_first",
        "Results come before all else in a message.",
        calls.put_results_first,
        any_of("tool_result"),
    ),
    SendingRule(
        "reasoning_alone",
        "A reasoning item is sent with the item that it led to, or not at all.",
        contents.drop_lone_reasoning,
        any_of("reasoning", "function_call"),
    ),
    SendingRule(
        "item_id_used_twice",
        "The id of an item is used once in a request.",
        contents.drop_known_ids,
        lambda kinds: any(kind == "message" or is_item({"type": kind}) for kind in kinds if kind),
    ),
    SendingRule(
        "image_over_limit",
        "A request has at most 100 images, none over 5 MB or wider or higher than 8,000 pixels, "
        "and none over 2,000 pixels where it has more than 20.",
        contents.limit_images,
        any_of("image", "tool_result"),
    ),
    SendingRule(
        "thinking_last",
        "An answer must not end with thinking.",
        contents.end_without_thinking,
        any_of(*THINKING),
    ),
    SendingRule(
        "empty_row",
        "Providers refuse a message without content.",
        _without_empty_rows,
        lambda kinds: True,
    ),
)
"""All rules, in the order in which they change a view; none undoes an earlier one."""

_RULES_BEFORE: Final = (
    *RULES[:-1],
    RULES[-1]._replace(apply=partial(_without_empty_rows, keeps_summary=False)),
)
"""The rules of version 3: a request stays as it was sent."""

WORDS: Final[Mapping[str, str]] = {rule.name: rule.words for rule in RULES}
"""The sentence of each rule, by its name."""


_MOST_PASSES: Final = 4
"""Passes over the rules: a row that one leaves out may break an earlier rule."""


def make_sendable(
    rows: Sequence[Row], rules: Sequence[SendingRule] = RULES
) -> tuple[Rows, tuple[RowChange, ...]]:
    """The rows as a provider takes them, None for one that is left out; and the changes.

    Pure: given rows are never changed. The result has one place for each given row.
    """
    made: Rows = list(rows)
    kinds = kinds_in(rows)
    concerned = [rule for rule in rules if rule.concerns(kinds)]
    changes: list[RowChange] = []
    for _ in range(_MOST_PASSES):
        found = [change for rule in concerned for change in rule.apply(made)]
        changes += found
        if not found:
            break  # at once for nearly all views
    return made, tuple(sorted(dict.fromkeys(changes), key=lambda change: change.place))


def rows_of_request(
    entries: Sequence[Entry],
    bodies: Mapping[tuple[int, int], bytes | None],
    renderer: int = RENDERER,
) -> tuple[Rows, tuple[RowChange, ...]]:
    """The rows of a request made by version ``renderer``, one place for each entry, and changes.

    ``bodies`` as for ``render``. Version 0 is a request that this library did not make.
    """
    rows = render(entries, bodies)
    if renderer < FIRST_RENDERER:
        return list(rows), ()
    return make_sendable(rows, RULES if renderer >= _KEEPS_SUMMARY else _RULES_BEFORE)


def sent_rows(
    entries: Sequence[Entry], bodies: Mapping[tuple[int, int], bytes | None]
) -> list[Row]:
    """The rows of a request as they are sent, each one the caller's own. As ``rows_of_request``."""
    return sendable(render(entries, bodies))


def sendable(rows: Sequence[Row]) -> list[Row]:
    """The rows that are sent, as a provider takes them."""
    return [row for row in make_sendable(rows)[0] if row is not None]
