"""Random mutations of the JSON of a session of every format.

``Mutants(folder, name).run(count, seed)`` makes ``count`` mutants, the same ones for the same seed,
imports them, and checks the promises that hold for every file, whatever is in it.
"""

from __future__ import annotations

import copy
import json
import random
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from eventctx.engine import Engine
from eventctx.errors import TranscriptError
from eventctx.importers.load import ImportSummary
from eventctx.stores.memory import MemoryStore
from tests.importers.given import put
from tests.importers.growing import SESSIONS, rows_of
from tests.importers.taken import kept, load, next_request

Row = dict[str, Any]

# -- the mutations -------------------------------------------------------------------------------

DEEP = "[" * 100_000 + "]" * 100_000

VALUES = (
    *("{}", '{"type":"object","id":["x"]}', "[]", '["one",2]', "null", "true", "false", "0", "-1"),
    *("1e308", "-1e308", "1e999", "NaN", "-Infinity", "0.1", str(2**31), str(2**53 + 1)),
    *(str(2**62), str(2**63 - 1), str(2**63), str(2**64 - 1), str(2**64), str(-(2**63) - 1)),
    *("9" * 400, "9" * 5000, '""', '" "', '"\\ud800"', '"a\\udc00b"', '"\\u0000"', '"text"'),
    *('"-1"', '"9999-12-31T23:59:59-23:59"', '"0001-01-01T00:00:00+23:59"', '"../../etc/x"'),
    *('"role"', '"user"', '"assistant"', '"x' + "y" * 300 + '"'),
    *("[" * depth + '"inside"' + "]" * depth for depth in (150, 240, 300, 600)),
    *('{"a":' * depth + '"inside"' + "}" * depth for depth in (150, 240, 300, 600)),
)
_HOLE = "@hole@"


