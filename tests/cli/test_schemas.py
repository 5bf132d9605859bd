"""The published schemas are those of what commands print, key by key."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from eventctx.cli.commands.compact import CompactAnswer
from eventctx.cli.output.steps import Step
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
from tests.cli import schemas

PAGE = schemas.FOLDER.parent / "json.md"
EVERY = (*schemas.READING, *schemas.ACTING, *schemas.ALONE, "watch")


def _check(name: str, arguments: tuple[str, ...], store: Path, session: str) -> None:
    strict = schemas.without_other_keys(schemas.published(name))
    validator = jsonschema.Draft202012Validator(strict)
    for value in schemas.printed(name, arguments, store, session):
        validator.validate(value)


@pytest.mark.parametrize("name", schemas.READING)
def test_what_a_reading_command_prints_is_as_published(run, store: Path, name: str) -> None:
    _check(name, schemas.READING[name], store, "work")


@pytest.mark.parametrize("name", schemas.ACTING)
def test_what_an_acting_command_prints_is_as_published(run, store: Path, name: str) -> None:
    (store.parent / "chat.jsonl").write_text(schemas.CHAT)
    _check(name, schemas.ACTING[name], store, "work")


@pytest.mark.parametrize("name", schemas.ALONE)
def test_what_a_command_prints_about_one_small_session_is_as_published(
    run, store: Path, name: str
) -> None:
    schemas.write_key(store.parent)
    _check(name, schemas.ALONE[name], store, "work")


def test_a_line_of_watch_is_what_import_prints() -> None:
    head = {"$schema", "title"}
    found = {key: value for key, value in schemas.published("watch").items() if key not in head}
    assert found == schemas.watched()


def test_what_restoring_a_backup_prints_is_as_published(run, store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    assert run("backup", copy, "--store", store).code == 0
    done = run("restore-backup", copy, "--replace", "--yes", "--json", "--store", store)
    assert schemas.keys_in(done.document) <= schemas.keys_published("backup") | {"kept"}


ANSWERS: dict[str, Any] = {
    "audit": AuditAnswer,
    "compact": CompactAnswer,
    "diff": DiffAnswer,
    "diff-sessions": SessionsDiffAnswer,
    "instructions": Instructions,
    "log": RecordAnswer,
    "lost": Lost,
    "replay": Step,
    "search": FoundAnswer,
    "sessions": ListedSession,
    "stats": Stats,
    "transcript": MessageAnswer,
    "verify": VerificationAnswer,
    "view": ViewAnswer,
    "why": WhyAnswer,
}
"""Structs that are the JSON of a command, of a row of it, or of a line."""


@pytest.mark.parametrize("name", ANSWERS)
def test_a_schema_has_the_fields_of_the_struct(name: str) -> None:
    schema = schemas.published(name)
    fields = msgspec.structs.fields(ANSWERS[name])
    assert {one.encode_name for one in fields} == set(schema.get("items", schema)["properties"])


def test_answers_about_recorded_sessions_are_as_published(
    run, tmp_path: Path, recorded_sessions: Path
) -> None:
    store = tmp_path / "recorded.db"
    run("import", recorded_sessions / "codex", "--complete", "--store", store)
    for row in run("sessions", "--json", "--store", store).document:
        for name, arguments in schemas.READING.items():
            _check(name, arguments, store, row["session"])


@pytest.mark.parametrize("name", EVERY)
def test_a_published_schema_is_one(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schemas.published(name))


def test_the_page_links_every_schema() -> None:
    linked = set(re.findall(r"\(schemas/([\w-]+)\.json\)", PAGE.read_text(encoding="utf-8")))
    assert linked == {path.stem for path in schemas.FOLDER.glob("*.json")}
    assert linked == set(EVERY)


def test_a_key_that_is_not_published_is_refused() -> None:
    strict = schemas.without_other_keys(schemas.published("fork"))
    printed = {"session": "a", "parent": "b", "at": 1, "messages": 2, "receipt": "r"}
    jsonschema.validate(printed, strict)
    for wrong in ({**printed, "more": 1}, {**printed, "at": "1"}, {"session": "a"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, strict)


def test_a_schema_widens_by_what_is_missing_or_null_once() -> None:
    first = schemas.schema_of({"a": 1, "b": [{"c": 2}]})
    both = schemas.widened(first, schemas.schema_of({"a": None, "b": []}))
    assert both["properties"]["a"]["type"] == ["integer", "null"]
    both = schemas.widened(both, schemas.schema_of({"a": 0.5}))
    assert both["properties"]["a"]["type"] == ["null", "number"]
    assert both["required"] == ["a"]
    jsonschema.validate({"a": None}, both)
    jsonschema.validate({"a": 1, "b": [{"c": 3}]}, both)
