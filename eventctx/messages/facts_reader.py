"""The reader of facts: from a message of any dialect, which it does not change, to its facts.

Policies, token counts and the order of a view are computed from facts alone, without the text.
Facts are stored with the body and the reader's version and can be rebuilt.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final, NamedTuple
from zlib import adler32

import msgspec

from eventctx.errors import InvalidMessage
from eventctx.messages import response_items as items
from eventctx.messages.demands import demands_in, has_mark
from eventctx.messages.facts import READER, Dialect, Facts, Kind, Medium, as_observation
from eventctx.messages.media import image_medium, shown_of
from eventctx.messages.parts import (
    RESULT_ROLES,
    SEALED,
    Part,
    PartKind,
    is_compaction,
    parts_of_result,
    read_parts,
    role_of,
)
from eventctx.messages.pasted import LEAST_CHARACTERS, pasted_spans
from eventctx.messages.speaker import BEGINNINGS, is_of_harness
from eventctx.messages.text_weight import CHUNK, EXCESS, INDENTED, TABLE, TWO_SPACES, UNREAD
from eventctx.messages.tool_results import action_in
from eventctx.messages.tool_rounds import BY_NAME, number_call

SYSTEM_ROLES: Final = frozenset(("system", "developer"))
_ASSISTANT_ROLES: Final = frozenset(("assistant", "model"))
_ROLES: Final = ("user", *RESULT_ROLES, *sorted(SYSTEM_ROLES | _ASSISTANT_ROLES))

_SEAL: Final = 200
"""Bytes of a signature beside the text that it holds encrypted: 177 up to Opus 4.6, some 200 of 4.8
(by signatures whose text is known). A model that leaves the text of its thinking out still takes
the whole back, and is charged for it."""

_OPENAI_SEAL: Final = 900
"""Characters of encrypted reasoning beside its text, by the reasoning tokens that GPT-5.5 reported:
17 for 1,036 characters, 62 for 1,336, 127 for 1,720."""

MARK_CHARACTERS: Final = 100
"""Characters of a text that de-duplication compares (context-simple's README)."""


def read_facts(
    message: dict[str, Any],
    *,
    by_harness: bool = False,
    observation: bool = False,
    count: Callable[[str], int] | None = None,
) -> Facts:
    """Read a message. Raises InvalidMessage when it has neither a role nor an item's type.

    ``by_harness`` says that a harness wrote it, as the event that adds it knows, whatever its text
    looks like; ``observation`` that it answers the action in the model's text before it.
    ``count`` gives the tokens of a text by OpenAI's vocabulary; without it they are estimated.
    """
    role = message.get("role") or role_of(message)
    if not isinstance(role, str):
        raise _without_role(message)
    item = "" if message.get("role") else items.type_of(message)
    found = _Counts(item, _dialect(message, item) if item or "type" in message else "chat")
    for part in read_parts(message, copies=True):
        _COUNT[part.kind](found, part)
    by_person = found.by_person or (bool(found.media) and found.first is None)
    human = role == "user" and by_person and not by_harness and not is_from_hook(message)
    texts, calls, results = found.texts, found.calls, found.results
    spoken = human and (found.prose > 0 or not results)
    kind = _kind(role, human, bool(results))
    is_models = kind == "assistant"
    demands = demands_in(message) if spoken and any(map(has_mark, texts)) else ()
    long = spoken and not results and found.prose > LEAST_CHARACTERS
    pasted = _count_pasted(message) if long else 0
    sizes = _measure_texts(found, count)
    server_calls, server_results = _unpaired_ids(found.others) if found.others else ((), ())
    facts = Facts(
        READER,
        role,
        kind,
        found.dialect,
        tuple(calls) if calls or not item else items.referenced_ids(item, message),
        tuple(results),
        prose=found.prose - pasted,
        arguments=found.arguments,
        outcome=found.outcome + pasted,
        thinking=found.thinking,
        mark=_mark(role, found.first or ""),
        human=spoken,
        bound=found.bound if is_models else 0,
        digits=sizes.digits,
        wide=sizes.wide,
        spaces=sizes.spaces,
        media=tuple(found.media),
        item=item,
        demands=len(demands),
        demand_characters=sum(map(len, demands)),
        action=action_in(texts) if is_models and not calls and texts else "",
        server_calls=server_calls,
        server_results=server_results,
        weight=sizes.weight,
        dense=sizes.dense,
        compacts=item == "compaction" or (is_models and any(map(is_compaction, found.others))),
    )
    return as_observation(facts) if observation else facts


class _Counts:
    """The characters, ids, texts and media of the parts of one message that were read so far.

    ``first`` is the text that de-duplication compares; ``others`` are parts of no kind that is
    counted by itself.
    """

    __slots__ = (
        *("arguments", "bound", "by_person", "calls", "dialect", "first"),
        *("item", "media", "others", "outcome", "prose", "results", "texts", "thinking"),
    )

    def __init__(self, item: str, dialect: Dialect) -> None:
        self.item = item
        self.dialect: Dialect = dialect
        self.prose = self.arguments = self.outcome = self.thinking = self.bound = 0
        self.by_person = False
        self.first: str | None = None
        self.texts: list[str] = []
        self.media: list[Medium] = []
        self.calls: dict[str, None] = {}
        self.results: dict[str, None] = {}
        self.others: list[Part] = []

    def add_text(self, part: Part) -> None:
        """A text or a refusal."""
        value = part.value
        self.prose += len(value)
        self.texts.append(value)
        # Most texts begin as no harness's text does, which is quickly seen.
        plain = value and value[0] not in BEGINNINGS and not value[0].isspace()
        self.by_person = bool(self.by_person or plain or not is_of_harness(value))
        self.first = value if self.first is None else self.first

    def add_call(self, part: Part) -> None:
        self.dialect = part.dialect or self.dialect
        # An id that one answer uses twice is one call: an Amplifier row holds calls twice.
        call_id = part.ids[0] if part.place[:1] != ("tool_calls",) else self._numbered(part)
        if call_id in self.calls:
            return
        self.calls[call_id] = None
        text = _as_text(part.value)
        self.texts.append(text)
        free, fixed = _sizes_of_arguments(part) if self.item else (len(text), 0)
        self.arguments += len(part.name or "") + free
        self.prose += fixed

    def _numbered(self, part: Part) -> str:
        """The id of a listed call: with a number where the tool's name or an empty id answers it.

        Ollama's API has objects for arguments, and its results may have the tool's name alone.
        """
        call_id = part.ids[0]
        of_ollama = part.place[2:] == ("function", "arguments") and isinstance(part.value, dict)
        if not call_id.startswith(BY_NAME) and call_id and not of_ollama:
            return call_id
        if not of_ollama:
            return number_call(call_id, self.calls)
        if call_id.startswith(BY_NAME):
            return number_call(call_id, self.calls, "")
        return number_call(f"{BY_NAME}{part.name or ''}", self.calls, call_id)

    def add_result(self, part: Part) -> None:
        value = part.value
        if part.dialect is not None and self.dialect == "chat":
            self.dialect = part.dialect
        if isinstance(value, str):
            self.outcome += len(value)
            self.texts.append(value)
            self.first = value if part.place == ("content",) else self.first
        else:
            characters, inner = _read_inside(part, self.results, self.texts, self.media)
            fixed = characters - _cuttable(part, characters) if self.item else 0
            self.outcome += characters - fixed
            self.prose += fixed
            if inner is not None and self.dialect == "chat":
                self.dialect = inner
        for call_id in part.ids:
            self.results[call_id] = None
        if part.place == ("content",) and not self.results:
            self.results[BY_NAME] = None

    def add_thinking(self, part: Part) -> None:
        if part.place[0] == "thinking_block" and self.bound:
            return  # Amplifier's second copy
        characters, signed = _read_thinking(part)
        self.thinking += characters
        self.bound += signed

    def add_hosted(self, part: Part) -> None:
        """An item of a provider's own tool; a block of one counts as any other block."""
        if part.place:
            self.add_other(part)
            return
        rest = {key: one for key, one in part.value.items() if key not in ("type", "id")}
        if part.type == "image_generation_call" and isinstance(rest.get("result"), str):
            self.media.append(image_medium({"data": rest.pop("result")}))
        text = _as_text(rest)
        self.arguments += len(text)
        self.texts.append(text)

    def add_other(self, part: Part) -> None:
        self.others.append(part)
        self.prose += _read_block(part.value, self.texts, self.media)


# A table and no chain of comparisons: this runs for every part of every message that is added.
_COUNT: Final[dict[PartKind, Callable[[_Counts, Part], None]]] = {
    "text": _Counts.add_text,
    "refusal": _Counts.add_text,
    "call": _Counts.add_call,
    "result": _Counts.add_result,
    "thinking": _Counts.add_thinking,
    "hosted": _Counts.add_hosted,
    "image": _Counts.add_other,
    "document": _Counts.add_other,
    "other": _Counts.add_other,
}


def _count_pasted(message: dict[str, Any]) -> int:
    """Characters of the pasted blocks in a person's message."""
    texts = [part.value for part in read_parts(message) if part.kind == "text"]
    return sum([span.length for text in texts for span in pasted_spans(text)])


def _unpaired_ids(parts: list[Part]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The ids of server tools' calls without their result among these parts, and the reverse."""
    served = [part for part in parts if part.kind == "hosted"]
    calls = [call_id for part in served if part.type.endswith("_use") for call_id in part.ids]
    results = [call_id for part in served if part.type.endswith("_result") for call_id in part.ids]
    return (
        tuple([call_id for call_id in calls if call_id not in results]),
        tuple([call_id for call_id in results if call_id not in calls]),
    )


def _dialect(message: dict[str, Any], item: str) -> Dialect:
    """The dialect of a message that has a type; its parts, which are read later, may correct it."""
    if item or not isinstance(message.get("role"), str):
        return "responses"
    listed = message["type"] == "message" and isinstance(message.get("content"), list)
    return "responses" if listed else "chat"


def _sizes_of_arguments(part: Part) -> tuple[int, int]:
    """Characters of an item's arguments: of what may be cut, and of what must stay as it is."""
    whole = _size(part.value)
    if not part.place:
        return 0, whole
    found = items.cuttable(part.type, part.value)
    if found is None:
        return whole, 0
    texts = [holder[key] for holder, key in found]
    return sum(map(len, texts)), whole - sum([_size([text]) - len('[""]') for text in texts])


def _cuttable(part: Part, whole: int) -> int:
    """Characters of the texts that may be cut in the output of an item of ``whole`` characters."""
    if not part.place:
        return 0
    found = items.cuttable(part.type, part.value)
    return whole if found is None else sum([len(holder[key]) for holder, key in found])


def _read_thinking(part: Part) -> tuple[int, int]:
    """Characters of a thinking part, and how many of them a provider binds."""
    characters = len(part.value)
    if part.type == "encrypted_content":
        characters = max(characters // 16, (characters - _OPENAI_SEAL) * 58 // 100)
    elif part.type in SEALED:
        # About three times as long as its text, four times in base64.
        characters //= 4
    elif not characters:
        characters = max(0, len(part.signature) * 3 // 4 - _SEAL)
    # A provider checks its signature even on a block without text, so at least 1 is bound.
    signed = part.type == "thinking" or part.type == "redacted_thinking"
    return characters, max(1, characters) if signed else 0


def _read_inside(
    result: Part, results: dict[str, None], texts: list[str], media: list[Medium]
) -> tuple[int, Dialect | None]:
    """Characters in a result, and the dialect of results inside it.

    The ids of those results are added to ``results``, texts and media to their lists.
    """
    characters = 0
    dialect: Dialect | None = None
    for part in parts_of_result(result):
        if part.kind == "text":
            characters += len(part.value)
            texts.append(part.value)
        elif part.kind == "result":
            results.update(dict.fromkeys(part.ids))
            more, _ = _read_inside(part, results, texts, media)
            characters, dialect = characters + more, part.dialect
        else:
            characters += _read_block(part.value, texts, media)
    return characters, dialect


def _read_block(value: Any, texts: list[str], media: list[Medium]) -> int:
    """Characters that a block shows: of a document its text, of an unknown one its JSON."""
    shown = shown_of(value)
    if shown is None:
        text = _as_text(value)
        texts.append(text)
        return len(text)
    texts.extend(shown.texts)
    media.extend(shown.media)
    return shown.characters + sum([len(text) for text in shown.texts])


class _Sizes(NamedTuple):
    """What ``Facts`` calls digits, wide, spaces, weight and dense."""

    digits: int
    wide: int
    spaces: int
    weight: int
    dense: int


def _measure_texts(found: _Counts, count: Callable[[str], int] | None) -> _Sizes:
    digits = wide = spaces = weight = dense = 0
    # Names of tools, and texts of documents, are not at hand.
    unread = found.prose + found.arguments + found.outcome
    for text in found.texts:
        data = text.encode("utf-8", "surrogatepass")
        unread -= len(text)
        digits += len(data) - len(data.translate(None, b"0123456789"))
        wide += len(data) - len(text)
        # Prose has no pair, and a search from the end sees that in a third of the time.
        pairs = text.count("  ") if text.rfind("  ") >= 0 else 0
        spaces += pairs
        weighs, excess = weigh(data, pairs)
        weight += weighs if count is None else 100 * count(text)
        dense += excess
    return _Sizes(digits, wide, spaces, weight + max(0, unread) * UNREAD, dense)


def weigh(data: bytes, spaces: int) -> tuple[int, int]:
    """The weight of a text in UTF-8 with so many pairs of spaces, and what is dense in it.

    Dense is what its characters weigh above ``USUAL`` each, so any n characters of the text weigh
    at most ``n * USUAL`` and that.
    """
    weights = data.translate(TABLE)
    whole, dense = _sum(weights), _sum(weights.translate(EXCESS))
    if spaces:
        whole += min(data.count(b"\n"), spaces) * INDENTED - spaces * TWO_SPACES
    return max(0, whole), dense


def _sum(values: bytes) -> int:
    # The low half of an Adler-32 is 1 and the sum of the bytes, taken at the speed of memory: a
    # tenth of the time of ``sum``, for each character of each message that is added.
    sums = [adler32(values[at : at + CHUNK]) & 0xFFFF for at in range(0, len(values), CHUNK)]
    return sum(sums) - len(sums)


def _without_role(message: dict[str, Any]) -> InvalidMessage:
    role, item = message.get("role"), message.get("type")
    found = "nothing" if role is None else repr(role)
    if isinstance(item, str):
        found += f" (type {item!r})"
    return InvalidMessage("$.role", found, "a role (system, user, …), or an item's type and none")


def is_known_role(role: str) -> bool:
    """Whether an API that is known has this role; ``item`` is that of an item without one."""
    return role == "item" or role in _ROLES


def check_role(role: str) -> None:
    """Raise InvalidMessage for an unknown role that looks like a misspelt one."""
    from difflib import get_close_matches

    near = get_close_matches(role.strip().lower(), _ROLES, n=1, cutoff=0.75)
    if near:
        raise InvalidMessage("$.role", repr(role), f"a role; did you mean {near[0]!r}?")


def _mark(role: str, text: str) -> bytes:
    source = f"{role}\0{text[:MARK_CHARACTERS]}".encode("utf-8", "surrogatepass")
    return blake2b(source, digest_size=8).digest()


def _kind(role: str, human: bool, answers: bool) -> Kind:
    if role == "user":
        return "result" if answers else "human" if human else "user"
    if role in _ASSISTANT_ROLES:
        return "assistant"
    if role in RESULT_ROLES:
        return "result"
    return "system" if role in SYSTEM_ROLES else "other"


def is_from_hook(message: dict[str, Any]) -> bool:
    """Whether a hook of the host added the message, as Amplifier marks it."""
    metadata = message.get("metadata")
    return isinstance(metadata, dict) and metadata.get("source") == "hook"


def _size(value: object) -> int:
    """Characters of a value as compact JSON; of a text, its own."""
    return len(_as_text(value))


def _as_text(value: object) -> str:
    """A value as compact JSON; a text as it is, nothing as an empty one."""
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
