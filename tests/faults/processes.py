"""Functions of programs.py as processes, and what must hold of a store that one of them left."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path

import eventctx
from eventctx.log.store import Receipt
from tests.children import started


def program(name: str, *arguments: object) -> AbstractContextManager[subprocess.Popen[str]]:
    """Start a program with this interpreter and this checkout; it is killed when the block ends."""
    return started(
        [sys.executable, Path(__file__).with_name("programs.py"), name, *arguments],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def lines_of(process: subprocess.Popen[str]) -> list[str]:
    """What a program printed that ends in good order."""
    output, errors = process.communicate(timeout=300)
    assert (errors, process.returncode) == ("", 0)
    return output.splitlines(keepends=True)


def receipts_in(lines: Iterable[str]) -> list[Receipt]:
    """The receipts among the lines that a program printed; a line without an end was cut off."""
    return [Receipt.parse(line.strip()) for line in lines if ":" in line and line.endswith("\n")]


async def check_acknowledged(path: Path, receipts: Iterable[Receipt]) -> int:
    """Assert that every acknowledged record is there, and every chain whole; how many there are."""
    last: dict[str, Receipt] = {}
    wanted: dict[str, dict[int, bytes]] = {}
    for receipt in receipts:
        last[receipt.stream] = receipt
        wanted.setdefault(receipt.stream, {})[receipt.position] = receipt.digest
    async with eventctx.open(path, receipts=False) as engine:
        for session, digests in wanted.items():
            found = {r.position: r.digest async for r in engine.records(session, min(digests))}
            lost = {at for at, digest in digests.items() if found.get(at) != digest}
            assert not lost, f"{session}: acknowledged and lost: {sorted(lost)[:5]}"
        for session, receipt in last.items():
            verified = await engine.verify(session, receipt)
            assert verified.ok, verified.problems[:3]
    return sum(map(len, wanted.values()))


async def check_store(path: Path) -> None:
    """Assert that a store verifies, takes the next message, and ends what was under way."""
    async with eventctx.open(path, receipts=False) as engine:
        found = await engine.verify_store()
        assert found.ok, (found.problems, [one.problems[:2] for one in found.sessions])
        for info in (await engine.sessions())[:3]:
            context = await engine.session(info.stream, policy="workset")
            receipt = await context.add_message({"role": "user", "content": "after"})
            assert receipt.position > info.head
            await context.get_messages_for_request()
            spans = [(one.type, str(one.span_id)) async for one in engine.records(info.stream)]
            begun, ended = (
                sorted(span for kind, span in spans if kind == f"context:{end}_compact")
                for end in ("pre", "post")
            )
            assert begun == ended
