"""Losses of a process that was killed, providers that come in mid-run, and forks."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.util._once import Once

import eventctx
from eventctx.errors import InvalidSetting
from eventctx.hooks.counting import configure_tracing
from eventctx.hooks.trace import TraceSink
from tests.children import started
from tests.hooks.given import call_model
from tests.hooks.measured import exporting
from tests.hooks.observing import receiver as receiver
from tests.hooks.observing import shown
from tests.services.receiver import Receiver

pytestmark = pytest.mark.slow


def program(text: str, *arguments: object) -> str:
    """Run a program of the test's; returns what it printed."""
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


def test_what_was_lost_is_shown_while_the_process_runs_and_after_it_was_killed(
    tmp_path: Path,
) -> None:
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


def test_a_program_that_forgets_to_close_ends_in_time_and_sends_what_it_has(
    receiver: Receiver,
) -> None:
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
    program(text, receiver.http)
    assert [span.name for span in receiver.spans] == ["invoke_agent"]


_FORKS = """
import asyncio, contextvars, logging, os, sys, threading, traceback, warnings
import eventctx
from eventctx.hooks.counting import configure_tracing
from eventctx.hooks.log import LogSink
from eventctx.hooks.metrics import MetricsSink

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
        async with cycle.provider_call(text):
            pass

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
        for lock in locks:
            lock.acquire()
        held.set()
        go.wait()
        for lock in locks:
            lock.release()
    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    child = os.fork()
    if not child:
        return 0
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
    code = 1
    try:
        contextvars.Context().run(asyncio.run, alone("child"))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)

warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads, from Python 3.12
asyncio.run(parent())
"""


def test_after_a_fork_parent_and_child_go_on_with_the_same_sinks(
    receiver: Receiver, tmp_path: Path
) -> None:
    assert program(_FORKS, tmp_path, receiver.http).splitlines() == ["child ended with 0", "{} {}"]
    # Nobody's spans are sent twice, and nobody sends the other's.
    chats = ["chat after", "chat before", "chat child"]
    assert sorted(span.name for span in receiver.spans) == [*chats, *["invoke_agent"] * 4]
    assert shown(tmp_path / "parent.db") == {}
    assert shown(tmp_path / "child.db") == {("__main__.alone.<locals>.raises", "error"): 1}
    lines = (tmp_path / "log").read_text().splitlines()
    assert sum(line.startswith("prompt:complete") for line in lines) == 4
