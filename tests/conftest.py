"""Fixtures of all tests: the folder of recorded sessions, if there is one, and services."""

from __future__ import annotations

import atexit
import faulthandler
import gc
import itertools
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.faults.counts import FULL
from tests.services.fixtures import jaeger as jaeger
from tests.services.fixtures import jetstream as jetstream
from tests.services.fixtures import nats_binary as nats_binary
from tests.services.fixtures import one_process
from tests.services.fixtures import phoenix as phoenix
from tests.services.fixtures import postgres as postgres
from tests.services.fixtures import postgres_url as postgres_url
from tests.services.fixtures import shared_cluster as shared_cluster
from tests.services.in_memory import memory_folder

# Receipts of the stores that tests make stay out of the user's own state folder.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="eventctx-state-")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)

# Stores of tests wait for no disk, but where programs that tests write could not be run.
IN_MEMORY = memory_folder()
if IN_MEMORY is not None and not os.statvfs(IN_MEMORY).f_flag & os.ST_NOEXEC:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))

gc.disable()  # until all tests are collected: a fifth of that time went into collections

# Counts do not depend on the vocabularies that tiktoken has on this machine; one test looks there.
os.environ.setdefault(
    "TESTS_TIKTOKEN",
    os.environ.get("TIKTOKEN_CACHE_DIR", str(Path(tempfile.gettempdir(), "data-gym-cache"))),
)
os.environ["TIKTOKEN_CACHE_DIR"] = ""

# How long an example takes says how busy the machine is.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("here", PATIENT)
settings.register_profile("ci", PATIENT, print_blob=True, derandomize=True)
settings.load_profile("here")
if os.environ.get("CI") == "true":
    settings.load_profile("ci")


HANGS = 3600 if FULL else 420
"""Seconds after which a test hangs, its clean-up too; longer than its limit in the Makefile."""


def pytest_configure(config: pytest.Config) -> None:
    """Name each failure at once: a run that is stopped never comes to its summary."""
    stderr = os.dup(2)  # which tests capture: what it says is seen of a run that is stopped, too
    config.pluginmanager.register(HangingTests(stderr))
    config.pluginmanager.register(FreezesSurvivors())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(NamesFailures(stderr))


class NamesFailures:
    """Hooks of the process that collects the reports of all."""

    def __init__(self, stderr: int) -> None:
        self._stderr = stderr

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            os.write(self._stderr, f"\nfailed in {report.when}: {report.nodeid}\n".encode())


ARMED_FOR = 20.0
"""Seconds for which one clock is enough: each is a thread, and two a test took 2 % of a run."""


class HangingTests:
    """Ends the process of a test, or of its clean-up, that no limit ends, and shows its stacks."""

    def __init__(self, stderr: int) -> None:
        self._stderr = stderr
        self._armed = -ARMED_FOR

    def _arm(self) -> None:
        self._armed = time.monotonic()
        faulthandler.dump_traceback_later(HANGS + ARMED_FOR, file=self._stderr, exit=True)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> None:
        if time.monotonic() - self._armed >= ARMED_FOR:
            self._arm()

    @pytest.hookimpl(trylast=True)
    def pytest_exception_interact(self) -> None:
        """Begin again: pytest stops the clock at a failure, and the clean-up may hang."""
        self._arm()

    def pytest_sessionfinish(self) -> None:
        faulthandler.cancel_dump_traceback_later()


SERVERS = {
    "jaeger": "receivers",
    "phoenix": "receivers",
    "nats_binary": "jetstream",
    "jetstream": "jetstream",
    "postgres": "postgres",
    "postgresql": "postgres",
}
"""Servers by fixtures that start them for all tests, and by parts of a test's id: a folder, or what
chooses a store."""

NEEDED_BY_SLOW = {"server", "recorded_sessions"}
"""Fixtures of slow tests."""


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what needs a server or recorded sessions, and what tries many examples.

    Other tests are marked where they stand: a file's, because most of it starts programs; a single
    one, because it starts some or takes a fifth of a second. What waits for servers is marked for
    one process.
    """
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        words = fixtures.union(re.split(r"[/\[\]-]", item.nodeid))
        servers = {SERVERS[word] for word in words if word in SERVERS}
        if servers and item.get_closest_marker("xdist_group") is None:
            item.add_marker(one_process(min(servers)))
        tries_examples = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
        if tries_examples or servers or fixtures & NEEDED_BY_SLOW:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Let no garbage collection of a test look through the modules of all tests.

    With 600,000 objects of theirs one took 0.4 s; tests that wait for one paid it each. Between
    collections more may be made: they took a tenth of the tests' processor time.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 10 if FULL else 100)
    gc.enable()


class FreezesSurvivors:
    """Lets no full collection look again through what an earlier one found alive.

    Tests that collect took 0.3 s each for what others keep, and pytest collects five times at the
    end of each process.
    """

    def __init__(self) -> None:
        self._collections = 0

    def _freeze(self) -> None:
        gc.collect()
        gc.freeze()
        self._collections = gc.get_stats()[2]["collections"]

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self) -> None:
        if gc.get_stats()[2]["collections"] != self._collections:
            self._freeze()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        self._freeze()


_FOLDERS = itertools.count()


@pytest.fixture
def tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with receipts of its own: pytest gives the name of a removed folder again."""
    monkeypatch.setenv("XDG_STATE_HOME", f"{os.environ['XDG_STATE_HOME']}/{next(_FOLDERS)}")
    return tmp_path


@pytest.fixture(scope="session")
def recorded_sessions() -> Path:
    """The folder of recorded agent sessions; not part of the project, so tests skip without it."""
    root = Path(__file__).resolve().parents[1]
    place = Path(os.environ.get("EVENTCTX_SESSIONS", root.parent / "shared" / "sessions"))
    if not (place / "MANIFEST.json").is_file():
        pytest.skip(f"no recorded sessions at {place}; set EVENTCTX_SESSIONS to their folder")
    return place


@pytest.fixture(scope="session", autouse=True)
def _children_can_be_interrupted() -> Iterator[None]:
    """Start programs with SIGINT at its default, however these tests were started.

    A shell starts what runs in its background with SIGINT ignored, and a child inherits that; of
    a handler it inherits nothing. This one does nothing, so these tests go on ignoring it.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: None)
    yield
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.fixture(scope="session", autouse=True)
def _let_the_kernels_threads_end() -> Iterator[None]:
    """amplifier-core 2.0.2 crashes an interpreter that ends right after an async hook.

    Without any code of ours: 5 of 20 programs at once, none of 40 that waited for 0.1 s.
    """
    yield
    if "amplifier_core" in sys.modules:
        time.sleep(0.3)
