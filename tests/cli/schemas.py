"""Schemas of what commands print with ``--json``, in docs/reference/schemas.

``python -m tests.cli.schemas [FOLDER of recorded sessions]`` runs every command over sessions of
several kinds and widens the schemas by what was printed: a key that was missing once is not
required, a value that was null once may be null. Nothing is ever narrowed, so what a person wrote
into a schema stays. The tests hold every output to them, and to no other key.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eventctx.cli.main import cli
from tests.cli.conftest import write

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

_FREE = frozenset(
    ("attributes", "content", "facts", "message", "payload", "prepared", "settings", "shows")
)
"""Keys whose values are not the command line's to define: messages, events, policies' settings."""
_MAPS = frozenset(
    (
        "by_family",
        "by_model",
        "known",
        "left_by",
        "left_of",
        "raw",
        "types",
        "unknown",
        "unpriced",
        "usage",
    )
)
"""Keys whose values are tables, keyed by names."""

_NULL_OR = {
    "absent_since": "string",
    "amplifier_core": "string",
    "asked_because": "string",
    "budget": "integer",
    "error": "string",
    "failure": "string",
    "fallback": "string",
    "forked_at": "integer",
    "iteration": "integer",
    "little_room": "object",
    "parent": "string",
    "position": "integer",
    "recorded": "integer",
    "request": "string",
    "requested_by": "string",
    "target": "integer",
    "threshold": "integer",
    "turn": "integer",
    "where": "string",
}
"""What a key holds, by its name, that was null in all that was printed."""

CHAT = '{"role": "user", "content": "Never count files."}\n{"role": "assistant", "content": "No."}'


def schema_of(value: Any) -> Schema:
    """What one printed value is."""
    if isinstance(value, dict):
        fields = {
            key: {} if key in _FREE else _table(item) if key in _MAPS else schema_of(item)
            for key, item in value.items()
        }
        return {"type": "object", "properties": fields, "required": sorted(value)}
    if isinstance(value, list):
        items = None
        for one in value:
            items = schema_of(one) if items is None else widened(items, schema_of(one))
        return {"type": "array"} if items is None else {"type": "array", "items": items}
    names = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
    return {"type": names[type(value)]}


def _table(value: Any) -> Schema:
    if not isinstance(value, dict):
        return schema_of(value)
    items: Schema | None = None
    for one in value.values():
        items = schema_of(one) if items is None else widened(items, schema_of(one))
    return {"type": "object"} | ({} if items is None else {"additionalProperties": items})


def widened(known: Schema, other: Schema) -> Schema:
    """The schema that allows what either allows."""
    if not known.get("type") or not other.get("type"):
        return {}
    found = dict(known)
    types = set(_types(known)) | set(_types(other))
    if "number" in types:
        types.discard("integer")
    found["type"] = min(types) if len(types) == 1 else sorted(types)
    for key in ("items", "additionalProperties"):
        if key in other:
            found[key] = widened(found[key], other[key]) if key in found else other[key]
    if "properties" in other and "properties" in found:
        mine, theirs = found["properties"], other["properties"]
        found["properties"] = {
            key: widened(mine[key], theirs[key])
            if key in mine and key in theirs
            else mine.get(key, theirs.get(key))
            for key in {**mine, **theirs}
        }
        found["required"] = sorted(set(found["required"]) & set(other["required"]))
    elif "properties" in other:
        found |= {key: other[key] for key in ("properties", "required")}
    return found


def _types(schema: Schema) -> list[str]:
    kind = schema["type"]
    return kind if isinstance(kind, list) else [kind]


def without_other_keys(schema: Schema) -> Schema:
    """The same schema, which allows no key that it does not name."""
    found = {key: value for key, value in schema.items() if key != "properties"}
    if "properties" in schema:
        found["properties"] = {
            key: without_other_keys(value) for key, value in schema["properties"].items()
        }
        found["additionalProperties"] = False
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            found[key] = without_other_keys(schema[key])
    return found


def _with_other_than_null(schema: Schema, key: str = "") -> Schema:
    """The same schema, in which no value is nothing but null."""
    if schema.get("type") == "null":
        return {"type": ["null", _NULL_OR[key]]} if key in _NULL_OR else {}
    found = dict(schema)
    if "properties" in found:
        found["properties"] = {
            name: _with_other_than_null(value, name) for name, value in found["properties"].items()
        }
    for name in ("items", "additionalProperties"):
        if isinstance(found.get(name), dict):
            found[name] = _with_other_than_null(found[name])
    return found


def published(name: str) -> Schema:
    found: Schema = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


def keys_published(name: str) -> set[str]:
    """Every key that the schema of a command names, at any depth."""

    def keys(schema: Schema) -> set[str]:
        found = set(schema.get("properties", ()))
        inner = [*schema.get("properties", {}).values()]
        inner += [schema[key] for key in ("items", "additionalProperties") if key in schema]
        return found.union(*(keys(one) for one in inner))

    return keys(published(name))


def keys_in(value: Any) -> set[str]:
    """Every key of a document, at any depth."""
    if isinstance(value, list):
        return {key for one in value for key in keys_in(one)}
    if not isinstance(value, dict):
        return set()
    return set(value).union(*(keys_in(one) for one in value.values()))


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
    text = _run(
        *words, "--json", *(() if name in ("copy", "validate") else ("--store", str(store)))
    )
    if name in LINES:
        yield from map(json.loads, text.splitlines())
    else:
        yield json.loads(text)


def watched() -> Schema:
    """A line of ``watch``: it prints what ``import`` prints, part by part."""
    of_import = published("import")["properties"]
    parts = {
        "watching": {"type": "array", "items": {"type": "string"}},
        "session": of_import["sessions"]["items"],
        "passed_over": of_import["passed_over"]["items"],
        "total": of_import["total"],
    }
    kind = {"type": "string", "enum": [*parts]}
    fields = {"kind": kind, **parts, "unchanged": {"type": "integer"}}
    return {"type": "object", "properties": fields, "required": ["kind"]}


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


def stores(folder: Path, recorded: Path | None) -> Iterator[tuple[Path, list[str]]]:
    """Stores with sessions of several kinds, and the names of the sessions."""
    asyncio.run(write(folder / "work.db", "work"))
    yield folder / "work.db", ["work"]
    _run("demo", "--store", str(folder / "demo.db"))
    yield folder / "demo.db", ["demo"]
    if recorded is not None:
        store = folder / "recorded.db"
        CliRunner().invoke(cli, ["import", str(recorded), "--complete", "--store", str(store)])
        rows = json.loads(_run("sessions", "--json", "--store", str(store)))
        yield store, [row["session"] for row in rows if row["requests"]]


def main() -> None:
    recorded = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        os.environ["XDG_STATE_HOME"] = place
        (folder / "chat.jsonl").write_text(CHAT)
        write_key(folder)
        for name, arguments in ALONE.items():
            asyncio.run(write(folder / f"{name}.db", "work"))
            _widen(name, printed(name, arguments, folder / f"{name}.db", "work"))
        for store, sessions in stores(folder, recorded):
            for session in sessions:
                commands = READING if store.stem == "recorded" else {**READING, **ACTING}
                for name, arguments in commands.items():
                    _widen(name, printed(name, arguments, store, session))
            for copy in ("copy.db", "other.db"):
                (folder / copy).unlink(missing_ok=True)
    _write("watch", watched())


def _widen(name: str, values: Iterator[Any]) -> None:
    found = published(name) if (FOLDER / f"{name}.json").exists() else None
    for value in values:
        found = schema_of(value) if found is None else widened(found, schema_of(value))
    if found is not None:
        _write(name, _with_other_than_null(found))


def _write(name: str, schema: Schema) -> None:
    told = "each line of it" if name in LINES else "the document"
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"eventctx {name} --json: {told}",
    }
    text = json.dumps({**head, **schema}, indent=1) + "\n"
    (FOLDER / f"{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
