"""The server's function ``append``, and its arguments: runs of records of several streams.

Invariant: at most one run a stream, and the records of all runs in the order of their appends,
which is their order in the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from eventctx.log.record import GENESIS, Draft
from eventctx.stores.postgres import encoding
from eventctx.stores.postgres.connections import ServerConnection

MOST_RECORDS: Final = 2**20
"""Most records of one transaction: their ordinals must fit into a global position."""

_CALL: Final = (
    "SELECT run, accepted, stream, pos, head, digest, id FROM eventctx.append("
    + ", ".join([f"${number}" for number in range(1, 32)])
    + ")"
)
_KINDS: Final = (
    encoding.BOOL, encoding.INT8S, encoding.INT8S, encoding.TEXTS, encoding.INT8S, encoding.INT8S,
    encoding.BYTEAS, encoding.INT4S, encoding.INT8S, encoding.UUIDS, encoding.INT4S, encoding.INT8S,
    encoding.INT8S, encoding.INT8S, encoding.TEXTS, encoding.TEXTS, encoding.TEXTS, encoding.BYTEAS,
    encoding.BYTEAS, encoding.INT4S, encoding.INT8S, encoding.BYTEAS, encoding.BYTEAS,
    encoding.BYTEAS, encoding.BYTEAS, encoding.INT4S, encoding.INT4S, encoding.BYTEAS,
    encoding.BYTEAS, encoding.BYTEAS, encoding.BYTEAS,
)  # fmt: skip


_ONE: Final = """
INSERT INTO eventctx.records(pos, stream, position, id, type, version, time, iteration, turn,
  span, parent_span, digest, payload, bodies, size, body_digest, salt, facts, data)
SELECT (pg_current_xact_id()::text::bigint
    + (SELECT m.value::bigint FROM eventctx.meta m WHERE m.key = 'xid_offset')) << 20,
  $1, $2 + 1, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19
FROM (SELECT r.position, r.digest FROM eventctx.records r WHERE r.stream = $1
  ORDER BY r.position DESC LIMIT 1) last
WHERE last.position = $2 AND last.digest = $3
ON CONFLICT (stream, position) DO NOTHING
RETURNING pos, (SELECT pg_notify('eventctx:' || 'eventctx.meta'::regclass::oid, '')
  WHERE CASE WHEN pg_try_advisory_lock('eventctx.meta'::regclass::oid::integer, 1)
  THEN NOT pg_advisory_unlock('eventctx.meta'::regclass::oid::integer, 1) ELSE true END) IS NULL
"""
"""The same as the function, for one record after a known head: arrays cost more than the rest.

