"""A context manager that keeps a list, for tests of code that uses a context manager."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

from eventctx.messages.facts_reader import read_facts


class MockContextManager:
    """The five methods of the context contract, over a list that a test can read.

    ``messages`` are those that it holds; ``calls`` counts the calls by method name; ``requests``
    are copies of the lists that ``get_messages_for_request`` returned, in order, and ``budgets``
    the budgets of these calls. It never compacts. It takes and returns copies, so neither side can
    change the other's messages.
    """

    def __init__(self, messages: list[dict[str, Any]] | None = None) -> None:
        self.messages: list[dict[str, Any]] = copy.deepcopy(messages or [])
        self.calls: Counter[str] = Counter()
        self.requests: list[list[dict[str, Any]]] = []
        self.budgets: list[int | None] = []

    async def add_message(self, message: dict[str, Any]) -> None:
        """Add a message. Raises InvalidMessage (a ValueError) for one without a role."""
        self.calls["add_message"] += 1
        read_facts(message)
        self.messages.append(copy.deepcopy(message))

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[dict[str, Any]]:
        """All messages, whatever the budget."""
        self.calls["get_messages_for_request"] += 1
        self.budgets.append(token_budget)
        self.requests.append(copy.deepcopy(self.messages))
        return copy.deepcopy(self.messages)

    async def get_messages(self) -> list[dict[str, Any]]:
        """All messages."""
        self.calls["get_messages"] += 1
        return copy.deepcopy(self.messages)

    async def set_messages(self, messages: list[dict[str, Any]]) -> None:
        """Replace all messages. Raises InvalidMessage and then changes nothing."""
        self.calls["set_messages"] += 1
        for message in messages:
            read_facts(message)
        self.messages = copy.deepcopy(messages)

    async def clear(self) -> None:
        """Forget all messages."""
        self.calls["clear"] += 1
        self.messages = []
