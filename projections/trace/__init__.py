"""Spans of a session, folded from its records: live and replayed spans are equal.

In reading order: ``fold`` has the idea, its invariant and the two stages; ``steps`` begin and end
spans; ``identity`` gives their trace ids, parents and links; ``spans`` is the model; ``attributes``
and ``compaction`` say what a span tells, under the names in ``semconv``; ``content`` is the second
stage, which adds the texts made by ``texts``; ``files`` writes spans to files.
"""
