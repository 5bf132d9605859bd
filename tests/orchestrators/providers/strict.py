"""The real API at a path of a server of these tests, and what it refuses."""

from __future__ import annotations

from eventctx.testing.strict_provider import Api, violations
from tests.orchestrators.providers.server import ReceivedRequest


def refused(request: ReceivedRequest) -> str | None:
    """The error with which the API at this path refuses the request; None if it does not."""
    api: Api = "openai-chat"
    if request.path.startswith("/v1/messages"):
        api = "anthropic"
    elif request.path.endswith("/responses"):
        api = "openai-responses"
    broken = violations(api, request.body)
    return broken[0].message if broken else None
