"""The contract of adapters, held by wrapped clients with ``compact=True``, API by API."""

from __future__ import annotations

import pytest

pytest.importorskip("anthropic", reason="an extra: eventctx[anthropic]")
pytest.importorskip("openai", reason="an extra: eventctx[openai]")

from eventctx.testing import AdapterContract
from tests.adapters.drivers.clients import ChatDriver, MessagesDriver, ResponsesDriver
from tests.adapters.test_attributes import KNOWN


class TestAnthropicMessages(AdapterContract):
    driver = MessagesDriver
    knows = KNOWN["Clients of Anthropic's and OpenAI's SDKs"]
    trims = False  # the caller's list is the conversation
    untold = frozenset(("tools",))  # the caller runs them, and may tell the model


class TestOpenAIChat(AdapterContract):
    driver = ChatDriver
    knows = KNOWN["Clients of Anthropic's and OpenAI's SDKs"]
    trims = False
    untold = frozenset(("tools",))


class TestOpenAIResponses(AdapterContract):
    driver = ResponsesDriver
    knows = KNOWN["Clients of Anthropic's and OpenAI's SDKs"]
    trims = False
    untold = frozenset(("tools",))
