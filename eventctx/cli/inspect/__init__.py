"""``eventctx inspect``: the page of a store, served or as one file."""
