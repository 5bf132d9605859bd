"""Amplifier's context-simple where it can be imported, else the work that it does for each call."""

from __future__ import annotations

from importlib.util import find_spec

from tests.benchmarks.hosting import ListContext, Message

MODULE = "context-simple"

INSTALLED = find_spec("amplifier_module_context_simple") is not None

LABEL = MODULE if INSTALLED else "a list that estimates as context-simple does"


def substitute() -> ListContext | None:
    """What is mounted instead of the module; None where the kernel will find the module itself."""
    return None if INSTALLED else _LikeSimple()


class _LikeSimple(ListContext):
    """A list, with the estimates that context-simple makes by its documents.

    A request estimates every message (``len(str(message)) // 4``), and every message that is added
    makes it estimate all of them again. This one never compacts.
    """

    async def add_message(self, message: Message) -> None:
        await super().add_message(message)
        self._estimated(await self.get_messages())

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: object = None
    ) -> list[Message]:
        messages = await super().get_messages_for_request(token_budget, provider)
        self._estimated(messages)
        return messages

    def _estimated(self, messages: list[Message]) -> int:
        return sum([len(str(message)) // 4 for message in messages])
