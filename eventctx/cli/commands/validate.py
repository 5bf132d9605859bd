"""``validate``: check any Amplifier context module against the context contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click
import msgspec

from eventctx.cli.output.plain import plural
from eventctx.cli.output.program import FOUND, CommandFailed, run
from eventctx.cli.output.screen import Column, Screen, put_document
from eventctx.errors import InvalidSetting
from eventctx.testing.contract.coordinator import core_version
from eventctx.testing.contract.examining import SECONDS
from eventctx.testing.contract.validating import validate
from eventctx.testing.contract.verdicts import Finding, all_required_hold

_COLUMNS: Final = (Column("Level"), Column("Verdict"), Column("What", fold=True))


@click.command("validate", short_help="Hold a context module to the contract.")
@click.argument("module")
@click.option("--config", metavar="JSON", help="What to mount it with, as a JSON object.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=SECONDS,
    metavar="SECONDS",
    help=f"How long a check may take. Default: {SECONDS:g}.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def validate_command(module: str, config: str | None, timeout: float, as_json: bool) -> None:
    """Check a context module of Amplifier, ours or another's, against the context contract.

    MODULE is a directory with amplifier_module_*/__init__.py or __init__.py, a .py file, a module
    (pkg.mod), pkg.mod:mount, or an installed entry point of the group amplifier.modules. Its code
    runs, in a process of its own whose working directory and home are temporary.

    Exits with 1 when a required check does not hold.
    """
    findings = run(validate(module, _config(config), seconds=timeout))
    holds = all_required_hold(findings)
    if as_json:
        put_document(ModuleContract(module, holds, core_version(), findings))
    else:
        _show(Screen(), findings)
    if not holds:
        raise CommandFailed(FOUND)


def _config(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidSetting(f"--config: expected a JSON object ({error}), found {text}") from error


def _show(screen: Screen, findings: list[Finding]) -> None:
    rows: list[tuple[str, str, str]] = []
    notes: dict[int, Sequence[str | tuple[str, str]]] = {}
    for one in findings:
        rows.append((one.level, one.verdict, one.what))
        if note := _note(one):
            notes[len(rows)] = note
    screen.table(_COLUMNS, rows, notes)
    screen.blank()
    broken = [one for one in findings if one.verdict == "does not hold" and one.level == "required"]
    if broken:
        screen.line(("to fix: ", "bold"), ", ".join(one.check for one in broken))
    for level in ("required", "recommended"):
        screen.line((f"{level}: ", "bold"), _counted(findings, level))


def _note(one: Finding) -> list[tuple[str, str]]:
    """The findings, and the places of the rules that do not hold."""
    if one.verdict != "does not hold":
        return [(f"    {one.seen}", "dim")] if one.seen else []
    origin = f"the contract's {one.heading!r}" if one.heading else "hosts rely on it"
    if one.source != "eventctx":
        origin = one.source
    return [(f"    found: {one.seen}", "red"), (f"\n    {one.check}: {origin}", "dim")]


def _counted(findings: list[Finding], level: str) -> str:
    of = [one.verdict for one in findings if one.level == level]
    verdicts = ("holds", "does not hold", "not checked")
    counts = [f"{of.count(one)} {one}" for one in verdicts if one in of]
    return f"{', '.join(counts)}, of {plural(len(of), 'check')}"


class ModuleContract(msgspec.Struct, frozen=True):
    """Whether an Amplifier ``context`` module keeps the contract. ``ok``: all that is required."""

    module: str
    ok: bool
    amplifier_core: str | None
    findings: list[Finding]
