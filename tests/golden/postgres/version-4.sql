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
CREATE FUNCTION eventctx.body_was_lost() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
  PERFORM "eventctx".forget_words(s.name, r.position, OLD.index)
  FROM "eventctx".records r JOIN "eventctx".streams s ON s.id = r.stream WHERE r.pos = OLD.pos;
  RETURN OLD;
END
$$;
CREATE FUNCTION eventctx.forget_words(of_stream text, of_position bigint, of_index integer) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
  had record;
BEGIN
  FOR had IN
    SELECT m.id, m.tenant, m.length FROM "eventctx".recall_messages m
    WHERE m.stream = of_stream AND m.position = of_position AND m.index = of_index AND m.pieces > 0
  LOOP
    UPDATE "eventctx".recall_messages SET words = NULL, pieces = 0, length = 0 WHERE id = had.id;
    DELETE FROM "eventctx".recall_pieces WHERE message = had.id;
    UPDATE "eventctx".recall_marks SET messages = messages - 1, length = length - had.length
    WHERE tenant = had.tenant;
    INSERT INTO "eventctx".scrubs(tenant, relation, file, transaction)
    -- The owner's rights are in force here, so that current_user is nobody who erases.
    SELECT coalesce(nullif(current_setting('eventctx_store.tenant', true), ''), session_user),
      c.oid, c.relfilenode, pg_current_xact_id()::text FROM pg_class c
    WHERE c.oid IN ('"eventctx".recall_messages'::regclass, '"eventctx".recall_pieces'::regclass)
    ON CONFLICT (tenant, relation) DO UPDATE
    SET file = excluded.file, transaction = excluded.transaction;
  END LOOP;
END
$$;
CREATE FUNCTION eventctx.is_mine(tenant text) RETURNS boolean
    LANGUAGE sql STABLE
    RETURN ((tenant = (CURRENT_USER)::text) OR COALESCE(pg_has_role((to_regrole(quote_ident(tenant)))::oid, 'USAGE'::text), false));
CREATE FUNCTION eventctx.make_roles(prefix text DEFAULT 'eventctx'::text) RETURNS text
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
DECLARE
  here text := (SELECT relnamespace::regnamespace::text FROM pg_class
    WHERE oid = '"eventctx".meta'::regclass);
  reader text := quote_ident(prefix || '_reader');
  writer text := quote_ident(prefix || '_writer');
  eraser text := quote_ident(prefix || '_eraser');
  one text;
BEGIN
  FOREACH one IN ARRAY ARRAY[reader, writer, eraser] LOOP
    IF to_regrole(one) IS NULL THEN
      EXECUTE 'CREATE ROLE ' || one || ' NOLOGIN';
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA %s TO %s', here, one);
    EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA %s TO %s', here, one);
    -- Its own index of words, which is a cache.
    EXECUTE format('GRANT INSERT, UPDATE, DELETE ON %1$s.recall_marks, %1$s.recall_messages, '
      '%1$s.recall_pieces, %1$s.scrubs TO %2$s', here, one);
  END LOOP;
  FOREACH one IN ARRAY ARRAY[writer, eraser] LOOP
    EXECUTE format('GRANT INSERT ON %1$s.streams, %1$s.types, %1$s.records, %1$s.bodies TO %2$s',
      here, one);
    EXECUTE format('GRANT UPDATE (locked) ON %s.streams TO %s', here, one);
    EXECUTE format('GRANT INSERT, UPDATE, DELETE ON %1$s.snapshots, %1$s.checkpoints TO %2$s',
      here, one);
  END LOOP;
  EXECUTE format('GRANT UPDATE (deleted, parent, forked_at) ON %s.streams TO %s', here, eraser);
  EXECUTE format('GRANT UPDATE (salt, data, facts), DELETE ON %1$s.records, %1$s.bodies TO %2$s',
    here, eraser);
  IF current_setting('server_version_num')::integer >= 170000 THEN
    -- It writes the tables anew, so that erased bytes leave their files.
    EXECUTE format('GRANT MAINTAIN ON %1$s.records, %1$s.bodies, %1$s.snapshots, '
      '%1$s.recall_messages, %1$s.recall_pieces TO %2$s', here, eraser);
  END IF;
  RETURN format('%s reads, %s appends, %s erases and deletes', reader, writer, eraser);
