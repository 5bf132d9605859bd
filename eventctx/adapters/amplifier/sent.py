"""The difference between the request that a host sent and the one that was prepared for it.

Providers send messages in their own forms (a system prompt outside of them, results merged into
one message), so texts are compared and not messages. A text that is in none of the prepared texts
was added on the way, such as a reminder that a hook injects for one request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from eventctx.messages.parts import SEALED, parts_of_result, read_parts

_LISTS: Final = ("messages", "input")


class Text(NamedTuple):
    """A text of a message, with the message's role."""

    role: str
    text: str


class SentDifference(NamedTuple):
    """The difference. Each of ``additions`` has the number of prepared messages before it."""

    messages: int
    additions: tuple[tuple[int, Text], ...]
    missing: int


def messages_of(data: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """The messages of an ``llm:request`` payload, as its provider sent them; None without any."""
    raw = data.get("raw")
    request = raw if isinstance(raw, Mapping) else data
    found = next((request[key] for key in _LISTS if isinstance(request.get(key), list)), None)
    if found is None:
        return None
    system = request.get("system") or request.get("instructions")
    first = [{"role": "system", "content": system}] if system else []
    return [*first, *(one for one in found if isinstance(one, dict))]


def kept(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A copy of the messages, because a host may change its own before it sends them."""
    return [{**one, "content": _kept(one.get("content"))} for one in messages]


def _kept(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    return [dict(block) if isinstance(block, dict) else block for block in content]


def compare(
    prepared: Sequence[Mapping[str, Any]], sent: Sequence[Mapping[str, Any]]
) -> SentDifference:
    """How ``sent`` differs from ``prepared``, by texts."""
    places: dict[str, int] = {}
    for place, message in enumerate(prepared):
        for text in texts_of(message):
            places.setdefault(text.text.strip(), place)
    beginning = _by_first_line(places)
    seen: set[str] = set()
    additions: list[tuple[int, Text]] = []
    behind = 0
    for message in sent:
        for text in texts_of(message):
            known = text.text.strip()
            if known in places:
                seen.add(known)
                behind = max(behind, places[known] + 1)
                continue
            rest, held = _without(known, beginning)
            seen.update(held)
            behind = max([behind, *[places[one] + 1 for one in held]])
            if rest:
                additions.append((behind, Text(text.role, rest)))
    absent = {place for text, place in places.items() if text and text not in seen}
    return SentDifference(len(sent), tuple(additions), len(absent))


def _by_first_line(texts: Iterable[str]) -> dict[str, list[str]]:
    """Texts by their first line, the longest first."""
    found: dict[str, list[str]] = {}
    for text in sorted(texts, key=len, reverse=True):
        if text:
            found.setdefault(text.partition("\n")[0], []).append(text)
    return found


def _without(text: str, beginning: Mapping[str, Sequence[str]]) -> tuple[str, list[str]]:
    """The rest of a text without the known texts in it, and these known texts.

    A known text counts only where it fills whole lines: a word of a reminder may also be a known
    text, and then belongs to the reminder.
    """
    held: list[str] = []
    rest: list[str] = []
    at = 0
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        for one in beginning.get(text[at:end], ()):
            stop = at + len(one)
            if text.startswith(one, at) and text[stop : stop + 1] in ("", "\n"):
                held.append(one)
                end = stop
                break
        else:
            rest.append(text[at:end])
        at = end + 1
    return "\n".join(rest).strip(), held


def texts_of(message: Mapping[str, Any]) -> Iterator[Text]:
    """The texts that a message shows to a model; arguments of calls and images apart."""
    role = message.get("role")
    for part in read_parts(dict(message)):
        for one in parts_of_result(part) if part.kind == "result" else (part,):
            if isinstance(one.value, str) and one.kind != "call" and one.type not in SEALED:
                yield Text(role if isinstance(role, str) else "user", one.value)
