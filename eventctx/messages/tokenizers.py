"""Counts of a user's own tokenizer, which are kept as facts.

A tokenizer sees a message once, when it is added. Its count is stored beside the body, so that a
replay counts the same without it. Images, thinking and the cost of a call besides its text, which
no tokenizer counts, are still estimated.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.messages.facts import Facts
from eventctx.messages.parts import read_parts
from eventctx.messages.recall_text import text_of

Tokenizer = Callable[[str], int]
"""The number of tokens of a text."""

_MOST_TOKENS: Final = 10**12  # as of a reported count, ``log.usage.MOST_TOKENS``

_log = logging.getLogger("eventctx")


def counted(facts: Facts, message: dict[str, Any], tokenizer: Tokenizer | None) -> Facts:
    """The facts with the tokens that ``tokenizer`` counts in the message's texts.

    When a tokenizer raises, that is logged, and the estimate is used, as it is when the tokenizer
    returns no positive int, or an absurd one: a count must not end an agent's turn.
    """
    if tokenizer is None:
        return facts
    try:
        tokens = tokenizer("\n".join([text_of(message), *_plain_documents(message)]))
    except Exception as error:
        _log.warning("the tokenizer raised %s: %s", type(error).__name__, error)
        return facts
    if type(tokens) is not int or not 1 <= tokens <= _MOST_TOKENS:
        return facts
    return msgspec.structs.replace(facts, tokens=tokens)


def _plain_documents(message: dict[str, Any]) -> list[str]:
    """The texts of documents in plain text, which a search does not read: they lie in ``data``."""
    sources = [part.value.get("source") for part in read_parts(message) if part.kind == "document"]
    return [
        one["data"]
        for one in sources
        if isinstance(one, dict) and one.get("type") == "text" and isinstance(one.get("data"), str)
    ]


def tiktoken_tokenizer(model: str) -> Tokenizer:
    """The tokenizer of an OpenAI model, by the ``tiktoken`` package (``eventctx[tiktoken]``).

    Raises InvalidSetting where the package or its vocabulary, which it downloads, is missing.
    """
    try:
        import tiktoken  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise InvalidSetting(
            "tokenizer: expected the package tiktoken; install eventctx[tiktoken]"
        ) from error
    try:
        encoding = tiktoken.encoding_for_model(model)
    except KeyError as error:
        raise InvalidSetting(f"tokenizer: tiktoken knows no model {model!r}") from error
    except Exception as error:
        raise InvalidSetting(
            f"tokenizer: tiktoken's vocabulary for {model!r} cannot be loaded "
            f"({type(error).__name__}); it is downloaded once and then kept by tiktoken"
        ) from error

    def tokens(text: str) -> int:
        # Special tokens in a message are text, not an instruction to the encoder.
        return len(encoding.encode_ordinary(text))

    return tokens
