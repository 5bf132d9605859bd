"""``eventctx.adapters.amplifier.simple`` as Amplifier's loader finds it in a folder."""

from eventctx.adapters.amplifier.simple import mount as mount

__amplifier_module_type__ = "context"
