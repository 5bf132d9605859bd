"""The adapter with context-persistent's configuration (``context-eventctx-persistent``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

__amplifier_module_type__ = "context"


async def mount(
    coordinator: Any, config: Mapping[str, Any] | None = None
) -> Callable[[], Awaitable[None]]:
    """As ``eventctx.adapters.amplifier.mount``, with a folder as ``storage_path``.

    The transcript is copied to the file that context-persistent would keep it in.
    """
    from eventctx.adapters.amplifier.config import names_of_persistent
    from eventctx.adapters.amplifier.mounting import mount_context
    from eventctx.adapters.amplifier.transcript_file import file_of_persistent

    return await mount_context(coordinator, config, names_of_persistent, file_of_persistent)