END
$_$;
CREATE FUNCTION eventctx.my_tenant() RETURNS text
    LANGUAGE sql STABLE
    RETURN COALESCE(NULLIF(current_setting('eventctx_store.tenant'::text, true), ''::text), (CURRENT_USER)::text);
CREATE FUNCTION eventctx.record_lost_its_body() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
  PERFORM "eventctx".forget_words(s.name, OLD.position, 0)
  FROM "eventctx".streams s WHERE s.id = OLD.stream;
  RETURN NULL;
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
    "position" bigint NOT NULL,
    tenant text DEFAULT CURRENT_USER NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE eventctx.meta (
    key text NOT NULL COLLATE pg_catalog."C",
    value text NOT NULL
);
CREATE UNLOGGED TABLE eventctx.recall_marks (
    tenant text DEFAULT CURRENT_USER NOT NULL COLLATE pg_catalog."C",
    version integer NOT NULL,
    "position" bigint NOT NULL,
    event bytea NOT NULL,
    messages bigint NOT NULL,
    length bigint NOT NULL
);
CREATE UNLOGGED TABLE eventctx.recall_messages (
    id bigint NOT NULL,
    tenant text DEFAULT CURRENT_USER NOT NULL COLLATE pg_catalog."C",
    stream text NOT NULL COLLATE pg_catalog."C",
    "position" bigint NOT NULL,
    index integer NOT NULL,
    number bigint NOT NULL,
    "time" bigint NOT NULL,
    length integer NOT NULL,
    pieces integer NOT NULL,
    words tsvector
);
ALTER TABLE eventctx.recall_messages ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME eventctx.recall_messages_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE UNLOGGED TABLE eventctx.recall_pieces (
    message bigint NOT NULL,
    piece integer NOT NULL,
    words tsvector NOT NULL
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
    transaction text NOT NULL,
    tenant text DEFAULT eventctx.my_tenant() NOT NULL COLLATE pg_catalog."C"
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
    deleted boolean DEFAULT false NOT NULL,
    tenant text DEFAULT eventctx.my_tenant() NOT NULL COLLATE pg_catalog."C",
    locked boolean
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
INSERT INTO eventctx.bodies VALUES (791674882, 1, '\x441f2664b378ba8ed0596dd8be299fd14fa3b0b82afae876fca856a477c9e0d7', '\x50fb1ff19e9da939a36351d3a4dcb656', '\x6661637473', '\x7468726565');
INSERT INTO eventctx.meta VALUES ('schema_version', '4');
INSERT INTO eventctx.meta VALUES ('store_id', 'ee9bc63ce6a1f9bbb82db500addea389');
INSERT INTO eventctx.meta VALUES ('xid_offset', '0');
INSERT INTO eventctx.meta VALUES ('system_identifier', '7713280144349179627');
INSERT INTO eventctx.records VALUES (791674880, 1, 0, '4a3ead9f-35b9-a798-be64-c3bb89b296c9', 1, 1, 1700000000000000001, NULL, NULL, NULL, NULL, '\x5a8d79360cfceaaec1610fd58bbd1f4db86f8430cdf2b37742c4f0ba901760d3', '\x7b226576656e74223a22636f6e746578743a6d6573736167655f6164646564227d', 0, 0, NULL, NULL, NULL, NULL);
INSERT INTO eventctx.records VALUES (791674881, 1, 1, '221921ed-b87e-6af6-2e98-ee0f77b08e43', 1, 1, 1700000000000000002, NULL, NULL, NULL, NULL, '\x626312dbcde84a775a39caf0384d857b44499368cd86d95fe4688659b08f1d2b', '\x7b226576656e74223a22636f6e746578743a6d6573736167655f6164646564227d', 1, 3, '\xa725b1f920fe67c6bd82a4f52c312925d09a963f671ea9f10e8b905387920b8e', '\xa8465ec562d909e6c754a6ec92bf60fc', '\x6661637473', '\x6f6e65');
INSERT INTO eventctx.records VALUES (791674882, 1, 2, 'e4ce7091-4bce-90cd-b033-cf7a14a94e97', 1, 1, 1700000000000000003, NULL, NULL, NULL, NULL, '\x7c5158796224fd2aab270582de9193d7e6604f18ef6b3a005c8e54ecede24b5f', '\x7b226576656e74223a22636f6e746578743a6d6573736167655f6164646564227d', 2, 8, '\xd422d800a42d14401afc009c06a3bf19e5d4c715243dbb45314086bfa7fd3639', '\x1255bf8ca2f88d35ddf23b0e214d03f3', '\x6661637473', '\x74776f');
INSERT INTO eventctx.records VALUES (792723456, 2, 2, 'b3cd981b-1d99-cc74-ea73-d68f370f686b', 1, 1, 1700000000000000004, NULL, NULL, NULL, NULL, '\xfbe7c3a9f5dc4627834d192d7ef03e809e36829125b34fc230b0dc6d377fc0b3', '\x7b226576656e74223a22636f6e746578743a6d6573736167655f6164646564227d', 0, 0, NULL, NULL, NULL, NULL);
INSERT INTO eventctx.records VALUES (793772032, 2, 3, 'd3402291-de70-319a-3a11-955b3799889d', 1, 1, 1700000000000000005, NULL, NULL, NULL, NULL, '\x60e3c7f1c9a959a551fb4a93f857bf49b93db843643657a9f6d838a6b94885d8', '\x7b226576656e74223a22636f6e746578743a6d6573736167655f6164646564227d', 1, 4, '\x5ae2ab69ccefa974d28d26b1aad66c64220ee7b3f54e1ea76f5c8d56b2f142da', '\x3b28ca14e65d182e73552cf8a981408f', '\x6661637473', '\x666f7572');
INSERT INTO eventctx.streams VALUES (1, 'parent', NULL, NULL, 0, 1700000000000000001, false, 'postgres', NULL);
INSERT INTO eventctx.streams VALUES (2, 'child', 1, 1, 2, 1700000000000000004, false, 'postgres', NULL);
INSERT INTO eventctx.types VALUES (1, 'context:message_added');
SELECT pg_catalog.setval('eventctx.recall_messages_id_seq', 1, false);
SELECT pg_catalog.setval('eventctx.streams_id_seq', 2, true);
SELECT pg_catalog.setval('eventctx.types_id_seq', 1, true);
ALTER TABLE ONLY eventctx.bodies
    ADD CONSTRAINT bodies_pkey PRIMARY KEY (pos, index);
ALTER TABLE ONLY eventctx.checkpoints
    ADD CONSTRAINT checkpoints_pkey PRIMARY KEY (tenant, name);
ALTER TABLE ONLY eventctx.meta
    ADD CONSTRAINT meta_pkey PRIMARY KEY (key);
ALTER TABLE ONLY eventctx.recall_marks
    ADD CONSTRAINT recall_marks_pkey PRIMARY KEY (tenant);
ALTER TABLE ONLY eventctx.recall_messages
    ADD CONSTRAINT recall_messages_pkey PRIMARY KEY (id);
ALTER TABLE ONLY eventctx.recall_pieces
    ADD CONSTRAINT recall_pieces_pkey PRIMARY KEY (message, piece);
ALTER TABLE ONLY eventctx.records
    ADD CONSTRAINT records_pkey PRIMARY KEY (pos);
ALTER TABLE ONLY eventctx.records
    ADD CONSTRAINT records_place UNIQUE (stream, "position");
ALTER TABLE ONLY eventctx.scrubs
    ADD CONSTRAINT scrubs_pkey PRIMARY KEY (tenant, relation);
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
CREATE INDEX recall_numbers ON eventctx.recall_messages USING btree (stream, number, tenant);
CREATE INDEX recall_piece_words ON eventctx.recall_pieces USING gin (words);
CREATE UNIQUE INDEX recall_places ON eventctx.recall_messages USING btree (stream, "position", index, tenant);
CREATE INDEX recall_words ON eventctx.recall_messages USING gin (words);
CREATE INDEX streams_parent ON eventctx.streams USING btree (parent) WHERE (parent IS NOT NULL);
CREATE TRIGGER forget_deleted BEFORE DELETE ON eventctx.bodies FOR EACH ROW WHEN ((old.data IS NOT NULL)) EXECUTE FUNCTION eventctx.body_was_lost();
CREATE TRIGGER forget_deleted AFTER DELETE ON eventctx.records FOR EACH ROW WHEN ((old.data IS NOT NULL)) EXECUTE FUNCTION eventctx.record_lost_its_body();
CREATE TRIGGER forget_erased AFTER UPDATE OF data ON eventctx.bodies FOR EACH ROW WHEN (((old.data IS NOT NULL) AND (new.data IS NULL))) EXECUTE FUNCTION eventctx.body_was_lost();
CREATE TRIGGER forget_erased AFTER UPDATE OF data ON eventctx.records FOR EACH ROW WHEN (((old.data IS NOT NULL) AND (new.data IS NULL))) EXECUTE FUNCTION eventctx.record_lost_its_body();
ALTER TABLE eventctx.bodies ENABLE ROW LEVEL SECURITY;
ALTER TABLE eventctx.checkpoints ENABLE ROW LEVEL SECURITY;
ALTER TABLE eventctx.recall_marks ENABLE ROW LEVEL SECURITY;
ALTER TABLE eventctx.recall_messages ENABLE ROW LEVEL SECURITY;
ALTER TABLE eventctx.recall_pieces ENABLE ROW LEVEL SECURITY;
ALTER TABLE eventctx.records ENABLE ROW LEVEL SECURITY;
ALTER TABLE eventctx.scrubs ENABLE ROW LEVEL SECURITY;
ALTER TABLE eventctx.snapshots ENABLE ROW LEVEL SECURITY;
ALTER TABLE eventctx.streams ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON eventctx.bodies USING ((EXISTS ( SELECT
   FROM eventctx.records r
  WHERE (r.pos = bodies.pos))));
CREATE POLICY tenant ON eventctx.checkpoints USING ((tenant = (CURRENT_USER)::text));
CREATE POLICY tenant ON eventctx.recall_marks USING ((tenant = (CURRENT_USER)::text));
CREATE POLICY tenant ON eventctx.recall_messages USING ((tenant = (CURRENT_USER)::text));
CREATE POLICY tenant ON eventctx.recall_pieces USING ((EXISTS ( SELECT
   FROM eventctx.recall_messages m
  WHERE (m.id = recall_pieces.message))));
CREATE POLICY tenant ON eventctx.records USING ((EXISTS ( SELECT
   FROM eventctx.streams s
  WHERE (s.id = records.stream))));
CREATE POLICY tenant ON eventctx.scrubs USING ((eventctx.is_mine(tenant) OR (tenant = (SESSION_USER)::text)));
CREATE POLICY tenant ON eventctx.snapshots USING ((EXISTS ( SELECT
   FROM eventctx.streams s
  WHERE (s.id = snapshots.stream))));
CREATE POLICY tenant ON eventctx.streams USING (eventctx.is_mine(tenant));
REVOKE ALL ON FUNCTION eventctx.forget_words(of_stream text, of_position bigint, of_index integer) FROM PUBLIC;
