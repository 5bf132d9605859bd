"""The tables of the full-text index, which lie beside the log on the server.

They are caches: not in the server's own log, so no erased word lies there or on a standby, and
empty after a crash of the server. Every role has an index of its own, of what it may read.
"""

from __future__ import annotations

from typing import Final

RECALL_TABLES: Final = ("recall_marks", "recall_messages", "recall_pieces")

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
"""
