"""Redaction: removes keys, tokens, e-mail addresses and your own patterns from what sinks emit.

A secret is replaced by ``[redacted:KIND]``; the kinds are ``api-key``, ``token``, ``secret``,
``password``, ``private-key``, ``email`` and ``pattern``. The log stays as it is: only log lines,
spans and metrics are redacted, so replayed output is as safe as live output.

Redaction recognises forms, not meanings. It does not recognise a secret that looks like any other
word and has no name that marks it as one: add a pattern for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import compress
from operator import not_
from typing import Any, Final

from msgspec.structs import replace

from eventctx.errors import InvalidSetting
from eventctx.hooks import secret_names as forms
from eventctx.hooks.secret_forms import MARKER, MAX_BEFORE, PREFIXES, Form, FormGroup, may_hold
from eventctx.hooks.secret_names import NAMES
from eventctx.projections.flat import MAX_TEXT
from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.spans import Span, SpanEvent, SpanLink
from eventctx.text import clip

MAX_PASSES: Final = 4
MAX_REMEMBERED: Final = 64
"""Longest text, in characters, that is remembered as free of secrets; others never are."""
_REMEMBERED: Final = 4096
MARGIN: Final = 512
"""Characters beyond a limit that are searched too, so that a cut leaves no part of a secret."""

EXEMPT: Final = frozenset(
    (
        *("session_id", "turn_id", "span_id", "parent_span_id", "trace_id", "session", "parent"),
        *("call_id", "response_id", conv.TOOL_CALL_ID, conv.RESPONSE_ID),
        *("event", "time", "digest", "tools_digest", "estimator", "relation", "encoding"),
        *("trigger", "strategy", "outcome", "status"),
        *(conv.SESSION_ID, conv.CONVERSATION_ID, conv.TURN_ID, conv.OPERATION, conv.OUTCOME),
        *(f"{conv.COMPACTION}{name}" for name in ("trigger", "strategy", "outcome")),
        *(conv.COMPACTION_VIEW_BEFORE, conv.COMPACTION_DIGEST),
        *conv.CONTENT,  # their texts were redacted one by one, before they became JSON
        *(f"{conv.COMPACTION}tokens.{name}" for name in ("source", "estimator")),
        *(f"{conv.REQUEST}{name}" for name in ("digest", "tools_digest", "estimator", "wire")),
        *(f"eventctx.{name}" for name in ("trigger", "strategy", "status", "digest", "estimator")),
        *(f"eventctx.{name}" for name in ("session", "parent", "tools_digest", "relation")),
    )
)
"""Fields and attributes that are never redacted: codes, and the ids that join lines, spans and
records. A session or turn id that is itself a secret is emitted as it is."""

_PROBE: Final = "aB3 _-.,:;/\\@\"'\n\t(é)"
_NAME: Final = {
    "password": re.compile(rf"(?:{NAMES['password']}|^pass)[\d_]{{0,4}}$", re.IGNORECASE),
    "secret": re.compile(rf"(?:{NAMES['secret']})$", re.IGNORECASE),
    "private-key": re.compile(rf"(?:{NAMES['private-key']})$", re.IGNORECASE),
    "api-key": re.compile(rf"(?:{NAMES['api-key']})$", re.IGNORECASE),
    "token": re.compile(rf"(?:{NAMES['token']}|authorization|cookie)$", re.IGNORECASE),
}


@dataclass(frozen=True, slots=True)
class Redactor:
    """Replaces secrets in what sinks emit. Redacting twice is the same as once.

    ``patterns`` are your regular expressions, as text or compiled; if one has a group named
    ``secret``, only that group is replaced. ``keys``: whether to replace keys, tokens and passwords
    by the forms of ``hooks.secret_forms``; ``emails``: whether to replace e-mail addresses. Raises
    InvalidSetting for a pattern that is no regular expression, or that matches the empty string.
    """

    patterns: tuple[str | re.Pattern[str], ...] = ()
    keys: bool = field(default=True, kw_only=True)
    emails: bool = field(default=True, kw_only=True)
    _own: tuple[re.Pattern[str], ...] = field(init=False, repr=False, compare=False)
    _groups: tuple[FormGroup, ...] = field(init=False, repr=False, compare=False)
    _harmless: set[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        given = self.patterns
        if isinstance(given, str | re.Pattern) or not isinstance(given, Iterable):
            raise InvalidSetting(f"redaction patterns: expected a list of them, found {given!r}")
        known = (forms.KEYS if self.keys else ()) + (forms.EMAILS if self.emails else ())
        object.__setattr__(self, "patterns", tuple(given))
        object.__setattr__(self, "_own", tuple([_compile(one) for one in self.patterns]))
        object.__setattr__(self, "_groups", known)
        object.__setattr__(self, "_harmless", set())

    def text(self, text: str) -> str:
        """Return ``text`` with its secrets replaced."""
        short = len(text) <= MAX_REMEMBERED
        if short and text in self._harmless:
            return text
        found = self._redact(text) if self._own or may_hold(text) else text
        if short and found == text:
            # Remember it: names of models and tools come again with every call.
            if len(self._harmless) >= _REMEMBERED:
                self._harmless.clear()
            self._harmless.add(text)
        return found

    def _redact(self, text: str) -> str:
        was_cut = len(text) == MAX_TEXT and text.endswith("…")
        # Text next to a replaced secret may look like a secret only after the replacement.
        for _ in range(MAX_PASSES):
            before, text = text, self._once(text)
            if text == before:
                break
        return _without_last_word(text) if was_cut else text

    def cut(self, text: str, limit: int) -> str:
        """Return ``text`` redacted, then cut to ``limit`` characters with an ellipsis.

        The text beyond the limit and ``MARGIN`` is not searched, so any length costs the same.
        """
        if len(text) <= limit + MARGIN:
            text = self.text(text)
            return clip(text, limit)
        text = self.text(text[: limit + MARGIN])
        # The last characters may be the beginning of a secret, too short to be recognised.
        kept = min(limit - 1, max(0, len(text) - MARGIN))
        return _whole_markers(text, kept) + "…"

    def fields(self, fields: Mapping[str, Any], *, limit: int | None = None) -> dict[str, Any]:
        """Return a log line's fields, or a span's attributes, redacted; names stay.

        Values are scalars, tuples of strings, lists and dicts. If a value's name is that of a
        secret (``api_key``), the whole value is replaced. Numbers stay, and so do the ids and codes
        of ``EXEMPT``, which join lines, spans and records. ``limit``: most characters of a string.
        """
        done = dict(fields)
        # Most attributes are numbers, and this runs for each of every span.
        plain = map(_PLAIN.__contains__, map(type, fields.values()))
        for name, value in compress(fields.items(), map(not_, plain)):
            if name in EXEMPT:
                if limit is not None and isinstance(value, str):
                    done[name] = clip(value, limit)
                continue
            kind = _kind_of(name) if self.keys else None
            if kind is None and limit is None and type(value) is str:
                done[name] = self.text(value)
            else:
                done[name] = self._value(value, kind, limit)
        return done

    def document(self, value: Any, keep: frozenset[str] = frozenset()) -> Any:
        """Return a JSON document redacted at every depth, keys included; it is never cut.

        If a key is that of a secret (``api_key``), its whole value is replaced. Numbers stay, and
        so do the texts in ``keep``, such as names by which other documents are found.
        """
        return self._document(value, None, keep)

    def _document(self, value: Any, kind: str | None, keep: frozenset[str]) -> Any:
        if isinstance(value, str):
            return value if value in keep else self._value(value, kind, None)
        if isinstance(value, list):
            return [self._document(one, kind, keep) for one in value]
        if isinstance(value, dict):
            return {
                key if key in keep else self.text(key): self._document(
                    one, self._kind(key) or kind, keep
                )
                for key, one in value.items()
            }
        return value

    def span(self, span: Span) -> Span:
        """Return the span with its name, message, attributes, events and links redacted."""
        events, links = span.events, span.links
        return replace(
            span,
            name=self.text(span.name),
            message=None if span.message is None else self.text(span.message),
            attributes=self.fields(span.attributes),
            events=tuple([self._event(event) for event in events]) if events else events,
            links=tuple([self._link(link) for link in links]) if links else links,
        )

    def _link(self, link: SpanLink) -> SpanLink:
        return SpanLink(link.trace_id, link.span_id, self.fields(link.attributes))

    def _event(self, event: SpanEvent) -> SpanEvent:
        attributes = event.attributes
        for value in attributes.values():
            if type(value) not in _PLAIN:
                return SpanEvent(event.name, event.time, self.fields(attributes))
        return event

    def _once(self, text: str) -> str:
        for marks, known, gate in self._groups:
            for mark in marks:
                if mark in text:
                    if gate is None or gate.search(text) is not None:
                        text = _redact_by_forms(text, known)
                    break
        if text.endswith("…"):
            text = self._without_stump(text)
        for pattern in self._own:
            group = "secret" if "secret" in pattern.groupindex else 0
            text = _replace(text, Form("pattern", (), pattern), group)
        return text

    def _kind(self, name: str) -> str | None:
        return _kind_of(name) if self.keys else None

    def _value(self, value: Any, kind: str | None, limit: int | None) -> Any:
        if isinstance(value, str):
            if kind is not None and value and not MARKER.fullmatch(value):
                return f"[redacted:{kind}]"
            return self.text(value) if limit is None else self.cut(value, limit)
        if isinstance(value, tuple | list):
            return type(value)([self._value(item, kind, limit) for item in value])
        if isinstance(value, Mapping):
            return {
                self.text(key) if isinstance(key, str) else key: self._value(
                    item, (self._kind(key) if isinstance(key, str) else None) or kind, limit
                )
                for key, item in value.items()
            }
        return value

    def _without_stump(self, text: str) -> str:
        """Redact the part of a secret that a cut left at the end of a text."""
        if self.keys:
            text = _replace(text, _KEY_STUMP)
        if self.emails:
            text = _replace(text, _EMAIL_STUMP)
        return text


_BREAK: Final = re.compile(r"[\s\]]")
_PLAIN: Final = frozenset((int, float, bool, type(None)))
_KEY_STUMP: Final = Form(
    "api-key",
    (),
    re.compile(
        rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, (*PREFIXES, 'Bearer ', 'bearer ')))})"
        r"[\w.+/=-]{0,64}+(?=…\Z)"
    ),
)
_EMAIL_STUMP: Final = Form(
    "email", (), re.compile(r"(?<![\w.%+-])[\w.%+-]{1,64}+@[\w.-]{0,64}+(?=…\Z)")
)

DEFAULT: Final = Redactor()
"""The redactor of every sink that is not given another."""


def cleaner(redactor: Redactor | None) -> Callable[[str], str]:
    """A function that redacts a text; without a redactor, one that returns it unchanged."""
    return str if redactor is None else redactor.text


def _compile(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    if not isinstance(pattern, str | re.Pattern):
        raise InvalidSetting(f"redaction pattern: expected a str or re.Pattern, found {pattern!r}")
    try:
        made = re.compile(pattern)
    except re.error as error:
        raise InvalidSetting(
            f"redaction pattern {pattern!r}: expected a regular expression, found {error}"
        ) from error
    if not isinstance(made.pattern, str):
        raise InvalidSetting(f"redaction pattern: expected one of text, found {pattern!r} of bytes")
    empty = made.search("") or any(not one.group() for one in made.finditer(_PROBE))
    if empty:
        raise InvalidSetting(
            f"redaction pattern {made.pattern!r}: expected one that matches something, found one "
            "that matches the empty string"
        )
    return made


@lru_cache(maxsize=1024)
def _kind_of(name: str) -> str | None:
    """The kind of secret that a value of this name is, by the name's last word; None for none."""
    for kind, pattern in _NAME.items():
        if pattern.search(name):
            return kind
    return None


