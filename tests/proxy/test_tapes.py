"""Tapes: what is packed, what does not fit on the disk, and the process that writes them."""

from __future__ import annotations

import gzip
import io
import json
import resource
import signal
import zlib
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("h11", reason="an extra: eventctx[record]")
brotli = pytest.importorskip("brotli", reason="an extra: eventctx[record]")
zstandard = pytest.importorskip("zstandard", reason="an extra: eventctx[record]")

import eventctx  # noqa: E402
from eventctx.importers.load import import_file  # noqa: E402
from eventctx.proxy.call_copy import SeenCall  # noqa: E402
from eventctx.proxy.tape_process import TapeProcess, write  # noqa: E402
from eventctx.proxy.tapes import NotUnpacked, Tapes, unpacked  # noqa: E402
from tests.proxy.recorded import CLAUDE, answer, request, said, user  # noqa: E402

TEXT = b"the same words, " * 40


def bare_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACKED = {
    "gzip": gzip.compress(TEXT[:100]) + gzip.compress(TEXT[100:]),
    "deflate": zlib.compress(TEXT),
    "Deflate": bare_deflate(TEXT),
    "br": brotli.compress(TEXT),
    "zstd": zstandard.compress(TEXT),
    "identity": TEXT,
    "gzip, br": brotli.compress(gzip.compress(TEXT)),
}


@pytest.mark.parametrize("encoding", PACKED)
def test_a_packed_body_is_unpacked(encoding: str) -> None:
    assert unpacked(PACKED[encoding], encoding) == TEXT


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
def test_bytes_that_are_packed_otherwise_are_refused(encoding: str) -> None:
    with pytest.raises(NotUnpacked, match="expected a"):
        unpacked(b"no packed body at all, by no means", encoding)


def call(*rows: dict[str, object], reply: str = "1", status: int = 200) -> SeenCall:
    headers = [(name.encode(), value.encode()) for name, value in CLAUDE.items()]
    sent = json.dumps(request(*rows)).encode()
    said_so = answer(reply) if status == 200 else {"error": {"type": "rate_limit_error"}}
    path = "/v1/messages"
    data = json.dumps(said_so).encode()
    return SeenCall("POST", "h", path, headers, sent, status, [], data, 1, 2, True)


async def test_a_call_that_does_not_fit_on_the_disk_spoils_none_behind_it(tmp_path: Path) -> None:
    problems: list[str] = []
    tapes = Tapes(tmp_path, "run", problems.append)
    rows = [user("one"), said("1"), user("two " * 5_000)]
    tapes.put(call(*rows[:1]))
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        while tapes.calls < 1:
            pass
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, limit[1]))
        tapes.put(call(*rows, reply="2"))
        while tapes.lost < 1:
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    tapes.put(call(*rows, said("2"), user("three"), reply="3"))
    tapes.close()
    assert (tapes.calls, tapes.lost, len(problems)) == (2, 1, 1)
    (path,) = tapes.paths
    async with eventctx.open("memory://") as engine:
        (summary,) = await import_file(engine.store, path)
        assert (summary.calls, summary.observed) == (2, 2)
        view = await engine.request_view(summary.session, turn=summary.turns)
        assert view.sent is not None
        assert len(view.sent.body()["messages"]) == 5


async def test_a_call_that_is_asked_again_after_an_error_is_one_conversation(
    tmp_path: Path,
) -> None:
    tapes = Tapes(tmp_path, "run", print)
    for status in (429, 529, 200):
        tapes.put(call(user("one"), status=status))
    tapes.put(call(user("one"), said("1"), user("two"), reply="2"))
    tapes.close()
    (path,) = tapes.paths
    async with eventctx.open("memory://") as engine:
        (summary,) = await import_file(engine.store, path)
        assert (summary.calls, summary.turns, summary.compactions) == (4, 2, 0)
        finishes = [
            record.payload
            async for record in engine.store.read(summary.session)
            if record.type in ("provider:response", "provider:error")
        ]
    assert b"HTTP 429 rate_limit_error" in finishes[0]


def test_a_pipe_that_is_cut_in_a_call_leaves_those_before_it(tmp_path: Path) -> None:
    packed = msgspec.msgpack.encode(call(user("one")))
    whole = len(packed).to_bytes(8, "big") + packed
    done = write(io.BytesIO(whole + whole[:-9]), tmp_path, "run")
    assert (done.calls, done.lost, len(done.paths)) == (1, 0, 1)


def test_calls_are_written_by_a_process_whose_death_is_told(tmp_path: Path) -> None:
    tapes = TapeProcess(tmp_path, "run")
    tapes.put(call(user("one")))
    done = tapes.close()
    assert (done.calls, done.problem) == (1, None)
    killed = TapeProcess(tmp_path, "run")
    killed._process.kill()
    killed._process.wait()
    killed.put(call(user("one")))
    done = killed.close()
    assert (done.calls, done.lost) == (0, 1)
    assert done.problem is not None
