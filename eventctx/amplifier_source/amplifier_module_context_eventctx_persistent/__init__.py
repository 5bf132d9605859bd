"""``eventctx.adapters.amplifier.persistent`` as Amplifier's loader finds it in a folder."""

from eventctx.adapters.amplifier.persistent import mount as mount

__amplifier_module_type__ = "context"
