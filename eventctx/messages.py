"""Reading a message of any dialect without changing it: its facts, and which rows belong together.

The dialects: Anthropic blocks, OpenAI chat, OpenAI Responses items (which have a ``type`` where
others have a role), Amplifier rows, and what SWE-agent and mini-swe-agent make of OpenAI chat.
Facts are small, need no text, and are all that policies, token counts and the order of a view are
computed from. They are stored beside the body with the reader's version and can be rebuilt.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final, Literal, NamedTuple

import msgspec

from eventctx.errors import InvalidMessage
from eventctx.images import image_tokens

READER: Final = 1
"""Version of this reader. It goes up when a body's facts would come out differently."""

Kind = Literal["system", "human", "user", "assistant", "result", "other"]
"""``human``: written by a person. ``user``: role user, written by a harness. ``result``: carries
tool results, in whichever role."""

Dialect = Literal["chat", "anthropic", "amplifier", "responses"]

_SYSTEM_ROLES: Final = frozenset(("system", "developer"))
_ASSISTANT_ROLES: Final = frozenset(("assistant", "model"))
_RESULT_ROLES: Final = frozenset(("tool", "function"))

_RESPONSES_CALLS: Final = frozenset(
    ("function_call", "custom_tool_call", "local_shell_call", "tool_search_call", "computer_call")
)
_RESPONSES_RESULTS: Final = frozenset(
    (
        "function_call_output",
        "custom_tool_call_output",
        "local_shell_call_output",
        "tool_search_call_output",
        "tool_search_output",
        "computer_call_output",
    )
)

# What hosts put into the user's role around a person's words (reference: Claude Code, Amplifier).
_HARNESS_PREFIXES: Final = (
    "<system-reminder>",
    "<command-name>",
    "<command-message>",
    "<local-command-",
    "<bash-stdout>",
    "<bash-stderr>",
    "<task-notification>",
    "<environment_context>",
    "<user_instructions>",
    "<turn_aborted>",
    "# AGENTS.md instructions",
)

MARK_CHARACTERS: Final = 100
"""How much of a text counts for de-duplication (context-simple's README)."""


class Facts(msgspec.Struct, frozen=True, array_like=True):
    """What the reader saw in a body. Characters are code points that a model is shown.

    ``calls`` and ``results`` are the ids of the tool calls made and answered. ``images`` is in
    tokens, because an image's size and not its encoding counts. ``mark`` is a digest of role and
    first 100 characters. ``human`` is true where a person's words are in it.
    """

    reader: int
    role: str
    kind: Kind
    dialect: Dialect
    calls: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    prose: int = 0
    arguments: int = 0
    outcome: int = 0
    thinking: int = 0
    images: int = 0
    mark: bytes = b""
    human: bool = False


