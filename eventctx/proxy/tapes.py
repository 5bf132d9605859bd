"""Tapes of what a relay saw: one file for each session and agent, written in a thread of its own.

The relay's loop only puts a call into a queue. A call that cannot be written costs no answer: it is
counted and reported.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import threading
import zlib
from collections.abc import Callable
from hashlib import sha256
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, NamedTuple

import msgspec

from eventctx.importers.recorded_calls import (
    KEPT_HEADERS,
    Exchange,
    RequestHistory,
    as_written,
    header_line,
    model_request,
    session_name,
)
from eventctx.log.private_files import FILE_RIGHTS, make_folder
from eventctx.messages.encoding import decode_json
from eventctx.proxy.call_copy import MOST_KEPT, Headers, SeenCall
from eventctx.stores.own_copies import is_spent

_log = logging.getLogger("eventctx.record")

_SESSION: Final = ("x-claude-code-session-id", "session-id", "session_id", "conversation_id")
_AGENT: Final = "x-claude-code-agent-id"
_PARENT: Final = "x-claude-code-parent-agent-id"
_IN_USER_ID: Final = re.compile(r'session_(?:id"\s*:\s*")?([0-9a-f-]{36})')


_ZLIB: Final = 15


class NotUnpacked(ValueError):
    """A body is packed in a way that cannot be read here."""


class _Place(NamedTuple):
    """The session, the agent in it, and the agent that started that one."""

    session: str
    agent: str | None
    parent: str | None

    @property
    def name(self) -> str:
        return self.session if self.agent is None else f"{self.session}.agent-{self.agent}"


class _Tape:
    def __init__(self, path: Path, place: _Place) -> None:
        make_folder(path.parent)
        self._path = path
        self._history = RequestHistory()
        self._line = 0
        if path.exists():
            with path.open("rb") as file:
                self._line = sum(1 for _ in file)
        if self._line == 0:
            parent = None
            if place.agent is not None:
                above = f".agent-{place.parent}" if place.parent is not None else ""
                parent = f"{place.session}{above}"
            self._write(header_line(place.name, place.agent, parent))

    def call(self, row: dict[str, Any]) -> None:
        """Write a call. Raises OSError; the tape is as it was then."""
        sent = as_written(self._history, self._line + 1, row["sent"])
        try:
            self._write({**row, "sent": sent})
        except BaseException:
            self._history = RequestHistory()  # no later line may refer to this one
            raise

    def _write(self, row: dict[str, Any]) -> None:
        data = msgspec.json.encode(row) + b"\n"
        # One write, so that a reader never sees half of a line that will be whole.
        flags = os.O_WRONLY | os.O_APPEND
        if self._line == 0:
            flags |= os.O_CREAT  # later it is there, or an erasure has just destroyed it
        file = os.open(self._path, flags, FILE_RIGHTS)
        try:
            before = os.fstat(file).st_size
            if os.write(file, data) < len(data):
                os.ftruncate(file, before)  # the next line must not follow half of this one
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        finally:
            os.close(file)
        self._line += 1


class Tapes:
    """The tapes in a folder. ``put`` never blocks and never raises; ``close`` waits.

    ``name`` is that of the session of a program that names none. ``warn`` gets the first problem.
    """

    def __init__(self, folder: Path, name: str, warn: Callable[[str], None]) -> None:
        self.folder = folder
        self.calls = 0
        self.lost = 0
        self.paths: dict[Path, None] = {}
        self._name = name
        self._warn = warn
        self._tapes: dict[str, _Tape] = {}
        self._queue: SimpleQueue[SeenCall | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="eventctx-tapes", daemon=True)
        self._thread.start()

    def put(self, call: SeenCall) -> None:
        """Take a call."""
        self._queue.put(call)

    def close(self) -> None:
        """Write what was taken."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (call := self._queue.get()) is not None:
            try:
                self._take(call)
            except Exception as error:
                self.lost += 1
                _log.warning("a call was not recorded: %s", error)
                if self.lost == 1:
                    self._warn(f"a call was not recorded: {error}")

    def _take(self, call: SeenCall) -> None:
        row = row_of(call)
        if row is None:
            return
        place, path = self._free(_place(row, self._name))
        tape = self._tapes.get(place.name)
        if tape is None:
            tape = self._tapes[place.name] = _Tape(path, place)
        tape.call(row)
        self.calls += 1
        self.paths[path] = None

    def _free(self, place: _Place) -> tuple[_Place, Path]:
        """The place of a call, under a name that no destroyed tape had, and its tape."""
        first = place.session
        for number in count(2):
            path = self.folder / f"{session_name(place.name)}.jsonl"
            if not is_spent(path):
                break
            place = place._replace(session=f"{first}.{number}")
        return place, path


