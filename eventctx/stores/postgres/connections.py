"""One connection to the server: statements in binary format, and an end to every wait.

libpq is called through psycopg's thin layer, because an append is a single statement whose
arguments are made as bytes anyway, and because a server that is halted keeps its connections: no
answer within ``ANSWER_SECONDS`` counts as a lost connection.
"""

from __future__ import annotations

import os
import re
import select
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.string import ByteaBinaryLoader

from eventctx.errors import InvalidSetting
from eventctx.stores.postgres.errors import ConnectionLost, Refused, not_connected

ANSWER_SECONDS: Final = 30.0
"""Longest wait for one answer. A server that was halted or cut off closes no connection."""

CONNECT_SECONDS: Final = 10

_DEFAULTS: Final = {
    "application_name": "eventctx",
    "connect_timeout": CONNECT_SECONDS,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
"""Defaults for libpq, below the URL's own: libpq's would notice a lost network after two hours."""

_SETTINGS: Final = """
SET search_path = pg_catalog, pg_temp;
SET default_transaction_isolation = 'read committed';
SET synchronize_seqscans = off;
SET idle_in_transaction_session_timeout = '60s';
SET client_connection_check_interval = '5s';
SET plan_cache_mode = force_generic_plan;
SET jit = off;
SET enable_seqscan = off;
SET enable_bitmapscan = off
"""
"""Plans are made once, perhaps while the tables are empty, so they must use the indexes."""

_SCHEMA: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_SYSTEM_SCHEMA: Final = re.compile(r"pg_|information_schema\Z")
_OWN: Final = ("schema", "durability")
_DONE: Final = frozenset({pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK})

Rows = list[tuple[Any, ...]]
Params = Sequence["bytes | None"]
Kinds = Sequence[int]


def in_schema(sql: str, schema: str) -> str:
    """``sql`` with the name of the store's schema."""
    return sql.replace("eventctx.", '"' + schema.replace('"', '""') + '".')


class Destination(NamedTuple):
    """The parts of a URL: libpq's connection string, the schema, and our other parameters."""

    conninfo: str
    schema: str
    options: dict[str, str]
    shown: str
    """The server and the database, for messages; no user and no password."""


def parse_url(url: str) -> Destination:
    """Read ``postgresql://…``; parameters that are not ours go to libpq.

    Raises InvalidSetting.
    """
    if "\0" in url or not _is_text(url):
        raise InvalidSetting("store: expected a URL in text, found one with bytes that are none")
    place, _, query = url.partition("?")
    authority, _, database = place.partition("://")[2].partition("/")
    if authority.count("@") > 1 or "@" in database:
        # To libpq the password ends at the first of them, and the rest of it is a host's name.
        raise InvalidSetting(
            "store: expected at most one @ in the URL, and no / before it; write those of a name "
            "or a password as %40 and %2F"
        )
    user, at, _ = url.partition("://")[2].partition("/")[0].partition("@")
    if at and "?" in user:
        # To libpq all before the @ is the user's, and what is between two of them a host's name.
        raise InvalidSetting(
            "store: expected no ? before the @ of the URL; write that of a name or a password as "
            "%3F, and an @ behind the ? as %40"
        )
    own = {n: v for n, v in parse_qsl(query, keep_blank_values=True) if n in _OWN}
    # Unchanged: to libpq a + in a password is a +, to a browser it would be a blank.
    rest = "&".join([one for one in query.split("&") if one.partition("=")[0] not in _OWN])
    schema = own.pop("schema", "eventctx")
    if not _SCHEMA.fullmatch(schema) or _SYSTEM_SCHEMA.match(schema):
        # It is not shown: in a URL with a ? before the password, it is the password.
        raise InvalidSetting(
            "store: expected a schema of letters, digits and _, not one of the server's own, found "
            f"another one, of {len(schema)} characters; in a name or a password write ? as %3F"
        )
    try:
        given = conninfo_to_dict(f"{place}?{rest}" if rest else place)
    except (psycopg.Error, UnicodeDecodeError) as error:  # the latter of bytes after a %
        # The driver's message may quote the password, and in a broken URL it may be anywhere.
        names = re.findall(r"(?:\A|&)([a-z_]+)=", query)
        raise InvalidSetting(
            "store: expected a URL postgresql://USER@HOST:PORT/DATABASE with libpq's parameters, "
            f"found one that cannot be read, with the parameters {names}"
        ) from error.with_traceback(None).__cause__
    shown = f"postgresql://{given.get('host', '')}/{given.get('dbname', '')}"
    parameters: dict[str, Any] = {**_DEFAULTS, **given}
    if "," in str(given.get("host", "")) and "PGTARGETSESSIONATTRS" not in os.environ:
        # The first server that answers may be a standby that lags behind.
        parameters.setdefault("target_session_attrs", "primary")
    return Destination(make_conninfo(**parameters), schema, own, shown)


class ServerConnection:
    """A connection for one thread at a time, outside of a transaction between two calls."""

    def __init__(self, target: Destination) -> None:
        """Connect. Raises ConnectionLost, and Refused for a wrong user, password or database."""
        self.schema = target.schema
        try:
            self._driver = psycopg.connect(
                target.conninfo, autocommit=True, client_encoding="utf8", prepare_threshold=None
            )
        except psycopg.Error as error:
            raise not_connected(str(error)) from None
        self._driver.adapters.register_loader("uuid", ByteaBinaryLoader)
        info = self._driver.info
        self.place = f"postgresql://{_host(info.host)}:{info.port}/{info.dbname}"
        if self.schema != "eventctx":
            self.place += f"?schema={self.schema}"
        self._pq = self._driver.pgconn
        self._poll = select.poll()
        self._socket = self._pq.socket
        self._poll.register(self._socket, select.POLLIN)
        self._prepared: dict[str, bytes] = {}
        self._transformer = Transformer(self._driver)
        self.wait_for_answers = ANSWER_SECONDS
        self.script(_SETTINGS)

    @contextmanager
    def driver(self) -> Iterator[psycopg.Connection[Any]]:
        """The driver's own connection, for work outside of appends.

        Raises ConnectionLost and Refused in place of the driver's errors.
        """
        try:
            yield self._driver
        except psycopg.Error as error:
            if error.sqlstate is None or self._driver.closed:
                raise ConnectionLost(str(error)) from None
            raise Refused(error.sqlstate, error.diag.message_primary or "") from None

    def rows(self, sql: str, kinds: Kinds = (), params: Params = ()) -> Rows:
        """Run a statement, prepared, and return its rows. ``kinds`` are the parameters' types.

        ``eventctx.`` in it means the schema. Raises ConnectionLost, Refused.
        """
        result = self._run(sql, kinds, params)
        if result.ntuples == 0:
            return []
        transformer = self._transformer
        transformer.set_pgresult(result, format=pq.Format.BINARY)
        return transformer.load_rows(0, result.ntuples, tuple)

    def count(self, sql: str, kinds: Kinds = (), params: Params = ()) -> int:
        """Run a statement, and return the number of rows that it changed."""
        return self._run(sql, kinds, params).command_tuples or 0

    def script(self, sql: str, *, seconds: float | None = ANSWER_SECONDS) -> None:
        """Run statements without parameters, in one transaction of their own.

        ``sql`` names the schema itself. With ``seconds=None`` the answer may take any time.
        """
        self._send_guarded(lambda: self._pq.send_query(sql.encode()), seconds)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction: committed at the end, rolled back after an exception."""
        self.script("BEGIN")
        try:
            yield
        except ConnectionLost:
            raise
        except BaseException:
            with suppress(ConnectionLost, Refused):
                self.script("ROLLBACK")
            raise
        self.script("COMMIT")

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """A part of a transaction that may fail alone."""
        self.script("SAVEPOINT part")
        try:
            yield
        except Refused:
            self.script("ROLLBACK TO part")
            raise

    def wait_for_news(self, seconds: float, wake: int) -> bool:
        """Wait for a notification, for ``seconds``, or until the descriptor ``wake`` is readable.

        Returns whether a notification came. Raises ConnectionLost.
        """
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.register(wake, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(seconds * 1000)}
        if self._socket in ready:
            try:
                self._pq.consume_input()
            except psycopg.Error as error:
                raise ConnectionLost(str(error)) from None
        heard = False
        while self._pq.notifies() is not None:
            heard = True
        return heard

    def close(self) -> None:
        """Close the connection; never raises."""
        with suppress(psycopg.Error):
            self._driver.close()

    def _run(self, sql: str, kinds: Kinds, params: Params) -> pq.abc.PGresult:
        name = self._prepared.get(sql)
        if name is None:
            name = f"eventctx_{len(self._prepared)}".encode()
            text = in_schema(sql, self.schema).encode()
            self._send_guarded(
                lambda: self._pq.send_prepare(name, text, kinds), self.wait_for_answers
            )
            self._prepared[sql] = name
        formats = [pq.Format.BINARY] * len(params)
        found = self._send_guarded(
            lambda: self._pq.send_query_prepared(name, [*params], formats, pq.Format.BINARY),
            self.wait_for_answers,
        )
        assert found is not None  # noqa: S101 - libpq gives a result for every query
        return found

    def _send_guarded(
        self, send: Callable[[], None], seconds: float | None
    ) -> pq.abc.PGresult | None:
        """Send a query and return the last of its results. Raises ConnectionLost, Refused."""
        try:
            send()
            return self._answer(None if seconds is None else time.monotonic() + seconds)
        except psycopg.Error as error:
            raise ConnectionLost(str(error)) from None

    def _answer(self, deadline: float | None) -> pq.abc.PGresult | None:
        connection = self._pq
        while connection.flush():
            self._wait(select.POLLIN | select.POLLOUT, deadline)
            connection.consume_input()
        last: pq.abc.PGresult | None = None
        refused: Refused | None = None
        while True:
            while connection.is_busy():
                self._wait(select.POLLIN, deadline)
                connection.consume_input()
            result = connection.get_result()
            if result is None:
                break
            if result.status not in _DONE:
                refused = refused or self._refusal(result)
            last = result
        if refused is not None:
            raise refused
        return last

    def _wait(self, events: int, deadline: float | None) -> None:
        if events != select.POLLIN:
            self._poll.modify(self._socket, events)
        left = None if deadline is None else max(deadline - time.monotonic(), 0.0) * 1000
        ready = self._poll.poll(left)
        if events != select.POLLIN:
            self._poll.modify(self._socket, select.POLLIN)
        if not ready:
            self.close()
            raise ConnectionLost(f"the server did not answer within {self.wait_for_answers:g} s")

    def _refusal(self, result: pq.abc.PGresult) -> Refused:
        code = result.error_field(pq.DiagnosticField.SQLSTATE)
        message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY)
        if code is None or self._pq.status != pq.ConnStatus.OK:
            raise ConnectionLost(
                (message or self._pq.get_error_message().encode()).decode("utf-8", "replace")
            )
        return Refused(code.decode(), (message or b"").decode("utf-8", "replace"))


def _is_text(url: str) -> bool:
    try:
        url.encode()
    except UnicodeEncodeError:
        return False
    return True


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
