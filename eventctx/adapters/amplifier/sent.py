"""The request that a session prepared last, compared with the one that the host's provider sent.

Providers send messages in their own forms (a system prompt outside of them, results merged into
one message), so texts are compared and not messages. A text that is none of the prepared texts was
added on the way, such as a reminder that a hook injects for one request.

A provider without ``raw: true`` tells how many messages it sends, and no text. Then the additions
are not known, which is recorded, too: a request without a record was sent as it was prepared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from eventctx.log.codec import decode_known
from eventctx.log.events import RequestPrepared
from eventctx.log.record import Record
from eventctx.messages.overlap import match_in_order
from eventctx.messages.parts import SEALED, parts_of_result, read_parts


class Sent(NamedTuple):
    """The difference of what was sent from a request, as ``Context.record_sent`` takes it."""

    prepared: int
    messages: int
    additions: int | list[tuple[int, dict[str, Any]]]
    missing: int


class LastRequest:
    """The last ``context:request_prepared`` of a session, and a copy of its messages.

    A copy costs time in proportion to the view, so only hosts that report their requests get one.
    The second request shows whether a host does; the first is copied always.
    """

    def __init__(self) -> None:
        self._prepared: Record | None = None
        self._returned: tuple[int, list[dict[str, Any]] | None] | None = None
        self._reports = False
        self._roles: list[object] = []
        self._open = False
        """Whether a host was given the request, and has told nothing of it yet."""

    def prepared(self, record: Record) -> None:
        """Take the record of a request."""
        self._prepared = record

    @property
    def budget(self) -> int | None:
        """The budget of the last request; None without any."""
        if self._prepared is None:
            return None
        prepared: RequestPrepared = decode_known(self._prepared)
        return prepared.budget

    def returned(self, messages: Sequence[Mapping[str, Any]], *, to_host: bool) -> None:
        """Keep what is about to be returned, to be compared with the host's report.

        An orchestrator of ours, which is no host, records itself what it adds.
        """
        self._roles = [message.get("role") for message in messages]
        self._open = to_host
        if self._prepared is not None:
            compares = self._reports or self._returned is None
            rows = kept(messages) if compares else None
            self._returned = self._prepared.position, rows

    def recorded(self, prepared: int, additions: Sequence[tuple[int, dict[str, Any]]]) -> None:
        """Note additions that are recorded, as the provider's report holds them, too."""
        position, rows = self._returned or (None, None)
        if position == prepared and rows is not None:
            rows.extend([message for _, message in additions])

    def compared(self, data: Mapping[str, Any]) -> Sent | None:
        """The difference of a provider's report from the request; None if there is none."""
        messages = messages_of(data)
        if self._returned is None:
            return None
        if messages is None:
            return self._counted(data)
        self._open = False
        self._reports = True
        position, prepared = self._returned
        if prepared is None:
            return None  # the provider began to report in mid-session; the next one is compared
        found = compare(prepared, messages)
        if not (found.additions or found.missing):
            return None
        added = [
            (behind, {"role": text.role, "content": text.text}) for behind, text in found.additions
        ]
        return Sent(position, found.messages, added, found.missing)

    def _counted(self, data: Mapping[str, Any]) -> Sent | None:
        """What a report without messages tells; None if a report with them came before."""
        count = data.get("message_count")
        count = count if type(count) is int and count > 0 else 0
        return self._without_texts(count, max(0, count - counted_as_one(data, self._roles)))

    def untold(self) -> Sent | None:
        """The record for a request that the host sent and told nothing of; None without one."""
        return self._without_texts(0, 0)

    def _without_texts(self, count: int, added: int) -> Sent | None:
        if not self._open or self._returned is None:
            return None
        self._open = False
        return Sent(self._returned[0], count, added, 0)


def counted_as_one(data: Mapping[str, Any], roles: Sequence[object]) -> int:
    """The number of messages that a provider makes of prepared ones with these roles, at most.

    Anthropic's sends the system prompt outside of the messages (``has_system``) and results that
    follow each other in one message; all others count what they were given.
    """
    if "has_system" not in data:
        return len(roles)
    shown = [role for role in roles if role != "system"]
    merged = [
        one
        for one, before in zip(shown, [None, *shown], strict=False)
        if one not in _RESULTS or before not in _RESULTS
    ]
    return len(merged)


