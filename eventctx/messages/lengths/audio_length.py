"""The length of a recording in tenths of a second, from its header, without decoding it."""

from __future__ import annotations

import struct
from typing import Final

BYTES_PER_SECOND: Final = 4_000
"""Of a recording in a format that is not read here: 32 kbit/s, a low rate for speech."""

PCM_BYTES_PER_SECOND: Final = 48_000
"""Of OpenAI's ``pcm16``: 24,000 samples of two bytes a second."""

MOST_TENTHS: Final = 95 * 3_600
"""Of one request: 9.5 hours, Gemini's limit. A larger number in a file is a mistake or a trap."""

_MP3_RATES: Final = {
    # MPEG 1 layer III, then MPEG 2 and 2.5 layer III (ISO/IEC 11172-3 and 13818-3), in kbit/s.
    3: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0),
    2: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0),
    0: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0),
}
_MP3_SAMPLES: Final = {
    3: (44_100, 48_000, 32_000, 0),
    2: (22_050, 24_000, 16_000, 0),
    0: (11_025, 12_000, 8_000, 0),
}


def audio_tenths(data: bytes, form: str = "") -> int:
    """Tenths of a second of a recording, at least 1; ``form`` is its media type or format.

    Never raises.
    """
    if form == "pcm16":
        seconds: float | None = len(data) / PCM_BYTES_PER_SECOND
    else:
        seconds = _wav_seconds(data) or _mp3_seconds(data)
    if seconds is None:
        seconds = len(data) / BYTES_PER_SECOND
    return max(1, min(MOST_TENTHS, round(seconds * 10)))


def _wav_seconds(data: bytes) -> float | None:
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        return None
    at, rate = 12, 0
    while at + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, at)
        if name == b"fmt " and at + 20 <= len(data):
            (rate,) = struct.unpack_from("<I", data, at + 16)
        elif name == b"data":
            # Written while recording, a header says 0 or the largest number.
            present = len(data) - at - 8
            return min(size or present, present) / rate if rate else None
        at += 8 + size + size % 2
    return None


def _mp3_seconds(data: bytes) -> float | None:
    start = _behind_tag(data)
    start = data.find(b"\xff", start, start + 4_096)
    while 0 <= start < len(data) - 4:
        version, layer = data[start + 1] >> 3 & 3, data[start + 1] >> 1 & 3
        if data[start + 1] >> 5 == 7 and version in _MP3_RATES and layer == 1:
            rate = _MP3_RATES[version][data[start + 2] >> 4]
            samples = _MP3_SAMPLES[version][data[start + 2] >> 2 & 3]
            if rate and samples:
                frames = _frames(data[start : start + 200])
                if frames:
                    return frames * (1_152 if version == 3 else 576) / samples
                return (len(data) - start) / (rate * 125)
        start = data.find(b"\xff", start + 1, start + 4_096)
    return None


def _behind_tag(data: bytes) -> int:
    if data[:3] != b"ID3" or len(data) < 10:
        return 0
    size = 0
    for byte in data[6:10]:
        size = size << 7 | byte & 0x7F
    return 10 + size


def _frames(frame: bytes) -> int:
    """The number of frames in the header that encoders of variable rates write; 0 without it."""
    for name in (b"Xing", b"Info"):
        at = frame.find(name)
        if at >= 0 and len(frame) >= at + 12:
            flags, frames = struct.unpack_from(">II", frame, at + 4)
            return int(frames) if flags & 1 else 0
    return 0
