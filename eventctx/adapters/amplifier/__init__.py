"""The context manager as a context module of Microsoft Amplifier.

The kernel calls ``mount`` (entry point ``context-eventctx``). The modules ``simple`` and
``persistent`` accept the configurations of context-simple and context-persistent. Nothing here
imports ``amplifier_core``; the host's objects are used by their methods and attributes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

__amplifier_module_type__ = "context"


async def mount(
    coordinator: Any, config: Mapping[str, Any] | None = None
) -> Callable[[], Awaitable[None]]:
    """Mount a context manager for the coordinator's session, and return its cleanup.

    Nothing is opened before the session's first message or turn. Raises InvalidSetting for a
    setting of the wrong type; unknown ones are logged and ignored.
    """
    from eventctx.adapters.amplifier.config import own_names
    from eventctx.adapters.amplifier.mounting import mount_context

    return await mount_context(coordinator, config, own_names)
