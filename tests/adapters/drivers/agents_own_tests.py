"""A plugin of pytest with which the OpenAI Agents SDK's own tests run on our sessions.

In the folder of the SDK's source distribution, without its ``src``, in an environment that has
``eventctx[openai-agents]`` and what those tests need:

    PYTHONPATH=CHECKOUT pytest -p tests.adapters.drivers.agents_own_tests tests/memory tests/…

Each ``SQLiteSession`` that a test makes is one of ours, on a store of its own or in the file that
the test names. With ``EVENTCTX_OPTIONS=1`` each run with such a session gets ``options()``, too.
``docs/reference/adapters.md`` has what passes, and which tests look into SQLite.
"""

from __future__ import annotations

import os
from typing import Any

import agents
import agents.extensions.memory.encrypt_session  # keeps the SDK's own class
import agents.memory
import agents.memory.sqlite_session
from agents.memory.session_settings import SessionSettings, coerce_session_settings

import eventctx.sync
from eventctx.adapters.openai_agents import AgentsSession


class SQLiteSession(AgentsSession):
    """A session of ours that is made as the SDK's is."""

    def __init__(
        self, session_id: str, db_path: Any = ":memory:", *_: Any, session_settings: Any = None
    ) -> None:
        self._engine = eventctx.sync.open("memory://" if str(db_path) == ":memory:" else db_path)
        super().__init__(self._engine.session(session_id))
        given = coerce_session_settings(session_settings) if session_settings else None
        self.session_settings = given or SessionSettings()

    def close(self) -> None:
        self._engine.close()


agents.SQLiteSession = SQLiteSession  # type: ignore[misc,assignment]
agents.memory.SQLiteSession = SQLiteSession  # type: ignore[misc,assignment]
agents.memory.sqlite_session.SQLiteSession = SQLiteSession  # type: ignore[misc,assignment]


def _with_options(name: str) -> None:
    real = getattr(agents.Runner, name).__func__

    def run(cls: Any, *args: Any, **named: Any) -> Any:
        session = named.get("session")
        if isinstance(session, SQLiteSession):
            own = {one: named.get(one) for one in ("run_config", "hooks")}
            named = {**named, **session.options(**own)}  # type: ignore[arg-type]
        return real(cls, *args, **named)

    setattr(agents.Runner, name, classmethod(run))


if os.environ.get("EVENTCTX_OPTIONS"):
    for each in ("run", "run_sync", "run_streamed"):
        _with_options(each)
