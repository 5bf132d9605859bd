"""Fixtures of the read side of a JetStream store: a store of one's own, written by hand."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator

import pytest

from eventctx.stores.jetstream.layout import Names
from eventctx.stores.jetstream.reading import SessionReader
from eventctx.stores.jetstream.retrying_reads import RetryingReads
from tests.services.nats_server import Cluster
from tests.stores.jetstream.bare import Bare, connected

_numbers = itertools.count()


def fresh_name() -> str:
    """A name that no other store of these tests has."""
    return f"T{os.getpid()}_{next(_numbers)}"


@pytest.fixture
async def bare(jetstream: Cluster) -> AsyncIterator[Bare]:
    """The streams of an empty store with one shard, and a client."""
    async with connected(jetstream.servers) as client:
        written = Bare(client, Names(fresh_name(), 1))
        await written.create()
        yield written


@pytest.fixture
def reader(bare: Bare) -> SessionReader:
    """The read side of that store."""
    return SessionReader(RetryingReads(bare.client, bare.names, 10.0))
