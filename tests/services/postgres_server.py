"""A real PostgreSQL server for tests, on a free port of this machine; several stand side by side.

The first start makes a template of a data folder (`initdb`, about two seconds); every server after
that begins with a copy of it and is there within a second.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import psycopg

from tests.services.postgres_binaries import Binaries, find
from tests.services.process import ServiceFailed, alone, end, free_ports, started, tail

SUPERUSER = "postgres"

_START_SECONDS = 60.0

# Waits until its standard input ends, because tests end however they end: then nobody would
# stop the server.
_WATCH = 'read _; kill -QUIT "$1"; [ -z "$2" ] || { sleep 1; rm -rf "$2"; }'

# As a real server, but small: what is acknowledged survives a power cut (fsync stays on).
_SETTINGS = {
    "shared_buffers": "16MB",
    "max_connections": "200",
    "wal_level": "replica",
    "min_wal_size": "4MB",
    "max_wal_size": "128MB",
    "listen_addresses": "127.0.0.1",
    "logging_collector": "off",
    "log_min_messages": "warning",
    "autovacuum": "off",  # its transactions keep what a test erases in the files for a while
    "dynamic_shared_memory_type": "mmap",  # in the data folder, so that `kill` leaves none after
}


class Server:
    """One server: ``with Server() as server`` starts it, and ends with its data removed.

    Its port stays the same for life, so that a client finds it again after `kill` and `start`.
    ``settings`` are lines of postgresql.conf. ``folder`` is where the data lies (a file system
    that a test cuts off, say); without one it lies in a temporary folder, which ``place`` has.
    """

    host = "127.0.0.1"

    def __init__(
        self,
        *,
        settings: Mapping[str, str] | None = None,
        folder: Path | None = None,
        place: Path | None = None,
        binaries: Binaries | None = None,
    ) -> None:
        self.binaries: Binaries = binaries or find()
        self.own = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="eventctx-pg-", dir=place))
        self.data = self.folder / "data"
        self.log = self.folder / "log"
        (self.port,) = free_ports(1)
        self._settings = {**_SETTINGS, **(settings or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._watch: subprocess.Popen[bytes] | None = None
        self._names = itertools.count(1)

    def __enter__(self) -> Self:
        if not self.data.exists():
            self.create()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.resume()
            self._end(signal.SIGQUIT)
        finally:
            # The System V segment of a server that was killed; a new start would have freed it.
            segment = " ".join(self._lines()[6:7]).split()[1:2]
            if segment:
                subprocess.run(["ipcrm", "-m", *segment], capture_output=True, check=False)
            if self.own:
                shutil.rmtree(self.folder, ignore_errors=True)

    def create(self) -> None:
        shutil.copytree(template(self.binaries), self.data, symlinks=True)
        self.binaries.give(self.folder)
        self.configure()

    def configure(self, **settings: str) -> None:
        """Change lines of postgresql.conf; they count from the next start (or `reload`)."""
        self._settings |= settings
        socket = {"port": str(self.port), "unix_socket_directories": str(self.folder)}
        lines = (f"{name} = '{value}'\n" for name, value in {**self._settings, **socket}.items())
        (self.data / "postgresql.conf").write_text("".join(lines))

    def start(self) -> Self:
        """Start, and wait until it accepts connections. Raises ServiceFailed."""
        line = self.binaries.command("postgres", "-D", self.data)
        self._process = started(line, self.log, cwd="/", **self.binaries.as_user())
        self._watch = subprocess.Popen(
            ["sh", "-c", _WATCH, "watch", str(self.pid), str(self.folder) if self.own else ""],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until = time.monotonic() + _START_SECONDS
        while not self._ready():
            if self._process.poll() is not None:
                self._end(signal.SIGQUIT)
                raise ServiceFailed(f"PostgreSQL ended at its start; {tail(self.log)}")
            if time.monotonic() > until:
                raise ServiceFailed(f"PostgreSQL was not ready in time; {tail(self.log)}")
            time.sleep(0.01)
        return self

    def stop(self) -> None:
        """Shut down in order; every connection is ended ("fast")."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End every process of the server with SIGKILL, at once."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGSTOP)  # so that it starts no more children
        children = self.children()
        for child in children:
            _signal(child, signal.SIGKILL)
        self._end(signal.SIGKILL)
        # One that is not gone yet holds the shared memory, and no server starts next to it.
        until = time.monotonic() + _START_SECONDS
        while any(_is_there(child) for child in children) and time.monotonic() < until:
            time.sleep(0.01)

    def pause(self) -> None:
        assert self.running
        for pid in (self.pid, *self.children()):
            _signal(pid, signal.SIGSTOP)

    def resume(self) -> None:
        if self.running:
            for pid in (*self.children(), self.pid):
                _signal(pid, signal.SIGCONT)

    def new_database(self) -> str:
        name = f"test_{os.getpid()}_{next(self._names)}"
        self.execute(f"CREATE DATABASE {name}")
        return name

    def reload(self) -> None:
        self.execute("SELECT pg_reload_conf()")

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def children(self) -> list[int]:
        table = subprocess.run(
            ["ps", "-axo", "pid=,ppid="], capture_output=True, text=True, check=True
        )
        pairs = (map(int, line.split()) for line in table.stdout.splitlines())
        return [pid for pid, parent in pairs if parent == self.pid]

    def url(
        self,
        database: str = "postgres",
        *,
        user: str = SUPERUSER,
        password: str | None = None,
        **parameters: str,
    ) -> str:
        """A URL of this server as users write it; ``parameters`` go behind the question mark."""
        secret = "" if password is None else ":" + quote(password, safe="")
        query = "&".join(f"{name}={quote(value, safe='')}" for name, value in parameters.items())
        who, where = quote(user, safe=""), quote(database, safe="")
        place = f"{who}{secret}@{self.host}:{self.port}/{where}"
        return f"postgresql://{place}" + ("?" + query if query else "")

    @contextmanager
    def connection(
        self, database: str = "postgres", user: str = SUPERUSER
    ) -> Iterator[psycopg.Connection[Any]]:
        """A connection on which every statement is a transaction."""
        with psycopg.connect(self.url(database, user=user), autocommit=True) as connection:
            yield connection

    def execute(
        self, statement: str, *arguments: object, database: str = "postgres"
    ) -> list[tuple[Any, ...]]:
        with self.connection(database) as connection:
            cursor = connection.execute(statement.encode(), arguments or None)
            return cursor.fetchall() if cursor.description else []

    def allow(self, *rules: str) -> None:
        """Replace pg_hba.conf: who may connect, and how they prove who they are."""
        (self.data / "pg_hba.conf").write_text("".join(rule + "\n" for rule in rules))
        if self.running:
            _signal(self.pid, signal.SIGHUP)

    def standby(self, name: str, *, folder: Path | None = None) -> Server:
        """A standby of this server that calls itself ``name``; not started."""
        other = Server(settings={**self._settings, "cluster_name": name}, folder=folder)
        self.binaries.give(other.folder)
        where = ("--dbname=" + self.url(application_name=name), f"--pgdata={other.data}")
        how = ("--write-recovery-conf", "--checkpoint=fast", "--no-sync")
        self.binaries.run("pg_basebackup", *where, *how)
        # What the primary wants of its standbys is not what its standby wants, should it lead.
        other.configure(synchronous_standby_names="")
        return other

    def promote(self) -> None:
        """Make a standby a primary, and wait until it is one."""
        self.execute("SELECT pg_promote(true, 60)")

    def _ready(self) -> bool:
        lines = self._lines()
        # A file of an earlier life has another process's number in it.
        return lines[:1] == [str(self.pid)] and lines[-1].strip() in ("ready", "standby")

    def _lines(self) -> list[str]:
        """What the server says of itself; nothing while that is being written."""
        with suppress(OSError):
            return (self.data / "postmaster.pid").read_text().splitlines()
        return []

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.kill()
            watch.communicate()
        if process is not None:
            end(process, number, 30)


def template(binaries: Binaries) -> Path:
    """A data folder that was never started, made once for a version on this machine."""
    place = binaries.cache / f"template-{binaries.version}"
    with alone(binaries.cache / ".template", "PostgreSQL's template"):
        if not place.is_dir():
            part = Path(tempfile.mkdtemp(prefix=".part-", dir=binaries.cache))
            try:
                binaries.give(part)
                binaries.run(
                    "initdb",
                    f"--pgdata={part}",
                    f"--username={SUPERUSER}",
                    "--auth=trust",
                    "--encoding=UTF8",
                    "--locale=C",
                    "--data-checksums",
                    "--wal-segsize=1",  # MiB; a segment of 16 is copied with every folder
                    "--no-sync",
                    "--no-instructions",
                )
                part.rename(place)
            except BaseException:
                shutil.rmtree(part, ignore_errors=True)
                raise
    return place


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # it ended by itself
        os.kill(pid, number)


def _is_there(pid: int) -> bool:
    """Whether a process still has its memory; one that only waits to be collected has none."""
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return bool(found.stdout.strip()) and not found.stdout.startswith("Z")
