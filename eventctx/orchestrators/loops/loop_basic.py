"""Amplifier module ``loop-eventctx-basic``: mounts the basic orchestrator."""

from __future__ import annotations

from eventctx.orchestrators.loops.kinds import BasicOrchestrator
from eventctx.orchestrators.loops.mounting import mount_of

__amplifier_module_type__ = "orchestrator"

mount = mount_of(BasicOrchestrator)
