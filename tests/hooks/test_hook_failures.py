"""Losses are written down soon, once, and at the end; summed over processes; never in the way.

So are those of processes that are killed or fork; a process that never closes still sends spans.
"""

from __future__ import annotations

import asyncio
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.util._once import Once

import eventctx
from eventctx.errors import InvalidSetting, NotAStore, StoreTooNew, StoreUnavailable
from eventctx.hooks.counting import configure_tracing
from eventctx.hooks.hook_failures import HookFailures, Loss
from eventctx.hooks.registry import Hooks
from eventctx.hooks.trace import TraceSink
from tests.children import started
from tests.hooks.given import call_model
from tests.hooks.measured import exporting
from tests.hooks.observing import receiver as receiver
from tests.hooks.observing import shown
from tests.services.receiver import Receiver


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


def counts(failures: HookFailures) -> list[tuple[str, str, int]]:
    return [(one.handler, one.kind, one.count) for one in failures.read()]


def of(store: Path | None, hooks: Hooks | None = None) -> HookFailures:
    return HookFailures(store, (hooks or Hooks()).on_loss)


@pytest.mark.slow
async def test_losses_of_a_running_registry_are_written_while_it_runs(store: Path) -> None:
    hooks, until = Hooks(), time.monotonic() + 60
    failures = HookFailures(store, hooks.on_loss, clock=lambda: 77)
    hooks.count_error(print, ValueError("no"))
    hooks.count_error(print, ValueError("no"))
    hooks.count_lost(print, "too many", 5)
    while not (beside(store).is_file() and beside(store).read_bytes()):
        assert time.monotonic() < until
        await asyncio.sleep(0.02)
    lost = [Loss("builtins.print", "dropped", 5, 77), Loss("builtins.print", "error", 2, 77)]
    assert list(of(store).read()) == lost
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
    two = [Loss("b.two", "dropped", 7, 60), Loss("b.two", "error", 5, 50)]
    assert list(failures.read()) == [Loss("a.one", "dropped", 1, 10), *two]


# -- when it is written --------------------------------------------------------------------------


async def test_what_is_not_written_yet_is_at_the_end_and_nothing_later(place: Path | None) -> None:
    hooks = Hooks()
    failures = of(place, hooks)
    failures.note("an.interceptor", "error")
    await failures.close()
    hooks.count_error(print, ValueError("after"))
    await failures.close()
    assert counts(failures) == [("an.interceptor", "error", 1)]


async def test_without_a_loss_there_is_no_file_and_no_thread_and_then_a_private_file(
    store: Path,
) -> None:
    before = set(threading.enumerate())
    failures = of(store)
    assert failures.read() == ()
    assert "eventctx-losses" not in {one.name for one in set(threading.enumerate()) - before}
    await failures.close()
    assert list(store.parent.iterdir()) == [store]
    failures = of(store)
    failures.note("a", "error")
    failures.read()
    assert stat.S_IMODE(beside(store).stat().st_mode) == 0o640
    assert set(store.parent.iterdir()) == {store, beside(store)}
    beside(store).unlink()
    assert failures.read() == ()
    failures.note("a", "error")
    assert counts(failures) == [("a", "error", 1)], "the counts begin anew"


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
    assert counts(failures) == [("a", "error", 2)]
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
    assert counts(of(store)) == [("builtins.print", "error", 2)]


# -- several processes ---------------------------------------------------------------------------


