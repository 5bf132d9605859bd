"""The text of a message as the metric reads it: one form for the needed and for the held text.

A model writes a file's lines into the JSON of a call, a tool quotes them after line numbers, a
view shortens them. So escapes are opened, runs of blanks become one blank, lines are stripped, and
empty lines go. Thinking is left out: it is no evidence of what was read, and views drop it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from eventctx.messages.encoding import decode_json
from eventctx.messages.media import shown_of
from eventctx.messages.parts import Part, hosted_arguments, parts_of_result, read_parts
from eventctx.text import pattern

_ESCAPE: Final = pattern(r'\\([nt"/])')
_OPENED: Final = {"n": "\n", "t": " ", '"': '"', "/": "/"}


def normalise(message: dict[str, Any]) -> str:
    """The prose, the texts in call arguments and the texts of results of a message of any dialect.

    Works for shortened copies and insertions as well. Lines are separated by line feeds.
    """
    texts: list[str] = []
    for part in read_parts(message):
        _read(part, texts)
    return normalise_text("\n".join(texts))


def normalise_text(text: str) -> str:
    """A text in the form in which both sides are compared."""
    if "\\" in text:
        text = _ESCAPE.sub(lambda found: _OPENED[found[1]], text)
    lines = [" ".join(line.split()) for line in text.split("\n")]
    return "\n".join([line for line in lines if line])


def _read(part: Part, texts: list[str]) -> None:
    match part.kind:
        case "text" | "refusal":
            texts.append(part.value)
        case "call":
            _add_arguments(part.value, texts)
        case "result":
            for inner in parts_of_result(part):
                _read(inner, texts)
        case "hosted":
            if part.type.endswith("_tool_result"):
                content = part.value.get("content", part.value.get("output"))
                _read(Part("result", (), content), texts)
            else:
                _add_arguments(hosted_arguments(part), texts)
        case "thinking":
            pass
        case _:
            shown = shown_of(part.value)
            if shown is None:
                _add_leaves(part.value, texts)
            else:
                texts.extend(shown.texts)


def _add_arguments(value: object, texts: list[str]) -> None:
    """Add the string leaves of arguments, which most dialects write as JSON in a string."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        # A custom tool's own text may begin so, too, and JSON may have been cut.
        with suppress(msgspec.DecodeError):
            value = decode_json(value)
    _add_leaves(value, texts)


def _add_leaves(value: object, texts: list[str]) -> None:
    """Add the strings in a value, keys left out, in their order; by a list, however deep it is."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            texts.append(one)
        elif isinstance(one, dict):
            left.extend(reversed(one.values()))
        elif isinstance(one, list):
            left.extend(reversed(one))


_WORDS: Final = pattern(r"\w+")


class Carriers:
    """Finds the messages that contain a text, exactly, and without reading all of them.

    A message that contains a text contains its inner words as whole words; of a word at its edge it
    may hold more. So an index of whole words leaves few messages to look into. Every text is looked
    for once.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        """Read the texts of a session, one for each message."""
        self._texts = texts
        self._by_word: dict[str, list[int]] = {}
        for number, text in enumerate(texts):
            for word in set(_WORDS.findall(text)):
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
        words = list(_WORDS.finditer(text))
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
