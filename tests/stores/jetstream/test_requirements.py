"""Servers that could lose an acknowledged append are refused, and so are those that do not tell."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import nats
import pytest

from eventctx.errors import InvalidSetting, StoreUnavailable, StoreUnsafe
from eventctx.stores.jetstream import creating
from eventctx.stores.jetstream.store import JetStreamStore
from eventctx.testing.store_contract.drafts import make_draft
from tests.services import nats_server
from tests.services.in_memory import memory_folder
from tests.services.nats_server import Cluster
from tests.stores.jetstream.conftest import fresh_name


async def test_servers_that_sync_now_and_then_are_refused() -> None:
    with nats_server.running(sync=None, place=memory_folder()) as cluster:
        with pytest.raises(StoreUnsafe, match=r"sync_interval: always.*found 120 s on n\d"):
            await JetStreamStore.open(cluster.url())
        # Nothing was made there.
        client = await nats.connect(cluster.servers)
        answer = await client.request("$JS.API.STREAM.NAMES", b"")
        assert json.loads(answer.data)["streams"] is None
        await client.close()


async def test_two_servers_are_too_few() -> None:
    with (
        nats_server.running(size=2, place=memory_folder()) as cluster,
        pytest.raises(StoreUnsafe, match="3 or more servers"),
    ):
        await JetStreamStore.open(cluster.url())


async def test_servers_whose_settings_cannot_be_seen_are_refused(jetstream: Cluster) -> None:
    url = jetstream.url(fresh_name()).partition("&monitor")[0]
    with pytest.raises(StoreUnsafe, match=r"\?monitor=.*\?system="):
        await JetStreamStore.open(url)
    some = ",".join(jetstream.monitors[:2])
    with pytest.raises(StoreUnsafe, match=r"no answer of n2"):
        await JetStreamStore.open(f"{url}&monitor={some}")


async def test_the_system_account_tells_what_the_monitoring_does(jetstream: Cluster) -> None:
    url = jetstream.url(fresh_name()).partition("&monitor")[0]
    store = await JetStreamStore.open(f"{url}&system=sys:sys")
    described = await store.describe()
    assert described.facts["servers"] == "n0, n1, n2"
    assert described.facts["sync_interval"] == "always"
    assert "sys:sys" not in repr(described)
    await store.close()


async def test_a_stream_with_fewer_replicas_is_refused(jetstream: Cluster) -> None:
    name = fresh_name()
    store = await JetStreamStore.open(jetstream.url(name))
    await store.close()
    client = await nats.connect(jetstream.servers)
    answer = await client.request(f"$JS.API.STREAM.INFO.{name}_0", b"")
    config = json.loads(answer.data)["config"]
    changed = json.dumps({**config, "num_replicas": 1}).encode()
    await client.request(f"$JS.API.STREAM.UPDATE.{name}_0", changed, timeout=5)
    await client.close()
    with pytest.raises(StoreUnsafe, match=rf"3 or more replicas of stream {name}_0, found 1"):
        await JetStreamStore.open(jetstream.url(name))


async def test_a_store_is_made_when_the_last_server_has_come() -> None:
    with nats_server.running(place=memory_folder()) as cluster:
        old = cluster.first()
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


async def test_a_server_whose_monitoring_comes_while_it_is_asked_is_no_stranger(
    jetstream: Cluster,
) -> None:
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
        leading = (cluster.first(), cluster.leader("EVENTCTX_0"))
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


async def test_a_client_that_loses_a_cancellation_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def connect(*client: Any, **options: Any) -> None:
        # As `asyncio.wait_for` of Python 3.11 loses one that comes when its wait ends.
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    monkeypatch.setattr(nats.NATS, "connect", connect)
    with pytest.raises(StoreUnavailable, match="expected a NATS server"):
        async with asyncio.timeout(60):
            await JetStreamStore.open("nats://127.0.0.1:1/", patience=0.1)


async def test_no_server_at_all_is_said_so_within_the_patience() -> None:
    with pytest.raises(StoreUnavailable, match="expected a NATS server"):
        await JetStreamStore.open("nats://127.0.0.1:1/?monitor=http://127.0.0.1:2", patience=0.5)


async def test_the_number_of_shards_is_that_of_the_stores_making(jetstream: Cluster) -> None:
    name = fresh_name()
    store = await JetStreamStore.open(jetstream.url(name, shards=2))
    await store.close()
    store = await JetStreamStore.open(jetstream.url(name))
    assert (await store.describe()).facts["shards"] == "2"
    await store.close()
    with pytest.raises(InvalidSetting, match="expected shards=2"):
        await JetStreamStore.open(jetstream.url(name, shards=3))


async def test_a_store_that_is_not_there_is_not_made_when_it_must_not_be(
    jetstream: Cluster,
) -> None:
    with pytest.raises(StoreUnavailable, match="create=True"):
        await JetStreamStore.open(jetstream.url(fresh_name()), create=False)
    with pytest.raises(StoreUnavailable, match="expected a store of the name"):
        await JetStreamStore.open(jetstream.url(fresh_name()), read_only=True)
