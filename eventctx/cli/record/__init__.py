"""``eventctx record``: run a program, and record what it asks its model."""
