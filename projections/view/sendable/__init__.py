"""The rows of a view as a provider takes them: the rules, and what they change."""
