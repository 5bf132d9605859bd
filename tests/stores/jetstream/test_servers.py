"""Servers that could lose an append or do not tell are refused; those of the how-to page hold."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import nats
import pytest
import yaml
from nats.aio.client import Client
from nats.errors import NoRespondersError

from eventctx.errors import InvalidSetting, StoreReadOnly, StoreUnavailable, StoreUnsafe
from eventctx.log.store import NO_STREAM, Address
from eventctx.stores.jetstream import connection, creating
from eventctx.stores.jetstream.store import JetStreamStore
from eventctx.testing.store_contract.drafts import gather, make_draft
from tests.services import nats_server
from tests.services.certificates import make_certificates
from tests.services.in_memory import memory_folder
from tests.services.nats_server import Cluster, Node, find, running
from tests.stores.jetstream.conftest import connected, fresh_name


@pytest.mark.parametrize(
    ("size", "sync", "said"),
    [(3, None, r"sync_interval: always.*found 120 s on n\d"), (2, "always", "3 or more servers")],
)
async def test_servers_that_sync_now_and_then_or_are_too_few_are_refused(
    size: int, sync: str | None, said: str
) -> None:
    with nats_server.running(size=size, sync=sync, place=memory_folder()) as cluster:
        with pytest.raises(StoreUnsafe, match=said):
            await JetStreamStore.open(cluster.url())
        # Nothing was made there.
        async with connected(cluster.servers) as client:
            answer = await client.request("$JS.API.STREAM.NAMES", b"")
        assert json.loads(answer.data)["streams"] is None


async def test_servers_whose_settings_cannot_be_seen_are_refused(jetstream: Cluster) -> None:
    url = jetstream.url(fresh_name()).partition("&monitor")[0]
    with pytest.raises(StoreUnsafe, match=r"\?monitor=.*\?system="):
        await JetStreamStore.open(url)
    some = ",".join(jetstream.monitors[:2])
    with pytest.raises(StoreUnsafe, match=r"no answer of n2"):
        await JetStreamStore.open(f"{url}&monitor={some}")
    # The system account tells what the monitoring does.
    store = await JetStreamStore.open(f"{url}&system=sys:sys")
    described = await store.describe()
    found = (described.facts["servers"], described.facts["sync_interval"])
    assert found == ("n0, n1, n2", "always")
    assert "sys:sys" not in repr(described)
    await store.close()


async def test_a_stream_with_fewer_replicas_is_refused(jetstream: Cluster) -> None:
    name = fresh_name()
    await (await JetStreamStore.open(jetstream.url(name))).close()
    async with connected(jetstream.servers) as client:
        answer = await client.request(f"$JS.API.STREAM.INFO.{name}_0", b"")
        config = json.loads(answer.data)["config"]
        changed = json.dumps({**config, "num_replicas": 1}).encode()
        await client.request(f"$JS.API.STREAM.UPDATE.{name}_0", changed, timeout=5)
    with pytest.raises(StoreUnsafe, match=rf"3 or more replicas of stream {name}_0, found 1"):
        await JetStreamStore.open(jetstream.url(name))


async def test_a_store_is_made_when_the_last_server_has_come() -> None:
    with nats_server.running(place=memory_folder()) as cluster:
        old = cluster.leader()
        new, last = (old + 1) % 3, (old + 2) % 3
        cluster.stop(new, last)
        cluster.start(new)
        # Let one lead that has never seen the last one; an election by itself takes long.
        client = await nats.connect(cluster.servers[old], user="sys", password="sys")  # noqa: S106
        wanted = b'{"placement": {"preferred": "%s"}}' % cluster.nodes[new].name.encode()
        await client.request("$JS.API.META.LEADER.STEPDOWN", wanted, timeout=5)
        await client.close()
        said = ""
        while "no suitable peers" not in said:  # before, the servers may not answer in time
            with pytest.raises(StoreUnavailable) as refused:
                await JetStreamStore.open(cluster.url(), patience=1)
            said = str(refused.value)
        opening = asyncio.ensure_future(JetStreamStore.open(cluster.url()))
        await asyncio.to_thread(cluster.start, last)
        store = await opening
        assert (await store.append("s", [make_draft("a")], -1)).receipt.position == 0
        await store.close()


async def test_a_server_whose_monitoring_comes_late_is_no_stranger(jetstream: Cluster) -> None:
    refused = False

    async def forward(near: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        nonlocal refused
        if refused:
            far, ask = await asyncio.open_connection("127.0.0.1", jetstream.nodes[2].ports.monitor)
            ask.write(await near.readuntil(b"\r\n\r\n"))
            answer.write(await far.read())
            ask.close()
        refused = True
        answer.close()

    async with await asyncio.start_server(forward, "127.0.0.1", 0) as monitor:
        place = f"http://127.0.0.1:{monitor.sockets[0].getsockname()[1]}"
        monitors = ",".join([*jetstream.monitors[:2], place])
        store = await JetStreamStore.open(jetstream.url(fresh_name(), monitor=monitors))
        assert refused
        assert (await store.describe()).facts["servers"] == "n0, n1, n2"
        await store.close()


async def test_a_server_that_comes_back_with_other_settings_stops_the_writing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(creating, "WATCH_SECONDS", 0.1)
    with nats_server.running(place=memory_folder()) as cluster:
        store = await JetStreamStore.open(cluster.url())
        await store.append("s", [make_draft("a")], -1)
        # One that leads nothing, so that nobody has to be elected.
        leading = (cluster.leader(), cluster.leader("EVENTCTX_0"))
        number = next(one for one in range(3) if one not in leading)
        cluster.stop(number)
        settings = cluster.nodes[number].folder / "server.conf"
        settings.write_text(settings.read_text().replace(", sync_interval: always", ""))
        cluster.start(number)
        await asyncio.sleep(1)
        with pytest.raises(StoreUnsafe, match=f"on n{number}"):
            await store.append("s", [make_draft("b")], 0)
        assert [record.position async for record in store.read("s")] == [0]
        await store.close()


async def test_no_server_and_a_client_that_loses_a_cancellation_are_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def connect(*client: Any, **options: Any) -> None:
        # As `asyncio.wait_for` of Python 3.11 loses one that comes when its wait ends.
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    with pytest.raises(StoreUnavailable, match="expected a NATS server"):
        await JetStreamStore.open("nats://127.0.0.1:1/?monitor=http://127.0.0.1:2", patience=0.5)
    monkeypatch.setattr(nats.NATS, "connect", connect)
    with pytest.raises(StoreUnavailable, match="expected a NATS server"):
        async with asyncio.timeout(60):
            await JetStreamStore.open("nats://127.0.0.1:1/", patience=0.1)


async def test_a_store_is_made_only_when_asked_and_keeps_its_number_of_shards(
    jetstream: Cluster,
) -> None:
    name = fresh_name()
    with pytest.raises(StoreUnavailable, match="create=True"):
        await JetStreamStore.open(jetstream.url(name), create=False)
    with pytest.raises(StoreUnavailable, match="expected a store of the name"):
        await JetStreamStore.open(jetstream.url(name), read_only=True)
    await (await JetStreamStore.open(jetstream.url(name, shards=2))).close()
    store = await JetStreamStore.open(jetstream.url(name))
    assert (await store.describe()).facts["shards"] == "2"
    await store.close()
    with pytest.raises(InvalidSetting, match="expected shards=2"):
        await JetStreamStore.open(jetstream.url(name, shards=3))


FILES = Path(__file__).parents[3] / "docs" / "how-to" / "compose" / "nats"
ROLES = ("owner", "agent", "reader", "sys")
PASSWORDS = {f"{role.upper()}_PASSWORD": f"secret-of-{role}" for role in ROLES}


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
        authority = str(self.folder / "ca.pem")
        return self.url(user=f"{role}:secret-of-{role}", tls_ca=authority, **query)


@pytest.fixture(scope="module")
def servers(nats_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Documented]:
    folder = tmp_path_factory.mktemp("documented")
    make_certificates(folder)
    cluster = Documented(folder, binary=nats_binary)
    with ExitStack() as ending:
        ending.callback(cluster.kill)
        cluster.start()
        yield cluster


@pytest.mark.slow
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


@pytest.mark.slow
async def test_each_role_may_do_what_it_is_for_and_no_more(
    servers: Documented, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await JetStreamStore.open(servers.of("owner"))
    agent = await JetStreamStore.open(servers.of("agent"), patience=3)
    await agent.append("s", [make_draft("a"), make_draft("b")], NO_STREAM)
    assert (await agent.fork("s", 0, "f", make_draft("c"))).receipt.position == 1
    await agent.save_checkpoint("seen", 3)
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


@pytest.mark.slow
async def test_a_roll_up_by_an_agent_takes_nothing_away(servers: Documented, opened: Any) -> None:
    await (await JetStreamStore.open(servers.of("owner", name="EVENTCTX"))).close()
    agent = await opened(JetStreamStore.open(servers.of("agent", name="EVENTCTX"), patience=60))
    await agent.append("kept", [make_draft("a")], NO_STREAM)
    before = await gather(agent.read("kept"))
    for how in ("all", "sub"):
        rolled_up = agent._link.client.request(
            "EVENTCTX.0.r.kept", b"x", timeout=5, headers={"Nats-Rollup": how}
        )
        assert b"error" in (await agent._link.run(rolled_up)).data
    assert await gather(agent.read("kept")) == before


@pytest.mark.slow
async def test_without_the_authority_or_the_password_nothing_opens(servers: Documented) -> None:
    guessed = servers.of("agent").replace("secret-of-agent", "guessed-it")
    for url in (servers.url(user="agent:secret-of-agent"), guessed):
        with pytest.raises(StoreUnavailable) as caught:
            await JetStreamStore.open(url, patience=1)
        assert not re.search("secret-of-agent|guessed-it", str(caught.value))


@pytest.mark.slow
async def test_a_backup_of_the_streams_is_a_store_on_other_servers(servers: Documented) -> None:
    owner = await JetStreamStore.open(servers.of("owner", name="SAVED"))
    await owner.append("s", [make_draft("a", "b"), make_draft("secret")], NO_STREAM)
    await owner.fork("s", 1, "f", make_draft("c"))
    await owner.erase({"s": {Address(1): b""}})
    saved = {name: await _back_up(owner, name) for name in ("SAVED_META", "SAVED_0")}
    records = [await gather(owner.read(name)) for name in ("s", "f")]
    late = await owner.append("s", [make_draft("late")], 1)
    await owner.close()
    with running(binary=find(), place=memory_folder()) as others:
        async with connected(others.servers) as client:
            for name, backup in saved.items():
                await _restore(client, name, backup)
        restored = await JetStreamStore.open(others.url("SAVED"))
        assert [await gather(restored.read(name)) for name in ("s", "f")] == records
        assert (await restored.inspect()).findings == ()
        head = await restored.head("s")
        # The receipt tells that the end is missing.
        assert head is not None and head.head < late.receipt.position
        again = await restored.append("s", [make_draft("on")], head.head)
        assert again.receipt.position == late.receipt.position
        await restored.close()


async def _back_up(store: JetStreamStore, stream: str) -> tuple[dict[str, Any], list[bytes]]:
    """What ``nats stream backup`` does."""
    client = store._link.client
    chunks: list[bytes] = []

    async def back_up() -> dict[str, Any]:
        inbox = client.new_inbox()
        arriving = await client.subscribe(inbox)
        request = json.dumps({"deliver_subject": inbox}).encode()
        answer = await client.request(f"$JS.API.STREAM.SNAPSHOT.{stream}", request, timeout=60)
        while (message := await arriving.next_msg(60)).data:
            chunks.append(message.data)
            if message.reply:
                await client.publish(message.reply, b"")
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
