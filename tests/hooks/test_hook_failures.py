"""Losses are written down soon, once, and at the end; summed over processes; never in the way."""

from __future__ import annotations

import asyncio
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from eventctx.errors import NotAStore, StoreTooNew, StoreUnavailable
from eventctx.hooks.hook_failures import HookFailures, Loss
from eventctx.hooks.registry import Hooks


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "s.db"
    path.touch(mode=0o640)
    return path


@pytest.fixture(params=["memory", "file"])
def place(request: pytest.FixtureRequest, store: Path) -> Path | None:
    return store if request.param == "file" else None


def beside(store: Path) -> Path:
    return store.with_name("s.db-losses.jsonl")


def shown(failures: HookFailures) -> list[tuple[str, str, int]]:
    return [(one.handler, one.kind, one.count) for one in failures.read()]


def of(store: Path | None, hooks: Hooks | None = None) -> HookFailures:
    return HookFailures(store, (hooks or Hooks()).on_loss)


async def test_losses_of_a_running_registry_are_written_while_it_runs(store: Path) -> None:
    hooks, until = Hooks(), time.monotonic() + 60
    failures = HookFailures(store, hooks.on_loss, clock=lambda: 77)
    hooks.count_error(print, ValueError("no"))
    hooks.count_error(print, ValueError("no"))
    hooks.count_lost(print, "too many", 5)
    while not (beside(store).is_file() and beside(store).read_bytes()):
        assert time.monotonic() < until
        await asyncio.sleep(0.02)
    assert of(store).read() == (
        Loss("builtins.print", "dropped", 5, 77),
        Loss("builtins.print", "error", 2, 77),
    )
    await failures.close()
    assert beside(store).read_bytes().count(b"\n") == 1, "gathered into one line"


# -- sums ----------------------------------------------------------------------------------------


def test_counts_are_summed_by_handler_and_kind_and_the_last_time_stays(place: Path | None) -> None:
    times = iter([50, 10, 40, 60])
    failures = HookFailures(place, Hooks().on_loss, clock=lambda: next(times))
    assert failures.read() == ()
    failures.note("b.two", "error", 2)
    failures.note("a.one", "dropped")
    failures.read()
    failures.note("b.two", "error", 3)
    failures.note("b.two", "dropped", 7)
    assert failures.read() == (
        Loss("a.one", "dropped", 1, 10),
        Loss("b.two", "dropped", 7, 60),
        Loss("b.two", "error", 5, 50),
    )


# -- when it is written --------------------------------------------------------------------------


async def test_what_is_not_written_yet_is_written_at_the_end_and_nothing_after_it(
    place: Path | None,
) -> None:
    hooks = Hooks()
    failures = of(place, hooks)
    failures.note("an.interceptor", "error")
    await failures.close()
    hooks.count_error(print, ValueError("after"))
    await failures.close()
    assert shown(failures) == [("an.interceptor", "error", 1)]


async def test_while_nothing_is_lost_there_is_neither_a_file_nor_a_thread(store: Path) -> None:
    before = set(threading.enumerate())
    failures = of(store)
    assert failures.read() == ()
    assert "eventctx-losses" not in {one.name for one in set(threading.enumerate()) - before}
    await failures.close()
    assert list(store.parent.iterdir()) == [store]


