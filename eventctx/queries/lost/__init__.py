"""The answer to "what is no longer in view": items, each whole, shortened, in a summary or gone."""
