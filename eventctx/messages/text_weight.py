"""The weight of a text: about how many tokens OpenAI's tokenizer makes of it, in hundredths.

Each byte of the text's UTF-8 has a weight by its kind. A tokenizer knows common words of English as
one token, so letters weigh little; marks, digits and the letters of languages that it saw less of
weigh more. The first byte of a wide character tells its script and has all of the weight. The
weights were fitted to the vocabulary ``o200k_base`` on texts of thirteen languages, six programming
languages, JSON, logs and terminals; ``docs/explanation/tokens.md`` says how near they come.
"""

from __future__ import annotations

from typing import Final

_WEIGHTS: Final = (
    (b"cdefghmnoprstu", 10),
    (b"qwxy", 25),
    (b"ail", 33),
    (b"bjkvz", 60),
    (b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", 23),
    (b"0123456789", 78),
    (b" ", 34),
    (b"\r\n", 28),
    (b"\t", 72),
    (b"()[]{}<>", 63),
    (b";", 30),
    (b".,:", 79),
    (b"\"'`", 52),
    (b"_-/\\", 64),
    (b"!#$%&*+=?@^|~", 33),
    (range(0x80, 0xC0), 0),  # all bytes of a character but its first
    (range(0xC2, 0xC4), 88),  # signs; accents of Western languages
    (range(0xC4, 0xC6), 110),  # accents of Central European ones
    (range(0xC6, 0xD0), 36),  # Greek
    (range(0xD0, 0xD2), 24),  # Cyrillic of Russian
    (range(0xD2, 0xD5), 80),
    (range(0xD5, 0xE0), 32),  # Hebrew, Arabic
    (range(0xE0, 0xE2), 30),  # Devanagari and other scripts of India, Thai
    (range(0xE2, 0xE3), 60),  # signs
    (range(0xE3, 0xE4), 74),  # kana
    (range(0xE4, 0xEA), 75),  # Chinese characters
    (b"\xe6", 85),
    (b"\xe7\xe9", 108),
    (range(0xEA, 0xEE), 69),  # Hangul
    (range(0xEE, 0xF5), 120),  # wide forms, emoji
)
"""Hundredths of a token by byte; the last row that has a byte holds. Control characters: 60."""

TWO_SPACES: Final = 64
"""What a pair of spaces weighs less than two: a run of spaces is one token."""

INDENTED: Final = 54
"""What a line break weighs more in a text whose lines are indented: a run begins there."""

UNREAD: Final = 27
"""What a character of a text weighs that is not at hand."""

USUAL: Final = 34
"""The weight up to which a character counts as usual: that of small letters and a space."""

MOST_NARROW: Final = 79
MOST: Final = 120
"""The most that a character weighs: one of one byte, and any."""


def _make_table() -> bytes:
    weights = [60] * 256
    for members, weight in _WEIGHTS:
        for byte in members:
            weights[byte] = weight
    return bytes(weights)


TABLE: Final = _make_table()
"""The weight of each byte."""

EXCESS: Final = bytes([max(0, weight - USUAL) for weight in range(256)])
"""What a character of so much weighs above the usual."""

CHUNK: Final = 512
"""Bytes of which all may weigh ``MOST`` while their sum stays below the modulus of Adler-32."""
