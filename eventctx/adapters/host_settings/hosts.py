"""The programs that ``eventctx setup`` knows: one row each.

A row says how a program is found, where its settings are, and what is ours in them: our MCP server,
and the hooks at which a session is imported, before and after a compaction where the program has
both. What is done with these parts is the same for every program (``changes.py``).

A new program is a row in ``HOSTS``, in docs/how-to/set-up-a-host.md, and, if it runs our hook, in
``eventctx.adapters.command_hooks.hosts``.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import list2cmdline
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from eventctx.adapters.host_settings.parts import OURS, JsonPart, Part, TextPart, TomlPart

_SECONDS: Final = 30
"""The time that a hook gets: a file of 110 MB takes three."""


class OurProgram(NamedTuple):
    """The words that start this program, and the store that the settings name; None for none."""

    command: tuple[str, ...]
    store: str | None = None

    def words(self, *arguments: str) -> list[str]:
        """The words of a command of ours."""
        store = () if self.store is None else ("--store", self.store)
        return [*self.command, *arguments, *store]


class Home(NamedTuple):
    """The folder of a program's settings: below a person's, or where a variable says."""

    folder: str
    variable: str | None = None
    below: str = ""

    def path(self, home: Path, environment: Mapping[str, str]) -> Path:
        moved = environment.get(self.variable) if self.variable else None
        return Path(moved).expanduser() / self.below if moved else home / self.folder


class ServerEntry(NamedTuple):
    """Where our MCP server goes: the first of ``files`` that exists, else the first one."""

    files: tuple[str, ...]
    part: Callable[[list[str]], Part]


class HookFile(NamedTuple):
    """The events that call our hook, in one file, and their matchers, None for all.

    ``entry`` makes an event's entry of a matcher and our command; ``head`` is the file's.
    """

    file: str
    events: Mapping[str, str | None]
    entry: Callable[[str | None, str], Any]
    head: tuple[Part, ...] = ()


class HostSettings(NamedTuple):
    """A program. ``name`` is its format's and its hook's; ``programs`` are found on the path.

    ``own`` are whole files of ours. ``by_hand`` are files, and an expression for what a person may
    have added there by hand that would then run twice. ``advice`` is what the person does next.
    """

    name: str
    title: str
    programs: tuple[str, ...]
    home: Home
    server: ServerEntry
    hooks: HookFile | None = None
    own: Mapping[str, Callable[[], str]] = MappingProxyType({})
    by_hand: Mapping[str, str] = MappingProxyType({})
    advice: str = ""


def is_found(host: HostSettings, home: Path, environment: Mapping[str, str]) -> bool:
    """Whether a program is on this machine: on the path, or with a folder of settings."""
    path = environment.get("PATH", "")
    return host.home.path(home, environment).is_dir() or any(
        shutil.which(one, path=path) for one in host.programs
    )


def parts_of(host: HostSettings, folder: Path, program: OurProgram) -> dict[Path, tuple[Part, ...]]:
    """The files of a program in which something is ours, and the parts."""
    files: dict[Path, tuple[Part, ...]] = {
        folder / name: (TextPart(text()),) for name, text in host.own.items()
    }
    candidates = [folder / one for one in host.server.files]
    server = next((one for one in candidates if one.exists()), candidates[0])
    files[server] = (host.server.part(program.words("mcp")),)
    if host.hooks is not None:
        words = program.words("hook", host.name)
        line = list2cmdline(words) if sys.platform == "win32" else shlex.join(words)
        path = folder / host.hooks.file
        files[path] = (
            *files.get(path, ()),
            *host.hooks.head,
            *[
                JsonPart(("hooks", event), host.hooks.entry(matcher, line), item=True)
                for event, matcher in host.hooks.events.items()
            ],
        )
    return files


def _json_server(*keys: str, **more: Any) -> Callable[[list[str]], Part]:
    def part(words: list[str]) -> Part:
        return JsonPart((*keys, OURS), {**more, "command": words[0], "args": words[1:]})

    return part


def _codex_server(words: list[str]) -> Part:
    return TomlPart(("mcp_servers", OURS), {"command": words[0], "args": words[1:]})


def _opencode_server(words: list[str]) -> Part:
    return JsonPart(("mcp", OURS), {"type": "local", "command": words})


def _grouped(timeout: int) -> Callable[[str | None, str], Any]:
    """Entries as Claude Code, Codex and Gemini CLI have them."""

    def entry(matcher: str | None, line: str) -> Any:
        hook = {"type": "command", "command": line, "timeout": timeout}
        return {**({"matcher": matcher} if matcher else {}), "hooks": [hook]}

    return entry


def _flat(**more: Any) -> Callable[[str | None, str], Any]:
    def entry(matcher: str | None, line: str) -> Any:
        named = {"matcher": matcher} if matcher else {}
        return {**more, **named, "command": line, "timeout": _SECONDS}

    return entry


def _skill() -> str:
    return Path(__file__).with_name("SKILL.md").read_text("utf-8")


def _plugin() -> str:
    plugin = {
        "name": OURS,
        "description": "The log of the conversation: what a compaction took, and all that was said",
        "skills": ["./"],
    }
    return json.dumps(plugin, indent=2) + "\n"


_PLUGIN: Final = f"skills/{OURS}"
_VERSION: Final = (JsonPart(("version",), 1),)
_AROUND: Final = {"PreCompact": None, "PostCompact": None, "SessionStart": "compact", "Stop": None}
"""Events of Claude Code and Codex; the answer at the third one is shown to the model."""
_EDITORS: Final = {
    "darwin": "Library/Application Support/Code/User",
    "win32": "AppData/Roaming/Code/User",
}
"""The folder of VS Code by Python's name of the system; others are as Linux."""

