"""``docs/reference/cli.md`` says what ``--help`` says, and it or a schema names every key of JSON.

``python tests/cli/test_reference.py`` writes the generated parts of the page anew.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from eventctx.cli.main import cli
from eventctx.cli.output.program import EXIT_CODES
from tests.cli.schemas import keys_published

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "cli.md"


def help_of(name: str | None) -> str:
    """The help of a command (None: of the program) on a terminal of 80 columns."""
    arguments = ["--help"] if name is None else [name, "--help"]
    done = CliRunner().invoke(cli, arguments, prog_name="eventctx", terminal_width=80)
    return done.stdout.rstrip()


def generated() -> dict[str, str]:
    """The parts of the page between ``<!-- begin: NAME -->`` and ``<!-- end -->``."""
    parts = {name or "eventctx": f"```text\n{help_of(name)}\n```" for name in (None, *cli.commands)}
    rows = "\n".join(f"| {code} | {text} |" for code, text in EXIT_CODES)
    parts["exit codes"] = f"| code | meaning |\n|---|---|\n{rows}"
    return parts


_PART = re.compile(r"(<!-- begin: ([^>]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def test_the_page_says_what_help_says() -> None:
    found = {match[2]: match[0] for match in _PART.finditer(PAGE.read_text())}
    wanted = generated()
    assert set(found) == set(wanted), "run python tests/cli/test_reference.py"
    for name, text in wanted.items():
        assert text in found[name], f"{name}: run python tests/cli/test_reference.py"


@pytest.mark.parametrize(
    "command",
    [
        ("sessions",),
        ("stats",),
        ("log", "work", "--bodies"),
        ("transcript", "work"),
        ("view", "work", "--turn", 2),
        ("audit", "work"),
        ("replay", "work"),
        ("trace", "work"),
        ("compare", "work", "--policies", "simple,ladder", "--budgets", "2k"),
        ("verify",),
        ("fork", "work", "new", "--at", 3),
    ],
    ids=lambda command: command[0],
)
def test_every_key_of_the_json_is_documented(run, store, command) -> None:
    done = run(*command, "--json", "--store", store)
    rows = done.lines if command[0] in ("log", "replay", "trace") else [done.document]
    section = PAGE.read_text().split(f"\n## {command[0]}\n")[1].split("\n## ")[0]
    documented = set(re.findall(r"`(\w+)`", section)) | keys_published(command[0])
    assert _keys(rows) <= documented


@pytest.mark.parametrize("name", ["backup", "restore-backup"])
def test_every_key_of_a_backups_json_is_documented(run, store, tmp_path, name) -> None:
    copy, command = tmp_path / "copy.db", [name, tmp_path / "copy.db", "--store", store]
    if name == "restore-backup":
        run("backup", copy, "--store", store)
        command += ["--replace", "--yes"]
    sections = PAGE.read_text().split("\n## ")
    own = [text for text in sections if text.startswith(("backup\n", f"{name}\n"))]
    documented = set(re.findall(r"`(\w+)`", "".join(own))) | keys_published("backup")
    assert _keys(run(*command, "--json").document) <= documented


_FREE = {"attributes", "payload", "content", "message", "types", "usage", "prepared"}
"""What these hold is not the command line's to define: events, messages, names of models."""


def _keys(value: Any) -> set[str]:
    if isinstance(value, list):
        return {key for item in value for key in _keys(item)}
    if not isinstance(value, dict):
        return set()
    found = set(value)
    for key, item in value.items():
        if key not in _FREE:
            found |= _keys(item)
    return found


def main() -> None:
    """Write the generated parts."""
    parts = generated()
    text = PAGE.read_text()
    PAGE.write_text(_PART.sub(lambda match: f"{match[1]}{parts[match[2]]}\n{match[3]}", text))


if __name__ == "__main__":
    main()
