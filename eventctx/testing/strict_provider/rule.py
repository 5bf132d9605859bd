"""A published rule of an API, and what a request that breaks it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import msgspec

Api = Literal["anthropic", "openai-chat", "openai-responses", "gemini", "bedrock"]

Found = tuple[str, str]
"""The place in a request that breaks a rule (``messages.2.content.0``), and the refusal."""


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


# -- the words of OpenAI's two APIs --------------------------------------------------------------


def unknown_parameter(path: str) -> Found:
    return path, f"Unknown parameter: '{path}'."


def missing_parameter(path: str) -> Found:
    return path, f"Missing required parameter: '{path}'."


def invalid_value(path: str, found: str, known: tuple[str, ...]) -> Found:
    listed = ", ".join(f"'{one}'" for one in known[:-1])
    return path, f"Invalid value: '{found}'. Supported values are: {listed} and '{known[-1]}'."


def too_long(path: str, found: object, longest: int) -> Iterator[Found]:
    """Refuse a text of more than ``longest`` characters."""
    if isinstance(found, str) and len(found) > longest:
        yield (
            path,
            (
                f"Invalid '{path}': string too long. Expected a string with maximum length "
                f"{longest}, but got a string with length {len(found)} instead."
            ),
        )
