"""Several tenants in one schema, and roles that may do no more than they need.

A tenant is a role. A session belongs to the role that created it, or to the one that this role's
setting ``eventctx_store.tenant`` names (``streams.tenant``), and is visible to the tenant and its
members. The server enforces it by row-level security; the owner of the tables sees all of them, as
a superuser does. Names of sessions are unique in the whole schema.

``SELECT eventctx.make_roles()`` creates three roles without a login and grants them what they need:
a reader, a writer (it appends, and the server refuses it any change of a record), and an eraser.
"""

from __future__ import annotations

from typing import Final

TENANTS: Final = """
-- The policies see to it that it is the role itself, or one that it is a member of.
CREATE FUNCTION eventctx.my_tenant() RETURNS text LANGUAGE sql STABLE
RETURN coalesce(nullif(current_setting('eventctx_store.tenant', true), ''), current_user);

ALTER TABLE eventctx.streams
  ADD COLUMN tenant text COLLATE "C" NOT NULL DEFAULT eventctx.my_tenant(),
  -- Never written. Who locks a row needs the right to update one of its columns.
  ADD COLUMN locked boolean;
ALTER TABLE eventctx.checkpoints
  ADD COLUMN tenant text COLLATE "C" NOT NULL DEFAULT current_user,
  DROP CONSTRAINT checkpoints_pkey, ADD PRIMARY KEY (tenant, name);

-- Not pg_has_role alone: it fails for a role that was dropped.
CREATE FUNCTION eventctx.is_mine(tenant text) RETURNS boolean LANGUAGE sql STABLE
RETURN tenant = current_user::text
  OR coalesce(pg_has_role(to_regrole(quote_ident(tenant))::oid, 'USAGE'), false);

ALTER TABLE eventctx.streams ENABLE ROW LEVEL SECURITY;
ALTER TABLE eventctx.records ENABLE ROW LEVEL SECURITY;
ALTER TABLE eventctx.bodies ENABLE ROW LEVEL SECURITY;
ALTER TABLE eventctx.snapshots ENABLE ROW LEVEL SECURITY;
ALTER TABLE eventctx.checkpoints ENABLE ROW LEVEL SECURITY;
ALTER TABLE eventctx.recall_marks ENABLE ROW LEVEL SECURITY;
ALTER TABLE eventctx.recall_messages ENABLE ROW LEVEL SECURITY;
ALTER TABLE eventctx.recall_pieces ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON eventctx.streams USING (eventctx.is_mine(tenant));
CREATE POLICY tenant ON eventctx.records
  USING (EXISTS (SELECT FROM eventctx.streams s WHERE s.id = records.stream));
CREATE POLICY tenant ON eventctx.bodies
  USING (EXISTS (SELECT FROM eventctx.records r WHERE r.pos = bodies.pos));
CREATE POLICY tenant ON eventctx.snapshots
  USING (EXISTS (SELECT FROM eventctx.streams s WHERE s.id = snapshots.stream));
CREATE POLICY tenant ON eventctx.checkpoints USING (tenant = current_user::text);
CREATE POLICY tenant ON eventctx.recall_marks USING (tenant = current_user::text);
CREATE POLICY tenant ON eventctx.recall_messages USING (tenant = current_user::text);
CREATE POLICY tenant ON eventctx.recall_pieces
  USING (EXISTS (SELECT FROM eventctx.recall_messages m WHERE m.id = recall_pieces.message));

CREATE FUNCTION eventctx.make_roles(prefix text DEFAULT 'eventctx') RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $roles$
DECLARE
  here text := (SELECT relnamespace::regnamespace::text FROM pg_class
    WHERE oid = 'eventctx.meta'::regclass);
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
$roles$;
"""