async def test_what_cannot_be_written_is_said_once_and_tried_again(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    beside(store).mkdir()
    failures = of(store)
    for _ in range(2):
        failures.note("a", "error")
        with pytest.raises(StoreUnavailable):
            failures.read()
    beside(store).rmdir()
    await failures.close()
    assert shown(failures) == [("a", "error", 2)]
    (said,) = [text for text in caplog.messages if "cannot be written" in text]
    assert said.startswith("what hooks lost cannot be written down: ")
    assert said.endswith("; the agent goes on, this is said once")


async def test_two_engines_on_one_registry_and_one_file_count_a_loss_once(store: Path) -> None:
    hooks = Hooks()
    first, second = of(store, hooks), of(store, hooks)
    hooks.count_error(print, ValueError("no"))
    await first.close()
    hooks.count_error(print, ValueError("no"))
    await second.close()
    assert shown(of(store)) == [("builtins.print", "error", 2)]


# -- several processes ---------------------------------------------------------------------------


def program(store: Path, text: str) -> subprocess.Popen[str]:
    begin = (
        "import os, signal, sys, time\n"
        "from pathlib import Path\n"
        "from eventctx.hooks.registry import Hooks\n"
        "from eventctx.hooks.hook_failures import HookFailures\n"
        "failures = HookFailures(Path(sys.argv[1]), Hooks().on_loss)\n"
    )
    command = [sys.executable, "-c", begin + text, str(store)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_processes_that_write_at_once_lose_no_count(store: Path) -> None:
    text = (
        "for n in range(500):\n"
        "    failures.note('a' * 300, 'error'); failures.note('b', 'dropped', 2)\n"
        "    failures._write()\n"
    )
    runs = [program(store, text) for _ in range(4)]
    for run in runs:
        run.communicate(timeout=120)
    assert [run.returncode for run in runs] == [0, 0, 0, 0]
    assert [one.count for one in of(store).read()] == [2_000, 4_000]


# -- files that are not as they should be --------------------------------------------------------


def test_the_file_is_as_private_as_the_store_and_is_all_there_is(store: Path) -> None:
    failures = of(store)
    failures.note("a", "error")
    failures.read()
    assert stat.S_IMODE(beside(store).stat().st_mode) == 0o640
    assert set(store.parent.iterdir()) == {store, beside(store)}
    beside(store).unlink()
    assert failures.read() == ()
    failures.note("a", "error")
    assert shown(failures) == [("a", "error", 1)], "the counts begin anew"


def test_a_torn_line_is_passed_over_and_the_next_one_is_not_lost_with_it(store: Path) -> None:
    failures = of(store)
    failures.note("a", "error")
    failures.read()
    whole = beside(store).read_bytes()
    for end in range(len(whole) + 1):
        beside(store).write_bytes(whole + whole[:end])
        before = 2 if end >= len(whole) - 1 else 1
        assert shown(failures) == [("a", "error", before)]
        failures.note("a", "error")
        assert shown(failures) == [("a", "error", before + 1)]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (b"shopping list\n" * 100, NotAStore),
        (b'{"handler":"a","kind":"error","count":1,"last":1}\n', NotAStore),
        (b'{\n  "hook_failures": 1\n}\n', NotAStore),
        (b"SQLite format 3\0" * 100, NotAStore),
        (b'{"hook_failures":12,"sums":{}}\n', StoreTooNew),
        (None, StoreUnavailable),  # a folder
    ],
)
def test_whatever_else_lies_in_its_place_is_a_typed_error_and_is_left_alone(
    store: Path, found: bytes | None, expected: type[Exception]
) -> None:
    if found is None:
        beside(store).mkdir()
    else:
        beside(store).write_bytes(found)
    failures = of(store)
    for _ in range(2):
        failures.note("a", "error")
        with pytest.raises(expected):
            failures.read()
    assert beside(store).is_dir() if found is None else beside(store).read_bytes() == found


def test_a_full_disk_is_told_and_spoils_nothing(store: Path) -> None:
    failures = of(store)
    failures.note("a", "error")
    failures.read()
    text = (
        "import logging, resource\n"
        "logging.basicConfig(stream=sys.stdout, format='%(message)s')\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200, resource.RLIM_INFINITY))\n"
        "failures.note('b' * 9000, 'error')\n"
        "assert not failures._write()\n"
        "assert not failures._write()\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)\n"
        "assert failures._write()\n"
    )
    child = program(store, text)
    out, _ = child.communicate(timeout=60)
    assert child.returncode == 0
    assert out.count("no space left to write") == 1
    assert shown(failures) == [("a", "error", 1), ("b" * 9000, "error", 1)]
