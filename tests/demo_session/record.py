"""Record the sample session of ``eventctx demo``: ``python tests/demo_session/record.py``.

The agent is scripted, its tools run for real. Run it again when the code has changed so much that
what the agent says is no longer true; it stops by itself where it notices.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import msgspec
from agent import Agent
from reading_tasks import READING
from running_tasks import RUNNING
from tools import ROOT
from trying_tasks import TRYING

SYSTEM = (
    "You are a careful engineer with read access to the Python repository `eventctx`, an "
    "event-sourced context engine for LLM agents. Answer from the code, not from memory: look it "
    "up, try it where you can, and name files and functions. Use several tools at once where they "
    "do not depend on each other."
)
TARGET = ROOT / "eventctx" / "cli" / "demo" / "session.jsonl"
MAX_BYTES = 700_000
MIN_MESSAGES = 150


def main() -> None:
    """Play all tasks and write the session, one message a line."""
    agent = Agent(SYSTEM)
    for task in (*READING[:3], *TRYING, *READING[3:], *RUNNING):
        task(agent)
    data = b"".join(msgspec.json.encode(message) + b"\n" for message in agent.messages)
    if len(agent.messages) < MIN_MESSAGES or len(data) > MAX_BYTES:
        raise SystemExit(f"{len(agent.messages)} messages, {len(data)} bytes: not as wanted")
    TARGET.write_bytes(data)
    sys.stdout.write(f"{TARGET}: {len(agent.messages)} messages, {len(data):,} bytes\n")


if __name__ == "__main__":
    main()
