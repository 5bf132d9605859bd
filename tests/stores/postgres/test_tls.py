"""TLS: a server is taken only with a certificate of the authority, for the name in the URL."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventctx.errors import StoreUnavailable
from eventctx.log.store import NO_STREAM
from eventctx.stores.postgres.store import PostgresStore
from tests.services.certificates import make_certificates
from tests.services.postgres_binaries import PostgresMissing, with_tls
from tests.services.postgres_server import Server

pytestmark = pytest.mark.slow

SECRET = "s3cretw0rd"  # noqa: S105


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("authority")
    make_certificates(folder)
    return folder


@pytest.fixture(scope="module")
def server(authority: Path) -> Iterator[Server]:
    """A server that takes no connection without TLS, but for the superuser's."""
    try:
        own = Server(binaries=with_tls())
    except PostgresMissing as missing:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(missing))
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


async def test_a_server_with_a_certificate_of_the_authority_is_written_and_read(
    server: Server, authority: Path, draft, collect
) -> None:
    store = await PostgresStore.open(url(server, authority))
    await store.append("s", [draft("a")], NO_STREAM)
    assert len(await collect(store.read("s"))) == 1
    encrypted = server.execute(
        "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = 'ann'"
    )
    assert set(encrypted) == {(True,)}
    await store.close()


async def refusal(place: str) -> str:
    """What the store says to a server that it does not take, at once."""
    began = time.monotonic()
    with pytest.raises(StoreUnavailable) as raised:
        await PostgresStore.open(place, patience=240)
    assert time.monotonic() - began < 120
    said = str(raised.value)
    assert SECRET not in said
    assert "\n" not in said
    return said


@pytest.mark.parametrize(
    ("name", "said"), [("other", "certificate verify failed"), ("ca", "SSL error")]
)
async def test_a_server_of_another_authority_is_refused_at_once(
    server: Server, tmp_path: Path, name: str, said: str
) -> None:
    """Also where it bears the name of ours."""
    make_certificates(tmp_path, authority=name)
    assert said in await refusal(url(server, tmp_path))


async def test_a_server_of_another_name_is_refused_at_once(server: Server, authority: Path) -> None:
    place = url(server, authority).replace("127.0.0.1", "localhost")
    assert 'does not match host name "localhost"' in await refusal(place)


async def test_an_authority_whose_file_is_missing_is_said_at_once(
    server: Server, authority: Path
) -> None:
    place = url(server, authority, sslrootcert=str(authority / "lost.pem"))
    assert "lost.pem" in await refusal(place)


async def test_a_server_without_tls_is_refused_at_once(
    server: Server, postgres: Server, authority: Path
) -> None:
    said = await refusal(url(postgres, authority))
    assert "server does not support SSL, but SSL was required" in said


async def test_a_server_that_wants_tls_takes_nobody_without(
    server: Server, authority: Path
) -> None:
    assert "no pg_hba.conf entry" in await refusal(url(server, authority, sslmode="disable"))
