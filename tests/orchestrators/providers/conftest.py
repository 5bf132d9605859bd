"""A server that checks requests as the real APIs do, and clients that are closed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from eventctx.orchestrators.protocol import StreamingProvider
from tests.orchestrators.providers.kits import KITS, Kit
from tests.orchestrators.providers.server import Server, refused, serving

Connect = Callable[..., StreamingProvider]


@pytest.fixture(params=KITS, ids=lambda kit: kit.name)
def kit(request: pytest.FixtureRequest) -> Kit:
    found: Kit = request.param
    return found


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving(Server(refused)) as made:
        yield made


@pytest.fixture
async def connect(server: Server) -> AsyncIterator[Connect]:
    """``connect(kit, **options)``: its provider, with a client for the server."""
    clients: list[Any] = []

    def provider(kit: Kit, **options: Any) -> StreamingProvider:
        clients.append(kit.connect(server.url))
        return kit.provider(clients[-1], **options)

    yield provider
    for client in clients:
        await client.close()