NO_FACTS: Final = Facts(READER, "erased", "other", "chat")
"""Stands for a body whose facts were destroyed with it."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Facts).decode


def encode_facts(facts: Facts) -> bytes:
    """The stored form of facts."""
    return _encode(facts)


def decode_facts(data: bytes) -> Facts:
    """Facts from their stored form; ``NO_FACTS`` for empty bytes (an erased body)."""
    return _decode(data) if data else NO_FACTS


class _Counts:
    """Collects while a message is walked; lives only inside ``read_facts``."""

    __slots__ = (
        "arguments",
        "calls",
        "dialect",
        "first",
        "images",
        "outcome",
        "prose",
        "results",
        "thinking",
    )

    def __init__(self) -> None:
        self.calls: dict[str, None] = {}
        self.results: dict[str, None] = {}
        self.prose = self.arguments = self.outcome = self.thinking = self.images = 0
        self.first: str | None = None
        self.dialect: Dialect = "chat"

    def text(self, text: str) -> None:
        self.prose += len(text)
        if self.first is None:
            self.first = text

    def call(self, call_id: object, name: object, arguments: object) -> None:
        """Count a call once: Amplifier rows hold every call in two places."""
        key = call_id if isinstance(call_id, str) else f"function:{name}"
        if key in self.calls:
            return
        self.calls[key] = None
        self.arguments += _size(arguments) + (len(name) if isinstance(name, str) else 0)


def read_facts(message: dict[str, Any]) -> Facts:
    """Read a message. Raises InvalidMessage when it has neither a role nor a known item type."""
    counts = _Counts()
    role = message.get("role")
    item = message.get("type")
    if not isinstance(role, str) or not role:
        if not isinstance(item, str) or role is not None:
            found = "nothing" if role is None else repr(role)
            raise InvalidMessage("$.role", found, "a role (system, user, assistant, tool, …)")
        role = _read_item(item, message, counts)
    else:
        _read_row(role, message, counts)
    kind, human = _kind(role, message, counts)
    return Facts(
        READER,
        role,
        kind,
        counts.dialect,
        tuple(counts.calls),
        tuple(counts.results),
        counts.prose,
        counts.arguments,
        counts.outcome,
        counts.thinking,
        counts.images,
        _mark(role, counts.first or ""),
        human,
    )


def _mark(role: str, text: str) -> bytes:
    source = f"{role}\0{text[:MARK_CHARACTERS]}".encode(errors="surrogatepass")
    return blake2b(source, digest_size=8).digest()


def _kind(role: str, message: dict[str, Any], counts: _Counts) -> tuple[Kind, bool]:
    if role in _SYSTEM_ROLES:
        return "system", False
    if role in _ASSISTANT_ROLES:
        return "assistant", False
    if role in _RESULT_ROLES:
        return "result", False
    if role != "user":
        return "other", False
    human = bool((counts.prose or counts.images) and not _by_harness(message, counts.first))
    if counts.results:
        return "result", human and counts.prose > 0
    return ("human" if human else "user"), human


def _by_harness(message: dict[str, Any], first: str | None) -> bool:
    metadata = message.get("metadata")
    if isinstance(metadata, dict) and metadata.get("source") == "hook":
        return True
    return first is not None and first.lstrip().startswith(_HARNESS_PREFIXES)


def _read_row(role: str, message: dict[str, Any], counts: _Counts) -> None:
    content = message.get("content")
    as_result = role in _RESULT_ROLES
    if message.get("type") == "message" and isinstance(content, list):
        counts.dialect = "responses"
    if isinstance(content, str):
        if as_result:
            counts.outcome += len(content)
            counts.first = content
        else:
            counts.text(content)
    elif isinstance(content, list):
        for block in content:
            _read_block(block, counts, as_result)
    elif content is not None:
        counts.prose += _size(content)
    if as_result:
        _read_result_ids(message, counts)
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        for call in calls:
            _read_tool_call(call, counts)
    legacy = message.get("function_call")
    if isinstance(legacy, dict):
        counts.call(None, legacy.get("name"), legacy.get("arguments"))
    reasoning = message.get("reasoning_content")
    if isinstance(reasoning, str):
        counts.thinking += len(reasoning)


def _read_result_ids(message: dict[str, Any], counts: _Counts) -> None:
    single, several = message.get("tool_call_id"), message.get("tool_call_ids")
    if isinstance(single, str):
        counts.results[single] = None
    elif isinstance(several, list):
        counts.results.update(dict.fromkeys(x for x in several if isinstance(x, str)))
    elif not counts.results and isinstance(message.get("name"), str):
        counts.results[f"function:{message['name']}"] = None


def _read_tool_call(call: object, counts: _Counts) -> None:
    if not isinstance(call, dict):
        return
    function = call.get("function")
    if isinstance(function, dict):
        counts.call(call.get("id"), function.get("name"), function.get("arguments"))
    elif "tool" in call:
        counts.dialect = "amplifier"
        counts.call(call.get("id"), call.get("tool"), call.get("arguments"))
    else:
        counts.call(call.get("id"), call.get("name"), call.get("args", call.get("arguments")))


def _read_block(block: object, counts: _Counts, as_result: bool) -> None:
    if isinstance(block, str):
        counts.text(block)
        return
    if not isinstance(block, dict):
        counts.prose += _size(block)
        return
    match block.get("type"):
        case "text" | "input_text" | "output_text":
            text = block.get("text")
            if as_result:
                counts.outcome += len(text) if isinstance(text, str) else 0
            elif isinstance(text, str):
                counts.text(text)
        case "tool_use" | "tool_call":
            counts.dialect = "anthropic" if block["type"] == "tool_use" else "amplifier"
            counts.call(block.get("id"), block.get("name"), block.get("input"))
        case "tool_result":
            _read_result_block(block, counts)
        case "thinking" | "reasoning":
            thinking = block.get("thinking", block.get("text"))
            counts.thinking += len(thinking) if isinstance(thinking, str) else 0
        case "redacted_thinking":
            counts.thinking += _sealed(block.get("data"))
        case "image" | "image_url" | "input_image":
            counts.images += image_tokens(block)
        case _:
            counts.prose += _size(block)


def _read_result_block(block: dict[str, Any], counts: _Counts) -> None:
    if counts.dialect == "chat":
        counts.dialect = "anthropic" if "tool_use_id" in block else "amplifier"
    call_id = block.get("tool_use_id", block.get("tool_call_id"))
    if isinstance(call_id, str):
        counts.results[call_id] = None
    content = block.get("content", block.get("output"))
    if isinstance(content, list):
        for part in content:
            _read_block(part, counts, as_result=True)
    elif content is not None:
        counts.outcome += _size(content)


def _read_item(item: str, message: dict[str, Any], counts: _Counts) -> str:
    """An item of OpenAI's Responses API; returns the role it plays."""
    counts.dialect = "responses"
    call_id = message.get("call_id") or message.get("id")
    if item in _RESPONSES_CALLS:
        arguments = message.get("arguments", message.get("input", message.get("action")))
        counts.call(call_id, message.get("name", item), arguments)
        return "assistant"
    if item in _RESPONSES_RESULTS:
        if isinstance(call_id, str):
            counts.results[call_id] = None
        output = message.get("output")
        if isinstance(output, list):
            for part in output:
                _read_block(part, counts, as_result=True)
        else:
            counts.outcome += _size(output)
        return "tool"
    if item == "reasoning":
        for part in message.get("summary") or ():
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                counts.thinking += len(part["text"])
        counts.thinking += _sealed(message.get("encrypted_content"))
        return "assistant"
    if item == "compaction":
        counts.thinking += _sealed(message.get("encrypted_content"))
        return "user"
    if item.endswith("_call"):
        counts.arguments += _size({k: v for k, v in message.items() if k not in ("type", "id")})
        return "assistant"
    raise InvalidMessage("$.role", f"nothing (type {item!r})", "a role or a known item type")


