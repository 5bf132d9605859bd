"""The write side of one session, in three groups and in the order of reading.

Writing: ``append_queue`` (the way to the store; its parts are in ``pending``), ``aggregate`` (the
folded state), ``contents`` (bodies and transcript in memory), ``scope`` (drafts and their place),
``transcript`` with ``reconcile``, and ``restore`` (the commands that change the messages).

Requests: ``requests`` (the one place that prepares and compacts), ``compactions`` (those that they
begin, and those in the background), ``compaction_run``, ``questions`` (of policies, to models),
``provider_edits`` (what an API did by itself), ``result``, ``host_requests`` (parts that a host
adds or sends itself), ``sdk_objects`` (answers of SDKs as plain messages).

Turns: ``turns`` (blocks that a program enters), ``host_turns`` (reports of a host), ``activity``
(the records of both).

Around them: ``context`` is the face of a session, ``settings`` its options; ``open_session``,
``repository`` and ``sessions`` make, load, keep and evict it; ``erasure`` destroys contents.
"""
