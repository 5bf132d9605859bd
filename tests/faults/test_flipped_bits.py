"""A bit that the disk returns wrong: found or harmless, and never shown to a model or a person.

Half of the flips are anywhere in the file, half in the bytes around the beginning of a content:
its row's head, its digest, salt and facts. A flip in an unused byte of a page changes nothing.
Every other one is found by ``verify_store``, or the store cannot be opened. A flip in the log of
SQLite takes away the end of the log without a word of SQLite's; the book of receipts knows of it.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.counts import report, trials
from tests.faults.given import STORE, Sound, scratch, sound_store, survives

pytestmark = pytest.mark.slow


ROW_BYTES = 150
"""About as long are the columns of a row before its content."""


def flip(sound: Sound, name: str, chance: random.Random) -> Callable[[Path], None]:
    """Damage that inverts one bit of a file of the store."""
    whole = sound.files[name]
    begins = [place for data in sound.contents for place in places_of(data, whole)]

    def damage(path: Path) -> None:
        content = bytearray(whole)
        place = chance.randrange(len(content))
        if chance.random() < 0.5:
            place = chance.choice(begins) - chance.randrange(-8, ROW_BYTES)
        content[place] ^= 1 << chance.randrange(8)
        path.with_name(name).write_bytes(content)

    return damage


def places_of(data: bytes, content: bytes) -> list[int]:
    """Where the beginning of a stored content lies in a file; nowhere, if it is too short."""
    begin = data[:32]
    return [one.start() for one in re.finditer(re.escape(begin), content)] if begin else []


async def flip_bits(sound: Sound, name: str, count: int, seed: int) -> Counter[str]:
    """How ``count`` flips were judged. Raises AssertionError for a promise that was broken."""
    outcomes: Counter[str] = Counter()
    damage = flip(sound, name, random.Random(seed))
    with scratch() as folder:
        for number in range(count):
            judgement = await survives(sound, folder, damage)
            assert not judgement.broken, f"flip {number}: {judgement.broken}"
            outcomes[judgement.outcome] += 1
    return outcomes


async def test_a_flipped_bit_in_the_file_is_found_or_harmless() -> None:
    count = trials("flipped bits")
    outcomes = await flip_bits(await sound_store(), STORE, count, 1)
    assert outcomes["found"] > count // 3
    report("flipped bits", outcomes)


async def test_a_flipped_bit_in_the_log_is_found_or_harmless() -> None:
    sound = await sound_store(closed=False)
    log = STORE + "-wal"
    assert len(sound.files[log]) > 100_000
    count = trials("flipped bits of the log")
    outcomes = await flip_bits(sound, log, count, 2)
    assert outcomes["found"] > count // 3
    report("flipped bits of the log", outcomes)