def _redact_by_forms(text: str, known: tuple[Form, ...]) -> str:
    folded = text.lower() if known[0].folded else text
    for form in known:
        for hint in form.hints:
            if hint in folded:
                text = _replace(text, form)
                break
    return text


def _replace(text: str, form: Form, group: int | str | None = None) -> str:
    """Replace every match of a form, or of one of its groups.

    Markers of an earlier redaction stay as they are, or are replaced whole.
    """
    parts: list[str] = []
    done = at = 0
    while (match := form.pattern.search(text, at)) is not None:
        start, end = match.span((match.lastindex or 0) if group is None else group)
        at = max(match.end(), at + 1)
        if form.before:
            start -= _count_before(text, max(done, start - MAX_BEFORE), start, form.before)
            if start == match.start():
                continue
        if end <= start or start < done:
            continue
        marker = _marker_at(text, start)
        if marker is not None and (start > marker[0] or end <= marker[1]):
            at = max(at, marker[1]) if match.start() < marker[0] else marker[1]
            continue
        marker = _marker_at(text, end - 1)
        if marker is not None:
            end = marker[1]
        parts += (text[done:start], f"[redacted:{form.kind}]")
        done = at = end
    return "".join((*parts, text[done:])) if parts else text


def _count_before(text: str, start: int, end: int, characters: str) -> int:
    part = text[start:end]
    count = len(part) - len(part.rstrip(characters))
    # In JSON inside JSON, a line break before it is a backslash and the letter n.
    escaped = count and text[end - count - 1 : end - count + 1] in ("\\n", "\\r", "\\t")
    return count - 1 if escaped else count


def _marker_at(text: str, index: int) -> tuple[int, int] | None:
    """Start and end of the marker around the character at ``index``; None if there is none."""
    begin = text.rfind("[redacted:", max(0, index - 24), index + 10)
    if begin < 0 or begin > index:
        return None
    marker = MARKER.match(text, begin)
    return marker.span() if marker is not None and index < marker.end() else None


def _without_last_word(text: str) -> str:
    """Return a text that was cut, without its last word, which the cut may have broken.

    A fold of spans has no redactor, so it cuts before redaction. The first part of a secret cut in
    two may be too short to be recognised, or lack the end by which it is recognised.
    """
    if not text.endswith("…"):
        return text
    word = _BREAK.split(text[-1 - MARGIN : -1])[-1]
    return text[: len(text) - 1 - len(word)] + "…"


def _whole_markers(text: str, length: int) -> str:
    """Return the first ``length`` characters, without a marker that the end would break."""
    marker = _marker_at(text, length - 1) if 0 < length < len(text) else None
    return text[: marker[0] if marker is not None and marker[1] > length else length]
