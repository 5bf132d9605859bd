"""The ``openai`` SDK's client, for both of its APIs."""

from __future__ import annotations

from typing import Any, Final

from eventctx.orchestrators.providers.sdk_calling import Client, client_of

LOWEST: Final = "1.98"
"""The oldest release that passes on the errors inside a stream of the Responses API."""


def usable(client: Any) -> Client:
    """The client, or one from the environment, without its retries. Raises InvalidSetting."""
    return client_of(client, "openai", LOWEST, _classes)


def _classes() -> tuple[str, type, type, type[Exception]]:
    import openai

    return openai.__version__, openai.AsyncOpenAI, openai.OpenAI, openai.OpenAIError
