"""A server that checks requests as the real APIs do, and providers with clients for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from eventctx.orchestrators.protocol import StreamingProvider
from tests.orchestrators.providers.kits import KITS, Kit
from tests.orchestrators.providers.server import Reply, Server, json_reply, refused, serving
from tests.orchestrators.providers.server import streamed as events


class Api(Server):
    """The server, its providers, and the bodies that it received."""

    def __init__(self) -> None:
        super().__init__(refused)
        self.clients: list[Any] = []

    def connect(self, kit: Kit, *answers: Any, **options: Any) -> StreamingProvider:
        """The kit's provider, whose next requests get these answers."""
        self.clients.append(kit.connect(self.url))
        self.answers(*answers)
        return kit.provider(self.clients[-1], **options)

    def answers(self, *answers: Any) -> None:
        """Replies, bodies (or whatever is JSON), and lists of a stream's events."""
        for one in answers:
            made = one if isinstance(one, Reply) else json_reply(one)
            self.replies.append(events(one) if isinstance(one, list) else made)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [one.body for one in self.requests]


@pytest.fixture(params=KITS, ids=lambda kit: kit.name)
def kit(request: pytest.FixtureRequest) -> Kit:
    found: Kit = request.param
    return found


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with serving(Api()) as made:
        yield made
        for client in made.clients:
            await client.close()
