"""The reader of token counts: from the numbers of any provider to those of ``usage:reported``.

APIs differ in the names of their counts, and in whether the prompt's count includes the tokens read
from a cache or written to one. ``Usage.prompt`` is always the whole prompt. A count that is missing
or no whole number from 0 to ``MOST_TOKENS`` is read as 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from eventctx.log.arguments import check_number

MOST_TOKENS: Final = 10**12
"""The largest number that is taken for one of tokens, reported or wished for: a thousand times the
largest prompts there will be, and exact in a float with all that is computed from it."""


class Usage(msgspec.Struct, frozen=True):
    """Tokens of one call as in ``usage:reported``: ``prompt`` is all of it, caches included."""

    prompt: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0


class UsageForm(NamedTuple):
    """The names of an API's counts, to try in order; ``a.b`` is a field of a field.

    ``beside`` are the counts that its prompt count leaves out.
    """

    prompt: tuple[str, ...]
    output: tuple[str, ...]
    cache_read: tuple[str, ...]
    cache_write: tuple[str, ...]
    reasoning: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()


ANTHROPIC: Final = UsageForm(
    prompt=("input_tokens",),
    output=("output_tokens",),
    cache_read=("cache_read_input_tokens",),
    cache_write=("cache_creation_input_tokens",),
    reasoning=("output_tokens_details.thinking_tokens",),
    beside=("cache_read", "cache_write"),
)
OPENAI_CHAT: Final = UsageForm(
    prompt=("prompt_tokens",),
    output=("completion_tokens",),
    cache_read=("prompt_tokens_details.cached_tokens",),
    cache_write=("prompt_tokens_details.cache_write_tokens",),
    reasoning=("completion_tokens_details.reasoning_tokens",),
)
OPENAI_RESPONSES: Final = UsageForm(
    prompt=("input_tokens",),
    output=("output_tokens",),
    cache_read=("input_tokens_details.cached_tokens",),
    cache_write=("input_tokens_details.cache_write_tokens",),
    reasoning=("output_tokens_details.reasoning_tokens",),
)
LANGCHAIN: Final = UsageForm(
    prompt=("input_tokens",),
    output=("output_tokens",),
    cache_read=("input_token_details.cache_read",),
    cache_write=("input_token_details.cache_creation",),
    reasoning=("output_token_details.reasoning",),
)
PYDANTIC_AI: Final = UsageForm(
    prompt=("input_tokens",),
    output=("output_tokens",),
    cache_read=("cache_read_tokens",),
    cache_write=("cache_write_tokens",),
    reasoning=("output_reasoning_tokens",),
)
CODEX: Final = UsageForm(
    prompt=("input_tokens",),
    output=("output_tokens",),
    cache_read=("cached_input_tokens",),
    cache_write=(),
    reasoning=("reasoning_output_tokens",),
)
AMPLIFIER: Final = UsageForm(
    # The kernel's fields, then the names that older logs have.
    prompt=("input_tokens", "input"),
    output=("output_tokens", "output"),
    cache_read=("cache_read_tokens", "cache_read", "cache_read_input_tokens"),
    cache_write=("cache_write_tokens", "cache_write", "cache_creation_input_tokens"),
    reasoning=("reasoning_tokens",),
    beside=("cache_write",),
)
PI: Final = UsageForm(
    prompt=("input",),
    output=("output",),
    cache_read=("cacheRead",),
    cache_write=("cacheWrite",),
    beside=("cache_read", "cache_write"),
)


def check_usage(counts: Mapping[str, object]) -> None:
    """Check counts that a caller reports: None or an int from 0 to ``MOST_TOKENS`` each.

    Raises InvalidSetting that names the count.
    """
    for name, count in counts.items():
        if count is not None:
            check_number(f"usage: {name}", count, MOST_TOKENS)


def read_usage(reported: Any, form: UsageForm) -> Usage | None:
    """Read counts in a known form from a mapping or an object; None for anything else."""
    if not isinstance(reported, Mapping) and not hasattr(reported, form.prompt[0]):
        return None
    counts = {name: _first(reported, getattr(form, name)) for name in Usage.__struct_fields__}
    whole = counts["prompt"] + sum([counts[name] for name in form.beside])
    counts["prompt"] = whole if whole <= MOST_TOKENS else 0
    return Usage(**counts)


def form_of_provider(reported: Mapping[str, Any]) -> UsageForm:
    """The form of a provider's own counts, recognised by a name that only this form has."""
    if "prompt_tokens" in reported:
        return OPENAI_CHAT
    return OPENAI_RESPONSES if "input_tokens_details" in reported else ANTHROPIC


def form_of_host(reported: Mapping[str, Any]) -> UsageForm:
    """The form of counts on Amplifier's hooks: the kernel's, or those of Anthropic's API."""
    of_provider = "cache_creation_input_tokens" in reported
    return ANTHROPIC if of_provider and "cache_write_tokens" not in reported else AMPLIFIER


def _first(reported: Any, names: tuple[str, ...]) -> int:
    """The first of these fields that holds a count; 0 where none does."""
    for name in names:
        value = reported
        for part in name.split("."):
            # The first test is of most values, and the second costs ten times as much.
            if type(value) is dict or isinstance(value, Mapping):
                value = value.get(part)
            else:
                value = getattr(value, part, None)
        if type(value) is int and 0 <= value <= MOST_TOKENS:
            return value
    return 0
