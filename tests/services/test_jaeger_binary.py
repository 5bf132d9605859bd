"""Where the Jaeger binary is looked for, and how it is built: with stand-ins for Go and Jaeger.

The stand-ins are shell scripts. That the real Go builds the real Jaeger, .ci/run shows.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.services.jaeger_binary import (
    MODULE,
    VERSION,
    JaegerUnusable,
    build,
    find,
    why_not,
)

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
HELP = "echo 'Jaeger backend v2'"
TOOLS = os.pathsep.join(["/usr/bin", "/bin"])


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "jaeger"


@pytest.fixture
def go(tmp_path: Path) -> dict[str, str]:
    """An environment with a `go` that notes each call and builds a script as Jaeger."""
    source = tmp_path / "module"
    (source / "cmd" / "jaeger").mkdir(parents=True)
    (source / "cmd" / "jaeger" / "main.go").write_text("package main")
    for path in (source / "cmd" / "jaeger" / "main.go", source / "cmd" / "jaeger", source):
        path.chmod(path.stat().st_mode & ~0o222)  # as Go's module cache is
    notes = tmp_path / "calls"
    script(
        tmp_path / "bin" / "go",
        f"""
echo "$1 $GOTOOLCHAIN $GOFLAGS $(pwd -P)" >> {notes}
case "$1" in
  mod) echo '{{"Dir": "{source}"}}';;
  build)
    [ "$PWD" != "{source}" ] && echo x > cmd/jaeger/written || exit 9
    while [ "$1" != -o ]; do shift; done
    printf '#!/bin/sh\\n%s\\n' "${{JAEGER_SAYS:-{HELP}}}" > "$2"; sleep 0.2; chmod +x "$2";;
esac""",
    )
    return {"PATH": os.pathsep.join([str(tmp_path / "bin"), TOOLS]), "NOTES": str(notes)}


def calls(go: dict[str, str]) -> list[str]:
    return [line.split()[0] for line in Path(go["NOTES"]).read_text().splitlines()]


def test_the_variable_comes_before_the_path_and_the_path_before_the_cache(tmp_path, cache):
    named = script(tmp_path / "mine", HELP)
    on_path = script(tmp_path / "bin" / "jaeger", HELP)
    script(cache, HELP)
    path = str(tmp_path / "bin")
    assert find({"EVENTCTX_JAEGER": str(named), "PATH": path}, cache) == named
    assert find({"PATH": path}, cache) == on_path


@pytest.mark.parametrize(
    ("body", "problem"),
    [(None, "is not there"), ("echo v1", "does not call itself")],
)
def test_a_variable_that_names_something_else_is_an_error(tmp_path, cache, body, problem):
    script(cache, HELP)
    named = tmp_path / "mine"
    if body is not None:
        script(named, body)
    with pytest.raises(JaegerUnusable, match=problem):
        find({"EVENTCTX_JAEGER": str(named), "PATH": ""}, cache)


def test_a_build_copies_the_module_and_leaves_the_binary_in_the_cache(go, cache):
    assert build(go, cache) == cache == build(go, cache)
    assert why_not(cache) is None
    assert calls(go) == ["mod", "build"]
    notes = Path(go["NOTES"]).read_text().splitlines()
    assert all(" local -mod=mod -buildvcs=false " in line for line in notes)
    assert sorted(path.name for path in cache.parent.iterdir()) == [".building", "jaeger"]
    assert not Path(notes[-1].split()[-1]).exists()


def test_of_several_builders_at_once_one_builds(go, cache, capfd):
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: build(go, cache), range(4))) == {cache}
    assert calls(go) == ["mod", "build"]
    assert "waiting for it" in capfd.readouterr().err


def test_a_build_that_is_no_jaeger_is_not_kept(go, cache):
    with pytest.raises(JaegerUnusable, match=rf"{MODULE}@v{VERSION} does not call itself"):
        build({**go, "JAEGER_SAYS": "echo hello"}, cache)
    assert [path.name for path in cache.parent.iterdir()] == [".building"]


@pytest.mark.parametrize(
    ("environ", "outcome", "reason"),
    [
        ({}, "1 skipped", "`python -m tests.services.jaeger build` builds it"),
        ({"CI": "true"}, "1 error", "no `go` on PATH"),
    ],
)
def test_what_needs_jaeger_is_skipped_without_it_but_fails_in_ci(
    tmp_path, environ, outcome, reason
):
    asking = tmp_path / "test_asking.py"
    asking.write_text("def test_it(jaeger):\n    assert jaeger.pid\n")
    options = ["-rA", "-c", os.devnull, "-p", "no:cacheprovider", "-p", "tests.services.fixtures"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--rootdir", tmp_path, asking],
        env={"PATH": "", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), **environ},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert outcome in run.stdout.splitlines()[-1], run.stdout
    assert reason in run.stdout
