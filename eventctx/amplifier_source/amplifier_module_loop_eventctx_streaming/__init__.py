"""``eventctx.orchestrators.loops.loop_streaming`` as Amplifier's loader finds it in a folder."""

from eventctx.orchestrators.loops.loop_streaming import mount as mount

__amplifier_module_type__ = "orchestrator"
