"""Reconciles the transcript that a host stored itself with the one in the log.

Hosts keep a transcript of their own and set it when a session is resumed. Theirs is a poorer copy:
system and developer messages are left out, and some keys are dropped or added (Amplifier's command
line does both: `SessionStore`, `sanitize_message`). A copy that differs in nothing else is ignored
(context contract 2.1.0, "File-Based Context Managers"). So is one that ends earlier, if it is the
first that a host gives of a resumed session (``earlier_copy``); later ones undo. Other differences
take effect, but the system and developer messages that the copy lacks stay.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, Final, NamedTuple

from eventctx.messages.encoding import encode_message
from eventctx.messages.overlap import match_in_order

STORAGE_KEYS: Final = frozenset(("timestamp", "thinking_block", "thinking_text", "content_blocks"))
"""Keys of a message that Amplifier's storage adds to its copy, or leaves out of it."""

_LEFT_OUT: Final = ("system", "developer")


Row = tuple[int | None, int | None]
"""A message: its index among the stored ones, or, where it is new, among the given ones."""


class Returned(NamedTuple):
    """The new transcript.

    ``rows`` is None where nothing changes; then ``missing_roles`` are the roles of the messages
    that the host left out, and ``ahead`` counts those after the last one that it gave.
    """

    rows: tuple[Row, ...] | None
    missing_roles: tuple[str, ...] = ()
    ahead: int = 0


def reconcile(stored: Sequence[dict[str, Any] | None], given: Sequence[dict[str, Any]]) -> Returned:
    """Compare a host's transcript with the stored one, where None is an erased message.

    A given message that is a poorer copy of a stored one counts as the stored one. Stored system
    and developer messages that are not among the given ones stay after the message that they
    followed. A different system prompt at the beginning replaces those at the beginning of the
    stored transcript. Raises InvalidMessage.
    """
    keys = [None if row is None else _key(row) for row in stored]
    known = set(keys)
    matched = match_in_order(keys, [_key_among(row, known) for row in given])
    left = sorted(set(range(len(stored))).difference(one for one in matched if one is not None))
    kept = [place for place in left if _role(stored[place]) in _LEFT_OUT]
    if stored and None not in matched and kept == left:
        return Returned(None, tuple(dict.fromkeys([_role(stored[place]) for place in kept])))
    if given and matched[0] is None and _role(given[0]) in _LEFT_OUT:
        leading = _leading(stored)
        kept = [place for place in kept if place >= leading]
    rows: list[Row] = []
    end = 0
    for at, place in enumerate(matched):
        if place is None:
            rows.append((None, at))
            continue
        while kept and kept[0] < place:
            rows.insert(end, (kept.pop(0), None))
            end += 1
        rows.append((place, None))
        end = len(rows)
    # Kept messages that followed every recognised one come right after the last of those.
    return Returned((*rows[:end], *[(place, None) for place in kept], *rows[end:]))


def earlier_copy(
    stored: Sequence[dict[str, Any] | None], given: Sequence[dict[str, Any]]
) -> Returned | None:
    """The result for a host's transcript that ends before the stored one does; None for any other.

    Such a copy, which may be empty and may be poorer, is what a host has that was killed between
    a message and its own save. Raises InvalidMessage.
    """
    keys = [None if row is None else _key(row) for row in stored]
    known = set(keys)
    theirs = [_key_among(row, known) for row in given]
    said = [key for key, row in zip(keys, stored, strict=True) if _role(row) not in _LEFT_OUT]
    repeated = [key for key, row in zip(theirs, given, strict=True) if _role(row) not in _LEFT_OUT]
    ahead = len(said) - len(repeated)
    if ahead <= 0 or said[: len(repeated)] != repeated or not set(theirs).issubset(keys):
        return None
    missing = [
        _role(row)
        for key, row in zip(keys, stored, strict=True)
        if _role(row) in _LEFT_OUT and key not in theirs
    ]
    return Returned(None, tuple(dict.fromkeys(missing)), ahead)


def rows_after(
    stored: Sequence[dict[str, Any] | None], given: Sequence[dict[str, Any]]
) -> Sequence[dict[str, Any]] | None:
    """What a copy has after the last stored message; None for a copy that is not a continuation.

    An erased message (None) equals any row in its place. A copy that ends before the stored
    messages do has no rows after them. Raises InvalidMessage.
    """
    keys = [None if row is None else _key(row) for row in stored]
    known = set(keys)
    for key, row in zip(keys, given, strict=False):
        if key is not None and key != _key_among(row, known):
            return None
    return given[len(stored) :]


class AddedAgain:
    """Recognises messages that a host adds one by one, in order, though the session holds them.

    Amplifier's command line fills a resumed child in this way. ``count`` rows were recognised so
    far.
    """

    def __init__(self, stored: Sequence[dict[str, Any]]) -> None:
        self._keys = [_key(row) for row in stored]
        self._known = set(self._keys)
        self._left_out = [_role(row) in _LEFT_OUT for row in stored]
        self._roles = [_role(row) for row in stored]
        self._next = 0
        self.count = 0

    def holds(self, row: dict[str, Any]) -> bool:
        """Whether ``row`` copies a message after the last one found. Raises InvalidMessage."""
        try:
            place = self._keys.index(_key_among(row, self._known), self._next)
        except ValueError:
            return False
        self._left_out[place] = False
        self._next = place + 1
        self.count += 1
        return True

    @property
    def missing_roles(self) -> tuple[str, ...]:
        """Roles of the system and developer messages that the host has not added again."""
        pairs = zip(self._left_out, self._roles, strict=True)
        return tuple(dict.fromkeys([role for left_out, role in pairs if left_out]))


def _leading(stored: Sequence[dict[str, Any] | None]) -> int:
    """How many system and developer messages the transcript begins with."""
    return next(
        (place for place, row in enumerate(stored) if _role(row) not in _LEFT_OUT), len(stored)
    )


def _role(row: dict[str, Any] | None) -> str:
    role = None if row is None else row.get("role")
    return role if isinstance(role, str) else ""


def _key(row: dict[str, Any]) -> bytes:
    """A key that a message and its poorer copy share: its JSON without ``STORAGE_KEYS``."""
    own = {name: value for name, value in row.items() if name not in STORAGE_KEYS}
    if own.get("metadata") == {}:
        del own["metadata"]
    return encode_message(_normal(own))


def _key_among(row: dict[str, Any], known: Container[bytes | None]) -> bytes:
    """The key of a host's row; without the time in its metadata, where only that key is known.

    A time that the message itself had is a part of it. One that it had not was put there for the
    host (``adapters/amplifier/rows.py``), and is nothing new.
    """
    key = _key(row)
    metadata = row.get("metadata")
    if key in known or not isinstance(metadata, dict) or "timestamp" not in metadata:
        return key
    others = {name: value for name, value in metadata.items() if name != "timestamp"}
    untimed = _key({**row, "metadata": others})
    return untimed if untimed in known else key


def _normal(value: Any) -> Any:
    """A value without nulls, which storage leaves out, and with sorted keys."""
    if isinstance(value, dict):
        # `encode_message` refuses keys of other types, with a better message than `sorted` has.
        names = sorted(value, key=str)
        return {name: _normal(value[name]) for name in names if value[name] is not None}
    return [_normal(one) for one in value] if isinstance(value, list) else value