def row_of(call: SeenCall) -> dict[str, Any] | None:
    """A call as a tape has it; None for one that asks no model. Raises NotUnpacked."""
    path = call.path.partition("?")[0].rstrip("/")
    sent_bytes = unpacked(call.sent, _header(call.headers, "content-encoding"))
    try:
        sent = decode_json(sent_bytes)
    except msgspec.DecodeError:
        return None
    asked = Exchange(0, call.method, call.host, path, sent, call.status, None, None, {})
    if model_request(asked) is None:
        return None
    packed = _header(call.answer_headers, "content-encoding")
    return {
        "method": call.method,
        "host": call.host,
        "path": path,
        "headers": {
            name: value
            for name in KEPT_HEADERS
            if (value := _header(call.headers, name)) is not None
        },
        "sent": sent,
        "sent_sha256": sha256(sent_bytes).hexdigest(),
        "status": call.status,
        "answered": _value(unpacked(call.answered, packed)),
        "began": call.began,
        "ended": call.ended,
        "whole": call.whole,
    }


def _value(data: bytes) -> object:
    """A body as JSON; one that is streamed as its text."""
    try:
        return decode_json(data)
    except msgspec.DecodeError:
        return data.decode(errors="replace")


def _header(headers: Headers, name: str) -> str | None:
    wanted = name.encode()
    return next((value.decode("latin-1") for key, value in headers if key == wanted), None)


def _place(row: dict[str, Any], name: str) -> _Place:
    headers = row["headers"]
    session = next((headers[one] for one in _SESSION if one in headers), None)
    if session is None:
        metadata = row["sent"].get("metadata")
        user = metadata.get("user_id") if isinstance(metadata, dict) else None
        found = _IN_USER_ID.search(user) if isinstance(user, str) else None
        session = name if found is None else found.group(1)
    thread = headers.get("thread-id")  # Codex's name for an agent; the first one is the session
    agent = headers.get(_AGENT, thread if thread != session else None)
    return _Place(f"{session}.recorded", agent, headers.get(_PARENT))


def unpacked(data: bytes, encoding: str | None) -> bytes:
    """A body as it is meant; of a stream that was cut, what came. Raises NotUnpacked."""
    for one in reversed((encoding or "").lower().split(",")):
        match one.strip():
            case "" | "identity":
                continue
            case "gzip" | "x-gzip":
                data = _inflated(data, 31)
            case "deflate":
                data = _inflated(data, _ZLIB)
            case "zstd":
                data = _from_zstd(data)
            case "br":
                data = _from_brotli(data)
            case other:
                raise NotUnpacked(f"expected a body packed with gzip, zstd or br, found {other}")
    return data


def _inflated(data: bytes, bits: int) -> bytes:
    found = bytearray()
    try:
        while data and len(found) < MOST_KEPT:  # gzip may have several members
            unpacker = zlib.decompressobj(bits)
            found += unpacker.decompress(data, MOST_KEPT - len(found))
            data = unpacker.unused_data
    except zlib.error as error:
        if bits == _ZLIB and not found:
            return _inflated(data, -_ZLIB)  # as some servers understand the name
        raise NotUnpacked(f"expected a packed body, found bytes that are none ({error})") from error
    return bytes(found)


def _from_brotli(data: bytes) -> bytes:
    try:
        import brotli
    except ImportError:
        raise NotUnpacked(
            "a body is packed with brotli: pip install 'eventctx[record]' to read it"
        ) from None
    try:
        found: bytes = brotli.Decompressor().process(data)
    except brotli.error as error:
        raise NotUnpacked(f"expected a body packed with brotli, found none ({error})") from error
    return found


def _from_zstd(data: bytes) -> bytes:
    try:
        import zstandard
    except ImportError:
        raise NotUnpacked(
            "a body is packed with zstd: pip install 'eventctx[record]' to read it"
        ) from None
    try:
        reader = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True)
        found: bytes = reader.read(MOST_KEPT)
    except zstandard.ZstdError as error:
        raise NotUnpacked(f"expected a body packed with zstd, found none ({error})") from error
    return found