def _holders(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a value: the object or list, and the key or index."""
    keys = value.keys() if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _holders(value[key])


def _replaced(row: Row, rng: random.Random) -> bytes:
    holder, key = rng.choice(list(_holders(row)))
    holder[key] = _HOLE
    value = DEEP if rng.random() < 0.01 else rng.choice(VALUES)
    return json.dumps(row).replace(f'"{_HOLE}"', value).encode()


def _deleted(row: Row, rng: random.Random) -> bytes:
    holder, key = rng.choice(list(_holders(row)))
    del holder[key]
    return json.dumps(row).encode()


def _repeated(row: Row, rng: random.Random) -> bytes:
    holder, key = rng.choice([one for one in _holders(row) if isinstance(one[0], dict)])
    items = list(holder.items())
    holder.clear()
    for name, value in items:
        if name == key:
            holder[_HOLE] = 0
        holder[name] = value
    earlier = rng.choice((f'"earlier{rng.randrange(10**6)}"', f'["earlier{rng.randrange(10**6)}"]'))
    return json.dumps(row).replace(f'"{_HOLE}": 0', f"{json.dumps(key)}: {earlier}").encode()


def _cut(row: Row, rng: random.Random) -> bytes:
    data = json.dumps(row).encode()
    return data[: rng.randrange(len(data))]


def _flipped(row: Row, rng: random.Random) -> bytes:
    data = bytearray(json.dumps(row).encode())
    for _ in range(rng.choice((1, 1, 2, 5))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data).replace(b"\n", b" ")


_MUTATIONS = (_replaced, _replaced, _replaced, _deleted, _repeated, _cut, _flipped)


def _mutated(row: Row, rng: random.Random) -> bytes:
    return rng.choice(_MUTATIONS)(copy.deepcopy(row), rng)


def mutants(name: str, count: int, seed: int) -> Iterator[list[bytes]]:
    """Files of a format, as lines, each of which has a word of its own; a document is one line."""
    rows = rows_of(name)
    if isinstance(SESSIONS[name][1], list):
        rows = [{**row, "aside": f"line{number:04}"} for number, row in enumerate(rows)]
    return mutants_of(rows, name, count, seed)


def mutants_of(rows: list[Row], name: str, count: int, seed: int) -> Iterator[list[bytes]]:
    """Files of these rows with one to three mutations, as lines."""
    plain = [json.dumps(row).encode() for row in rows]
    rng = random.Random(f"{name} {seed}")  # noqa: S311 - the same mutants for the same seed
    for _ in range(count):
        lines = list(plain)
        for place in rng.choices(range(len(rows)), k=rng.choice((1, 1, 2, 3))):
            lines[place] = _mutated(rows[place], rng)
        if len(rows) > 1 and rng.random() < 0.05:
            lines.insert(rng.choice((0, len(lines) // 2)), rng.choice((b"[" * 100_000, b"\xff{")))
        yield lines


# -- the promises --------------------------------------------------------------------------------

_WORD = re.compile(rb"(?<![\\A-Za-z0-9_.-])(?:[A-Za-z_][A-Za-z0-9_]{3,}|[1-9][0-9]{18,})")

_OF_THE_FORM = frozenset(
    (
        *(b"replacement_history", b"toolCall", b"arguments", b"llm_message", b"system_prompt"),
        *(b"history", b"trajectory", b"messages", b"extra", b"thought", b"observation"),
        *(b"transformedContent", b"summaryContent", b"reasoningText"),
        *(b"functionCall", b"functionResponse", b"response", b"output", b"args", b"parts", b"true"),
        *(b"steps", b"subagent_trajectories"),
    )
)
"""Words of the formats' own structure, in place of which our records have theirs."""


def write(folder: Path, name: str, lines: list[bytes]) -> Path:
    """Write a session of this name, as a file or as a folder of events."""
    if name != "openhands-folder":
        return put(folder / "file.jsonl", b"\n".join(lines) + b"\n")
    path = folder / "events"
    shutil.rmtree(path, ignore_errors=True)
    for number, line in enumerate(lines):
        put(path / f"event-{number:05d}-e{number}.json", line)
    return path


async def _promises(
    store: MemoryStore, path: Path, lines: list[bytes], done: ImportSummary
) -> None:
    session = done.session or ""
    there = await kept(store, session)
    # A member that is null says no more than one that is missing.
    said = [line.replace(b'": null', b'"').replace(b'":null', b'"') for line in lines]
    words = {word for line in said for word in _WORD.findall(line)} - _OF_THE_FORM
    missing = {word for word in words if word not in there}
    assert not missing, f"lost: {missing}"
    assert (await load(store, path, format=done.format, complete=True)).added == 0
    verified = await Engine(store).verify(session)
    assert not verified.problems, verified.problems
    assert await next_request(store, session) is not None


class Mutants:
    """Imports mutants of one format, and checks what is promised of every import.

    No exception but a ``TranscriptError``. After an import: no word of the file is lost, a
    second import adds nothing, the log verifies, and the session's next request can be made.
    In turn it is also imported as one that may grow, or of no named format.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name, self.format = folder, name, SESSIONS[name][0]

    async def run(self, count: int, seed: int) -> Counter[str]:
        """Import ``count`` mutants; how many imports ended in which way."""
        ended: Counter[str] = Counter()
        others = ((self.format, False), (None, False), (None, True))
        for number, lines in enumerate(mutants(self.name, count, seed)):
            ended[await self._survives(lines, others[number % 3])] += 1
        return ended

    async def _survives(self, lines: list[bytes], other: tuple[str | None, bool]) -> str:
        path, ended = write(self.folder, self.name, lines), "imported"
        for chosen, complete in ((self.format, True), other):
            store = MemoryStore()
            try:
                done = await load(store, path, format=chosen, complete=complete)
            except TranscriptError as error:
                ended = type(error).__name__ if chosen and complete else ended
                continue
            if complete and done.session is not None and done.format == self.format:
                await _promises(store, path, lines, done)
        return ended
