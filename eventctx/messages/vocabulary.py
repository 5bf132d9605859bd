"""Exact counts by OpenAI's vocabularies, where the package ``tiktoken`` has them on disk.

A message is counted once, when it is added: its weight is then a count and no estimate. It is kept
with the message's facts, so a replay counts the same on a machine without the package.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from eventctx.messages.tokens import Tokenizer

_log = logging.getLogger("eventctx")


class Vocabulary(msgspec.Struct, frozen=True):
    """A vocabulary of OpenAI's: the file that tiktoken keeps it in, and that file's SHA-256."""

    name: str
    sha256: str

    @property
    def file(self) -> str:
        """The file's name: the SHA-1 of the address that tiktoken downloads it from."""
        address = f"https://openaipublic.blob.core.windows.net/encodings/{self.name}.tiktoken"
        return hashlib.sha1(address.encode(), usedforsecurity=False).hexdigest()


NEWER: Final = Vocabulary(
    "o200k_base", "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
)
"""Of gpt-4o and all that came after it."""

OLDER: Final = Vocabulary(
    "cl100k_base", "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"
)
"""Of gpt-4 and gpt-3.5."""

_OPENAI: Final = ("gpt", "gpt-tiles", "gpt-4o-mini", "gpt-mini", "gpt-nano")
_OLDER_MODELS: Final = ("gpt-4-", "gpt-3.5", "gpt-35")

_MOST_CHARACTERS: Final = 200_000
"""Characters of a text that are counted; the rest counts like them. tiktoken takes 0.02 to 0.4
seconds for so many."""


def vocabulary_of(family: str, model: str | None) -> Tokenizer | None:
    """The count by the vocabulary of an OpenAI model; None for others, or where it is not at hand.

    While no model is known it is the newer one: a message that is added before the first request
    counts exactly, too. Nothing is downloaded, and a model's missing vocabulary is logged once.
    """
    if model is not None and family not in _OPENAI:
        return None
    name = (model or "").rpartition("/")[2].lower()
    older = name == "gpt-4" or name.startswith(_OLDER_MODELS)
    vocabulary = OLDER if older else NEWER
    count = _tokenizer_of(vocabulary)
    if count is None and model is not None and sys.modules.get("tiktoken") is not None:
        _say_missing(vocabulary)
    return count


@cache
def _tokenizer_of(vocabulary: Vocabulary) -> Tokenizer | None:
    try:
        import tiktoken  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return None
    if not _is_kept(vocabulary):
        return None
    return _counting(tiktoken.get_encoding(vocabulary.name))


@cache
def _say_missing(vocabulary: Vocabulary) -> None:
    _log.warning(
        "tiktoken is installed but does not have its vocabulary, so tokens are estimated; "
        "python -c \"import tiktoken; tiktoken.get_encoding('%s')\" downloads it",
        vocabulary.name,
    )


def _counting(encoding: Any) -> Tokenizer:
    def tokens(text: str) -> int:
        # Special tokens in a message are text, not an instruction to the encoder.
        counted = len(encoding.encode_ordinary(text[:_MOST_CHARACTERS]))
        return counted * len(text) // min(len(text), _MOST_CHARACTERS) if text else 0

    return tokens


def _is_kept(vocabulary: Vocabulary) -> bool:
    """Whether tiktoken has the vocabulary on disk, so that it asks no network for it."""
    folders = [os.environ.get(name) for name in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR")]
    given = next((one for one in folders if one is not None), None)
    if given == "":
        return False  # told to keep none
    folder = Path(tempfile.gettempdir(), "data-gym-cache") if given is None else Path(given)
    try:
        data = (folder / vocabulary.file).read_bytes()
    except OSError:
        return False
    return hashlib.sha256(data).hexdigest() == vocabulary.sha256
