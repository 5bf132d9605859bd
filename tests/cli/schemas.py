"""Schemas of what commands print with ``--json``, in docs/reference/schemas.

``python -m tests.cli.schemas`` writes them, from the structs that are the JSON: every key, whether
it can be missing, and all that it can hold. The tests hold what commands print to them, and to no
other key.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, get_args, get_type_hints

import msgspec
from click.testing import CliRunner
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import UnsetType, inspect

from eventctx.cli.commands.backup import BackupAnswer
from eventctx.cli.commands.changing import Forked, RestoredMessages, SessionSignature
from eventctx.cli.commands.compact import CompactAnswer
from eventctx.cli.commands.erasing import DeletionAnswer, ErasureAnswer
from eventctx.cli.commands.exports import CopyAnswer
from eventctx.cli.commands.instructions import InstructionTakenBack
from eventctx.cli.commands.validate import ModuleContract
from eventctx.cli.main import cli
from eventctx.cli.output.steps import Step
from eventctx.comparison.compare import Comparison
from eventctx.importers.following import WatchLine
from eventctx.importers.many import ImportAnswer
from eventctx.projections.trace.spans import Span
from eventctx.queries.audit import AuditAnswer
from eventctx.queries.explain_answers import DiffAnswer, WhyAnswer
from eventctx.queries.instructions import Instructions
from eventctx.queries.lost.answers import Lost
from eventctx.queries.records import MessageAnswer, RecordAnswer
from eventctx.queries.session_diff import SessionsDiffAnswer
from eventctx.queries.session_list import ListedSession
from eventctx.queries.stats import Stats
from eventctx.queries.verification import VerificationAnswer
from eventctx.queries.view import ViewAnswer
from eventctx.search.found import FoundAnswer
from eventctx.session.erasure.destruction import PruningAnswer
from eventctx.testing.tasks.table import TaskTable

Schema = dict[str, Any]
FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference" / "schemas"

READING: dict[str, tuple[str, ...]] = {
    "audit": ("audit", "{session}"),
    "diff": ("diff", "{session}", "@{first}", "@{last}"),
    "instructions": ("instructions", "{session}"),
    "log": ("log", "{session}", "--bodies"),
    "lost": ("lost", "{session}"),
    "replay": ("replay", "{session}"),
    "search": ("search", "file", "--session", "{session}"),
    "sessions": ("sessions",),
    "stats": ("stats",),
    "trace": ("trace", "{session}"),
    "transcript": ("transcript", "{session}"),
    "verify": ("verify",),
    "view": ("view", "{session}", "--position", "{last}"),
    "why": ("why", "{session}", "1"),
}
"""Each command, with what it is asked about a session."""

ACTING: dict[str, tuple[str, ...]] = {
    "backup": ("backup", "{folder}/copy.db"),
    "compact": ("compact", "{session}", "--dry-run", "--set", "max_tokens=2500"),
    "copy": ("copy", "{store}", "{folder}/other.db"),
    "erase": ("erase", "{session}", "3", "--yes"),
    "fork": ("fork", "{session}", "a-fork", "--at", "3"),
    "restore": ("restore", "{session}", "4"),
    "import": ("import", "{folder}/chat.jsonl", "--complete"),
    "delete": ("delete", "{session}", "--forks", "--yes"),
}
"""Commands that write, in an order in which each can."""

MODULE = Path(__file__).parents[1] / "testing" / "modules" / "sound_context.py"
ALONE: dict[str, tuple[str, ...]] = {
    "compare": ("compare", "{session}", "--policies", "simple,ladder", "--budgets", "2k"),
    "compare-tasks": (
        *("compare", "--tasks", "--lengths", "2k", "--seeds", "1", "--budgets", "100,50"),
        *("--policies", "workset,recency"),
    ),
    "diff-sessions": ("diff", "{session}:@{first}", "{fork}"),
    "sign": ("sign", "{session}", "--key", "{folder}/key.pem"),
    "validate": ("validate", str(MODULE)),
    "prune": ("prune", "--older-than", "0h", "--yes"),
}
"""Commands that are asked about one small session alone: they take long, or leave nothing."""

LINES = frozenset(("log", "replay", "trace", "watch"))
"""Commands that print an object a line."""

CHAT = '{"role": "user", "content": "Never count files."}\n{"role": "assistant", "content": "No."}'


ANSWERS: Mapping[str, type[msgspec.Struct]] = {
    "audit": AuditAnswer,
    "backup": BackupAnswer,
    "compact": CompactAnswer,
    "compare": Comparison,
    "compare-tasks": TaskTable,
    "copy": CopyAnswer,
    "delete": DeletionAnswer,
    "diff": DiffAnswer,
    "diff-sessions": SessionsDiffAnswer,
    "erase": ErasureAnswer,
    "fork": Forked,
    "import": ImportAnswer,
    "instructions": Instructions,
    "log": RecordAnswer,
    "lost": Lost,
    "prune": PruningAnswer,
    "replay": Step,
    "restore": RestoredMessages,
    "search": FoundAnswer,
    "sessions": ListedSession,
    "sign": SessionSignature,
    "stats": Stats,
    "taken-back": InstructionTakenBack,
    "trace": Span,
    "transcript": MessageAnswer,
    "validate": ModuleContract,
    "verify": VerificationAnswer,
    "view": ViewAnswer,
    "watch": WatchLine,
    "why": WhyAnswer,
}
"""The structs that are what a command prints: the document, a row of it, or a line."""

ROWS = frozenset(("search", "sessions", "transcript", "verify"))
"""Commands whose document is a list of rows."""


def schema_of(name: str) -> Schema:
    """The schema of what a command prints, made from its struct."""
    answer = ANSWERS[name]
    (whole,), parts = msgspec.json.schema_components([answer], schema_hook=_of_other)
    for struct in _structs_in(inspect.type_info(answer)):
        part = parts[struct.__name__]
        part["required"] = _always_printed(struct)
        for of_key in part.get("properties", {}).values():
            of_key.pop("default", None)  # what is printed has no say in it
    told = "each line of it" if name in LINES else "the document"
    found = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"eventctx {name} --json: {told}",
        **({"type": "array", "items": whole} if name in ROWS else whole),
        "$defs": parts,
    }
    return dict(json.loads(json.dumps(found)))


def _of_other(of: type) -> Schema:
    if issubclass(of, PurePath):
        return {"type": "string"}
    raise NotImplementedError(of)


def _always_printed(struct: type[msgspec.Struct]) -> list[str]:
    """Keys that are never left out. msgspec takes those with a default for keys that may be."""
    hints = get_type_hints(struct)
    omits = struct.__struct_config__.omit_defaults
    return [
        one.encode_name
        for one in msgspec.structs.fields(struct)
        if UnsetType not in get_args(hints[one.name]) and (one.required or not omits)
    ]


def _structs_in(found: object) -> Iterator[type[msgspec.Struct]]:
    """Every struct in the description of a type, at any depth."""
    known: dict[object, None] = {}
    waiting = [found]
    while waiting:
        one = waiting.pop()
        if isinstance(one, tuple):
            waiting += one
        elif isinstance(one, (inspect.Type, inspect.Field)):
            if isinstance(one, inspect.StructType):
                if one.cls in known:
                    continue
                known[one.cls] = None
                yield one.cls
            waiting += [getattr(one, name) for name in one.__struct_fields__]


def without_other_keys(schema: Schema) -> Schema:
    """The same schema, in which no struct has a key that it does not name."""
    closed = {
        name: {**part, "additionalProperties": False} if "properties" in part else part
        for name, part in schema["$defs"].items()
    }
    return {**schema, "$defs": closed}


def published(name: str) -> Schema:
    found: Schema = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


def printed(name: str, arguments: tuple[str, ...], store: Path, session: str) -> Iterator[Any]:
    """What a command prints about a session: the document, or each line."""
    audit = json.loads(_run("audit", session, "--json", "--store", str(store)))
    positions = [row["position"] for row in audit["requests"]] or [0]
    given = {
        "session": session,
        "store": store,
        "folder": store.parent,
        "first": positions[0],
        "last": positions[-1],
    }
    if "{fork}" in arguments:
        given["fork"] = "a-fork"
        _run("fork", session, "a-fork", "--at", str(positions[-1]), "--store", str(store))
    words = [word.format(**given) for word in arguments]
    place = () if name in ("copy", "validate") else ("--store", str(store))
    text = _run(*words, "--json", *place)
    if name in LINES:
        yield from map(json.loads, text.splitlines())
    else:
        yield json.loads(text)


def write_key(folder: Path) -> None:
    """The private key that ``sign`` is given."""
    key = Ed25519PrivateKey.generate()
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "key.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))


def _run(*words: str) -> str:
    done = CliRunner().invoke(cli, words)
    # 1 is a finding, 5 damage: both are answers. Anything else is a mistake of this program.
    assert done.exit_code in (0, 1, 5) and done.stdout, f"{words}: {done.output}"
    return done.stdout


def main() -> None:
    for name in ANSWERS:
        text = json.dumps(schema_of(name), indent=1) + "\n"
        (FOLDER / f"{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
