"""The servers of docs/how-to/keep-sessions-in-jetstream.md: its files start, and its roles hold."""

from __future__ import annotations

import datetime
import ipaddress
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from eventctx.errors import StoreReadOnly, StoreUnavailable
from eventctx.log.store import NO_STREAM, Address
from eventctx.stores.jetstream.store import JetStreamStore
from eventctx.testing.store_contract.drafts import gather, make_draft
from tests.services.nats_server import Cluster, Node, find

pytestmark = pytest.mark.slow

FILES = Path(__file__).parents[3] / "docs" / "how-to" / "compose" / "nats"
PASSWORDS = {f"{role}_PASSWORD": f"secret-of-{role.lower()}" for role in ("OWNER", "AGENT")} | {
    f"{role}_PASSWORD": f"secret-of-{role.lower()}" for role in ("READER", "SYS")
}


class Documented(Cluster):
    """A cluster with the configuration of the page, moved to free ports of this machine."""

    def _configure(self, node: Node) -> None:
        text = (FILES / "nats.conf").read_text()
        for what, port in (("4222", "client"), ("8222", "monitor"), ("6222", "route")):
            text = text.replace(f"0.0.0.0:{what}", f"127.0.0.1:{getattr(node.ports, port)}")
        for number, one in enumerate(self.nodes, 1):
            text = text.replace(f"nats-{number}:6222", f"127.0.0.1:{one.ports.route}")
        text = text.replace('"/data"', f'"{node.data}"').replace('"/certs/', f'"{self.folder}/')
        for name, value in {"NODE": f'"{node.name}"', **PASSWORDS}.items():
            text = text.replace(f"${name}", value)
        (node.folder / "server.conf").write_text(text)

    def of(self, role: str, **query: str) -> str:
        """The store's URL for a role of the page."""
        user = f"{role}:{PASSWORDS[f'{role.upper()}_PASSWORD']}"
        return self.url(user=user, tls_ca=str(self.folder / "ca.pem"), **query)


@pytest.fixture(scope="module")
def servers(jetstream: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Documented]:
    folder = tmp_path_factory.mktemp("documented")
    _certificates(folder)
    cluster = Documented(folder, binary=find())
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()


def _certificates(folder: Path) -> None:
    """An authority, and a certificate of it for this machine."""
    now = datetime.datetime.now(datetime.UTC)
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in ("ca", "server")
    ]
    for number, name in enumerate(("ca", "server")):
        made = (
            x509.CertificateBuilder()
            .subject_name(names[number])
            .issuer_name(names[0])
            .public_key(keys[number].public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=number == 0, path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
                critical=False,
            )
            .sign(keys[0], hashes.SHA256())
        )
        (folder / f"{name}.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
        key = keys[number].private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        (folder / f"{name}-key.pem").write_bytes(key)


def test_the_compose_file_runs_three_servers_on_that_configuration() -> None:
    compose = yaml.safe_load((FILES / "compose.yaml").read_text())
    services = compose["services"]
    assert list(services) == ["nats-1", "nats-2", "nats-3"]
    used = set(re.findall(r"\$(\w+_PASSWORD|NODE)", (FILES / "nats.conf").read_text()))
    for name, service in services.items():
        assert service["image"] == "nats:2.15"
        assert service["environment"]["NODE"] == service["hostname"] == name
        assert set(service["environment"]) == used
        assert f"{name}:/data" in service["volumes"]
    assert set(compose["volumes"]) == set(services)


async def test_each_role_may_do_what_it_is_for_and_no_more(servers: Documented) -> None:
    owner = await JetStreamStore.open(servers.of("owner"))
    agent = await JetStreamStore.open(servers.of("agent"), patience=3)
    await agent.append("s", [make_draft("a"), make_draft("b")], NO_STREAM)
    fork = await agent.fork("s", 0, "f", make_draft("c"))
    await agent.save_checkpoint("seen", 3)
    assert fork.receipt.position == 1
    reader = await JetStreamStore.open(servers.of("reader"), read_only=True, patience=3)
    records = await gather(reader.read("s"))
    assert [r.bodies[0].data for r in records] == [b"a", b"b"]
    assert [info.stream async for info in reader.streams()] == ["s", "f"]
    assert await reader.load_checkpoint("seen") == 3
    with pytest.raises(StoreReadOnly):
        await reader.append("s", [make_draft()], 1)
    for refused in (
        agent.erase({"s": {Address(0): b""}}),
        agent.delete("f", make_draft(type="session:deleted"), 1),
    ):
        with pytest.raises(StoreUnavailable):
            await refused
    assert await gather(reader.read("s")) == records
    assert (await owner.erase({"s": {Address(0): b""}})).bodies == 1
    assert (await gather(reader.read("s")))[0].bodies[0].erased
    await owner.delete("f", make_draft(type="session:deleted"), 1)
    for store in (agent, reader, owner):
        await store.close()


async def test_a_roll_up_by_an_agent_takes_nothing_away(servers: Documented) -> None:
    agent = await JetStreamStore.open(servers.of("agent", name="EVENTCTX"), patience=5)
    await agent.append("kept", [make_draft("a")], NO_STREAM)
    before = await gather(agent.read("kept"))
    for how in ("all", "sub"):
        answer = await agent._link.run(
            agent._link.client.request(
                "EVENTCTX.0.r.kept", b"x", timeout=5, headers={"Nats-Rollup": how}
            )
        )
        assert b"error" in answer.data
    assert await gather(agent.read("kept")) == before
    await agent.close()


async def test_without_the_authority_or_the_password_nothing_opens(servers: Documented) -> None:
    for url in (
        servers.url(user="agent:secret-of-agent"),
        servers.of("agent").replace("secret-of-agent", "guessed-it"),
    ):
        with pytest.raises(StoreUnavailable) as caught:
            await JetStreamStore.open(url, patience=3)
        assert "secret-of-agent" not in str(caught.value)
        assert "guessed-it" not in str(caught.value)
