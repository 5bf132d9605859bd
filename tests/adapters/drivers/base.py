"""What the drivers of all frameworks share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from eventctx.orchestrators.protocol import ToolRequest
from eventctx.testing import Reply
from eventctx.testing.adapter_contract.findings import KNOWN_OF_CALLS

ALL: Final = frozenset(KNOWN_OF_CALLS)
_ID, _REASONS = "gen_ai.response.id", "gen_ai.response.finish_reasons"
_MODEL, _STREAM, _SERVER = "gen_ai.request.model", "gen_ai.request.stream", "server.address"

KNOWN: Final = {
    "OpenAI Agents SDK": ALL - {_REASONS},
    "LangChain, LangGraph": ALL,
    "Pydantic AI": ALL,
    "Google ADK": ALL - {_SERVER, _ID},
    "Strands Agents": ALL - {_ID},
    "Microsoft Agent Framework": ALL,
    "Clients of Anthropic's and OpenAI's SDKs": ALL,
}
"""The attributes that the span of a model call has under each adapter."""


class Driver:
    def shown(self, row: dict[str, Any]) -> Any:
        return row

    def request(self, system: Any, rows: Iterable[dict[str, Any]]) -> list[Any]:
        """What the model is shown of a request."""
        return [self.shown(one) for one in ({"role": "system", "content": system}, *rows)]

    async def close(self) -> None:
        """Nothing: a test closes its engine."""


def calls_of(reply: Reply) -> list[ToolRequest]:
    return [one for one in reply.calls if not isinstance(one, tuple)]