def program(store: Path, text: str) -> subprocess.Popen[str]:
    begin = (
        "import os, signal, sys, time; from pathlib import Path\n"
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


def test_a_torn_line_is_passed_over_and_the_next_one_is_not_lost_with_it(store: Path) -> None:
    failures = of(store)
    failures.note("a", "error")
    failures.read()
    whole = beside(store).read_bytes()
    for end in range(len(whole) + 1):
        beside(store).write_bytes(whole + whole[:end])
        before = 2 if end >= len(whole) - 1 else 1
        assert counts(failures) == [("a", "error", before)]
        failures.note("a", "error")
        assert counts(failures) == [("a", "error", before + 1)]


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
    assert counts(failures) == [("a", "error", 1), ("b" * 9000, "error", 1)]


# -- of processes that are killed, fork or never close ---------------------------------------------


def printed_by(text: str, *arguments: object) -> str:
    command = [sys.executable, "-c", text, *map(str, arguments)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout


_KILLED = """
import asyncio, logging, sys
import eventctx

def raises(record):
    raise RuntimeError("a handler's bug")

async def main():
    logging.disable()
    engine = await eventctx.open(sys.argv[1])
    engine.on("context:message_added", raises)
    ctx = await engine.session("s")
    for number in range(7):
        await ctx.add_message({"role": "user", "content": str(number)})
    print("lost", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.slow
def test_what_was_lost_is_shown_while_a_process_runs_and_after_a_kill(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    expected = {("__main__.raises", "error"): 7}
    with started([sys.executable, "-c", _KILLED, store], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"lost\n"
        end = time.monotonic() + 60
        while shown(store) != expected and time.monotonic() < end:
            time.sleep(0.05)
        process.kill()
    assert shown(store) == expected


@pytest.fixture
def no_provider(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes it as if no provider had been set in this process."""

    def forget() -> None:
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
        monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())

    forget()
    return forget


@pytest.mark.slow
async def test_a_tracer_provider_that_is_set_and_replaced_in_mid_run_gets_what_comes_after(
    no_provider: Callable[[], None],
) -> None:
    heard, exporters = asyncio.Event(), []
    async with eventctx.open(sinks=[TraceSink()]) as engine:
        engine.on("prompt:complete", lambda record: heard.set(), priority=9)
        ctx = await engine.session("s")
        for _ in range(3):
            async with ctx.turn() as turn, turn.iteration() as cycle:
                await call_model(cycle)
            await heard.wait()
            heard.clear()
            provider, exporter = exporting()
            no_provider()
            trace.set_tracer_provider(provider)
            exporters.append(exporter)
        assert engine.hooks.stats().errors == engine.hooks.stats().dropped == {}
    sent = [[span.name for span in exporter.get_finished_spans()] for exporter in exporters]
    assert sent == [["chat m", "invoke_agent"]] * 2 + [[]]


@pytest.mark.slow
@pytest.mark.usefixtures("no_provider")
def test_configured_tracing_leaves_a_hosts_provider_alone() -> None:
    proxy = trace.get_tracer_provider()
    configure_tracing()
    assert trace.get_tracer_provider() is proxy
    configure_tracing(set_global=True)
    ours = trace.get_tracer_provider()
    assert isinstance(ours, TracerProvider)
    configure_tracing()
    with pytest.raises(InvalidSetting):
        configure_tracing(set_global=True)
    assert trace.get_tracer_provider() is ours
    ours.shutdown()


@pytest.mark.slow
def test_a_program_that_forgets_to_close_ends_and_sends_what_it_has(receiver: Receiver) -> None:
    text = (
        "import asyncio, sys, eventctx\n"
        "from eventctx.hooks.counting import configure_tracing\n"
        "async def main():\n"
        "    engine = await eventctx.open(sinks=[configure_tracing(sys.argv[1])])\n"
        "    ctx = await engine.session('s')\n"
        "    async with ctx.turn():\n"
        "        await ctx.add_message({'role': 'user', 'content': 'go'})\n"
        "    await engine.store.close()\n"
        "asyncio.run(main())\n"
    )
    printed_by(text, receiver.http)
    assert [span.name for span in receiver.spans] == ["invoke_agent"]


_FORKS = """
import asyncio, contextlib, contextvars, logging, os, sys, threading, traceback, warnings
import eventctx
from eventctx.hooks.counting import configure_tracing
from eventctx.hooks.log import LogSink
from eventctx.hooks.metrics import MetricsSink
from tests.hooks.given import call_model

folder, url = sys.argv[1:]
log = logging.getLogger("program")
log.setLevel(logging.DEBUG)
log.addHandler(logging.FileHandler(folder + "/log"))
logging.getLogger("eventctx.hooks").setLevel(logging.CRITICAL)
trace = configure_tracing(url)
sinks = [LogSink(log), trace, MetricsSink()]

async def agent(ctx, text):
    async with ctx.turn(text) as turn, turn.iteration() as cycle:
        await ctx.add_message({"role": "user", "content": text})
        assert await ctx.get_messages_for_request()
        await call_model(cycle, text)

async def alone(name):
    async with eventctx.open(f"{folder}/{name}.db", sinks=sinks) as engine:
        @engine.on("prompt:complete")
        def raises(record):
            raise RuntimeError("a handler's bug")
        ctx = await engine.session(name)
        await agent(ctx, name)
        assert (await engine.verify(name)).problems == ()

def fork_holding():
    # As if another thread were in the middle of a record of its own.
    locks = [one._lock for one in (*sinks, trace._tracer, trace._exporter)]
    locks += [engine.hooks._lock, engine.hooks._lanes._lock, engine._failures._lock]
    held, go = threading.Event(), threading.Event()
    def hold():
        with contextlib.ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            held.set()
            go.wait()
    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    child = os.fork()
    if child:
        go.set()
        holder.join()
    return child

engine = None

async def parent():
    global engine
    async with eventctx.open(f"{folder}/parent.db", sinks=sinks) as engine:
        ctx = await engine.session("parent")
        await agent(ctx, "before")
        async with ctx.turn("during"):
            child = fork_holding()
            if not child:
                in_child()
            await ctx.add_message({"role": "user", "content": "during"})
        await agent(ctx, "after")
        status = await asyncio.to_thread(os.waitpid, child, 0)
        print("child ended with", os.waitstatus_to_exitcode(status[1]))
        assert (await engine.verify("parent")).problems == ()
        print(engine.hooks.stats().errors, engine.hooks.stats().dropped)

def in_child():
    try:
        contextvars.Context().run(asyncio.run, alone("child"))
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)

warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads, from Python 3.12
asyncio.run(parent())
"""


@pytest.mark.slow
def test_after_a_fork_both_go_on_with_the_same_sinks(receiver: Receiver, tmp_path: Path) -> None:
    printed = printed_by(_FORKS, tmp_path, receiver.http)
    assert printed.splitlines() == ["child ended with 0", "{} {}"]
    # Nobody's spans are sent twice, and nobody sends the other's.
    chats = ["chat after", "chat before", "chat child"]
    assert sorted(span.name for span in receiver.spans) == [*chats, *["invoke_agent"] * 4]
    assert shown(tmp_path / "parent.db") == {}
    assert shown(tmp_path / "child.db") == {("__main__.alone.<locals>.raises", "error"): 1}
    lines = (tmp_path / "log").read_text().splitlines()
    assert sum(line.startswith("prompt:complete") for line in lines) == 4
