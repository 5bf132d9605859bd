"""Finding a Jaeger v2 binary, and building one from its Go module.

There is no package of Jaeger on any index; its releases are images and archives. The Go module
proxy serves its source, so a Go toolchain is all that a build needs: several minutes the first
time, seconds when Go's build cache is warm. The binary (81 MiB) lies in the user's cache, never
in the project.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import platformdirs

from tests.services.process import alone

MODULE = "github.com/jaegertracing/jaeger"
VERSION = "1.76.0"  # the newest that the proxy serves; its cmd/jaeger is the v2 binary
VARIABLE = "EVENTCTX_JAEGER"
COMMAND = "python -m tests.services.jaeger build"
BUILT = platformdirs.user_cache_path("eventctx") / f"jaeger-{VERSION}" / "jaeger"


class JaegerMissing(Exception):
    """There is no Jaeger binary here, or it cannot be built; the message says what to do."""


def find() -> Path:
    """The binary to use: the one that $EVENTCTX_JAEGER names, `jaeger` on PATH, or the built one.

    Raises ValueError, JaegerMissing.
    """
    if named := os.environ.get(VARIABLE):
        if problem := why_not(Path(named)):
            raise ValueError(f"${VARIABLE} must name a Jaeger v2 binary, but {named} {problem}")
        return Path(named)
    on_path = shutil.which("jaeger")
    if on_path and not why_not(Path(on_path)):
        return Path(on_path)
    if BUILT.is_file():
        return BUILT
    raise JaegerMissing(
        f"no Jaeger v2 binary on PATH or at {BUILT}: `{COMMAND}` builds it, or set ${VARIABLE}"
    )


def why_not(binary: Path) -> str | None:
    """The reason why a file is no Jaeger v2 binary, or None."""
    try:
        answer = subprocess.run(
            [binary, "--help"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not answer --help ({error})"
    if b"Jaeger backend v2" in answer.stdout:
        return None
    return "does not call itself 'Jaeger backend v2' in its --help"


def build() -> Path:
    """Build the binary into the cache, unless it is there; returns its path.

    Of several builders at once one builds, the others wait for it; whoever looks meanwhile sees
    no binary or a whole one.

    Raises JaegerMissing.
    """
    BUILT.parent.mkdir(parents=True, exist_ok=True)
    with alone(BUILT.with_name(".building"), "Jaeger"):
        if not BUILT.is_file():
            part = BUILT.with_name(f".jaeger-{os.getpid()}.part")
            try:
                _compile(part)
                if problem := why_not(part):
                    raise JaegerMissing(f"the build of {MODULE}@v{VERSION} {problem}")
                part.replace(BUILT)
            finally:
                part.unlink(missing_ok=True)
    return BUILT


def _compile(target: Path) -> None:
    # `go install module@version` refuses a module whose go.mod has a `replace`; as the main
    # module of a folder of its own it builds. The module cache is read-only, hence the copy.
    with tempfile.TemporaryDirectory(prefix="eventctx-jaeger-") as folder:
        fetched = _go(folder, "mod", "download", "-json", f"{MODULE}@v{VERSION}")
        source = Path(folder, "source")
        shutil.copytree(json.loads(fetched)["Dir"], source)
        for path in (source, *source.rglob("*")):
            path.chmod(path.stat().st_mode | stat.S_IWUSR)
        flags = ["-trimpath", "-ldflags", "-s -w", "-o", str(target)]
        _go(str(source), "build", *flags, "./cmd/jaeger")


def _go(folder: str, *arguments: str) -> str:
    env = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod -buildvcs=false"}
    env.pop("GOWORK", None)
    needs = (
        "building Jaeger needs Go 1.24.6 or newer (https://go.dev/dl) and a Go module proxy (see "
        f"`go env GOPROXY`), or set ${VARIABLE} to a Jaeger v2 binary"
    )
    try:
        run = subprocess.run(
            ["go", *arguments], cwd=folder, env=env, capture_output=True, text=True, timeout=3600
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JaegerMissing(f"{error}: {needs}") from None
    if run.returncode:
        # `go mod download -json` writes its error to standard output
        tail = "\n".join((run.stderr + run.stdout).splitlines()[-15:])
        raise JaegerMissing(f"`go {arguments[0]}` failed: {needs}. Go said:\n{tail}")
    return run.stdout


def main(arguments: list[str]) -> int:
    """`build` makes the binary and prints how long that took; `path` prints its path."""
    if arguments not in (["path"], ["build"]):
        print("usage: python -m tests.services.jaeger build|path", file=sys.stderr)
        return 2
    try:
        if arguments == ["path"]:
            print(find())
            return 0
        print(f"building {MODULE}@v{VERSION}; minutes when Go's cache is cold", flush=True)
        begun = time.monotonic()
        place = build()
        print(f"built {place} in {time.monotonic() - begun:.0f} s")
        return 0
    except JaegerMissing as error:
        print(error, file=sys.stderr)
        return 1
