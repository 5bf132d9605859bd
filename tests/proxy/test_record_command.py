"""``eventctx record``: a program runs, and its calls are sessions of the store."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("h11", reason="an extra: eventctx[record]")

from eventctx.cli.main import cli
from tests.scripted_apis import answering

PROGRAM = """
import json, os, sys, urllib.request
body = {"model": "m", "messages": [{"role": "user", "content": "capital of Switzerland"}]}
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
asked = urllib.request.Request(url, json.dumps(body).encode(), {"authorization": "Bearer secret"})
answer = json.load(urllib.request.urlopen(asked))
open(sys.argv[1], "w").write(answer["choices"][0]["message"]["content"])
sys.exit(3)
"""


@pytest.mark.parametrize("store", ["made.db", "no-store.txt"])
def test_a_program_gets_its_answer_and_its_exit_code_whatever_the_store_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    path, tapes, out = tmp_path / store, tmp_path / "tapes", tmp_path / "out.txt"
    if store == "no-store.txt":
        path.write_text("not a store")
    with answering() as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        command = ["record", "--tapes", str(tapes), "--", sys.executable, "-c", PROGRAM, str(out)]
        result = CliRunner().invoke(cli, ["--store", str(path), *command])
    assert result.exit_code == 3, result.output
    assert out.read_text() == "Bern."
    (tape,) = tapes.iterdir()
    assert "secret" not in tape.read_text()
    if store == "no-store.txt":
        assert "the tapes are kept: " in result.stderr
        path.unlink()
        imported = CliRunner().invoke(cli, ["--store", str(path), "import", str(tapes)])
        assert imported.exit_code == 0, imported.output
    else:
        assert "recorded 1 call: " in result.stderr
    listed = CliRunner().invoke(cli, ["--store", str(path), "sessions", "--json"])
    assert ".recorded" in listed.output


def test_a_program_that_is_not_there_is_said(tmp_path: Path) -> None:
    command = ["record", "--tapes", str(tmp_path / "tapes"), "--", "no-such-program"]
    result = CliRunner().invoke(cli, ["--store", str(tmp_path / "s.db"), *command])
    assert result.exit_code == 2
    assert "no-such-program: No such file or directory" in result.stderr


@pytest.mark.parametrize("arguments", [[], ["--serve", "--", "claude"]])
def test_either_a_program_or_serve_is_expected(arguments: list[str]) -> None:
    result = CliRunner().invoke(cli, ["record", *arguments])
    assert result.exit_code == 2
    assert "--serve" in result.stderr
