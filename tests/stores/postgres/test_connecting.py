"""Who may connect, and how: URLs, passwords, TLS; no password is shown."""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eventctx.cli.main import cli
from eventctx.errors import EventctxError, InvalidSetting, StoreUnavailable
from eventctx.log.store import NO_STREAM
from eventctx.stores.postgres import store
from eventctx.stores.postgres.connections import ServerConnection, parse_url
from eventctx.stores.postgres.store import PostgresStore
from eventctx.testing.store_contract.drafts import gather
from eventctx.testing.store_contract.drafts import make_draft as draft
from tests.services.certificates import make_certificates
from tests.services.fixtures import skip
from tests.services.in_memory import memory_folder
from tests.services.postgres_binaries import PostgresMissing, with_tls
from tests.services.postgres_server import SUPERUSER, Server

SECRET = "s3cr+et%word"  # noqa: S105


@pytest.fixture(scope="module")
def guarded():
    with Server(place=memory_folder()) as server:
        server.execute(f"CREATE ROLE ann LOGIN SUPERUSER PASSWORD '{SECRET}'")
        server.allow(
            f"local all {SUPERUSER} trust",
            f"host all {SUPERUSER} 127.0.0.1/32 trust",
            "host all ann 127.0.0.1/32 scram-sha-256",
        )
        yield server


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:{}@127.0.0.1:PORT/postgres",
        "postgresql://ann@127.0.0.1:PORT/postgres?password={}",
        "postgresql://ann:{}@127.0.0.1:PORT/nowhere",
        "postgresql://ann:{}@127.0.0.1:1/postgres",
        "postgresql://ann:{}@127.0.0.1:PORT/postgres?sslmode=nonsense",
        "postgresql://ann:{}@127.0.0.1:PORT/postgres?nonsense=1",
        "postgresql://ann@127.0.0.1:PORT/postgres?password={}&nonsense=1",
    ],
)
async def test_no_error_shows_a_password(guarded: Server, url: str) -> None:
    wrong = "wr0ngw0rd"
    with pytest.raises(EventctxError) as raised:
        await PostgresStore.open(url.format(wrong).replace("PORT", str(guarded.port)), patience=0.1)
    assert wrong not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("way", ["url", "parameter", "environment", "password file", "service"])
@pytest.mark.parametrize("password", [SECRET, "wr0ngw0rd"])
async def test_a_password_is_taken_from_where_psql_takes_it_and_shown_in_no_log_and_no_output(
    guarded: Server,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    way: str,
    password: str,
) -> None:
    """Whether it is right or wrong, at the most talkative level."""
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "psycopg")  # which is quieter by itself
    url = guarded.url(user="ann", password=password if way == "url" else None, schema="shown")
    if way == "parameter":
        url += f"&password={quote(password).replace('%2B', '+')}"
    elif way == "environment":
        monkeypatch.setenv("PGPASSWORD", password)
    elif way == "password file":
        (tmp_path / "pass").write_text(f"*:*:*:ann:{password}\n")
        (tmp_path / "pass").chmod(0o600)
        monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pass"))
    elif way == "service":
        (tmp_path / "services").write_text(
            f"[agents]\nhost=127.0.0.1\nport={guarded.port}\nuser=ann\ndbname=postgres\n"
            f"password={password}\n"
        )
        monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
        url = "postgresql:///?service=agents&schema=shown"
    said = ""
    try:
        store = await PostgresStore.open(url)
        said += str(await store.describe()) + repr(store)
        await store.close()
    except EventctxError as error:
        assert password != SECRET
        said += "".join(traceback.format_exception(error))
    for command in (["stats"], ["stats", "--json"], ["sessions"], ["verify"]):
        done = await asyncio.to_thread(CliRunner().invoke, cli, [*command, "--store", url])
        assert (done.exit_code == 0) == (password == SECRET)
        said += done.output + done.stderr
    logged = [record.getMessage() + str(vars(record)) for record in caplog.records]
    assert logging.getLogger("psycopg").isEnabledFor(logging.DEBUG)  # the driver's own, too
    for one in (password, password.replace("%", "%25").replace("+", "%2B")):
        assert one not in said
        assert not [line for line in logged if one in line]


