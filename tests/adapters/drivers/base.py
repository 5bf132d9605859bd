"""What the drivers of all frameworks share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from eventctx.orchestrators.protocol import ToolRequest
from eventctx.testing import Reply


class Driver:
    def shown(self, row: dict[str, Any]) -> Any:
        return row

    def request(self, system: Any, rows: Iterable[dict[str, Any]]) -> list[Any]:
        """What the model is shown of a request."""
        return [self.shown(one) for one in ({"role": "system", "content": system}, *rows)]

    async def close(self) -> None:
        """Nothing: a test closes its engine."""


def calls_of(reply: Reply) -> list[ToolRequest]:
    """The calls of a reply, each with its id."""
    return [one for one in reply.calls if not isinstance(one, tuple)]
