SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE SCHEMA eventctx;
CREATE FUNCTION eventctx.append(makes boolean, made bigint[], run_streams bigint[], run_names text[], run_created bigint[], run_first bigint[], run_previous bytea[], r_run integer[], r_position bigint[], r_id uuid[], r_type integer[], r_version bigint[], r_time bigint[], r_iteration bigint[], r_turn text[], r_span text[], r_parent_span text[], r_digest bytea[], r_payload bytea[], r_bodies integer[], r_size bigint[], r_body_digest bytea[], r_salt bytea[], r_facts bytea[], r_data bytea[], b_record integer[], b_index integer[], b_digest bytea[], b_salt bytea[], b_facts bytea[], b_data bytea[]) RETURNS TABLE(run integer, accepted boolean, stream bigint, pos bigint, head bigint, digest bytea, id uuid)
    LANGUAGE plpgsql
    AS $$
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
  LOCK TABLE "eventctx".records IN ROW EXCLUSIVE MODE;
  IF makes THEN
    -- In the order of names, so that two batches cannot wait for each other.
    WITH new AS (
      INSERT INTO "eventctx".streams(name, first, created)
      SELECT n.name, 0, n.created FROM unnest(run_names, run_created) AS n(name, created)
      WHERE n.name IS NOT NULL ORDER BY n.name
      ON CONFLICT (name) DO NOTHING RETURNING streams.id)
    SELECT made || array_agg(new.id) INTO made FROM new;
    ids := ARRAY(
      SELECT coalesce(n.stream, s.id)
      FROM unnest(run_streams, run_names) WITH ORDINALITY AS n(stream, name, place)
      LEFT JOIN "eventctx".streams s ON s.name = n.name ORDER BY n.place);
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
    SELECT r.pos, r.position, r.digest FROM "eventctx".records r
    WHERE r.stream = n.stream ORDER BY r.position DESC LIMIT 1) last ON true;
  base := (pg_current_xact_id()::text::bigint
    + (SELECT m.value::bigint FROM "eventctx".meta m WHERE m.key = 'xid_offset')) << 20;
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
        SELECT r.pos, r.position, r.digest, r.id FROM "eventctx".records r
        WHERE r.stream = n.stream ORDER BY r.position DESC LIMIT 1) last ON true
      WHERE n.name IS NOT NULL OR n.place = ANY(refused);
  END IF;
  -- In the order of streams, so that two batches cannot wait for each other.
  INSERT INTO "eventctx".records(pos, stream, position, id, type, version, time, iteration, turn,
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
    INSERT INTO "eventctx".bodies(pos, index, digest, salt, facts, data)
    SELECT base + b.record - 1, b.index, b.digest, b.salt, b.facts, b.data
    FROM unnest(b_record, b_index, b_digest, b_salt, b_facts, b_data)
      AS b(record, index, digest, salt, facts, data)
    WHERE refused IS NULL OR r_run[b.record] <> ALL(refused);
  END IF;
  -- NOTIFY takes a lock of the whole server at commit. Whoever listens holds this lock, shared.
  -- One expression: a cancellation between its two calls would leave the lock behind.
  PERFORM pg_notify('eventctx:' || '"eventctx".meta'::regclass::oid, '')
  WHERE CASE WHEN pg_try_advisory_lock('"eventctx".meta'::regclass::oid::integer, 1)
    THEN NOT pg_advisory_unlock('"eventctx".meta'::regclass::oid::integer, 1) ELSE true END;
END
$$;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE eventctx.bodies (
    pos bigint NOT NULL,
    index integer NOT NULL,
    digest bytea NOT NULL,
    salt bytea,
    facts bytea NOT NULL,
    data bytea
);
CREATE TABLE eventctx.checkpoints (
    name text NOT NULL COLLATE pg_catalog."C",
    "position" bigint NOT NULL
);
CREATE TABLE eventctx.meta (
    key text NOT NULL COLLATE pg_catalog."C",
    value text NOT NULL
);
CREATE TABLE eventctx.records (
    pos bigint NOT NULL,
    stream bigint NOT NULL,
    "position" bigint NOT NULL,
    id uuid NOT NULL,
    type integer NOT NULL,
    version bigint NOT NULL,
    "time" bigint NOT NULL,
    iteration bigint,
    turn text COLLATE pg_catalog."C",
    span text COLLATE pg_catalog."C",
    parent_span text COLLATE pg_catalog."C",
    digest bytea NOT NULL,
    payload bytea NOT NULL,
    bodies integer NOT NULL,
    size bigint NOT NULL,
    body_digest bytea,
    salt bytea,
    facts bytea,
    data bytea
);
CREATE TABLE eventctx.scrubs (
    relation oid NOT NULL,
    file oid NOT NULL,
    transaction text NOT NULL
);
CREATE UNLOGGED TABLE eventctx.snapshots (
    stream bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    "position" bigint NOT NULL,
    digest bytea NOT NULL,
    version bigint NOT NULL,
    data bytea NOT NULL
);
CREATE TABLE eventctx.streams (
    id bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    parent bigint,
    forked_at bigint,
    first bigint NOT NULL,
    created bigint NOT NULL,
    deleted boolean DEFAULT false NOT NULL
);
ALTER TABLE eventctx.streams ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME eventctx.streams_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE eventctx.types (
    id integer NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C"
);
ALTER TABLE eventctx.types ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME eventctx.types_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
INSERT INTO eventctx.bodies VALUES (791674882, 1, '\xe4f72f05e18ba7d895674fac11d99d7355c72ddd144c556b79c2a2e289e81ea3', '\x45adf86848df32d818c9fb91c82090d8', '\x6661637473', '\x7468726565');
INSERT INTO eventctx.meta VALUES ('schema_version', '1');
INSERT INTO eventctx.meta VALUES ('store_id', 'c6716e8b20e4d421e74117ecb9e833cf');
INSERT INTO eventctx.meta VALUES ('xid_offset', '0');
INSERT INTO eventctx.meta VALUES ('system_identifier', '7711230000740531907');
INSERT INTO eventctx.records VALUES (791674880, 1, 0, '4a3ead9f-35b9-a798-be64-c3bb89b296c9', 1, 1, 1700000000000000001, NULL, NULL, NULL, NULL, '\x5a8d79360cfceaaec1610fd58bbd1f4db86f8430cdf2b37742c4f0ba901760d3', '\x7b226576656e74223a22636f6e746578743a6d6573736167655f6164646564227d', 0, 0, NULL, NULL, NULL, NULL);
INSERT INTO eventctx.records VALUES (791674881, 1, 1, '221921ed-b87e-6af6-2e98-ee0f77b08e43', 1, 1, 1700000000000000002, NULL, NULL, NULL, NULL, '\xa5e1708d361dce431d8bd5a51c59d5c1bd24b076720a41580c9b249401dea581', '\x7b226576656e74223a22636f6e746578743a6d6573736167655f6164646564227d', 1, 3, '\x1ecc9f9c02a14f5d4b18c66f5d43f2484c4e05d903206b5cef1aec56f5ddd834', '\x3f7428f33264f6fad57ba46cc09ad627', '\x6661637473', '\x6f6e65');
INSERT INTO eventctx.records VALUES (791674882, 1, 2, 'e4ce7091-4bce-90cd-b033-cf7a14a94e97', 1, 1, 1700000000000000003, NULL, NULL, NULL, NULL, '\x6301185c81958f3d5223534154ef9ca81d340b8f7885e6eb0d5d9cb9fbed8390', '\x7b226576656e74223a22636f6e746578743a6d6573736167655f6164646564227d', 2, 8, '\xb521b74eff5e46a4d433a1117d17c6984ce11c31198bee16009a1c0d9db78483', '\xe59e7c448ff87f45bbb3b01d35f026ce', '\x6661637473', '\x74776f');
INSERT INTO eventctx.records VALUES (792723456, 2, 2, 'b3cd981b-1d99-cc74-ea73-d68f370f686b', 1, 1, 1700000000000000004, NULL, NULL, NULL, NULL, '\xa5d59eac7b68e85266a51db0cfd4a3514706362fca0b287b69e11e6d6cae8cc6', '\x7b226576656e74223a22636f6e746578743a6d6573736167655f6164646564227d', 0, 0, NULL, NULL, NULL, NULL);
INSERT INTO eventctx.records VALUES (793772032, 2, 3, 'd3402291-de70-319a-3a11-955b3799889d', 1, 1, 1700000000000000005, NULL, NULL, NULL, NULL, '\x142009bfb86d3af6cdc94958b3f7f3d189f9f7a9cc14836d549fad43318fc4e4', '\x7b226576656e74223a22636f6e746578743a6d6573736167655f6164646564227d', 1, 4, '\x8c95022df6953554dd164d8cfa411a4df250be37ad7cc050c5eeb25fd0e9262d', '\xc6c30990760dd3858e5ff8e6666d78f4', '\x6661637473', '\x666f7572');
INSERT INTO eventctx.streams VALUES (1, 'parent', NULL, NULL, 0, 1700000000000000001, false);
INSERT INTO eventctx.streams VALUES (2, 'child', 1, 1, 2, 1700000000000000004, false);
INSERT INTO eventctx.types VALUES (1, 'context:message_added');
SELECT pg_catalog.setval('eventctx.streams_id_seq', 2, true);
SELECT pg_catalog.setval('eventctx.types_id_seq', 1, true);
ALTER TABLE ONLY eventctx.bodies
    ADD CONSTRAINT bodies_pkey PRIMARY KEY (pos, index);
ALTER TABLE ONLY eventctx.checkpoints
    ADD CONSTRAINT checkpoints_pkey PRIMARY KEY (name);
ALTER TABLE ONLY eventctx.meta
    ADD CONSTRAINT meta_pkey PRIMARY KEY (key);
ALTER TABLE ONLY eventctx.records
    ADD CONSTRAINT records_pkey PRIMARY KEY (pos);
ALTER TABLE ONLY eventctx.records
    ADD CONSTRAINT records_place UNIQUE (stream, "position");
ALTER TABLE ONLY eventctx.scrubs
    ADD CONSTRAINT scrubs_pkey PRIMARY KEY (relation);
ALTER TABLE ONLY eventctx.snapshots
    ADD CONSTRAINT snapshots_pkey PRIMARY KEY (stream, name);
ALTER TABLE ONLY eventctx.streams
    ADD CONSTRAINT streams_name UNIQUE (name);
ALTER TABLE ONLY eventctx.streams
    ADD CONSTRAINT streams_pkey PRIMARY KEY (id);
ALTER TABLE ONLY eventctx.types
    ADD CONSTRAINT types_name UNIQUE (name);
ALTER TABLE ONLY eventctx.types
    ADD CONSTRAINT types_pkey PRIMARY KEY (id);
CREATE INDEX streams_parent ON eventctx.streams USING btree (parent) WHERE (parent IS NOT NULL);
