"""The virtual environment of arize-phoenix, a receiver of another make: opt-in, 850 MB.

It has an environment of its own because its 158 packages pin what ours do not. It lies in the
user's cache, never in the project. It is made under another name and then moved, which breaks the
scripts in its ``bin`` (they name the place where they were made): run it as ``python -m``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import platformdirs

from tests.services.building import alone

PACKAGE = "arize-phoenix"
VERSION = "20.26.1"
VARIABLE = "EVENTCTX_PHOENIX"
COMMAND = "python -m tests.services.phoenix build"
OPT_IN = (
    f"Phoenix is opt-in (850 MB, half a minute to start): `{COMMAND}` installs it, and "
    f"{VARIABLE}=1 asks for it"
)

_INSTALL_SECONDS = 1_800.0  # two minutes on two cores and a near index
_ASK_SECONDS = 30.0
_ASK = f"from importlib.metadata import version; print(version({PACKAGE!r}))"


class PhoenixMissing(Exception):
    """There is no environment here, or it cannot be made; the message says what to do."""


def cached() -> Path:
    """The folder of the environment that `build` makes, whether it is there or not."""
    return platformdirs.user_cache_path("eventctx") / f"phoenix-{VERSION}"


def wanted(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether $EVENTCTX_PHOENIX asks for Phoenix: only with the value 1."""
    return environ.get(VARIABLE) == "1"


def find(cache: Path | None = None) -> Path:
    """The Python of the environment.

    Raises:
        PhoenixMissing: the environment is not there, or what it was made of is gone.
    """
    place = cache or cached()
    if problem := why_not(place):
        raise PhoenixMissing(f"{place} {problem}: `{COMMAND}` makes it")
    return _python(place)


def why_not(place: Path) -> str | None:
    """The reason why a folder is no environment with this release of Phoenix, or None."""
    if not place.is_dir():
        return "is not there"
    if not _python(place).is_file():  # a link to a Python that was removed since
        return "has lost its Python"
    try:
        answer = subprocess.run(
            [_python(place), "-I", "-c", _ASK],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ASK_SECONDS,
            check=False,
        )
    except (subprocess.TimeoutExpired, OSError) as error:
        return f"does not say what is installed in it ({type(error).__name__})"
    found = answer.stdout.strip()
    return None if found == VERSION else f"holds {found or 'no'} {PACKAGE}, not {VERSION}"


def build(cache: Path | None = None, python: Path | None = None) -> Path:
    """Make the environment with ``python`` (this one) unless it is there; returns its Python.

    Of several builders at once one builds, the others wait for it; whoever looks meanwhile sees
    no environment or a whole one.

    Raises:
        PhoenixMissing: Python's ``venv`` or pip failed; with the last lines of its output.
    """
    place = cache or cached()
    place.parent.mkdir(parents=True, exist_ok=True)
    with alone(place.with_name(f".{place.name}.building"), "Phoenix"):
        if why_not(place) is None:
            return _python(place)
        part = place.with_name(f".{place.name}.part")
        for left in (part, place):  # of a build that was killed; without its Python
            shutil.rmtree(left, ignore_errors=True)
        try:
            _install(python or Path(sys.executable), part)
            if problem := why_not(part):
                raise PhoenixMissing(f"what pip installed {problem}: it is not kept")
            part.replace(place)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return _python(place)


def _install(python: Path, target: Path) -> None:
    until = time.monotonic() + _INSTALL_SECONDS
    _run([str(python), "-I", "-m", "venv", str(target)], "venv", until)
    options = ["--quiet", "--disable-pip-version-check", "--no-input"]
    pip = [str(_python(target)), "-I", "-m", "pip"]
    _run([*pip, "install", *options, f"{PACKAGE}=={VERSION}"], "pip install", until)


def _run(command: list[str], name: str, until: float) -> None:
    try:
        run = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=max(until - time.monotonic(), 1.0),
        )
    except subprocess.TimeoutExpired:
        raise PhoenixMissing(
            f"`{name}` for {PACKAGE}=={VERSION} took longer than {_INSTALL_SECONDS:g} s: try "
            "again (pip keeps what it has downloaded)"
        ) from None
    if run.returncode:
        tail = "\n".join(run.stdout.splitlines()[-15:])
        raise PhoenixMissing(
            f"`{name}` for {PACKAGE}=={VERSION} failed; it needs a package index and 1 GB of disk. "
            f"It said:\n{tail}"
        )


def _python(place: Path) -> Path:
    return place / "bin" / "python"


def main(arguments: list[str]) -> int:
    """`build` makes the environment and prints how long that took; `path` prints its Python."""
    try:
        if arguments == ["path"]:
            print(find())
            return 0
        if arguments == ["build"]:
            return _build_and_report()
    except PhoenixMissing as error:
        print(error, file=sys.stderr)
        return 1
    print("usage: python -m tests.services.phoenix build|path", file=sys.stderr)
    return 2


def _build_and_report() -> int:
    try:
        print(f"Phoenix is at {find()}")
    except PhoenixMissing:
        print(f"installing {PACKAGE}=={VERSION}; 850 MB, some minutes", flush=True)
        begun = time.monotonic()
        place = build()
        print(f"installed {place} in {time.monotonic() - begun:.0f} s")
    return 0
