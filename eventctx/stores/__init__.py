"""Places that keep records: one implementation of ``eventctx.store.EventStore`` a module."""
