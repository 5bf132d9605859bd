"""Sentences of a person that instruct, and sentences of a model that state a decision.

The rules are small and find words, not meaning: a decision is a sentence with one of the cues
below; a demand is what ``messages.demands`` finds. Code, quotations of a terminal and elements of a
harness are no sentences.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from eventctx.messages.demands import demands_of
from eventctx.messages.overlap import normal
from eventctx.messages.parts import read_parts
from eventctx.messages.speaker import HARNESS_PREFIXES, is_of_harness
from eventctx.text import pattern

LONGEST: Final = 60
"""Words of a sentence; what is longer is a pasted text without sentences."""

SHORT: Final = 4
"""Sentences of a short text: each of them says what the person wants."""

MOST_DECISIONS: Final = 6
"""Decisions of one message that are taken at most."""

_FENCE: Final = pattern(r"```.*?(?:```|\Z)", re.DOTALL)
# No "<" in a tag: a search that begins at each of many would else go to the end of the text.
_OPENING: Final = pattern(r"<([a-z][a-z_-]*)(?:\s[^<>]*)?>")
_TAG: Final = pattern(r"</?[a-z][\w-]*(?:\s[^<>]*)?>")
_BULLET: Final = pattern(r"^\s*(?:[-*+•>]|\d{1,3}[.)]|#{1,6}|- \[[ x]\])\s+")
_END: Final = pattern(r"(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\betc\.)(?<!\bvs\.)(?<=[.!?])[\"')\]]*\s+")
_WORD: Final = pattern(r"[^\W_][\w'’-]*")

_DECISION: Final = pattern(
    r"\b(?:(?:I|we)(?:['’]ll| will| am going to|['’]m going to|['’]re going to)"
    r" (?:use|keep|go with|switch|stick|drop|avoid|skip|leave|replace|rewrite|put|store|follow)"
    r"|let['’]s (?:use|keep|go with|switch|stick|drop|avoid|skip|leave|replace|rewrite)"
    r"|decided|decision|chose|opted|going with)\b",
    re.IGNORECASE,
)
_CONTRAST: Final = pattern(r"\b(?:instead of|rather than)\b", re.IGNORECASE)
_OWN: Final = pattern(r"\b(?:I|we|let me|let['’]?s|my|our)\b", re.IGNORECASE)
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


def instructions(
    text: str, demands: Sequence[str] | None = None, taken_back: Collection[str] = ()
) -> list[str]:
    """The sentences of a person's short text; of a longer one the first and every demand.

    ``demands`` are those of the text (``messages.demands``), ``taken_back`` the ones that no longer
    hold. A sentence with a demand in it is listed as that demand.
    """
    demands = demands_of(text) if demands is None else demands
    found = sentences(text)
    first = found[: SHORT if len(found) <= SHORT else 1]
    plain = [normal(one) for one in demands]
    taken = [one for one in first if not any(_covers(normal(one), other) for other in plain)]
    holding = [one for one in demands if one not in taken_back]
    return list(dict.fromkeys([*taken, *[" ".join(one.split()) for one in holding]]))


def _covers(one: str, other: str) -> bool:
    return one in other or other in one


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
