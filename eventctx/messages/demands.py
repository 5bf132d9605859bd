"""Demands: sentences of a person that ask for or forbid something, such as "Never touch main.py".

They are what a compaction must not lose: in a published experiment agents broke a rule in 38 % of
the runs where a compaction had dropped it, and in none where it was kept
(https://arxiv.org/abs/2606.22528).

The form alone makes a demand: a sentence of 3 to 60 words with one of ``CUES``, outside code.
The cues are English. A sentence never crosses a line, so every demand is in its text word for word.
A harness's text is nobody's demand, wherever in a message it is.
"""

from __future__ import annotations

import re
from typing import Any, Final

from eventctx.messages.parts import read_parts
from eventctx.messages.speaker import persons_part, without_elements
from eventctx.text import pattern

LEAST_WORDS: Final = 3
MOST_WORDS: Final = 60
MOST_DEMANDS: Final = 12
"""Demands of one message. Of more, those with a strong cue are taken, the first ones first."""

MOST_CHARACTERS: Final = 100_000
"""Characters of a text that are read: what a person pastes beyond that is no list of demands."""

STRONG: Final = (
    *("never", "always", "must", "mustn't", "don't", "only", "ensure", "forbidden", "require"),
    *("required", "do not", "make sure", "not allowed", "under no circumstances", "no matter"),
)
"""Words that mark a sentence as a demand, and as one that matters most."""

CUES: Final = (
    *STRONG,
    *("should", "shouldn't", "shall", "instead", "without", "avoid", "use", "keep", "prefer"),
    *("please", "can't", "cannot", "won't", "stop", "remember", "leave", "let's", "need to"),
    *("needs to", "has to", "have to", "be sure", "no longer", "stick to", "at most", "at least"),
    *("rather than", "i want", "i'd like"),
)
"""Words that mark a sentence as a demand."""

_STRONG_WORDS: Final = frozenset([cue for cue in STRONG if " " not in cue])
_WORDS: Final = frozenset([cue for cue in CUES if " " not in cue])
_STRONG_PHRASES: Final = tuple([f" {cue} " for cue in STRONG if " " in cue])
_PHRASES: Final = tuple([f" {cue} " for cue in CUES if " " in cue])
_WORDS_OF_CUES: Final = frozenset([max(cue.split(), key=len) for cue in CUES])
"""The longest word of each cue."""

MARKS: Final = frozenset([max(re.split("[ ']", cue), key=len).encode() for cue in CUES])
"""The longest part of each cue; a text without any of these words has no demand."""

LETTERS_ONLY: Final = (
    bytes([one if chr(one).isalpha() else 0x20 for one in range(128)]) + b" " * 128
)
"""A table for ``bytes.translate``: all but ASCII letters become spaces."""

_FENCES: Final = ("```", "~~~")
_BREAK: Final = pattern(
    r"[.!?<。！？](?:(?<=[.!?])[\"'”)\]]*\s+(?=[\"'“(\[*`]*[A-Z0-9])"
    r"|(?<=<)/?[a-zA-Z][\w-]*>|(?<=[。！？]))"
)
"""The break between sentences; a Latin mark at its beginning belongs to the sentence before.

It begins with a set of characters, which ``re`` searches for quickly.
"""

_LEAD: Final = pattern(r"(?:[-*+•>#]+|\d{1,3}[.)])\s+")
_WORD: Final = pattern(r"[a-z0-9_](?:[\w'./-]*\w)?")
_LETTERS_AND_SPACES: Final = {
    code: None for code in range(128) if chr(code).isalpha() or chr(code).isspace()
}
_CODE: Final = pattern(
    r"[;{}]\s*$|^\s*(?:\$|>>>|[+-]{3} |@@|import |from \S+ import |def |class )|=>|->|\|\|"
)


def demands_of(text: str) -> tuple[str, ...]:
    """The demands of a text that a person wrote, word for word, in order."""
    text = text[:MOST_CHARACTERS]
    if "<" in text:
        text = without_elements(text)
    found: list[tuple[bool, str]] = []
    in_code = False
    for line in text.splitlines():
        if line.lstrip().startswith(_FENCES):
            in_code = not in_code
        elif not in_code:
            found += [one for one in map(_demand, _sentences(line)) if one is not None]
    unlike = dict.fromkeys(found)
    if len(unlike) > MOST_DEMANDS:
        ranked = sorted(unlike, key=lambda one: not one[0])
        chosen = set(ranked[:MOST_DEMANDS])
        return tuple([sentence for strong, sentence in unlike if (strong, sentence) in chosen])
    return tuple([sentence for _, sentence in unlike])


def demands_in(message: dict[str, Any]) -> tuple[str, ...]:
    """The demands in a message that a person wrote; a harness's texts in it are left out.

    For a message of anybody else the answer means nothing: ``Facts.human`` tells who spoke.
    """
    found: dict[str, None] = {}
    for text in [part.value for part in read_parts(message) if part.kind == "text"]:
        begins = persons_part(text)
        if begins is not None:
            found.update(dict.fromkeys(demands_of(text[begins:])))
    return tuple(found)[:MOST_DEMANDS]


def _sentences(line: str) -> list[str]:
    found: list[str] = []
    begins = 0
    for between in _BREAK.finditer(line):
        at = between.start()
        found.append(line[begins : at + (line[at] in ".!?")])
        begins = between.end()
    found.append(line[begins:])
    return found


def _demand(sentence: str) -> tuple[bool, str] | None:
    """A sentence without its list mark, and whether its cue is strong; None if it is no demand."""
    sentence = sentence.strip()
    lead = _LEAD.match(sentence)
    sentence = sentence if lead is None else sentence[lead.end() :].strip()
    words = _words(sentence)
    if _WORDS_OF_CUES.isdisjoint(words) or not LEAST_WORDS <= len(words) <= MOST_WORDS:
        return None  # most sentences by far
    strong = _strength(words)
    if strong is None or _CODE.search(sentence):
        return None
    return (strong, sentence) if _readable(sentence) * 10 >= len(sentence) * 7 else None


def _readable(sentence: str) -> int:
    """The number of letters and white space."""
    if sentence.isascii():
        return len(sentence) - len(sentence.translate(_LETTERS_AND_SPACES))
    return sum([one.isalpha() or one.isspace() for one in sentence])


def _strength(words: list[str]) -> bool | None:
    """Whether the words hold a strong cue; None if they hold none at all."""
    spoken = f" {' '.join(words)} "
    if not _STRONG_WORDS.isdisjoint(words) or any(one in spoken for one in _STRONG_PHRASES):
        return True
    if not _WORDS.isdisjoint(words) or any(one in spoken for one in _PHRASES):
        return False
    return None


def _words(text: str) -> list[str]:
    """The words of a text in lower case, with one form of the apostrophe."""
    return _WORD.findall(text.lower().replace("’", "'"))
