"""The ``openai`` SDK's client, for both of its APIs."""

from __future__ import annotations

from typing import Any, Final

from eventctx.errors import InvalidSetting
from eventctx.orchestrators.providers.sdk_calling import Client, is_older, missing, without_retries

LOWEST: Final = "1.98"
"""The oldest release that hands on the errors inside a stream of the Responses API."""


def usable(client: Any) -> Client:
    """The client, or one from the environment, without its retries. Raises InvalidSetting."""
    try:
        import openai
    except ImportError as error:
        raise missing("openai", LOWEST) from error
    if is_older(openai.__version__, LOWEST):
        raise missing("openai", LOWEST, openai.__version__)
    made = client
    if client is None:
        try:
            made = openai.AsyncOpenAI()
        except openai.OpenAIError as error:
            raise InvalidSetting(
                f"client: none can be made from the environment: {error}"
            ) from error
    return without_retries(made, "an AsyncOpenAI or None", openai.OpenAI, made=client is None)
