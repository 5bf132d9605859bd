"""Places that keep records: one implementation of ``eventctx.log.store.EventStore`` a module."""