_ROWS: Final = (
    HostSettings(
        "claude-code",
        "Claude Code",
        ("claude",),
        Home(".claude", "CLAUDE_CONFIG_DIR"),
        ServerEntry((f"{_PLUGIN}/.mcp.json",), _json_server("mcpServers")),
        HookFile(
            f"{_PLUGIN}/hooks/hooks.json",
            # Its file has the summary only after the model went on: read it when the model asks.
            {**_AROUND, "PreToolUse": "mcp__.*eventctx__.*"},
            _grouped(_SECONDS),
        ),
        own={f"{_PLUGIN}/.claude-plugin/plugin.json": _plugin, f"{_PLUGIN}/SKILL.md": _skill},
        by_hand={
            "settings.json": r"eventctx[^\n]* hook claude-code",
            "../.claude.json": r'"eventctx"\s*:\s*\{',
            ".claude.json": r'"eventctx"\s*:\s*\{',
        },
        advice="from 2.1.157 on it loads the plugin when it starts, or with `/reload-plugins`",
    ),
    HostSettings(
        "codex",
        "Codex",
        ("codex",),
        Home(".codex", "CODEX_HOME"),
        ServerEntry(("config.toml",), _codex_server),
        HookFile("hooks.json", _AROUND, _grouped(_SECONDS)),
        advice="it runs the hooks after you trusted them: type `/hooks` in it",
    ),
    HostSettings(
        "gemini-cli",
        "Gemini CLI",
        ("gemini",),
        Home(".gemini", "GEMINI_CLI_HOME", ".gemini"),
        ServerEntry(("settings.json",), _json_server("mcpServers")),
        HookFile(
            "settings.json",
            {"PreCompress": None, "AfterAgent": None, "BeforeTool": "mcp_eventctx_.*"},
            _grouped(1000 * _SECONDS),
        ),
        advice="it starts the server in folders that you trust",
    ),
    HostSettings(
        "opencode",
        "opencode",
        ("opencode",),
        Home(".config/opencode", "XDG_CONFIG_HOME", "opencode"),
        ServerEntry(("opencode.jsonc", "opencode.json"), _opencode_server),
        advice="it calls no hooks; `eventctx watch` imports its sessions",
    ),
    HostSettings(
        "cursor",
        "Cursor",
        ("cursor", "cursor-agent"),
        Home(".cursor"),
        ServerEntry(("mcp.json",), _json_server("mcpServers")),
        # `stop` was seen to be missing in some releases.
        HookFile(
            "hooks.json",
            {"preCompact": None, "stop": None, "sessionEnd": None},
            _flat(),
            _VERSION,
        ),
        advice="switch the server on in its settings, under Tools & MCP",
    ),
    HostSettings(
        "vscode",
        "VS Code",
        ("code",),
        Home(_EDITORS.get(sys.platform, ".config/Code/User")),
        ServerEntry(("mcp.json",), _json_server("servers", type="stdio")),
        advice="its own chats are not imported; the tools answer about other agents' sessions",
    ),
    HostSettings(
        "copilot",
        "Copilot CLI",
        ("copilot",),
        Home(".copilot", "COPILOT_HOME"),
        ServerEntry(("mcp-config.json",), _json_server("mcpServers", type="local", tools=["*"])),
        # Not a file in `hooks`: VS Code reads that folder, too, and takes no notice of a matcher.
        HookFile(
            "settings.json",
            {"PreCompact": None, "Stop": None, "PreToolUse": "eventctx-.*"},
            _flat(type="command"),
        ),
    ),
    HostSettings(
        "kiro",
        "Kiro",
        ("kiro", "kiro-cli"),
        Home(".kiro"),
        ServerEntry(("settings/mcp.json",), _json_server("mcpServers")),
        advice="its sessions are not imported; the tools answer about other agents' sessions",
    ),
)

HOSTS: Final = MappingProxyType({one.name: one for one in _ROWS})
"""Every program by its name."""