As a transaction of its own it gets its number after the statement's snapshot was taken, so the
number is higher than that of any record which the snapshot shows.
"""
_ONE_KINDS: Final = (
    encoding.INT8, encoding.INT8, encoding.BYTEA, encoding.UUID, encoding.INT4, encoding.INT8,
    encoding.INT8, encoding.INT8, encoding.TEXT, encoding.TEXT, encoding.TEXT, encoding.BYTEA,
    encoding.BYTEA, encoding.INT4, encoding.INT8, encoding.BYTEA, encoding.BYTEA, encoding.BYTEA,
    encoding.BYTEA,
)  # fmt: skip


def _size(draft: Draft) -> int:
    bodies = draft.bodies
    if len(bodies) == 1:
        return len(bodies[0].data or b"")
    return sum([len(body.data or b"") for body in bodies])


class RunResult(NamedTuple):
    """The server's answer about a run: the stream's id, and its real head where it was refused."""

    accepted: bool
    stream: int
    head: int | None
    digest: bytes | None
    event: bytes | None


class Batch:
    """Runs for one call of the server's function."""

    def __init__(self, made: Sequence[int] | None = None) -> None:
        """``made`` are streams that this transaction made or emptied before.

        Without it the call is a transaction of its own.
        """
        self._made = made or ()
        self._alone = made is None
        self._streams: list[int | None] = []
        self._names: list[bytes | None] = []
        self._created: list[int | None] = []
        self._first: list[int] = []
        self._previous: list[bytes | None] = []
        self._runs: list[int] = []
        self._positions: list[int] = []
        self._kinds: list[int] = []
        self._digests: list[bytes] = []
        self._drafts: list[Draft] = []

    def __len__(self) -> int:
        return len(self._drafts)

    def run(
        self, stream: int | None, name: str, created: int, first: int, previous: bytes | None
    ) -> int:
        """Begin a run, and return its number; without a ``stream`` id it makes the stream."""
        self._streams.append(stream)
        self._names.append(encoding.text(name) if stream is None else None)
        self._created.append(created if stream is None else None)
        self._first.append(first)
        self._previous.append(GENESIS if previous is None else previous)
        return len(self._streams)

    def add(
        self,
        run: int,
        first: int,
        drafts: Sequence[Draft],
        kinds: Sequence[int],
        digests: Sequence[bytes],
    ) -> int:
        """Add records to a run from position ``first`` on; returns the first one's ordinal."""
        ordinal = len(self._drafts)
        count = len(drafts)
        if count == 1:  # nearly always
            self._runs.append(run)
            self._positions.append(first)
            self._kinds.append(kinds[0])
            self._digests.append(digests[0])
            self._drafts.append(drafts[0])
            return ordinal
        self._runs.extend([run] * count)
        self._positions.extend(range(first, first + count))
        self._kinds.extend(kinds)
        self._digests.extend(digests)
        self._drafts.extend(drafts)
        return ordinal

    def send(self, connection: ServerConnection) -> tuple[int, dict[int, RunResult]]:
        """Store the runs; returns the first global position, and runs refused or newly made.

        Raises ConnectionLost, Refused.
        """
        if len(self._drafts) == 1 and self._alone and len(self._drafts[0].bodies) < 2:
            stream = self._streams[0]
            if stream is not None and (
                rows := connection.rows(_ONE, _ONE_KINDS, self._one(stream))
            ):
                return rows[0][0], {}
            # Refused: the function says why.
        (first, *rest) = connection.rows(_CALL, _KINDS, self._params())
        return first[3], {
            run: RunResult(accepted, stream, head, digest, event)
            for run, accepted, stream, _, head, digest, event in rest
        }

    def _one(self, stream: int) -> list[bytes | None]:
        int8, int4, text = encoding.int8, encoding.int4, encoding.optional_text
        (draft,) = self._drafts
        body = draft.bodies[0] if draft.bodies else None
        return [
            int8(stream),
            int8(self._first[0] - 1),
            self._previous[0],
            draft.id,
            int4(self._kinds[0]),
            int8(draft.version),
            int8(draft.time),
            None if draft.iteration is None else int8(draft.iteration),
            text(draft.turn_id),
            text(draft.span_id),
            text(draft.parent_span_id),
            self._digests[0],
            draft.payload,
            int4(len(draft.bodies)),
            int8(0 if body is None else len(body.data or b"")),
            *(
                (None, None, None, None)
                if body is None
                else (body.digest, body.salt, body.facts, body.data)
            ),
        ]

    def _params(self) -> list[bytes]:
        drafts = self._drafts
        int8s, int4s, blobs = encoding.int8s, encoding.int4s, encoding.blobs
        byteas, text = encoding.BYTEAS, encoding.optional_text
        heads = [draft.bodies[0] if draft.bodies else None for draft in drafts]
        further = [
            (ordinal, index, body)
            for ordinal, draft in enumerate(drafts, 1)
            if len(draft.bodies) > 1
            for index, body in enumerate(draft.bodies)
            if index
        ]
        return [
            b"\1" if None in self._streams else b"\0",
            int8s(self._made),
            int8s(self._streams),
            blobs(encoding.TEXTS, self._names),
            int8s(self._created),
            int8s(self._first),
            blobs(byteas, self._previous),
            int4s(self._runs),
            int8s(self._positions),
            blobs(encoding.UUIDS, [draft.id for draft in drafts]),
            int4s(self._kinds),
            int8s([draft.version for draft in drafts]),
            int8s([draft.time for draft in drafts]),
            int8s([draft.iteration for draft in drafts]),
            blobs(encoding.TEXTS, [text(draft.turn_id) for draft in drafts]),
            blobs(encoding.TEXTS, [text(draft.span_id) for draft in drafts]),
            blobs(encoding.TEXTS, [text(draft.parent_span_id) for draft in drafts]),
            blobs(byteas, self._digests),
            blobs(byteas, [draft.payload for draft in drafts]),
            int4s([len(draft.bodies) for draft in drafts]),
            int8s([_size(draft) for draft in drafts]),
            blobs(byteas, [None if body is None else body.digest for body in heads]),
            blobs(byteas, [None if body is None else body.salt for body in heads]),
            blobs(byteas, [None if body is None else body.facts for body in heads]),
            blobs(byteas, [None if body is None else body.data for body in heads]),
            int4s([ordinal for ordinal, _, _ in further]),
            int4s([index for _, index, _ in further]),
            blobs(byteas, [body.digest for _, _, body in further]),
            blobs(byteas, [body.salt for _, _, body in further]),
            blobs(byteas, [body.facts for _, _, body in further]),
            blobs(byteas, [body.data for _, _, body in further]),
        ]


