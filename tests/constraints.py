"""What a checkout installs, to the version: a file of constraints for each Python.

``python -m tests.constraints`` (``make constraints``) resolves ``dev`` with what builds the
packages that have no wheel, and writes two files a Python into .ci/constraints: the newest
versions, which make and CI install, and the oldest that the ranges of pyproject.toml allow, for
``make test OLDEST=1``. They hold on Linux and macOS, and name no package index. uv resolves them:
pip resolves for no other Python than its own.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".ci" / "constraints"
PYTHONS = ("3.11", "3.12", "3.13")
RESOLUTIONS = {"newest": "highest", "oldest": "lowest-direct"}

_BUILDERS = ("setuptools>=80", "wheel>=0.45")  # of nats-py, nkeys and python-etcd
_HEAD = "# `make constraints` writes this file.\n"


def path_of(python: str, which: str) -> Path:
    return FOLDER / f"{python}-{which}.txt"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for python in PYTHONS:
        for which, resolution in RESOLUTIONS.items():
            path = path_of(python, which)
            path.write_text(_HEAD + _resolved(python, resolution))
            sys.stdout.write(f"{path.relative_to(ROOT)}\n")


def _resolved(python: str, resolution: str) -> str:
    here = f"python_version == '{python}' and implementation_name == 'cpython'"
    project = (ROOT / "pyproject.toml").read_text()
    builders = [*tomllib.loads(project)["build-system"]["requires"], *_BUILDERS]
    with tempfile.TemporaryDirectory(prefix="eventctx-constraints-") as folder:
        # uv takes the environments that a resolution must hold in from a project's settings alone.
        environments = f"\n[tool.uv]\nenvironments = [\"{here} and sys_platform != 'win32'\"]\n"
        Path(folder, "pyproject.toml").write_text(project + environments)
        Path(folder, "builders.in").write_text("\n".join(builders))
        command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal"]
        command += ["--python-version", python, "--resolution", resolution, "--extra", "dev"]
        command += ["--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links"]
        command += ["pyproject.toml", "builders.in"]
        run = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    if run.returncode:
        sys.exit(f"expected that {python} has a {resolution} resolution; uv says above why not")
    lines = [line.partition(" ; ") for line in run.stdout.splitlines()]
    # The marker of most lines says no more than the file's name.
    ((usual, _),) = Counter(marker for _, _, marker in lines).most_common(1)
    return "".join(
        f"{pin}\n" if marker == usual else f"{pin}{semicolon}{marker}\n"
        for pin, semicolon, marker in lines
    )


if __name__ == "__main__":
    main()
