"""Finds texts that share a long enough part with given ones, such as copies of erased words.

Texts are compared without regard to case and white space, since an excerpt is often one line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

LEAST_SHARED: Final = 31
"""Characters in a row that two texts must share. Less would find common phrases everywhere."""

LEAST_WHOLE: Final = 6
"""Shortest text that is looked for as a whole."""

_GRAM: Final = 24
_STEP: Final = LEAST_SHARED - _GRAM + 1

_NO_CONTENTS: Final = frozenset(
    {"type", "role", "id", "name", "tool_use_id", "tool_call_id", "call_id", "model", "signature"}
)
"""Keys of a message whose values tie it to others, or classify it."""


class Overlap:
    """The texts to look for."""

    def __init__(self, texts: Iterable[str]) -> None:
        normal = {_normal(text) for text in texts}
        self._whole = {text for text in normal if len(text) >= LEAST_WHOLE}
        self._short = {text for text in self._whole if len(text) < _GRAM}
        self._grams: set[str] = set()
        for text in self._whole - self._short:
            self._grams.update(text[at : at + _GRAM] for at in range(0, len(text), _STEP))
            self._grams.add(text[-_GRAM:])
        self._grams = {gram for gram in self._grams if len(gram) == _GRAM}

    def __bool__(self) -> bool:
        return bool(self._whole)

    def shares(self, text: str) -> bool:
        """Whether ``text`` has ``LEAST_SHARED`` characters, or a short text, of those given."""
        text = _normal(text)
        if any(short in text for short in self._short):
            return True
        grams = self._grams
        return bool(grams) and any(
            text[at : at + _GRAM] in grams for at in range(len(text) - _GRAM + 1)
        )

    def holds(self, text: str) -> bool:
        """Whether one of the given texts is in ``text`` as a whole."""
        text = _normal(text)
        return any(whole in text for whole in self._whole)


def texts_in(value: Any) -> Iterator[str]:
    """The texts of a decoded message or record, without ids and types."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from texts_in(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key not in _NO_CONTENTS or not isinstance(item, str):
                yield from texts_in(item)


def _normal(text: str) -> str:
    return " ".join(text.split()).casefold()