_RESULTS: Final = ("tool", "function")
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
    """How ``sent`` differs from ``prepared``, by texts; white space around a text does not count.

    A text that was sent more often than it was prepared is an addition, too.
    A text of ``prepared`` that is no text of ``sent`` may be a part of one: a host appends a
    reminder to the last result, and a provider joins system messages.
    """
    known = _texts_of(prepared)
    given = _texts_of(sent)
    found = _same_texts([one.text for one in known], [one.text for one in given])
    unsent = _Unsent(known, set(range(len(known))).difference(found))
    results = _places_of_results(prepared)
    additions: list[tuple[int, Text]] = []
    behind = 0
    for one, at in zip(given, found, strict=True):
        if at is not None:
            behind = max(behind, known[at].place + 1)
            continue
        rest, held = unsent.taken_out_of(one.text)
        # A blank result has no text to be found by, but its call's id.
        places = [known[at].place for at in held] + [results.get(call, -1) for call in one.answers]
        behind = max([behind, *[place + 1 for place in places]])
        if rest:
            additions.append((behind, Text(one.role, rest)))
    return SentDifference(len(sent), tuple(additions), unsent.messages_missing())


class _Shown(NamedTuple):
    """A text without the white space around it, its message's place, and the calls it answers."""

    role: str
    text: str
    place: int
    answers: tuple[str, ...]


def _texts_of(messages: Sequence[Mapping[str, Any]]) -> list[_Shown]:
    """The texts that messages show to a model, blank ones, arguments of calls and images apart."""
    found: list[_Shown] = []
    for place, message in enumerate(messages):
        role = message.get("role")
        for part in read_parts(dict(message)):
            result = part.kind == "result"
            for one in parts_of_result(part) if result else (part,):
                shown = isinstance(one.value, str) and one.kind != "call" and one.type not in SEALED
                if shown and (text := one.value.strip()):
                    by = role if isinstance(role, str) else "user"
                    found.append(_Shown(by, text, place, part.ids if result else ()))
    return found


def _places_of_results(messages: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """The place of the last result of each call."""
    return {
        call: place
        for place, message in enumerate(messages)
        for part in read_parts(dict(message))
        if part.kind == "result"
        for call in part.ids
    }


def _same_texts(known: Sequence[str], given: Sequence[str]) -> list[int | None]:
    """For each of ``given`` the index of the known text that it is; each known text counts once."""
    found = match_in_order(known, given)
    # What a provider moved, such as a system message from the middle, is not in order.
    moved: dict[str, list[int]] = {}
    for at in sorted(set(range(len(known))).difference(found), reverse=True):
        moved.setdefault(known[at], []).append(at)
    return [
        moved[text].pop() if at is None and moved.get(text) else at
        for text, at in zip(given, found, strict=True)
    ]


class _Unsent:
    """The prepared texts that were not sent by themselves, by their first line."""

    def __init__(self, known: Sequence[_Shown], left: set[int]) -> None:
        self._known = known
        self._left = left
        self._by_first_line: dict[str, list[int]] = {}
        # The longest first, because a text may begin with another one.
        for at in sorted(left, key=lambda at: (-len(known[at].text), at)):
            line = known[at].text.partition("\n")[0].rstrip()
            self._by_first_line.setdefault(line, []).append(at)

    def taken_out_of(self, text: str) -> tuple[str, list[int]]:
        """The rest of a text without the unsent texts in it, and the indexes of these.

        An unsent text counts only where it fills whole lines, but for white space around it: a word
        of a reminder may also be a prepared text, and then belongs to the reminder.
        """
        held: list[int] = []
        rest: list[str] = []
        at = 0
        while at < len(text):
            end = _end_of_line(text, at)
            line = text[at:end]
            start = at + len(line) - len(line.lstrip())
            for one in self._by_first_line.get(line.strip(), ()):
                stop = start + len(self._known[one].text)
                behind = _end_of_line(text, stop)
                if (
                    one in self._left
                    and text.startswith(self._known[one].text, start)
                    and not text[stop:behind].strip()
                ):
                    self._left.remove(one)
                    held.append(one)
                    end = behind
                    break
            else:
                rest.append(line)
            at = end + 1
        return "\n".join(rest).strip(), held

    def messages_missing(self) -> int:
        """The number of messages with a text that was not sent for them."""
        shown = [(one.text, one.place) for one in self._known]
        sent = {one for at, one in enumerate(shown) if at not in self._left}
        return len({shown[at][1] for at in self._left if shown[at] not in sent})


def _end_of_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end
