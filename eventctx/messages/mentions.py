"""The presence check: whether a text, such as a summary, mentions an extract of a message.

The rules compare words, not meaning: what a summary says in quite other words is not found. Each is
tested:

- A *file*: its path, or the end of the path from two parts on (``core/view.py``); the file's name
  alone, if no other file of the session has it. A longer path that ends alike is a mention, a
  longer name is not.
- A *sentence of a person*: it is there word for word; one of one or two words in quotation marks or
  as an item.
- A *decision* of a model: that too; or half of its words are there and, paths left out, a run of 31
  characters of it (``overlap.LEAST_SHARED``); or three fifths of its words, three at least, are in
  one sentence of the text. Words have three letters at least and are no function words.
- A *command*: it is there, without ``cd x &&`` and ``| tail`` around it; or its program and
  everything that tells it from others, paths and names, are in one sentence.
- A *failure*: of the first line of its error, paths left out, 31 characters in a row are there,
  or the whole of it; or a name in it is in a sentence about errors; or all names, two at least,
  in one sentence.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from typing import Any, Final, Literal

from eventctx.messages.call_effects import core, identifying
from eventctx.messages.demands import LEAST_WIDE
from eventctx.messages.extracts import names_in, sentences
from eventctx.messages.overlap import LEAST_SHARED, Overlap, normal
from eventctx.messages.recall_text import is_sealed, text_of_summary
from eventctx.text import pattern

_WORD: Final = pattern(r"[^\W_][\w.'’/-]*\w|\w")
_FUNCTION_WORDS: Final = frozenset(
    re.findall(
        r"\S+",
        "about after again all alright also and another any anything are because been before "
        "being both btw but can can't could did does doesn't doing don't done each even every "
        "for from get had has have having here his how i'll i'm into isn't it's its itself "
        "just let let's like lot made make many may more most much must need not now off okay "
        "one only other our out over own please really same see she should some something "
        "still such sure than that that's the their them then there these they thing things "
        "this those through too under until upon use very want was way we'll were what when "
        "where which while who why will with would yes yet you your you're",
    )
)
_ABOUT_ERRORS: Final = pattern(
    r"error|fail|missing|fix|exception|warning|crash|broke|bug|issue|wrong|invalid|undefined"
)
_PATH: Final = pattern(r"(?<!\S)\S*/\S*")
_IDENTIFIER: Final = pattern(r"[A-Za-z][\w.]*\w")
_CODE: Final = pattern(r"[A-Z]{1,5}\d+")
_MARKED: Final = pattern(r"[\d_.]|[a-z][A-Z]")
_EDGE: Final = r"[\s\"'`“”‘’«»*_]*"

LEAST_WORDS: Final = 3
SHARE_IN_ONE: Final = 0.6
SHARE_WITH_RUN: Final = 0.5
LEAST_ERROR: Final = 6
"""Characters of a name in an error, and of an error's whole line."""
LEAST_COMMAND: Final = 4
"""Characters of a command: ``ls`` is in many words."""


MentionKind = Literal[
    "instruction", "decision", "command", "failure", "file", "file_alone", "line", "name"
]
"""The kind of an extract. ``file_alone``: no other file of the session has its name; ``failure``:
the first line of a failed command's error."""


