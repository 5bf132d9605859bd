"""The one extractor: from a message to the pieces of it that are worth keeping.

A piece is taken word for word, so that ``mentions`` can tell whether another text holds it:

- *demands* of a person (``demands``); *instructions*: demands and what else a short text says.
- *decisions* of a model: sentences with a cue such as "I'll use …" or "decided".
- *files* and *commands* of calls (``call_effects``), *outcomes* of results (``tool_results``).
- *lines* of texts and results, but for those that a harness puts around a result; *identifiers* in
  all that is the model's.
- *needles*: names and long lines, which are hardly in two places by chance.

``facts_reader`` takes demands; the index of a compaction demands, files, lines and identifiers;
``lost`` instructions, decisions, calls, outcomes and needles; ``instructions`` and the reminder of
a hook demands. The rules find words, not meaning.

One reader is separate on purpose. The metric of evidence recall (``projections.evidence``) judges
whether a view kept enough, so it must not take over what a policy keeps: it has its own candidates
and its own text of a message, and shares only demands and the cutting of names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from eventctx.messages.call_effects import How, core, effect_in_text, read_effect
from eventctx.messages.demands import demands_in, demands_of
from eventctx.messages.facts import Kind
from eventctx.messages.overlap import LEAST_SHARED, normal
from eventctx.messages.parts import Part, hosted_arguments, read_parts, words_of
from eventctx.messages.recall_text import QUOTED
from eventctx.messages.speaker import HARNESS_PREFIXES, is_of_harness
from eventctx.messages.tool_results import CallOutcome, outcome_of, text_of_result
from eventctx.text import pattern

ExtractKind = Literal[
    "demand", "instruction", "decision", "file", "command", "outcome", "line", "identifier"
]

MOST_OF_ONE: Final = 60_000
"""Characters of one text that are read for lines and identifiers."""


class CallExtract(NamedTuple):
    """A call: its ids, its tool, and its effect (``call_effects``)."""

    ids: tuple[str, ...]
    name: str | None
    files: tuple[tuple[str, How], ...]
    command: str | None
    removed: frozenset[str] = frozenset()
    added: frozenset[str] = frozenset()
    deleted: tuple[str, ...] = ()
    process: str = ""
    told: str = ""

    def under(self, absolute: Mapping[str, str]) -> CallExtract:
        """The same with the absolute paths of its relative ones, as far as these are known."""
        return self._replace(
            files=tuple([(absolute.get(path, path), how) for path, how in self.files]),
            deleted=tuple([absolute.get(path, path) for path in self.deleted]),
        )

    @property
    def source(self) -> str:
        """The call in words: its tool, and its command or its files."""
        what = self.command or ", ".join([path for path, _ in self.files])
        return f"{self.name or 'a call'} {what}".strip()


class MessageExtracts(NamedTuple):
    """The extracts of message ``number``, each kind in the order of the text.

    ``outcomes`` are those of the calls that the message answers, by call id, and ``answers`` the
    ids of these calls; ``running`` are those whose command goes on, with the id of its process.
    ``lines`` have no numbers that a tool put before them, and each comes once.
    """

    number: int
    speaker: Kind
    demands: tuple[str, ...] = ()
    instructions: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    calls: tuple[CallExtract, ...] = ()
    outcomes: Mapping[str, CallOutcome] = {}
    lines: tuple[str, ...] = ()
    identifiers: frozenset[str] = frozenset()
    answers: tuple[str, ...] = ()
    running: Mapping[str, str] = {}


def extract(
    message: dict[str, Any],
    wanted: Collection[ExtractKind],
    *,
    number: int = 0,
    kind: Kind | None = None,
) -> MessageExtracts:
    """The extracts of a message, of the ``wanted`` kinds alone.

    ``kind`` is the kind in its facts; without it role and parts tell. Decisions and identifiers are
    the model's, demands never are. Whether a person wrote a message, only its facts know:
    ask for demands and instructions where ``Facts.human`` is true.
    """
    parts = read_parts(message)
    speaker = kind or _kind_of(message, parts)
    of_model = speaker == "assistant"
    instructs = not of_model and "instruction" in wanted
    demands = demands_in(message) if instructs or (not of_model and "demand" in wanted) else ()
    told = instructions(words_of_person(message), demands) if instructs else ()
    return MessageExtracts(
        number,
        speaker,
        demands,
        tuple(told),
        tuple(decisions(words_of(message))) if of_model and "decision" in wanted else (),
        tuple(_calls(parts, wanted, of_model)),
        _outcomes(parts) if "outcome" in wanted else {},
        tuple(_lines(parts)) if "line" in wanted else (),
        frozenset(_identifiers(parts)) if of_model and "identifier" in wanted else frozenset(),
        tuple(_answered(parts)) if "line" in wanted else (),
        dict(_running(parts)) if "line" in wanted else {},
    )


def _kind_of(message: dict[str, Any], parts: Iterable[Part]) -> Kind:
    if any(part.kind == "result" for part in parts):
        return "result"
    role = message.get("role")
    if role == "assistant" or any(part.kind in ("call", "hosted", "thinking") for part in parts):
        return "assistant"
    return "user" if role == "user" else "system" if role in ("system", "developer") else "other"


# -- calls and results ---------------------------------------------------------------------------


def _calls(
    parts: Iterable[Part], wanted: Collection[ExtractKind], of_model: bool
) -> Iterator[CallExtract]:
    if "file" not in wanted and "command" not in wanted:
        return
    for part in parts:
        if part.kind in ("call", "hosted"):
            effect, name = read_effect(part), part.name
        elif of_model and part.kind == "text" and (found := effect_in_text(part.value)):
            name, effect = found
        else:
            continue
        command = effect.command if "command" in wanted else None
        command = None if command is None else core(command)
        ids = tuple(dict.fromkeys(part.ids))
        yield CallExtract(ids, name, effect.files, command, *effect[2:])


def _answered(parts: Iterable[Part]) -> Iterator[str]:
    for part in parts:
        if part.kind == "result":
            yield from part.ids


def _running(parts: Iterable[Part]) -> Iterator[tuple[str, str]]:
    for part in parts:
        if part.kind == "result" and (
            found := _RUNNING.search(text_of_result(part)[:LONGEST_LINE])
        ):
            yield from [(call_id, found[1]) for call_id in part.ids]


def _outcomes(parts: Iterable[Part]) -> dict[str, CallOutcome]:
    found: dict[str, CallOutcome] = {}
    for part in parts:
        if part.kind == "result":
            found.update(dict.fromkeys(part.ids, outcome_of(part, text_of_result(part))))
    return found


# -- sentences -----------------------------------------------------------------------------------

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
    """The sentences and list items of a text, each on one line; fenced code only with ``code``.

    For a reader: blanks are joined and bullets go. ``demands`` cuts its own, word for word.
    """
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


# -- lines and identifiers -----------------------------------------------------------------------

SHORTEST_LINE: Final = 12
LONGEST_LINE: Final = 400
"""Characters of a line that can be quoted: a longer one is data, or a program's."""

