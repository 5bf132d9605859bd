"""Checks that a module mounts with every setting that its host may have for it.

A host keeps the settings of a context in its profile, and changes the module by its name. So a
module gets settings that were made for another one: "Context managers receive configuration via
Mount Plan" (contract, "Configuration"), and no module may be the reason that a session fails.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

from eventctx.testing.contract.conversations import check_same, talk
from eventctx.testing.contract.subject import Subject, mounted
from eventctx.testing.contract.verdicts import Broken, raised

DOCUMENTED: Final[tuple[Mapping[str, Any], ...]] = (
    # The contract's example of mount(), its guide's template, and Amplifier's default bundle.
    {"max_tokens": 100_000, "compaction_threshold": 0.8},
    {"max_tokens": 200_000, "compact_threshold": 0.92, "auto_compact": True},
    {"max_tokens": 300_000, "compact_threshold": 0.8, "auto_compact": True},
    {"auto_compact": False},
    # What context-simple and context-persistent document.
    {"max_messages": 100},
    {"target_usage": 0.6, "protected_recent": 0.3, "protected_tool_results": 5},
    {"truncate_chars": 250, "truncate_boundary": 0.5, "output_reserve_fraction": 0.5},
    {"compaction_notice_enabled": False, "compaction_notice_verbosity": "minimal"},
    {"compaction_notice_token_reserve": 800, "compaction_notice_min_level": 1},
    {"memory_files": ["./AGENTS.md", "~/.amplifier/AGENTS.md"]},
    {"compaction_strategy": "smart", "export_on_compact": True},
)

UNUSUAL: Final[tuple[Mapping[str, Any], ...]] = (
    # Both modules work with these, so they are in use.
    {"compact_threshold": 0.4},
    {"compact_threshold": 1},
    {"compact_threshold": 1.5},
    {"target_usage": 0.95},
    {"max_tokens": 200_000.0},
)

FOREIGN: Final = {"a_setting_of_another_module": {"x": 1}, "another": [1, None]}


async def known_settings(subject: Subject) -> None:
    """No setting that Amplifier's documents name is refused, nor a value that is in use."""
    for settings in (*DOCUMENTED, *UNUSUAL):
        await _works_with(subject, settings)


async def unknown_settings(subject: Subject) -> None:
    """Settings that a module does not know are no error."""
    await _works_with(subject, FOREIGN)


async def _works_with(subject: Subject, settings: Mapping[str, Any]) -> None:
    """Raise Broken unless the module can be mounted and used with these settings."""
    rows = talk(1)
    try:
        async with mounted(subject, settings) as one:
            await one.add(copy.deepcopy(rows))
            await one.request()
            # A file that the caller's settings name may hold messages of the mounts before.
            found = (await one.transcript())[-len(rows) :]
            check_same(found, rows, "get_messages()")
    except Broken as error:
        raise Broken(f"with {dict(settings)}: {error}") from error
    except (Exception, SystemExit) as error:
        raise Broken(f"with {dict(settings)} it {raised(error)}") from error
