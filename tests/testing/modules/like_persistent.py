"""A context as context-persistent's documents describe it, written anew: ``LikeSimple`` in a file.

The file of a session is the truth: each message is a line at its end, and it is read whole for
every answer. What a host sets after the file was loaded is ignored (contract, "File-Based Context
Managers - Special Behavior").
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.testing.modules.like_simple import LikeSimple, Row

__amplifier_module_type__ = "context"

DEFAULTS: dict[str, Any] = {"protected_recent": 0.10}


class LikePersistent(LikeSimple):
    """Its history is the file's; ``memory_files`` begin a new session as system messages."""

    def __init__(self, hooks: Any, settings: Row, path: Path) -> None:
        super().__init__(hooks, {**DEFAULTS, **settings})
        self.path = path
        self.messages = self.read()
        self.was_loaded = bool(self.messages)

    async def start(self) -> None:
        if self.was_loaded:
            return
        for name, text in memories(self.settings.get("memory_files") or ()):
            content = f"[Context from {name}]\n\n{text}"
            await self.add_message({"role": "system", "content": content})

    async def add_message(self, message: Row) -> None:
        row = {"timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"), **message}
        self.messages.append(row)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")

    async def get_messages(self) -> list[Row]:
        self.messages = self.read()
        return await super().get_messages()

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any = None
    ) -> list[Row]:
        self.messages = self.read()
        return await super().get_messages_for_request(token_budget, provider)

    async def set_messages(self, messages: list[Row]) -> None:
        if self.was_loaded:
            return
        await self.clear()
        for row in messages:
            await self.add_message(row)

    async def clear(self) -> None:
        await super().clear()
        self.path.unlink(missing_ok=True)

    def read(self) -> list[Row]:
        if not self.path.exists():
            return []
        rows = []
        for line in self.path.read_text(encoding="utf-8").split("\n"):
            try:
                rows.append(json.loads(line))
            except ValueError:
                continue  # the empty end, or a line that a crash cut off
        return rows


def memories(names: Iterable[str]) -> list[tuple[str, str]]:
    """Name and text of the memory files that exist."""
    files = [Path(name).expanduser() for name in names]
    return [(file.name, file.read_text(encoding="utf-8")) for file in files if file.is_file()]


def default_path(session_id: str) -> Path:
    folder = Path.cwd()
    slug = f"{folder.name}-{sha256(str(folder).encode()).hexdigest()[:8]}"
    sessions = Path.home() / ".amplifier" / "projects" / slug / "sessions"
    return sessions / session_id / "context-messages.jsonl"


async def mount(coordinator: Any, config: dict[str, Any] | None = None) -> None:
    settings = dict(config or {})
    path = Path(settings.get("transcript_path") or default_path(coordinator.session_id))
    context = LikePersistent(coordinator.hooks, settings, path)
    await context.start()
    await coordinator.mount("context", context)