class Mentions:
    """Texts in which extracts are looked for; made once for all summaries of a view."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._given = [text for text in texts if text]
        self._texts = [normal(text) for text in self._given]
        self._known: dict[tuple[MentionKind, str], bool] = {}

    @cached_property
    def _overlap(self) -> Overlap:
        return Overlap(self._given)

    @cached_property
    def _names(self) -> set[str]:
        return {name.casefold() for text in self._given for name in names_in(text)}

    @cached_property
    def _told(self) -> list[str]:
        return [normal(one) for text in self._given for one in sentences(text, code=True)]

    @cached_property
    def _places(self) -> dict[str, list[int]]:
        """The sentences that have a word, by its place among all of them."""
        found: dict[str, list[int]] = {}
        for place, told in enumerate(self._told):
            for word in content_words(told):
                found.setdefault(word, []).append(place)
        return found

    def holds(self, kind: MentionKind, text: str) -> bool:
        """Whether an extract is mentioned; each one is looked for once."""
        found = self._known.get((kind, text))
        if found is None:
            found = self._known[kind, text] = self._look_for(kind, text)
        return found

    def _look_for(self, kind: MentionKind, text: str) -> bool:
        match kind:
            case "file" | "file_alone":
                return self.file(text, alone=kind == "file_alone")
            case "failure":
                return self.failure(text)
            case "command":
                return self.command(text)
            case "line":
                return self._contains(normal(text))
            case "name":
                return self.name(text)
            case "instruction":
                return self.quotes(text)
            case "decision":
                return self.decision(text)

    def quotes(self, text: str) -> bool:
        """Whether a sentence is there word for word; one of two words: quoted, or as an item."""
        plain = normal(text).strip(" .!?\"'`")
        if len(plain) >= LEAST_WIDE and max(plain) > "\u2e80":  # no blanks between words
            return self._contains(plain)
        if not plain or len(plain.split()) > 2:
            return self._bounded(plain)
        if not self._contains(plain):
            return False
        quoted = re.compile(rf"[\"'`“‘«]{re.escape(plain)}[.!?]*[\"'`”’»]")
        item = re.compile(rf"(?:[-*•]|\d+[.)])?{_EDGE}{re.escape(plain)}{_EDGE}[.!?]*")
        lines = [normal(line) for text in self._given for line in text.splitlines()]
        return any(quoted.search(one) or item.fullmatch(one) for one in lines)

    def decision(self, text: str) -> bool:
        """Whether a sentence of a model is mentioned, in these words or most of them."""
        if self.quotes(text):
            return True
        wanted = content_words(text)
        if len(wanted) < LEAST_WORDS:
            return False
        present = sum(word in self._places for word in wanted)
        if present < SHARE_WITH_RUN * len(wanted):
            return False
        if self._overlap.shares(_PATH.sub(" ", text)):
            return True
        if present < SHARE_IN_ONE * len(wanted):
            return False
        counts = Counter(place for word in wanted for place in self._places.get(word, ()))
        best = max(counts.values(), default=0)
        return best >= max(LEAST_WORDS, SHARE_IN_ONE * len(wanted))

    def file(self, path: str, *, alone: bool = True) -> bool:
        """Whether a file is mentioned; ``alone`` if no other file has its name."""
        parts = [part for part in normal(path).split("/") if part]
        if not parts:
            return False
        shortest = "/".join(parts[-2:]) if len(parts) > 1 and not alone else parts[-1]
        # Most paths are in no summary, and to compile a pattern takes longer than to look.
        having = [text for text in self._texts if shortest in text]
        if not having:
            return False
        pattern = re.compile(rf"(?<![\w.-]){re.escape(shortest)}(?![\w-]|\.\w)")
        return any(pattern.search(text) for text in having)

    def command(self, command: str) -> bool:
        """Whether a command is mentioned."""
        whole = normal(core(command))
        if len(whole) >= LEAST_COMMAND and self._bounded(whole):
            return True
        program, marked = identifying(command)
        if not marked:
            return False
        tokens = [normal(one) for one in (program, *marked)]
        return any(all(token in one for token in tokens) for one in self._told)

    def failure(self, error: str) -> bool:
        """Whether the error of a failed command is mentioned, by its first line."""
        # The path in front of an error is in a summary for many reasons.
        told = " ".join(_PATH.sub(" ", error).split())
        plain = normal(told)
        if len(plain) >= LEAST_SHARED and self._overlap.shares(told):
            return True
        if len(plain) >= LEAST_ERROR and self._contains(plain):
            return True
        words = {
            normal(word)
            for word in _IDENTIFIER.findall(told)
            if len(word) >= LEAST_ERROR and _MARKED.search(word) and not _CODE.fullmatch(word)
        }
        for one in self._told:
            found = sum(word in one for word in words)
            if found and (_ABOUT_ERRORS.search(one) or 1 < found == len(words)):
                return True
        return False

    def name(self, name: str) -> bool:
        """Whether a name is mentioned as a word of its own or in another name."""
        plain = normal(name)
        return plain in self._names or self._bounded(plain)

    def _contains(self, plain: str) -> bool:
        return bool(plain) and any(plain in text for text in self._texts)

    def _bounded(self, plain: str) -> bool:
        if not self._contains(plain):
            return False
        pattern = re.compile(rf"(?<!\w){re.escape(plain)}(?!\w)")
        return any(pattern.search(text) for text in self._texts)


class SummaryMentions(Mentions):
    """The summaries of a view; ``sealed`` of them are encrypted."""

    def __init__(self, messages: Iterable[dict[str, Any]]) -> None:
        given = list(messages)
        super().__init__(map(text_of_summary, given))
        self.sealed = sum(map(is_sealed, given))


def content_words(text: str) -> set[str]:
    """The words of a sentence that carry its meaning, in lower case, without a plural's s."""
    found: set[str] = set()
    for word in _WORD.findall(text.casefold()):
        plain = word.replace("’", "'").strip("'.-/")
        if plain.isdigit() or (len(plain) >= 3 and plain not in _FUNCTION_WORDS):
            found.add(plain[:-1] if len(plain) > 3 and plain.endswith("s") else plain)
    return found
