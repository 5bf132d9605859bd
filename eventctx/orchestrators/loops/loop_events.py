"""Amplifier module ``loop-eventctx-events``: mounts the events orchestrator."""

from __future__ import annotations

from eventctx.orchestrators.loops.kinds import EventsOrchestrator
from eventctx.orchestrators.loops.mounting import mount_of

__amplifier_module_type__ = "orchestrator"

mount = mount_of(EventsOrchestrator)