APPEND_FUNCTION: Final = """
CREATE FUNCTION eventctx.append(
  makes boolean, made bigint[], run_streams bigint[], run_names text[], run_created bigint[],
  run_first bigint[], run_previous bytea[],
  r_run integer[], r_position bigint[], r_id uuid[], r_type integer[], r_version bigint[],
  r_time bigint[], r_iteration bigint[], r_turn text[], r_span text[], r_parent_span text[],
  r_digest bytea[], r_payload bytea[], r_bodies integer[], r_size bigint[],
  r_body_digest bytea[], r_salt bytea[], r_facts bytea[], r_data bytea[],
  b_record integer[], b_index integer[], b_digest bytea[], b_salt bytea[], b_facts bytea[],
  b_data bytea[])
RETURNS TABLE(run integer, accepted boolean, stream bigint, pos bigint, head bigint, digest bytea,
  id uuid)
LANGUAGE plpgsql AS $append$
-- A run is what one batch appends to one stream: records from run_first on, chained to
-- run_previous. run_names is null where run_streams has the stream's id; else the stream is made,
-- if it is not there. made are streams without records that this transaction has made before.
-- The first row returned is run 0: the global position of the first record. The others are the
-- runs that were refused, with the stream's real head, and those whose stream's id is new.
#variable_conflict use_column
DECLARE
  ids bigint[] := run_streams;
  refused integer[];
  newest bigint;
  base bigint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    -- What another transaction committed meanwhile must be seen.
    RAISE EXCEPTION 'eventctx appends in transactions of the level READ COMMITTED only'
      USING ERRCODE = 'invalid_transaction_state';
  END IF;
  -- Whoever deletes a stream keeps all writers out. Two that append to one meet in its index.
  LOCK TABLE eventctx.records IN ROW EXCLUSIVE MODE;
  IF makes THEN
    -- In the order of names, so that two batches cannot wait for each other.
    WITH new AS (
      INSERT INTO eventctx.streams(name, first, created)
      SELECT n.name, 0, n.created FROM unnest(run_names, run_created) AS n(name, created)
      WHERE n.name IS NOT NULL ORDER BY n.name
      ON CONFLICT (name) DO NOTHING RETURNING streams.id)
    SELECT made || array_agg(new.id) INTO made FROM new;
    ids := ARRAY(
      SELECT coalesce(n.stream, s.id)
      FROM unnest(run_streams, run_names) WITH ORDINALITY AS n(stream, name, place)
      LEFT JOIN eventctx.streams s ON s.name = n.name ORDER BY n.place);
    IF array_position(ids, NULL) IS NOT NULL THEN
      -- It is there, as it could not be made, and this role may not see it.
      RAISE EXCEPTION 'a session of this name belongs to another role: %',
        run_names[array_position(ids, NULL)] USING ERRCODE = 'insufficient_privilege';
    END IF;
  END IF;
  SELECT array_agg(n.place::integer) FILTER (WHERE NOT coalesce(
      last.position + 1 = n.first AND last.digest = n.previous,
      last.position IS NULL AND n.stream = ANY(made), false)), max(last.pos)
  INTO refused, newest
  FROM unnest(ids, run_first, run_previous) WITH ORDINALITY
    AS n(stream, first, previous, place)
  LEFT JOIN LATERAL (
    SELECT r.pos, r.position, r.digest FROM eventctx.records r
    WHERE r.stream = n.stream ORDER BY r.position DESC LIMIT 1) last ON true;
  base := (pg_current_xact_id()::text::bigint
    + (SELECT m.value::bigint FROM eventctx.meta m WHERE m.key = 'xid_offset')) << 20;
  IF newest >= base THEN
    -- The number of this transaction is lower than that of a record before ours.
    RAISE EXCEPTION 'another transaction appended meanwhile' USING ERRCODE = '40001';
  END IF;
  RETURN QUERY SELECT 0, true, NULL::bigint, base, NULL::bigint, NULL::bytea, NULL::uuid;
  IF makes OR refused IS NOT NULL THEN
    RETURN QUERY
      SELECT n.place::integer, refused IS NULL OR n.place <> ALL(refused), n.stream, last.pos,
        last.position, last.digest, last.id
      FROM unnest(ids, run_names) WITH ORDINALITY AS n(stream, name, place)
      LEFT JOIN LATERAL (
        SELECT r.pos, r.position, r.digest, r.id FROM eventctx.records r
        WHERE r.stream = n.stream ORDER BY r.position DESC LIMIT 1) last ON true
      WHERE n.name IS NOT NULL OR n.place = ANY(refused);
  END IF;
  -- In the order of streams, so that two batches cannot wait for each other.
  INSERT INTO eventctx.records(pos, stream, position, id, type, version, time, iteration, turn,
    span, parent_span, digest, payload, bodies, size, body_digest, salt, facts, data)
  SELECT base + r.place - 1, ids[r.run], r.position, r.id, r.type, r.version, r.time, r.iteration,
    r.turn, r.span, r.parent_span, r.digest, r.payload, r.bodies, r.size, r.body_digest, r.salt,
    r.facts, r.data
  FROM unnest(r_run, r_position, r_id, r_type, r_version, r_time, r_iteration, r_turn, r_span,
    r_parent_span, r_digest, r_payload, r_bodies, r_size, r_body_digest, r_salt, r_facts, r_data)
    WITH ORDINALITY AS r(run, position, id, type, version, time, iteration, turn, span,
    parent_span, digest, payload, bodies, size, body_digest, salt, facts, data, place)
  WHERE refused IS NULL OR r.run <> ALL(refused)
  ORDER BY ids[r.run], r.position;
  IF cardinality(b_record) > 0 THEN
    INSERT INTO eventctx.bodies(pos, index, digest, salt, facts, data)
    SELECT base + b.record - 1, b.index, b.digest, b.salt, b.facts, b.data
    FROM unnest(b_record, b_index, b_digest, b_salt, b_facts, b_data)
      AS b(record, index, digest, salt, facts, data)
    WHERE refused IS NULL OR r_run[b.record] <> ALL(refused);
  END IF;
  -- NOTIFY takes a lock of the whole server at commit. Whoever listens holds this lock, shared.
  -- One expression: a cancellation between its two calls would leave the lock behind.
  PERFORM pg_notify('eventctx:' || 'eventctx.meta'::regclass::oid, '')
  WHERE CASE WHEN pg_try_advisory_lock('eventctx.meta'::regclass::oid::integer, 1)
    THEN NOT pg_advisory_unlock('eventctx.meta'::regclass::oid::integer, 1) ELSE true END;
END
$append$;
"""
"""The function ``append``; ``batch.Batch`` makes its arguments."""