PASSWORD = "hunter2hunter"  # noqa: S105
pieces = st.lists(
    st.sampled_from(
        [*"[]:/?#@&=+% '\\\0\ud800\n", "%00", "%zz", "schema=", "host=", "port=", "::1"]
    )
    | st.text(max_size=3),
    max_size=12,
).map("".join)
FORMS = (
    "postgresql://{0}",
    "postgresql://ann:PASSWORD{0}@h{1}",
    "postgresql://ann:{0}PASSWORD@h{1}",
    "postgresql://ann:{0}PASSWORD{1}@h/db",
    "postgresql://h{0}?password=PASSWORD{1}",
)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(FORMS), pieces, pieces)
@example("postgresql://ann:{0}PASSWORD@h{1}", "?schema=", "")
@example("postgresql://ann:{0}PASSWORD@h{1}", "?@", "")
@example("postgresql://ann:PASSWORD{0}@h{1}", "%80", "")
def test_any_text_is_read_or_refused_and_never_shows_its_password(form, one, other) -> None:
    try:
        read = parse_url(form.format(one, other).replace("PASSWORD", PASSWORD))
    except InvalidSetting as error:
        assert PASSWORD not in "".join(traceback.format_exception(error))
        assert "\n" not in str(error)
    else:
        assert PASSWORD not in read.shown


@pytest.mark.parametrize("password", ["se@cret", "se/cret", "/", "@@"])
def test_a_password_that_would_be_read_as_a_host_is_refused(password) -> None:
    with pytest.raises(InvalidSetting, match="write those of a name or a password as %40"):
        parse_url(f"postgresql://ann:{password}@h/db")


def test_the_servers_options_reach_it_with_their_blanks(postgres_url) -> None:
    options = "-c%20work_mem%3D9MB%20-c%20lock_timeout%3D7s"
    connection = ServerConnection(parse_url(f"{postgres_url}?options={options}&schema=x"))
    (found,) = connection.rows(
        "SELECT current_setting('work_mem'), current_setting('lock_timeout')"
    )
    assert found == ("9MB", "7s")
    connection.close()


@pytest.mark.parametrize("url", ["postgresql://127.0.0.1:1/x", "postgresql:///x?host=/nowhere"])
async def test_a_server_never_reached_is_given_up_soon_and_in_one_line(url, monkeypatch) -> None:
    monkeypatch.setattr(store, "_FIRST_SECONDS", 0.2)
    # The patience for a server that was lost in use is 60 s.
    with pytest.raises(StoreUnavailable) as raised:
        async with asyncio.timeout(60):
            await PostgresStore.open(url)
    assert "\n" not in str(raised.value)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("authority")
    make_certificates(folder)
    return folder


@pytest.fixture(scope="module")
def server(authority: Path) -> Iterator[Server]:
    """A server that takes no connection without TLS, but for the superuser's."""
    try:
        own = Server(binaries=with_tls(), place=memory_folder())
    except PostgresMissing as missing:
        skip(missing)
        raise
    own.create()
    for name in ("server.pem", "server-key.pem"):
        shutil.copy(authority / name, own.data)
    own.binaries.give(own.data)
    (own.data / "server-key.pem").chmod(0o600)
    own.configure(ssl="on", ssl_cert_file="server.pem", ssl_key_file="server-key.pem")
    with own:
        own.execute(f"CREATE ROLE ann LOGIN SUPERUSER PASSWORD '{SECRET}'")
        own.allow("host all postgres 127.0.0.1/32 trust", "hostssl all ann all scram-sha-256")
        yield own


def url(server: Server, authority: Path, **parameters: str) -> str:
    parameters = {"sslmode": "verify-full", "sslrootcert": str(authority / "ca.pem")} | parameters
    return server.url(user="ann", password=SECRET, **parameters)


@pytest.mark.slow
async def test_a_server_with_our_certificate_is_read_and_every_other_one_refused_at_once(
    server: Server, postgres: Server, authority: Path, tmp_path: Path, opened: Any
) -> None:
    store = await opened(PostgresStore.open(url(server, authority)))
    await store.append("s", [draft("a")], NO_STREAM)
    assert len(await gather(store.read("s"))) == 1
    encrypted = server.execute(
        "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = 'ann'"
    )
    assert set(encrypted) == {(True,)}
    for name in ("other", "ca"):
        (tmp_path / name).mkdir()
        make_certificates(tmp_path / name, authority=name)
    ours = url(server, authority)
    for place, said in (
        (url(server, tmp_path / "other"), "certificate verify failed"),
        (url(server, tmp_path / "ca"), "SSL error"),  # it bears the name of ours
        (ours.replace("127.0.0.1", "localhost"), 'does not match host name "localhost"'),
        (url(server, authority, sslrootcert=str(authority / "lost.pem")), "lost.pem"),
        (url(postgres, authority), "server does not support SSL, but SSL was required"),
        (url(server, authority, sslmode="disable"), "no pg_hba.conf entry"),
    ):
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match=said) as raised:
            await PostgresStore.open(place, patience=240)
        assert time.monotonic() - began < 120
        assert not any(one in str(raised.value) for one in (SECRET, "\n"))
