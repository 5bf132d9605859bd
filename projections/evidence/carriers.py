"""Which messages of a session contain a text, without reading all of them for each text.

A message that contains a text contains its inner words as whole words; of a word at its edge it may
hold more. So an index of whole words leaves few messages to look into.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from eventctx.text import pattern

_WORD: Final = pattern(r"\w+")


class Carriers:
    """Finds the messages that contain a text, exactly; every text is looked for once."""

    def __init__(self, texts: Sequence[str]) -> None:
        """Read the texts of a session, one for each message."""
        self._texts = texts
        self._by_word: dict[str, list[int]] = {}
        for number, text in enumerate(texts):
            for word in set(_WORD.findall(text)):
                self._by_word.setdefault(word, []).append(number)
        self._words = "\n".join(["", *self._by_word, ""])
        self._known: dict[str, tuple[int, ...]] = {}

    def of(self, text: str) -> tuple[int, ...]:
        """The numbers of all messages that contain the text, rising."""
        known = self._known.get(text)
        if known is None:
            texts = self._texts
            known = tuple([one for one in self._candidates(text) if text in texts[one]])
            self._known[text] = known
        return known

    def _candidates(self, text: str) -> Sequence[int]:
        words = list(_WORD.finditer(text))
        if not words:
            return range(len(self._texts))
        whole = [word[0] for word in words if word.start() > 0 and word.end() < len(text)]
        if whole:
            return min([self._by_word.get(word, []) for word in whole], key=len)
        longest = max(words, key=lambda word: len(word[0]))
        # A line feed around the word says on which side it cannot go on.
        before = "\n" if longest.start() > 0 else ""
        behind = "\n" if longest.end() < len(text) else ""
        found: set[int] = set()
        for word in self._words_with(f"{before}{longest[0]}{behind}"):
            found.update(self._by_word[word])
        return sorted(found)

    def _words_with(self, part: str) -> Iterator[str]:
        """The words of the session that contain a part; line feeds in it are a word's ends."""
        words, at = self._words, self._words.find(part)
        while at >= 0:
            start = at + 1 if part[0] == "\n" else words.rfind("\n", 0, at) + 1
            end = words.find("\n", start)
            yield words[start:end]
            at = words.find(part, end)