def _sealed(data: object) -> int:
    # Encrypted reasoning is base64 of about three times the text that it stands for.
    return len(data) // 4 if isinstance(data, str) else 0


def _size(value: object) -> int:
    """Characters of a value as compact JSON; of a text, its own."""
    if value is None:
        return 0
    if isinstance(value, str):
        return len(value)
    encoded = msgspec.json.encode(value)
    return len(encoded) if encoded.isascii() else len(encoded.decode())


def call_names(message: dict[str, Any]) -> dict[str, str]:
    """Names of the tools that a message calls, by call id; for activity events, not for views."""
    names: dict[str, str] = {}
    blocks = message.get("content")
    calls = message.get("tool_calls")
    for entry in [message, *(blocks if isinstance(blocks, list) else ()), *(calls or ())]:
        if not isinstance(entry, dict):
            continue
        function = entry.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        name = name or entry.get("name") or entry.get("tool")
        call_id = entry.get("call_id") or entry.get("id")
        if isinstance(name, str) and isinstance(call_id, str):
            names.setdefault(call_id, name)
    return names


# -- rows that belong together ------------------------------------------------------------------


class Group(NamedTuple):
    """Rows (indexes into the sequence) that stand or fall together.

    A tool round: the rows that call, the rows that answer, and the ids still unanswered. A row on
    its own is in ``calls`` alone. A row whose every result answers no call is an orphan: it is in
    ``results`` alone.
    """

    calls: tuple[int, ...]
    results: tuple[int, ...] = ()
    pending: tuple[str, ...] = ()

    @property
    def rows(self) -> tuple[int, ...]:
        """All rows in the order in which a provider wants them."""
        return self.calls + self.results

    @property
    def orphan(self) -> bool:
        """True when there is nothing that these results answer."""
        return not self.calls


class _Round:
    __slots__ = ("calls", "pending", "results")

    def __init__(self, row: int, facts: Facts) -> None:
        self.calls = [row]
        self.results: list[int] = []
        self.pending = dict.fromkeys(facts.calls)


def joins(previous: Facts, facts: Facts) -> bool:
    """Whether an assistant row continues the round of the row directly before it.

    In the Responses dialect one answer of the model is several items in a row.
    """
    return (
        facts.kind == previous.kind == "assistant"
        and facts.dialect == previous.dialect == "responses"
    )


def group_rows(rows: Sequence[Facts]) -> list[Group]:
    """Put every row into exactly one group, ordered by each group's first row.

    A result belongs to the latest call before it that has its id and no answer yet, however late
    it comes and whatever stands between. A row with results of several rounds belongs to the
    round of the first one that it matches.
    """
    rounds: list[_Round | int] = []
    open_calls: dict[str, list[_Round]] = {}
    last: _Round | None = None
    for index, facts in enumerate(rows):
        if facts.kind == "result":
            owner = _owner(facts, open_calls)
            if owner is None:
                rounds.append(index)
            else:
                owner.results.append(index)
                for call_id in facts.results:
                    if call_id in owner.pending:
                        del owner.pending[call_id]
                        open_calls[call_id].remove(owner)
            last = None
            continue
        if last is not None and joins(rows[index - 1], facts):
            last.calls.append(index)
            last.pending.update(dict.fromkeys(facts.calls))
            current = last
        else:
            current = _Round(index, facts)
            rounds.append(current)
        for call_id in facts.calls:
            open_calls.setdefault(call_id, []).append(current)
        last = current
    return [_group(entry, rows) for entry in rounds]


def _owner(facts: Facts, open_calls: dict[str, list[_Round]]) -> _Round | None:
    for call_id in facts.results:
        waiting = open_calls.get(call_id)
        if waiting:
            return waiting[-1]
    return None


def _group(entry: _Round | int, rows: Sequence[Facts]) -> Group:
    if isinstance(entry, int):
        return Group((), (entry,))
    # A user row may hold results and a person's words; results must all come before any words.
    results = sorted(entry.results, key=lambda row: rows[row].human)
    return Group(tuple(entry.calls), tuple(results), tuple(entry.pending))
