"""The one call on the server by which records get into the log."""

from __future__ import annotations

from typing import Final

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
