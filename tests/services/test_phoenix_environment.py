"""How Phoenix's environment is made, and Phoenix started: with stand-ins, which are scripts.

That the real one installs and runs, test_phoenix.py shows to who asks for it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import pytest

from tests.services.phoenix import Ports, free_ports, settings, start
from tests.services.phoenix_environment import (
    VERSION,
    PhoenixMissing,
    build,
    find,
    wanted,
    why_not,
)
from tests.services.process import ServiceFailed

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]

MakePython = Callable[..., Path]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "phoenix"


@pytest.fixture
def make_python(tmp_path: Path) -> MakePython:
    """Makes a `python` that makes environments with itself in them, and notes each call."""

    def make(*, version: str = VERSION, pip: str = ":") -> Path:
        python = tmp_path / "python"
        python.write_text(
            f"""#!/bin/sh
echo "$2 $3 $4" >> {tmp_path}/calls
case "$2 $3" in
  "-m venv") mkdir -p "$4/bin" && cp "$0" "$4/bin/python";;
  "-m pip") {pip};;
  "-c "*) echo {version};;
esac"""
        )
        python.chmod(0o755)
        return python

    return make


def installs(tmp_path: Path) -> int:
    return (tmp_path / "calls").read_text().count("-m pip install")


def test_a_build_leaves_a_whole_environment_and_nothing_else(make_python, cache, tmp_path):
    for _ in range(2):
        assert build(cache, make_python()) == cache / "bin" / "python" == find(cache)
    assert installs(tmp_path) == 1
    assert sorted(path.name for path in cache.parent.iterdir()) == [".phoenix.building", "phoenix"]


def test_one_that_lost_its_python_is_made_again(make_python, cache, tmp_path):
    build(cache, make_python()).unlink()
    with pytest.raises(PhoenixMissing, match=r"has lost its Python: `python -m .* makes it"):
        find(cache)
    build(cache, make_python())
    assert (installs(tmp_path), why_not(cache)) == (2, None)


def test_what_a_killed_build_left_is_not_taken_for_an_environment(make_python, cache):
    (cache.parent / ".phoenix.part" / "bin").mkdir(parents=True)
    with pytest.raises(PhoenixMissing, match="is not there"):
        find(cache)
    build(cache, make_python())
    assert not (cache.parent / ".phoenix.part").exists()


def test_what_pip_says_is_told_when_it_fails_and_nothing_is_kept(make_python, cache):
    python = make_python(pip="echo no such host; exit 1")
    with pytest.raises(
        PhoenixMissing, match=r"(?s)`pip install` for arize-phoenix==.*no such host"
    ):
        build(cache, python)
    assert [path.name for path in cache.parent.iterdir()] == [".phoenix.building"]


def test_what_needs_phoenix_is_skipped_unless_asked_for(tmp_path):
    asking = tmp_path / "test_asking.py"
    asking.write_text("def test_it(phoenix):\n    assert phoenix.pid\n")
    options = ["-rA", "-c", os.devnull, "-p", "no:cacheprovider", "-p", "tests.services.fixtures"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--rootdir", tmp_path, asking],
        env={"PATH": "", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "CI": "true"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "1 skipped" in run.stdout.splitlines()[-1], run.stdout
    assert "EVENTCTX_PHOENIX=1 asks for it" in run.stdout
    assert wanted({"EVENTCTX_PHOENIX": "1"}) and not wanted({"EVENTCTX_PHOENIX": "0"})


def test_phoenix_is_told_its_ports_and_folder_and_nothing_of_the_callers(tmp_path):
    theirs = {
        "PATH": "/bin",
        "PHOENIX_SQL_DATABASE_URL": "postgresql://x",
        "OTEL_SDK_DISABLED": "1",
    }
    said = settings(Ports(1, 2), tmp_path, theirs)
    assert said["PATH"] == "/bin"
    assert not {"PHOENIX_SQL_DATABASE_URL", "OTEL_SDK_DISABLED"} & set(said)
    assert (said["PHOENIX_PORT"], said["PHOENIX_GRPC_PORT"]) == ("1", "2")
    assert said["PHOENIX_WORKING_DIR"] == str(tmp_path)
    assert said["PHOENIX_TELEMETRY_ENABLED"] == "false"


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    """A `python` that is no Phoenix, but takes its HTTP port and says that it is ready."""
    server = tmp_path / "server.py"
    server.write_text(
        "import http.server, os\n"
        "class Ready(http.server.SimpleHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(200 if self.path == '/readyz' else 404)\n"
        "        self.end_headers()\n"
        "address = ('127.0.0.1', int(os.environ['PHOENIX_PORT']))\n"
        "try:\n"
        "    server = http.server.HTTPServer(address, Ready)\n"
        "except OSError:\n"
        "    raise SystemExit('error while attempting to bind: address already in use')\n"
        "print('Uvicorn running on', flush=True)\n"
        "server.serve_forever()\n"
    )
    python = tmp_path / "stand-in"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {server} "$@"\n')
    python.chmod(0o755)
    return python


def test_phoenix_runs_until_the_end_of_the_block_and_leaves_no_files(stand_in):
    with start(stand_in, seconds=30) as phoenix:
        with build_opener(ProxyHandler({})).open(f"{phoenix.query}/readyz", timeout=5) as answer:
            assert answer.status == 200
        assert phoenix.log.is_file()
    assert not phoenix.log.parent.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(phoenix.pid, 0)


def test_a_taken_port_is_given_up_for_another(stand_in):
    with start(stand_in, seconds=30) as first:
        choices = iter([first.ports, free_ports()])
        with start(stand_in, seconds=30, choose=lambda: next(choices)) as second:
            assert second.ports != first.ports
        with pytest.raises(ServiceFailed, match="every one of 2 choices of free ports was taken"):
            start(stand_in, attempts=2, choose=lambda: first.ports).__enter__()


@pytest.mark.parametrize(
    ("body", "seconds", "said"),
    [
        ("echo no disk; exit 3", 30, r"(?s)Phoenix.* exit code 3; .*no disk"),
        ("exec sleep 60", 0.2, r"Phoenix was not ready after 0\.2 s"),
    ],
)
def test_a_phoenix_that_dies_or_hangs_is_told_with_its_log(tmp_path, body, seconds, said):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{body}\n")
    python.chmod(0o755)
    with pytest.raises(ServiceFailed, match=said):
        start(python, seconds=seconds).__enter__()
