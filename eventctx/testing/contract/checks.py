"""The checks in one table: the contract's checklist, and the rules in its text.

*Required* are the rules of the contract's checklist, those that its text demands of every context
(headings "REQUIRED", "Critical", "Protocol Definition", "Implementation Requirements"), and four
things without which no host can work with a context: the system prompt survives, thinking is sent
as it came, no setting is refused, compactions are not silent. *Recommended* is the contract's
second list, the role of a message (the contract's own canonical example takes messages without
one), and behaviour that known hosts rely on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from eventctx.testing.contract import compacting, hosting, keeping, prompting
from eventctx.testing.contract.subject import Subject
from eventctx.testing.contract.verdicts import Level

_READY: Final = ("mount_function", "mount_point", "methods")
_MOUNTED: Final = ("mount_function", "mount_point")

# Headings of the contract, as it writes them.
_PROTOCOL: Final = "Protocol Definition"
_MOUNT: Final = "Entry Point Pattern"
_ADD: Final = "Implementation Requirements, add_message()"
_REQUEST: Final = "Implementation Requirements, get_messages_for_request()"
_GET: Final = "Implementation Requirements, get_messages()"
_SET: Final = "Implementation Requirements, set_messages()"
_CLEAR: Final = "Implementation Requirements, clear()"
_EPHEMERAL: Final = "Non-Destructive Compaction (REQUIRED)"
_PAIRS: Final = "Tool Pair Preservation (Critical)"
_STRATEGIES: Final = "Compaction Strategies"
_CONFIGURATION: Final = "Configuration"
_OBSERVABILITY: Final = "Observability"
_REQUIRED: Final = "Validation Checklist, Required"
_RECOMMENDED: Final = "Validation Checklist, Recommended"
_HOSTS: Final = ""


class Check(NamedTuple):
    """A check: ``run`` raises Broken or NotChecked. ``needs`` are checks that must hold first.

    ``heading`` is where the contract has the rule; empty for what hosts rely on and it leaves out.
    """

    name: str
    level: Level
    what: str
    heading: str
    run: Callable[[Subject], Awaitable[None]]
    needs: tuple[str, ...] = _READY


CHECKS: Final = (
    Check(
        "mount_function", "required", "There is an async mount(coordinator, config)",
        _MOUNT, hosting.mount_function, (),
    ),
    Check(
        "entry_point", "required", "mount() is an entry point of the group amplifier.modules",
        _MOUNT, hosting.entry_point, ("mount_function",),
    ),
    Check(
        "mount_point", "required", "It mounts a context at the mount point 'context'",
        _MOUNT, hosting.mount_point, ("mount_function",),
    ),
    Check(
        "methods", "required", "The context has the protocol's five methods, all async",
        _PROTOCOL, hosting.methods, _MOUNTED,
    ),
    Check(
        "transcript", "required", "get_messages() returns what was added, complete and in order",
        _GET, keeping.transcript,
    ),
    Check(
        "exactness", "required", "Blocks, signatures and unknown keys are kept exactly",
        _GET, keeping.exactness,
    ),
    Check(
        "sessions_apart", "required", "Sessions that are open at once share no messages",
        _GET, hosting.sessions_apart,
    ),
    Check(
        "compacts", "required", "get_messages_for_request() compacts by itself over its budget",
        _REQUIRED, compacting.compacts,
    ),
    Check(
        "fits", "required", "Requests fit their token budget",
        _REQUEST, compacting.fits, (*_READY, "compacts"),
    ),
    Check(
        "ephemeral", "required", "A compaction changes nothing that is kept",
        _EPHEMERAL, compacting.ephemeral,
    ),
    Check(
        "pairs", "required", "Tool calls and their results stay together in every request",
        _PAIRS, compacting.pairs,
    ),
    Check(
        "order", "required", "Messages keep the order of the conversation",
        _REQUIRED, compacting.order,
    ),
    Check(
        "system_stays", "required", "The system prompt is in every request",
        _RECOMMENDED, prompting.system_stays,
    ),
    Check(
        "system_factory", "required", "The prompt of a factory is in every request",
        _HOSTS, prompting.system_factory,
    ),
    Check(
        "latest_stays", "required", "The latest message of the user is in every request",
        _STRATEGIES, prompting.latest_stays,
    ),
    Check(
        "thinking", "required", "Thinking keeps its blocks and signatures in every request",
        _HOSTS, prompting.thinking,
    ),
    Check(
        "open_thinking", "required",
        "The thinking before an open tool call outlives a compaction",
        _HOSTS, prompting.open_thinking, (*_READY, "thinking"),
    ),
    Check(
        "told", "required", "No compaction is silent: an event tells of it",
        _OBSERVABILITY, compacting.told, (*_READY, "compacts"),
    ),
    Check(
        "replacing", "required", "set_messages() replaces all messages",
        _SET, keeping.replacing,
    ),
    Check(
        "resumed", "required", "Messages that were set are compacted like those that were added",
        _SET, prompting.resumed, (*_READY, "compacts", "system_stays", "replacing"),
    ),
    Check(
        "own_list", "required", "Lists that it returns or is given are not the one that it keeps",
        _GET, keeping.own_list, (*_READY, "replacing"),
    ),
    Check("clearing", "required", "clear() empties the context", _CLEAR, keeping.clearing),
    Check(
        "mounts_again", "required", "It can be mounted, cleaned up, and mounted again",
        _MOUNT, hosting.mounts_again,
    ),
    Check(
        "known_settings", "required", "No setting that Amplifier's documents name is refused",
        _CONFIGURATION, hosting.known_settings,
    ),
    Check(
        "unknown_settings", "required", "Settings of other modules are no error",
        _CONFIGURATION, hosting.unknown_settings,
    ),
    Check(
        "without_role", "recommended", "A message without a role raises ValueError",
        _ADD, keeping.without_role,
    ),
    Check(
        "small_is_whole", "recommended", "What is far below the budget is sent whole",
        _REQUEST, compacting.small_is_whole, (*_READY, "clearing"),
    ),
    Check(
        "all_system_stay", "recommended", "Every system message is in every request",
        _RECOMMENDED, prompting.all_system_stay, (*_READY, "system_stays"),
    ),
    Check(
        "fresh_prompt", "recommended", "The factory of the prompt is called for every request",
        _HOSTS, prompting.fresh_prompt, (*_READY, "system_factory"),
    ),
    Check(
        "events", "recommended",
        "Compactions emit context:pre_compact and context:post_compact with their counts",
        _RECOMMENDED, compacting.events, (*_READY, "told"),
    ),
    Check(
        "told_only_then", "recommended", "Where nothing is compacted, no compaction is told of",
        _OBSERVABILITY, compacting.told_only_then,
    ),
    Check(
        "contribution", "recommended", "Both events are declared for observability",
        _OBSERVABILITY, hosting.contribution,
    ),
    Check(
        "concurrency", "recommended", "Messages may be added by many tasks at once",
        _RECOMMENDED, keeping.concurrency,
    ),
    Check(
        "configurable", "recommended", "The setting max_tokens is the budget by default",
        _RECOMMENDED, compacting.configurable,
    ),
    Check(
        "provider_budget", "recommended", "The provider's context window is the budget",
        _REQUEST, compacting.provider_budget,
    ),
    Check(
        "giant_result", "recommended",
        "A tool result of 600,000 characters fits the budget and is kept whole",
        _HOSTS, compacting.giant_result, (*_READY, "compacts", "fits", "ephemeral"),
    ),
    Check(
        "repeatable", "recommended", "The same request twice gives the same messages",
        _EPHEMERAL, compacting.repeatable,
    ),
    Check(
        "own_messages", "recommended", "A caller that changes a message changes nothing kept",
        _HOSTS, keeping.own_messages,
    ),
    Check(
        "leaves_nothing", "recommended", "Mounted and cleaned up, it leaves no file and no thread",
        _HOSTS, hosting.leaves_nothing,
    ),
)  # fmt: skip
