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
from collections.abc import Mapping
from pathlib import Path

import platformdirs

from tests.services.building import alone

MODULE = "github.com/jaegertracing/jaeger"
VERSION = "1.76.0"  # the newest that the proxy serves; its cmd/jaeger is the v2 binary
VARIABLE = "EVENTCTX_JAEGER"
COMMAND = "python -m tests.services.jaeger build"

_BUILD_SECONDS = (
    3_600.0  # seven minutes on two cores; a busy small machine takes several times that
)
_DOWNLOAD_SECONDS = 600.0
_ASK_SECONDS = 10.0


class JaegerMissing(Exception):
    """There is no Jaeger binary here, or it cannot be built; the message says what to do."""


class JaegerUnusable(Exception):
    """A binary that somebody named, or that was just built, is not a Jaeger v2."""


def cached() -> Path:
    """The place of the binary that `build` makes, whether it is there or not."""
    return platformdirs.user_cache_path("eventctx") / f"jaeger-{VERSION}" / "jaeger"


def find(environ: Mapping[str, str] = os.environ, cache: Path | None = None) -> Path:
    """The binary to use: the one that $EVENTCTX_JAEGER names, `jaeger` on PATH, or the cached one.

    Raises:
        JaegerUnusable: $EVENTCTX_JAEGER names something else than a Jaeger v2.
        JaegerMissing: none of the three is there.
    """
    if named := environ.get(VARIABLE):
        if problem := why_not(Path(named)):
            raise JaegerUnusable(
                f"${VARIABLE} must name a Jaeger v2 binary, but {named} {problem}: correct the "
                f"variable, or unset it and run `{COMMAND}`"
            )
        return Path(named)
    passed_over = ""
    if on_path := shutil.which("jaeger", path=environ.get("PATH", "")):
        if not (problem := why_not(Path(on_path))):
            return Path(on_path)
        passed_over = f" ({on_path} on PATH {problem})"
    place = cache or cached()
    if place.is_file():
        return place
    raise JaegerMissing(
        f"no Jaeger v2 binary at {place}{passed_over}: `{COMMAND}` builds it, "
        f"or set ${VARIABLE} to one"
    )


def why_not(binary: Path, seconds: float = _ASK_SECONDS) -> str | None:
    """The reason why a file is no Jaeger v2 binary, or None; takes at most ``seconds``."""
    if not binary.is_file():
        return "is not there"
    if not os.access(binary, os.X_OK):
        return "cannot be executed"
    try:
        answer = subprocess.run(
            [binary, "--help"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"does not answer --help within {seconds:g} s"
    except OSError as error:
        return f"does not start ({error.strerror})"
    if b"Jaeger backend v2" in answer.stdout:
        return None
    return "does not call itself 'Jaeger backend v2' in its --help"


def build(environ: Mapping[str, str] = os.environ, cache: Path | None = None) -> Path:
    """Build the binary into the cache, unless it is there; returns its path.

    Of several builders at once one builds, the others wait for it; whoever looks meanwhile sees
    no binary or a whole one.

    Raises:
        JaegerMissing: there is no Go, or it cannot fetch or compile the module.
        JaegerUnusable: the result of the build is not a Jaeger v2.
    """
    place = cache or cached()
    place.parent.mkdir(parents=True, exist_ok=True)
    with alone(place.with_name(".building"), "Jaeger"):
        if place.is_file():
            return place
        go = shutil.which("go", path=environ.get("PATH", ""))
        if go is None:
            raise JaegerMissing(
                "Jaeger is built with Go 1.24.6 or newer, and there is no `go` on PATH: install "
                f"it from https://go.dev/dl, or set ${VARIABLE} to a Jaeger v2 binary"
            )
        part = place.with_name(f".jaeger-{os.getpid()}.part")
        try:
            _compile(go, part, environ)
            if problem := why_not(part):
                raise JaegerUnusable(f"the build of {MODULE}@v{VERSION} {problem}")
            part.replace(place)
        finally:
            part.unlink(missing_ok=True)
    return place


def _compile(go: str, target: Path, environ: Mapping[str, str]) -> None:
    # `go install module@version` refuses a module whose go.mod has a `replace`; as the main
    # module of a folder of its own it builds. The module cache is read-only, hence the copy.
    env = {**environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod -buildvcs=false"}
    env.pop("GOWORK", None)
    with tempfile.TemporaryDirectory(prefix="eventctx-jaeger-") as folder:
        wanted = f"{MODULE}@v{VERSION}"
        fetched = _go([go, "mod", "download", "-json", wanted], folder, env, _DOWNLOAD_SECONDS)
        source = Path(folder, "source")
        shutil.copytree(json.loads(fetched)["Dir"], source)
        for path in (source, *source.rglob("*")):
            path.chmod(path.stat().st_mode | stat.S_IWUSR)
        flags = ["-trimpath", "-ldflags", "-s -w", "-o", str(target)]
        _go([go, "build", *flags, "./cmd/jaeger"], str(source), env, _BUILD_SECONDS)


def _go(command: list[str], folder: str, env: Mapping[str, str], seconds: float) -> str:
    step = " ".join(command[1:3])
    try:
        run = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        raise JaegerMissing(
            f"`go {step}` of {MODULE}@v{VERSION} took longer than {seconds:g} s: try again (Go "
            f"keeps what it has done), or set ${VARIABLE} to a Jaeger v2 binary"
        ) from None
    if run.returncode:
        # `go mod download -json` writes its error to standard output
        tail = "\n".join((run.stderr + run.stdout).splitlines()[-15:])
        raise JaegerMissing(
            f"`go {step}` of {MODULE}@v{VERSION} failed; it needs Go 1.24.6 or newer and a Go "
            f"module proxy (see `go env GOPROXY`). Or set ${VARIABLE} to a Jaeger v2 binary. "
            f"Go said:\n{tail}"
        )
    return run.stdout


def main(arguments: list[str]) -> int:
    """`build` makes the binary and prints how long that took; `path` prints its path."""
    try:
        if arguments == ["path"]:
            print(find())
            return 0
        if arguments == ["build"]:
            return _build_and_report()
    except (JaegerMissing, JaegerUnusable) as error:
        print(error, file=sys.stderr)
        return 1
    print("usage: python -m tests.services.jaeger build|path", file=sys.stderr)
    return 2


def _build_and_report() -> int:
    try:
        print(f"Jaeger is at {find()}")
    except JaegerMissing:
        print(f"building {MODULE}@v{VERSION}; minutes when Go's cache is cold", flush=True)
        begun = time.monotonic()
        place = build()
        took, size = time.monotonic() - begun, place.stat().st_size / 2**20
        print(f"built {place} in {took:.0f} s ({size:.0f} MiB)")
    return 0
