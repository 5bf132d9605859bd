"""The published schemas are those of what commands print, key by key."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.cli import schemas
from tests.cli.conftest import imported

PAGE = schemas.FOLDER.parent / "json.md"


def _check(name: str, arguments: tuple[str, ...], store: Path, session: str) -> None:
    for value in schemas.printed(name, arguments, store, session):
        _check_one(name, value)


def _check_one(name: str, value: Any) -> None:
    strict = schemas.without_other_keys(schemas.published(name))
    jsonschema.Draft202012Validator(strict).validate(value)


COMMANDS = {**schemas.READING, **schemas.ACTING, **schemas.ALONE}
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in schemas.ALONE]


@pytest.mark.parametrize("name", [*schemas.READING, *schemas.ACTING, *SLOW])
def test_what_a_command_prints_is_as_published(run, store: Path, name: str) -> None:
    (store.parent / "chat.jsonl").write_text(schemas.CHAT)
    schemas.write_key(store.parent)
    _check(name, COMMANDS[name], store, "work")


def test_what_restoring_a_backup_prints_is_as_published(run, store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    run("backup", copy).ok()
    done = run("restore-backup", copy, "--replace", "--yes", "--json").document
    _check_one("backup", done)
    assert done["kept"]


def test_what_taking_back_an_instruction_prints_is_as_published(run, tmp_path: Path) -> None:
    imported(run, tmp_path, schemas.CHAT.encode())
    taken = ("instructions", "talk", "--take-back", "0.1", "--fork", "other")
    _check_one("taken-back", run(*taken, "--json").document)


def test_answers_of_recordings_are_published(run, tmp_path: Path, recorded_sessions: Path) -> None:
    store = tmp_path / "recorded.db"
    run("import", recorded_sessions / "codex", "--complete", "--store", store)
    for row in run("sessions", "--json", "--store", store).document:
        for name, arguments in schemas.READING.items():
            _check(name, arguments, store, row["session"])


@pytest.mark.parametrize("name", schemas.ANSWERS)
def test_a_published_schema_is_the_one_of_the_struct_that_is_printed(name: str) -> None:
    found = schemas.published(name)
    assert found == schemas.schema_of(name)
    jsonschema.Draft202012Validator.check_schema(found)


def test_the_page_links_every_schema() -> None:
    linked = set(re.findall(r"\(schemas/([\w-]+)\.json\)", PAGE.read_text(encoding="utf-8")))
    assert linked == {path.stem for path in schemas.FOLDER.glob("*.json")}
    assert linked == schemas.ANSWERS.keys()


def test_a_key_that_is_not_published_is_refused() -> None:
    strict = schemas.without_other_keys(schemas.published("fork"))
    printed = {"session": "a", "parent": "b", "at": 1, "messages": 2, "receipt": "r"}
    jsonschema.validate(printed, strict)
    for wrong in ({**printed, "more": 1}, {**printed, "at": "1"}, {"session": "a"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, strict)
