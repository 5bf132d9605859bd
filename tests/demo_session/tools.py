"""The tools of the scripted agent. They really run, on the files of this repository."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
"""The repository. Paths that the tools print are relative to it."""

MAX_CHARACTERS = 160_000


class ToolFailed(Exception):
    """A tool could not complete its call; the text is its result."""


def _path(path: str) -> Path:
    found = (ROOT / path).resolve()
    if ROOT not in (found, *found.parents):
        raise ToolFailed(f"Error: {path} is outside the repository")
    if not found.exists():
        raise ToolFailed(f"Error: no such file or directory: {path}")
    return found


def _python_files(path: str) -> list[Path]:
    found = _path(path)
    if found.is_file():
        return [found]
    # The linked folders hold the same files as projections/ and hooks/ at the top.
    files = [
        Path(base) / name
        for base, _, names in os.walk(found, followlinks=True)
        for name in names
        if name.endswith(".py")
    ]
    return sorted(files)


def _named(file: Path) -> str:
    return os.path.relpath(file, ROOT)


def list_files(path: str = ".") -> str:
    """Names and sizes of the Python files below a folder."""
    return "\n".join(f"{file.stat().st_size:>7}  {_named(file)}" for file in _python_files(path))


def read_file(path: str, start: int = 1, end: int | None = None) -> str:
    """A file's lines with their numbers."""
    found = _path(path)
    if found.is_dir():
        raise ToolFailed(f"Error: {path} is a directory")
    lines = found.read_text().splitlines()
    if start > len(lines):
        raise ToolFailed(f"Error: {path} has {len(lines)} lines, found start={start}")
    chosen = lines[start - 1 : end]
    return "\n".join(f"{number:>4}\t{line}" for number, line in enumerate(chosen, start))


def grep(pattern: str, path: str = "eventctx") -> str:
    """Lines that match a regular expression, as path:line:text."""
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise ToolFailed(f"Error: not a regular expression: {error}") from error
    hits = [
        f"{_named(file)}:{number}:{line}"
        for file in _python_files(path)
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if wanted.search(line)
    ]
    found = "\n".join(hits)
    if len(found) > MAX_CHARACTERS:
        return f"{found[:MAX_CHARACTERS]}\n[cut after {MAX_CHARACTERS} of {len(found)} characters]"
    return found or "no matches"


def count_lines(paths: list[str]) -> str:
    """Lines per file, and the sum."""
    counted = {path: len(_path(path).read_text().splitlines()) for path in paths}
    rows = [f"{lines:>6} {path}" for path, lines in counted.items()]
    return "\n".join([*rows, f"{sum(counted.values()):>6} total"])


def run_python(code: str) -> str:
    """Run a snippet in a fresh interpreter at the root of the repository."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    output = (done.stdout + done.stderr).replace(str(ROOT) + "/", "")
    # Where Python is installed says nothing about the project.
    for place in (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")):
        output = output.replace(f"{place}/", "")
    if done.returncode:
        raise ToolFailed(f"{output}\n[exit code {done.returncode}]".strip())
    return output.rstrip() or "[no output]"


TOOLS: dict[str, Any] = {
    "list_files": list_files,
    "read_file": read_file,
    "grep": grep,
    "count_lines": count_lines,
    "run_python": run_python,
}
