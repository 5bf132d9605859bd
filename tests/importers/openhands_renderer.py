"""Run by a Python that has openhands-sdk: what it shows a model for the observations on stdin.

A line in is an ``ObservationEvent``; a line out are its blocks, or null where this release of the
SDK does not take the event. The first line out names the release. Imports nothing of eventctx.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from importlib.metadata import version
from typing import Any

os.environ.setdefault("OPENHANDS_SUPPRESS_BANNER", "1")
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # no network

TOOLS = ("browser_use", "delegate", "execute_bash", "file_editor", "glob", "grep", "task")
TOOLS += ("task_tracker", "terminal", "tom_consult")


ASKED = {
    "cache_enabled": False,
    "vision_enabled": True,
    "function_calling_enabled": True,
    "force_string_serializer": False,
    "send_reasoning_content": False,
}


def shown(event: Any) -> Any:
    """What an event shows the model: the content of the message that would be sent."""
    message = event.to_llm_message()
    if "vision_enabled" in type(message).model_fields:
        # Before 1.0 the message itself knows what its model can take.
        message.vision_enabled = message.function_calling_enabled = True
        return message.to_chat_dict()["content"]
    return message.to_chat_dict(**ASKED)["content"]


def main() -> None:
    out, sys.stdout = sys.stdout, sys.stderr
    of_events = importlib.import_module("openhands.sdk.event").ObservationEvent
    importlib.import_module("openhands.sdk.mcp.definition")
    importlib.import_module("openhands.sdk.tool.builtins")
    for name in TOOLS:
        with contextlib.suppress(ImportError):
            importlib.import_module(f"openhands.tools.{name}.definition")
    out.write(json.dumps({"sdk": version("openhands-sdk")}) + "\n")
    for line in sys.stdin:
        try:
            told = shown(of_events.model_validate(json.loads(line)))
        except Exception as error:
            sys.stderr.write(f"{type(error).__name__}: {str(error)[:300]}\n")
            told = None
        out.write(json.dumps(told) + "\n")


main()
