"""Amplifier module ``loop-eventctx-streaming``: mounts the streaming orchestrator."""

from __future__ import annotations

from eventctx.orchestrators.loops.mounting import mount_of
from eventctx.orchestrators.loops.streaming import StreamingOrchestrator

__amplifier_module_type__ = "orchestrator"

mount = mount_of(StreamingOrchestrator)
