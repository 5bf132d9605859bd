"""``docs/reference/cli.md`` says what ``--help`` says, and once what each command's says again.

``python tests/cli/test_reference.py`` writes the generated parts of the page anew.
"""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner

from eventctx.cli.main import cli
from eventctx.cli.output.program import EXIT_CODES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "cli.md"


def help_of(name: str | None) -> str:
    """The help of a command (None: of the program) on a terminal of 80 columns."""
    arguments = ["--help"] if name is None else [name, "--help"]
    done = CliRunner().invoke(cli, arguments, prog_name="eventctx", terminal_width=80)
    return done.stdout.rstrip()


_OF_EACH = re.compile(r"^  (?:--store URL|-h, --help) {2,}\S.*\n?", re.MULTILINE)


def without_common_options(text: str) -> str:
    """The help of a command without ``--store`` and ``--help``, which the page explains once."""
    return _OF_EACH.sub("", text).rstrip().removesuffix("Options:").rstrip()


def generated() -> dict[str, str]:
    """The parts of the page between ``<!-- begin: NAME -->`` and ``<!-- end -->``."""
    parts = {"eventctx": f"```text\n{help_of(None)}\n```"}
    for name in cli.commands:
        parts[name] = f"```text\n{without_common_options(help_of(name))}\n```"
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


def main() -> None:
    parts = generated()
    text = PAGE.read_text()
    PAGE.write_text(_PART.sub(lambda match: f"{match[1]}{parts[match[2]]}\n{match[3]}", text))


if __name__ == "__main__":
    main()
