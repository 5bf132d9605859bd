"""A published rule of an API, and what a request that breaks it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec

Api = Literal["anthropic", "openai-chat", "openai-responses", "gemini", "bedrock"]

Found = tuple[str, str]
"""Where a request breaks a rule (``messages.2.content.0``), and the provider's words."""


class Rule(msgspec.Struct, frozen=True):
    """One rule of one API.

    ``check`` reads the parsed request of its API and yields each place that breaks the rule.
    ``source`` is the title of the page that has the rule, or the published error.
    """

    name: str
    api: Api
    says: str
    source: str
    check: Callable[[Any], Iterable[Found]]


class Violation(msgspec.Struct, frozen=True):
    """A place of a request that breaks a rule; ``message`` is the provider's answer."""

    rule: str
    path: str
    message: str
