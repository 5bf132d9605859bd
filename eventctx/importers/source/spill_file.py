"""Bytes in a temporary file, so that memory does not grow with them."""

from __future__ import annotations

import struct
from tempfile import TemporaryFile
from typing import IO, Final

_LENGTH: Final = struct.Struct(">Q")


class SpillFile:
    """Bytes by the place that ``put`` returned. The file is made by the first ``put``.

    It has no name and is gone when it is closed, or when the process ends. Raises OSError when the
    folder for temporary files is full or missing.
    """

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._end = 0

    def put(self, data: bytes) -> int:
        """Write ``data``; returns its place."""
        if self._file is None:
            self._file = TemporaryFile(prefix="eventctx-")  # noqa: SIM115 - closed by ``close``
        place = self._end
        self._file.seek(place)
        self._file.write(_LENGTH.pack(len(data)) + data)
        self._end += _LENGTH.size + len(data)
        return place

    def get(self, place: int) -> bytes:
        """The bytes at a place."""
        if self._file is None:
            raise IndexError(place)
        self._file.seek(place)
        (length,) = _LENGTH.unpack(self._file.read(_LENGTH.size))
        return self._file.read(length)

    def close(self) -> None:
        """Give the file's space back."""
        if self._file is not None:
            self._file.close()
            self._file = None
