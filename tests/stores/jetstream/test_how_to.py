"""The servers of docs/how-to/keep-sessions-in-jetstream.md: its files start, and its roles hold."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import nats
import pytest
import yaml
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError

from eventctx.errors import StoreReadOnly, StoreUnavailable
from eventctx.log.store import NO_STREAM, Address
from eventctx.stores.jetstream import connection
from eventctx.stores.jetstream.store import JetStreamStore
from eventctx.testing.store_contract.drafts import gather, make_draft
from tests.services.certificates import make_certificates
from tests.services.in_memory import memory_folder
from tests.services.nats_server import Cluster, Node, find, running

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
def servers(nats_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Documented]:
    folder = tmp_path_factory.mktemp("documented")
    make_certificates(folder)
    cluster = Documented(folder, binary=nats_binary)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()


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


async def test_each_role_may_do_what_it_is_for_and_no_more(
    servers: Documented, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    with monkeypatch.context() as patched:
        # A refusal is an answer that does not come.
        patched.setattr(connection, "ATTEMPT_SECONDS", 1.0)
        patched.setattr(agent._link, "patience", 0.5)
        refused = await asyncio.gather(
            agent.erase({"s": {Address(0): b""}}),
            agent.delete("f", make_draft(type="session:deleted"), 1),
            return_exceptions=True,
        )
    assert [type(one) for one in refused] == [StoreUnavailable, StoreUnavailable]
    assert await gather(reader.read("s")) == records
    assert (await owner.erase({"s": {Address(0): b""}})).bodies == 1
    assert (await gather(reader.read("s")))[0].bodies[0].erased
    await owner.delete("f", make_draft(type="session:deleted"), 1)
    for store in (agent, reader, owner):
        await store.close()


async def test_a_roll_up_by_an_agent_takes_nothing_away(servers: Documented) -> None:
    await (await JetStreamStore.open(servers.of("owner", name="EVENTCTX"))).close()
    agent = await JetStreamStore.open(servers.of("agent", name="EVENTCTX"), patience=60)
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
            await JetStreamStore.open(url, patience=1)
        assert "secret-of-agent" not in str(caught.value)
        assert "guessed-it" not in str(caught.value)


async def test_a_backup_of_the_streams_is_a_store_again_on_other_servers(
    servers: Documented,
) -> None:
    owner = await JetStreamStore.open(servers.of("owner", name="SAVED"))
    await owner.append("s", [make_draft("a", "b"), make_draft("secret")], NO_STREAM)
    await owner.fork("s", 1, "f", make_draft("c"))
    await owner.erase({"s": {Address(1): b""}})
    saved = {name: await _back_up(owner, name) for name in ("SAVED_META", "SAVED_0")}
    records = [await gather(owner.read(name)) for name in ("s", "f")]
    late = await owner.append("s", [make_draft("late")], 1)
    await owner.close()
    with running(binary=find(), place=memory_folder()) as others:
        client = await nats.connect(others.servers)
        try:
            for name, backup in saved.items():
                await _restore(client, name, backup)
        finally:
            await client.close()
        restored = await JetStreamStore.open(others.url("SAVED"))
        assert [await gather(restored.read(name)) for name in ("s", "f")] == records
        assert (await restored.inspect()).findings == ()
        head = await restored.head("s")
        assert head is not None
        assert head.head < late.receipt.position  # the receipt tells that the end is missing
        again = await restored.append("s", [make_draft("on")], head.head)
        assert again.receipt.position == late.receipt.position
        await restored.close()


async def _back_up(store: JetStreamStore, stream: str) -> tuple[dict[str, Any], list[bytes]]:
    """What ``nats stream backup`` does."""
    client = store._link.client
    chunks: list[bytes] = []
    ended = asyncio.Event()

    async def take(message: Msg) -> None:
        if not message.data:
            ended.set()
            return
        chunks.append(message.data)
        await client.publish(message.reply, b"")

    async def back_up() -> dict[str, Any]:
        inbox = client.new_inbox()
        await client.subscribe(inbox, cb=take)
        request = json.dumps({"deliver_subject": inbox}).encode()
        answer = await client.request(f"$JS.API.STREAM.SNAPSHOT.{stream}", request, timeout=60)
        async with asyncio.timeout(60):
            await ended.wait()
        return dict(json.loads(answer.data))

    return await store._link.run(back_up()), chunks


async def _restore(client: Client, stream: str, backup: tuple[dict[str, Any], list[bytes]]) -> None:
    """What ``nats stream restore`` does."""
    described, chunks = backup
    request = json.dumps({key: described[key] for key in ("config", "state")}).encode()
    answer = await client.request(f"$JS.API.STREAM.RESTORE.{stream}", request, timeout=60)
    subject = json.loads(answer.data).get("deliver_subject")
    assert subject, answer.data
    for chunk in (*chunks, b""):
        while True:  # a server may hear later than its answer that another one listens
            with suppress(NoRespondersError):
                answer = await client.request(subject, chunk, timeout=60)
                break
    assert "error" not in json.loads(answer.data), answer.data
