"""Sentences of a person that instruct, and sentences of a model that state a decision.

The rules are small and find words, not meaning: a demand is a sentence with one of the cues below,
and so is a decision. Code, quotations of a terminal and elements of a harness are no sentences.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from eventctx.messages.parts import read_parts
from eventctx.messages.speaker import HARNESS_PREFIXES, is_of_harness

LONGEST: Final = 60
"""Words of a sentence; what is longer is a pasted text without sentences."""

SHORT: Final = 4
"""Sentences of a short text: each of them says what the person wants."""

MOST_INSTRUCTIONS: Final = 12
MOST_DECISIONS: Final = 6
"""Sentences of one message that are taken at most, so that a pasted page does not crowd out all."""

_FENCE: Final = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
# No "<" in a tag: a search that begins at each of many would else go to the end of the text.
_OPENING: Final = re.compile(r"<([a-z][a-z_-]*)(?:\s[^<>]*)?>")
_TAG: Final = re.compile(r"</?[a-z][\w-]*(?:\s[^<>]*)?>")
_BULLET: Final = re.compile(r"^\s*(?:[-*+•>]|\d{1,3}[.)]|#{1,6}|- \[[ x]\])\s+")
_END: Final = re.compile(r"(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\betc\.)(?<!\bvs\.)(?<=[.!?])[\"')\]]*\s+")
_WORD: Final = re.compile(r"[^\W_][\w'’-]*")

_DEMAND: Final = re.compile(
    r"\b(?:don['’]?t|do not|never|always|must|only|should(?:n['’]?t)?|ensure|make sure|instead"
    r"|without|avoid|use|keep|need(?:s)? to|prefer|remember|please|stop|has to|have to"
    r"|want (?:you|to|it|a|the)|would want|not allowed|no longer|leave)\b",
    re.IGNORECASE,
)
_DECISION: Final = re.compile(
    r"\b(?:(?:I|we)(?:['’]ll| will| am going to|['’]m going to|['’]re going to)"
    r" (?:use|keep|go with|switch|stick|drop|avoid|skip|leave|replace|rewrite|put|store|follow)"
    r"|let['’]s (?:use|keep|go with|switch|stick|drop|avoid|skip|leave|replace|rewrite)"
    r"|decided|decision|chose|opted|going with)\b",
    re.IGNORECASE,
)
_CONTRAST: Final = re.compile(r"\b(?:instead of|rather than)\b", re.IGNORECASE)
_OWN: Final = re.compile(r"\b(?:I|we|let me|let['’]?s|my|our)\b", re.IGNORECASE)
"""A contrast is a decision in the model's own plans only, not in what it says of some code."""


def words_of_person(message: dict[str, Any]) -> str:
    """The texts of a message that its person wrote; empty where a harness wrote all of them."""
    texts = [part.value for part in read_parts(message) if part.kind == "text"]
    own = ["".join(_own(text)) for text in texts if not is_of_harness(text)]
    return "\n".join([_TAG.sub("\n", text) for text in own])


def _own(text: str) -> Iterator[str]:
    """The pieces of a text, with a blank in place of each element that a harness wrote."""
    at, unclosed = 0, set[str]()
    for opening in _OPENING.finditer(text):
        name = opening[1]
        if opening.start() < at or name in unclosed:
            continue
        closing = f"</{name}>"
        end = text.find(closing, opening.end())
        if end < 0:
            unclosed.add(name)
            continue
        end += len(closing)
        yield text[at : opening.start()]
        of_harness = name != "command-args" and text.startswith(HARNESS_PREFIXES, opening.start())
        yield " " if of_harness else text[opening.start() : end]
        at = end
    yield text[at:]


def sentences(text: str, *, code: bool = False) -> list[str]:
    """The sentences and list items of a text, each on one line; fenced code only with ``code``."""
    found: list[str] = []
    for line in (text if code else _FENCE.sub("\n", text)).splitlines():
        for sentence in _END.split(_BULLET.sub("", line)):
            joined = " ".join(sentence.split())
            if not any(letter.isalpha() for letter in joined):
                continue
            if found and found[-1].endswith(":") and not code:
                found[-1] += f" {joined}"  # what comes before a list says nothing without it
            else:
                found.append(joined)
    return found


def instructions(text: str) -> list[str]:
    """The sentences of a person's short text; of a longer one the first and every demand."""
    found = sentences(text)
    first = SHORT if len(found) <= SHORT else 1
    taken = [
        sentence
        for place, sentence in enumerate(found)
        if place < first or (_DEMAND.search(sentence) and 3 <= _words(sentence) <= LONGEST)
    ]
    return list(dict.fromkeys(taken))[:MOST_INSTRUCTIONS]


def decisions(text: str) -> Iterator[str]:
    """The sentences of a model that state a decision: "I'll use …", "decided", "I … instead of"."""
    taken = 0
    for sentence in sentences(text):
        contrast = _CONTRAST.search(sentence) and _OWN.search(sentence)
        if (contrast or _DECISION.search(sentence)) and 5 <= _words(sentence) <= LONGEST:
            yield sentence
            taken += 1
            if taken == MOST_DECISIONS:
                return


def _words(sentence: str) -> int:
    return len(_WORD.findall(sentence))
