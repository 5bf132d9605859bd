"""The contract of adapters, held by wrapped clients with ``compact=True``, API by API."""

from __future__ import annotations

import pytest

pytest.importorskip("anthropic", reason="an extra: eventctx[anthropic]")
pytest.importorskip("openai", reason="an extra: eventctx[openai]")

from eventctx.testing import AdapterContract
from tests.adapters.drivers.clients import ChatDriver, MessagesDriver, ResponsesDriver


class TestAnthropicMessages(AdapterContract):
    driver = MessagesDriver
    trims = False  # the caller's list is the conversation
    untold = frozenset(("tools",))  # the caller runs them, and may tell the model


class TestOpenAIChat(AdapterContract):
    driver = ChatDriver
    trims = False
    untold = frozenset(("tools",))


class TestOpenAIResponses(AdapterContract):
    driver = ResponsesDriver
    trims = False
    untold = frozenset(("tools",))
