"""``eventctx.orchestrators.loops.loop_events`` as Amplifier's loader finds it in a folder."""

from eventctx.orchestrators.loops.loop_events import mount as mount

__amplifier_module_type__ = "orchestrator"
