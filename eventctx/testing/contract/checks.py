"""The checks in one table: the contract's checklist, and the rules in its text.

*Required* are the rules of the contract's checklist, and those that its text demands of every
context (headings "REQUIRED", "Critical", "Implementation Requirements"). All others are
*recommended*: the contract's second list, and behaviour that known hosts rely on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from eventctx.testing.contract import compacting, hosting, keeping, structure
from eventctx.testing.contract.subject import Subject
from eventctx.testing.contract.verdicts import Level

_READY: Final = ("mount_function", "mount_point", "methods")


class Check(NamedTuple):
    """A check: ``run`` raises Broken or NotChecked. ``needs`` are checks that must hold first."""

    name: str
    level: Level
    what: str
    run: Callable[[Subject], Awaitable[None]]
    needs: tuple[str, ...] = _READY


_MOUNTED: Final = ("mount_function", "mount_point")

CHECKS: Final = (
    Check(
        "mount_function", "required", "There is an async mount(coordinator, config)",
        structure.mount_function, (),
    ),
    Check(
        "entry_point", "required", "mount() is an entry point of the group amplifier.modules",
        structure.entry_point, ("mount_function",),
    ),
    Check(
        "mount_point", "required", "It mounts a context at the mount point 'context'",
        structure.mount_point, ("mount_function",),
    ),
    Check(
        "methods", "required", "The context has the protocol's five methods, all async",
        structure.methods, _MOUNTED,
    ),
    Check(
        "transcript", "required", "get_messages() returns what was added, complete and in order",
        keeping.transcript,
    ),
    Check(
        "compacts", "required", "get_messages_for_request() compacts by itself over its budget",
        compacting.compacts,
    ),
    Check(
        "fits", "required", "Requests fit their token budget",
        compacting.fits, (*_READY, "compacts"),
    ),
    Check(
        "ephemeral", "required", "A compaction changes nothing that is kept", compacting.ephemeral
    ),
    Check(
        "pairs", "required", "Tool calls and their results stay together in every request",
        compacting.pairs,
    ),
    Check(
        "order", "required", "Messages keep the order of the conversation", compacting.order
    ),
    Check(
        "without_role", "required", "A message without a role raises ValueError",
        keeping.without_role,
    ),
    Check("own_list", "required", "Returned lists are copies of what is kept", keeping.own_list),
    Check("replacing", "required", "set_messages() replaces all messages", keeping.replacing),
    Check("clearing", "required", "clear() empties the context", keeping.clearing),
    Check(
        "mounts_again", "required", "It can be mounted, cleaned up, and mounted again",
        hosting.mounts_again,
    ),
    Check(
        "small_is_whole", "recommended", "What is far below the budget is sent whole",
        compacting.small_is_whole,
    ),
    Check(
        "events", "recommended",
        "Compactions emit context:pre_compact and context:post_compact with their counts",
        compacting.events,
    ),
    Check(
        "contribution", "recommended", "Both events are declared for observability",
        hosting.contribution,
    ),
    Check(
        "system_stays", "recommended", "The system message is in every request",
        compacting.system_stays,
    ),
    Check(
        "latest_stays", "recommended", "The latest message of the user is in every request",
        compacting.latest_stays,
    ),
    Check(
        "concurrency", "recommended", "Messages may be added by many tasks at once",
        keeping.concurrency,
    ),
    Check(
        "configurable", "recommended", "The setting max_tokens is the budget by default",
        compacting.configurable,
    ),
    Check(
        "provider_budget", "recommended", "The provider's context window is the budget",
        compacting.provider_budget,
    ),
    Check(
        "giant_result", "recommended",
        "A tool result of 600,000 characters fits the budget and is kept whole",
        compacting.giant_result, (*_READY, "compacts", "fits", "ephemeral"),
    ),
    Check(
        "repeatable", "recommended", "The same request twice gives the same messages",
        compacting.repeatable,
    ),
    Check(
        "exactness", "recommended", "Blocks, signatures and unknown keys are kept exactly",
        keeping.exactness,
    ),
    Check(
        "own_messages", "recommended", "A caller that changes a message changes nothing kept",
        keeping.own_messages,
    ),
    Check(
        "unknown_settings", "recommended", "Settings of other modules are no error",
        hosting.unknown_settings,
    ),
    Check(
        "leaves_nothing", "recommended", "Mounted and cleaned up, it leaves no file and no thread",
        hosting.leaves_nothing,
    ),
)  # fmt: skip
