"""Clients of model APIs: ``eventctx.wrap(AsyncAnthropic(), engine, "my-session")``."""