_NUMBERED: Final = pattern(r"\s*\d+\s*[→|:\t]")
"""The number of a line that a tool writes before it."""

_AROUND: Final = pattern(
    r"(?:Chunk ID: |Wall time: |Original token count: |Total output lines: "
    r"|(?:Process|Command) (?:exited|finished|running) with "
    r"|\[(?:The command completed with )?exit code"
    r"|\[(?:Current working directory|Python interpreter|Command finished)\b"
    r"|</?(?:returncode|output|output_head|output_tail|elided_chars|system-reminder)>"
    r"|\(Bash completed with no output\))"
)
"""The lines that a harness puts around a result (Codex, OpenHands, mini-swe-agent, Claude Code)."""

_RUNNING: Final = pattern(r"running (?:with session ID|in background with ID:) (\w+)")
"""What Codex and Claude Code answer for a command that goes on."""

_UNREADABLE: Final = pattern("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Controls of terminals and of the order of letters, which show a text as another than it is."""

_IDENTIFIER: Final = pattern(r"[A-Za-z_][A-Za-z0-9_]{5,}")
"""Identifiers that are long enough to be telling."""


def _lines(parts: Iterable[Part]) -> dict[str, None]:
    found: dict[str, None] = {}
    for part in parts:
        if part.kind != "text" and part.kind != "result":
            continue
        text = part.value if part.kind == "text" else text_of_result(part)
        if part.kind == "result" and QUOTED in text[:MOST_OF_ONE]:
            continue  # a recalled text is as old as the message that it quotes
        for line in text[:MOST_OF_ONE].splitlines():
            line = line.strip()
            if line[:1].isdigit():  # few lines by far
                line = _without_number(line).strip()
            if len(line) >= SHORTEST_LINE and is_quotable(line) and not _AROUND.match(line):
                found[line] = None
    return found


def _without_number(line: str) -> str:
    """A line without the number that a tool writes before it."""
    if not line.lstrip()[:1].isdigit():
        return line
    number = _NUMBERED.match(line)
    return line if number is None else line[number.end() :]


def is_quotable(text: str) -> bool:
    """Whether a text can be quoted on a line of its own, and is shown as what it is."""
    return len(text) <= LONGEST_LINE and (text.isprintable() or not _UNREADABLE.search(text))


def identifiers_in(text: str) -> list[str]:
    """The identifiers in a text, in order."""
    return _IDENTIFIER.findall(text)


def _identifiers(parts: Iterable[Part]) -> set[str]:
    """The identifiers in the texts of a model, and in the arguments of its calls."""
    found: set[str] = set()
    for part in parts:
        if part.kind in ("call", "hosted"):
            texts = _leaves(hosted_arguments(part) if part.kind == "hosted" else part.value)
        else:
            texts = [part.value] if part.kind == "text" else []
        for text in texts:
            found.update(identifiers_in(text[:MOST_OF_ONE]))
    return found


def _leaves(value: object) -> list[str]:
    """The texts in arguments; JSON in a text is as good as the text itself here."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for one in value.values() for text in _leaves(one)]
    if isinstance(value, list):
        return [text for one in value for text in _leaves(one)]
    return []


# -- needles: names and long lines ---------------------------------------------------------------

NAME_CHARACTERS: Final = r"A-Za-z0-9_./:@#~+$-"
"""The characters of a name, as a class of a regular expression."""

TELLING: Final = pattern(r"[0-9_/.:]|[a-z][A-Z]")
"""The mark of a name, which a word does not have; words joined by hyphens have none of it."""

# The shortest name has six characters, and most words of a text are shorter.
_RUN: Final = pattern(rf"[{NAME_CHARACTERS}]{{6,}}")
_NO_FIRST: Final = "/:+-"
_NO_LAST: Final = "./:@#~+$-"
_HEX: Final = pattern(r"(?=.*\d)(?=.*[a-f])[0-9a-f]{7,40}")

LEAST_NAME: Final = 10
"""Characters of a name. With six, a third of the matches were by chance; with ten, a tenth."""

LEAST_NUMBER: Final = 6
"""Digits of a number: four are often a port, a year or a line."""


def needles_in(text: str) -> dict[str, str]:
    """The names and the long lines of a text, as they are compared, and as they were written."""
    found = {name: name for name in names_in(text)}
    for line in long_lines(text):
        shown = " ".join(line.split())
        letters = sum(map(str.isalnum, shown))
        if len(shown) >= LEAST_SHARED and " " in shown and 2 * letters >= len(shown):
            found[normal(shown)] = shown
    return found


def long_lines(text: str) -> Iterator[str]:
    """The lines that may be needles, without the number that a tool writes before them."""
    for line in text.splitlines():
        if len(line) >= LEAST_SHARED:
            yield line if line[0].isalpha() else _without_number(line)


def names_in(text: str) -> set[str]:
    """The names in a text."""
    # A word of small letters is none, and most words of a text are that, or come again.
    runs = [one for one in set(_RUN.findall(text)) if not (one.islower() and one.isalpha())]
    # Cut by hand: an expression for the last letter would go to and fro in a long row of dots.
    return {word for run in runs if _is_name(word := run.lstrip(_NO_FIRST).rstrip(_NO_LAST))}


def _is_name(word: str) -> bool:
    """Whether a word is a name: a long one with a digit, a mark or camel case; hex; a number."""
    if len(word) >= LEAST_NAME and not word.isdigit():
        return TELLING.search(word) is not None
    return len(word) >= LEAST_NUMBER and (word.isdigit() or _HEX.fullmatch(word) is not None)
