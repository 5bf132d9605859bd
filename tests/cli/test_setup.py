"""``eventctx setup`` in a home of its own: what it writes for each program, and its way back."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from eventctx.adapters.command_hooks.hosts import HOSTS as HOOK_HOSTS
from eventctx.adapters.host_settings import jsonc
from tests.cli.conftest import Run

Files = dict[str, bytes]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's folder with no program in it, and none on the path."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr("sys.platform", "linux")
    homes = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "COPILOT_HOME", "GEMINI_CLI_HOME")
    for name in (*homes, "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    return home


def contents(home: Path) -> Files:
    """Every file and folder of a home, but for our own state."""
    return {
        str(path.relative_to(home)): path.read_bytes() if path.is_file() else b""
        for path in home.rglob("*")
        if ".local" not in path.parts
    }


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def values(path: Path) -> Any:
    text = path.read_text()
    return tomllib.loads(text) if path.suffix == ".toml" else jsonc.read(text).plain


SERVERS = {
    "claude-code": (".claude/skills/eventctx/.mcp.json", "mcpServers"),
    "codex": (".codex/config.toml", "mcp_servers"),
    "gemini-cli": (".gemini/settings.json", "mcpServers"),
    "opencode": (".config/opencode/opencode.jsonc", "mcp"),
    "cursor": (".cursor/mcp.json", "mcpServers"),
    "vscode": (".config/Code/User/mcp.json", "servers"),
    "copilot": (".copilot/mcp-config.json", "mcpServers"),
    "kiro": (".kiro/settings/mcp.json", "mcpServers"),
}
HOOKS = {
    "claude-code": ".claude/skills/eventctx/hooks/hooks.json",
    "codex": ".codex/hooks.json",
    "gemini-cli": ".gemini/settings.json",
    "cursor": ".cursor/hooks.json",
    "copilot": ".copilot/settings.json",
}


def test_every_program_gets_our_server_and_its_hooks_once(run: Run, home: Path) -> None:
    run("setup", *SERVERS, "--yes").ok()
    for file, key in SERVERS.values():
        assert [*values(home / file)[key]] == ["eventctx"]
    hooks = {name: values(home / file)["hooks"] for name, file in HOOKS.items()}
    assert set(hooks) == set(HOOK_HOSTS)
    for name, found in hooks.items():
        assert all(f"hook {name}" in json.dumps(entry) for entry in found.values())
    assert {"PreCompact", "PostCompact"} <= set(hooks["claude-code"]) & set(hooks["codex"])
    assert hooks["codex"]["SessionStart"][0]["matcher"] == "compact"
    times = {path: path.stat().st_mtime_ns for path in home.rglob("*")}
    done = run("setup", "--yes")
    assert done.out.count(": is set up") == len(SERVERS)
    assert {path: path.stat().st_mtime_ns for path in home.rglob("*")} == times


def test_only_programs_that_are_there_are_set_up(run: Run, home: Path, tmp_path: Path) -> None:
    (home / ".kiro").mkdir()
    binary = write(tmp_path / "bin/gemini", "#!/bin/sh\n")
    binary.chmod(0o755)
    done = run("setup", "--yes")
    assert "Not found on this machine: claude-code, codex, opencode, cursor, vscode" in done.out
    found = contents(home)
    assert ".kiro/settings/mcp.json" in found and ".gemini/settings.json" in found
    assert not any(name.startswith((".claude", ".codex", ".cursor")) for name in found)


def test_without_a_terminal_it_only_shows(run: Run, home: Path) -> None:
    done = run("setup", "codex")
    assert "~/.codex/config.toml: new" in done.out and "[mcp_servers.eventctx]" in done.out
    assert done.err == "Nothing was changed: add --yes to do it.\n"
    assert contents(home) == {}


GEMINI = '{\n  // mine\n  "ui": {"theme": "Dracula"}, // dark\n  "mcpServers": {}\n}'
CODEX = 'model = "gpt-6"   # keep\r\n\r\n[features]\r\nhooks = true'


@pytest.fixture
def lived_in(home: Path) -> Files:
    """A home with settings in the layouts of their owners."""
    write(home / ".gemini/settings.json", GEMINI).chmod(0o644)
    write(home / ".codex/config.toml", CODEX)
    write(home / ".cursor/hooks.json", '{"version": 1, "hooks": {"stop": [{"command": "x"}]}}')
    write(home / ".cursor/mcp.json", "")
    write(home / ".copilot/hooks/other.json", "{}")
    dotfile = write(home / "dotfiles/opencode.json", '{\n\t"theme": "x",\n}\n')
    (home / ".config/opencode").mkdir(parents=True)
    (home / ".config/opencode/opencode.json").symlink_to(dotfile)
    return contents(home)


def test_undo_brings_every_byte_back(run: Run, home: Path, lived_in: Files) -> None:
    run("setup", *SERVERS, "--yes").ok()
    assert contents(home) != lived_in
    copies = list((home / ".local/state/eventctx/setup").iterdir())
    assert {one.stat().st_mode & 0o777 for one in copies} == {0o600}
    assert CODEX.encode() in [one.read_bytes() for one in copies]
    assert (home / ".config/opencode/opencode.json").is_symlink()
    assert (home / ".gemini/settings.json").stat().st_mode & 0o777 == 0o644
    undone = "~/.gemini/settings.json: back to its bytes before"
    run("setup", "--undo", "--yes").ok(undone)
    assert contents(home) == lived_in
    assert run("setup", "--undo", "--yes").out == "Nothing is set up.\n"
    assert list((home / ".local/state/eventctx/setup").iterdir()) == []


def test_of_a_changed_file_our_part_is_taken_out(run: Run, home: Path, lived_in: Files) -> None:
    run("setup", *SERVERS, "--yes")
    path = home / ".gemini/settings.json"
    path.write_text(path.read_text().replace("Dracula", "GitHub"))
    config = home / ".codex/config.toml"
    trusted = '\n[projects."/x"]\ntrust_level = "trusted"\n'
    config.write_bytes(config.read_bytes() + trusted.encode())
    mcp = home / ".kiro/settings/mcp.json"
    mcp.write_text(mcp.read_text().replace('"mcpServers": {', '"mcpServers": {\n    "x": {},'))
    undone = "~/.gemini/settings.json: was changed since: our part is taken out"
    run("setup", "--undo", "--yes").ok(undone)
    assert path.read_text() == GEMINI.replace("Dracula", "GitHub").replace(": {}", ": {}")
    assert "eventctx" not in config.read_text()
    assert config.read_bytes().startswith(CODEX.encode())
    assert config.read_bytes().endswith(trusted.encode())
    assert values(mcp) == {"mcpServers": {"x": {}}}


def test_a_file_of_ours_that_somebody_changed_stays(run: Run, home: Path) -> None:
    run("setup", "claude-code", "--yes")
    skill = home / ".claude/skills/eventctx/SKILL.md"
    skill.write_text(skill.read_text() + "And be brief.\n")
    done = run("setup", "--undo", "--yes")
    assert done.code == 2
    assert "SKILL.md: stays, with our part in it: expected the file as it was written" in done.out
    kept = [one for one in contents(home) if one.endswith((".md", ".json"))]
    assert kept == [".claude/skills/eventctx/SKILL.md"]
    skill.unlink()
    assert "is gone already" in run("setup", "--undo", "--yes").out
    assert run("setup", "--undo", "--yes").out == "Nothing is set up.\n"


BROKEN = {
    "broken JSON": (".gemini/settings.json", '{"a": 1,, }', "line 1: expected a key"),
    "another type": (".gemini/settings.json", '{"mcpServers": []}', "expected an object"),
    "Latin-1": (".gemini/settings.json", '{"a": "\xe9"}', "expected UTF-8"),
    "an own entry": (
        *(".gemini/settings.json", '{"mcpServers": {"eventctx": {"command": "mine"}}}'),
        "mcpServers.eventctx: expected none yet, found one that differs",
    ),
    "broken TOML": (".codex/config.toml", "model = ", "expected TOML"),
    "a file for a folder": (".kiro/settings", "no folder", "expected a folder, found a file"),
}


@pytest.mark.parametrize(("file", "text", "says"), BROKEN.values(), ids=BROKEN)
def test_a_file_that_cannot_be_edited_stays_and_what_to_add_is_shown(
    run: Run, home: Path, file: str, text: str, says: str
) -> None:
    path = home / file
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode("latin-1"))
    host = next(one for one, (place, _) in SERVERS.items() if place.startswith(file[:7]))
    done = run("setup", host, "cursor", "--yes")
    assert done.code == 2
    assert says in done.out and "To add by hand:" in done.out
    assert path.read_bytes() == text.encode("latin-1")
    assert (home / ".cursor/mcp.json").exists()  # the others are written


def test_undo_of_a_file_that_was_broken_since_leaves_it(run: Run, home: Path) -> None:
    path = write(home / ".gemini/settings.json", "{}")
    run("setup", "gemini-cli", "--yes")
    path.write_text("{")
    done = run("setup", "--undo", "--yes")
    assert done.code == 2
    assert "stays, with our part in it: line 1: expected a key" in done.out
    assert path.read_text() == "{"
    path.write_text("{}")
    done = run("setup", "--undo", "--yes")  # it was not forgotten
    assert "nothing of ours is in it" in done.out
    assert path.read_text() == "{}"


def test_another_store_replaces_the_one_before(run: Run, home: Path, lived_in: Files) -> None:
    run("setup", *SERVERS, "--yes")
    run("setup", *SERVERS, "--yes", "--store", home / "other.db")
    for file in (".codex/config.toml", ".codex/hooks.json", ".gemini/settings.json"):
        text = (home / file).read_text()
        assert text.count("mcp_servers.eventctx]") <= 1 and str(home / "other.db") in text
    run("setup", "--undo", "--yes")
    assert contents(home) == lived_in


def test_after_a_crash_before_the_file_was_written_undo_finds_nothing_of_ours(
    run: Run, home: Path, lived_in: Files
) -> None:
    config = write(home / ".codex/config.toml", "[mcp_servers]\n")
    before = contents(home)
    run("setup", *SERVERS, "--yes")
    for name, data in before.items():
        if (path := home / name).is_file():
            path.write_bytes(data)
    run("setup", "--undo", "--yes").ok()
    assert config.read_text() == "[mcp_servers]\n"
    assert contents(home) == before


def test_no_password_is_written_and_nothing_over_a_damaged_record(run: Run, home: Path) -> None:
    done = run("setup", "kiro", "--yes", "--store", "postgresql://me:secret@host/db")
    done.fails("expected a store without a password")
    assert "secret" not in done.err and contents(home) == {}
    record = write(home / ".local/state/eventctx/setup/setup.json", "{")
    run("setup", "kiro", "--yes").fails("expected the record of `setup`")
    assert record.read_text() == "{" and contents(home) == {}
