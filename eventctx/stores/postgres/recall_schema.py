"""The tables of the full-text index, which lie beside the log on the server.

They are caches: not in the server's own log, so no erased word lies there or on a standby, and
empty after a crash of the server. Every role has an index of its own, of what it may read.
"""

from __future__ import annotations

from typing import Final

WORDS_TABLES: Final = ("recall_messages", "recall_pieces")

# A message that was erased keeps its place and has no words. The words of a long one are in
# recall_pieces. The names of columns are those of search/index.py.
RECALL: Final = """
CREATE UNLOGGED TABLE eventctx.recall_marks(
  tenant text COLLATE "C" PRIMARY KEY DEFAULT current_user, version integer NOT NULL,
  position bigint NOT NULL, event bytea NOT NULL, messages bigint NOT NULL, length bigint NOT NULL);
CREATE UNLOGGED TABLE eventctx.recall_messages(
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant text COLLATE "C" NOT NULL DEFAULT current_user, stream text COLLATE "C" NOT NULL,
  position bigint NOT NULL, index integer NOT NULL, number bigint NOT NULL, time bigint NOT NULL,
  length integer NOT NULL, pieces integer NOT NULL, words tsvector);
CREATE UNIQUE INDEX recall_places ON eventctx.recall_messages(stream, position, index, tenant);
CREATE INDEX recall_numbers ON eventctx.recall_messages(stream, number, tenant);
CREATE INDEX recall_words ON eventctx.recall_messages USING gin(words);
CREATE UNLOGGED TABLE eventctx.recall_pieces(
  message bigint NOT NULL, piece integer NOT NULL, words tsvector NOT NULL,
  PRIMARY KEY(message, piece));
CREATE INDEX recall_piece_words ON eventctx.recall_pieces USING gin(words);

-- What is erased or deleted loses its words in the same transaction, in every role's index.
CREATE FUNCTION eventctx.forget_words(of_stream text, of_position bigint, of_index integer)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $forget$
DECLARE
  had record;
BEGIN
  FOR had IN
    SELECT m.id, m.tenant, m.length FROM eventctx.recall_messages m
    WHERE m.stream = of_stream AND m.position = of_position AND m.index = of_index AND m.pieces > 0
  LOOP
    UPDATE eventctx.recall_messages SET words = NULL, pieces = 0, length = 0 WHERE id = had.id;
    DELETE FROM eventctx.recall_pieces WHERE message = had.id;
    UPDATE eventctx.recall_marks SET messages = messages - 1, length = length - had.length
    WHERE tenant = had.tenant;
    INSERT INTO eventctx.scrubs(relation, file, transaction)
    SELECT c.oid, c.relfilenode, pg_current_xact_id()::text FROM pg_class c
    WHERE c.oid IN ('eventctx.recall_messages'::regclass, 'eventctx.recall_pieces'::regclass)
    ON CONFLICT (relation) DO UPDATE
    SET file = excluded.file, transaction = excluded.transaction;
  END LOOP;
END
$forget$;
REVOKE EXECUTE ON FUNCTION eventctx.forget_words(text, bigint, integer) FROM PUBLIC;

CREATE FUNCTION eventctx.record_lost_its_body() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $lost$
BEGIN
  PERFORM eventctx.forget_words(s.name, OLD.position, 0)
  FROM eventctx.streams s WHERE s.id = OLD.stream;
  RETURN NULL;
END
$lost$;
CREATE TRIGGER forget_erased AFTER UPDATE OF data ON eventctx.records FOR EACH ROW
  WHEN (OLD.data IS NOT NULL AND NEW.data IS NULL) EXECUTE FUNCTION eventctx.record_lost_its_body();
CREATE TRIGGER forget_deleted AFTER DELETE ON eventctx.records FOR EACH ROW
  WHEN (OLD.data IS NOT NULL) EXECUTE FUNCTION eventctx.record_lost_its_body();

CREATE FUNCTION eventctx.body_was_lost() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $lost$
BEGIN
  PERFORM eventctx.forget_words(s.name, r.position, OLD.index)
  FROM eventctx.records r JOIN eventctx.streams s ON s.id = r.stream WHERE r.pos = OLD.pos;
  RETURN OLD;
END
$lost$;
CREATE TRIGGER forget_erased AFTER UPDATE OF data ON eventctx.bodies FOR EACH ROW
  WHEN (OLD.data IS NOT NULL AND NEW.data IS NULL) EXECUTE FUNCTION eventctx.body_was_lost();
-- Before, as the body's record may go in the same statement.
CREATE TRIGGER forget_deleted BEFORE DELETE ON eventctx.bodies FOR EACH ROW
  WHEN (OLD.data IS NOT NULL) EXECUTE FUNCTION eventctx.body_was_lost();
"""
