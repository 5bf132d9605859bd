"""One table of how APIs and frameworks report token counts, and its reader.

APIs differ in the names of their counts, and in whether the prompt's count includes the tokens read
from a cache or written to one. Invariant: ``Usage.prompt`` is the whole prompt and ``Usage.output``
the whole answer. A count that is missing or no whole number from 0 to ``MOST_TOKENS`` is read as 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from eventctx.log.arguments import check_number

MOST_TOKENS: Final = 10**12
"""The largest number that is taken for one of tokens, reported or wished for: a thousand times the
largest prompts there will be, and exact in a float with all that is computed from it."""


class Usage(msgspec.Struct, frozen=True):
    """Tokens of one call as in ``usage:reported``: ``prompt`` is all of it, caches included.

    ``cache_write_1h`` is the part of ``cache_write`` that lives an hour, at a price of its own.
    """

    prompt: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cache_write_1h: int = 0


class UsageForm(NamedTuple):
    """A row of the table: the names of an API's counts, to try in order; ``a.b`` is a nested field.

    ``outside_prompt`` are the counts that the API's prompt count leaves out, ``outside_output``
    those that its output count leaves out: fields of ``Usage``, or names of the API's own.
    """

    prompt: tuple[str, ...]
    output: tuple[str, ...]
    cache_read: tuple[str, ...]
    cache_write: tuple[str, ...]
    reasoning: tuple[str, ...] = ()
    cache_write_1h: tuple[str, ...] = ()
    outside_prompt: tuple[str, ...] = ()
    outside_output: tuple[str, ...] = ()


ANTHROPIC: Final = UsageForm(
    prompt=("input_tokens",),
    output=("output_tokens",),
    cache_read=("cache_read_input_tokens",),
    cache_write=("cache_creation_input_tokens",),
    reasoning=("output_tokens_details.thinking_tokens",),
    cache_write_1h=("cache_creation.ephemeral_1h_input_tokens",),
    outside_prompt=("cache_read", "cache_write"),
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
    cache_write=("cache_write_input_tokens",),
    reasoning=("reasoning_output_tokens",),
)
AMPLIFIER: Final = UsageForm(
    # The kernel's fields, then the names that older logs have.
    prompt=("input_tokens", "input"),
    output=("output_tokens", "output"),
    cache_read=("cache_read_tokens", "cache_read", "cache_read_input_tokens"),
    cache_write=("cache_write_tokens", "cache_write", "cache_creation_input_tokens"),
    reasoning=("reasoning_tokens",),
    outside_prompt=("cache_write",),
)
ATIF: Final = UsageForm(
    prompt=("prompt_tokens",),
    output=("completion_tokens",),
    cache_read=("cached_tokens",),
    cache_write=(
        "extra.cache_creation_input_tokens",
        "extra.cache_write_input_tokens",
        "extra.cache_write_tokens",
    ),
    reasoning=("extra.reasoning_tokens", "extra.reasoning_output_tokens"),
    cache_write_1h=("extra.cache_creation_1h_input_tokens",),
)
PI: Final = UsageForm(
    prompt=("input",),
    output=("output",),
    cache_read=("cacheRead",),
    cache_write=("cacheWrite",),
    outside_prompt=("cache_read", "cache_write"),
)
COPILOT: Final = UsageForm(
    # The form of Cline's own SDK, too.
    prompt=("inputTokens",),
    output=("outputTokens",),
    cache_read=("cacheReadTokens",),
    cache_write=("cacheWriteTokens",),
    reasoning=("reasoningTokens",),
)
AGENT_FRAMEWORK: Final = UsageForm(
    prompt=("input_token_count",),
    output=("output_token_count",),
    cache_read=("cache_read_input_token_count",),
    cache_write=("cache_creation_input_token_count",),
    reasoning=("reasoning_output_token_count",),
)
GEMINI: Final = UsageForm(
    prompt=("prompt_token_count",),
    output=("candidates_token_count",),
    cache_read=("cached_content_token_count",),
    cache_write=(),
    reasoning=("thoughts_token_count",),
    outside_prompt=("tool_use_prompt_token_count",),
    outside_output=("reasoning",),
)
GEMINI_CLI: Final = UsageForm(
    prompt=("input",),
    output=("output",),
    cache_read=("cached",),
    cache_write=(),
    reasoning=("thoughts",),
    outside_prompt=("tool",),
    outside_output=("reasoning",),
)
QWEN_CODE: Final = UsageForm(
    prompt=("promptTokenCount",),
    output=("candidatesTokenCount",),
    cache_read=("cachedContentTokenCount",),
    cache_write=(),
    reasoning=("thoughtsTokenCount",),
)
OPENCODE: Final = UsageForm(
    prompt=("input",),
    output=("output",),
    cache_read=("cache.read",),
    cache_write=("cache.write",),
    reasoning=("reasoning",),
    outside_prompt=("cache_read", "cache_write"),
)
STRANDS: Final = UsageForm(
    prompt=("inputTokens",),
    output=("outputTokens",),
    cache_read=("cacheReadInputTokens",),
    cache_write=("cacheWriteInputTokens",),
)
STRANDS_UNCACHED: Final = STRANDS._replace(outside_prompt=("cache_read", "cache_write"))
"""The counts of those of Strands' providers whose input leaves out what was cached."""

_COUNTS_IN_TEXT: Final = re.compile(r"\b([a-z_]+_tokens)=(\d+)\b")
"""Counts in the text of a pydantic model, ``input_tokens=5 output_tokens=2``."""


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
    prompt = _whole(reported, counts, "prompt", form.outside_prompt)
    output = _whole(reported, counts, "output", form.outside_output)
    return Usage(**{**counts, "prompt": prompt, "output": output})


def read_provider_usage(reported: Any) -> Usage | None:
    """Read a provider's own counts, in the form recognised; None where no prompt is counted."""
    if not isinstance(reported, Mapping) or reported.keys().isdisjoint(
        ("prompt_tokens", "input_tokens")
    ):
        return None
    return read_usage(reported, form_of_provider(reported))


def read_host_usage(reported: object) -> Usage | None:
    """Read counts on Amplifier's hooks: fields, or the text of the kernel's model.

    None for anything else, and where no prompt is counted.
    """
    if isinstance(reported, str):
        # loop-basic passes the kernel's model, and the registry hands on its text.
        reported = {name: int(count) for name, count in _COUNTS_IN_TEXT.findall(reported)}
    if not isinstance(reported, Mapping):
        return None
    return with_prompt(read_usage(reported, form_of_host(reported)))


def with_prompt(usage: Usage | None) -> Usage | None:
    """The usage; None where it counts no prompt, as of a request that was aborted."""
    return usage if usage is not None and usage.prompt else None


def form_of_provider(reported: Mapping[str, Any]) -> UsageForm:
    """The form of a provider's own counts, recognised by a name that only this form has."""
    if "prompt_tokens" in reported:
        return OPENAI_CHAT
    return OPENAI_RESPONSES if "input_tokens_details" in reported else ANTHROPIC


def form_of_host(reported: Mapping[str, Any]) -> UsageForm:
    """The form of counts on Amplifier's hooks: the kernel's, or those of Anthropic's API."""
    of_provider = "cache_creation_input_tokens" in reported
    return ANTHROPIC if of_provider and "cache_write_tokens" not in reported else AMPLIFIER


def form_of_qwen(reported: Mapping[str, Any]) -> UsageForm:
    """The form of Qwen Code's counts: of Gemini's API alone, the total has the thoughts apart."""
    counts = [_first(reported, names) for names in (QWEN_CODE.prompt, QWEN_CODE.output)]
    apart = sum(counts) + _first(reported, QWEN_CODE.reasoning)
    total = _first(reported, ("totalTokenCount",))
    return QWEN_CODE._replace(outside_output=("reasoning",)) if total == apart else QWEN_CODE


def form_of_opencode(reported: Mapping[str, Any]) -> UsageForm:
    """The form of opencode's counts: later releases count the reasoning next to the output."""
    usage = read_usage(reported, OPENCODE)
    total = _first(reported, ("total",))
    apart = usage is not None and total == usage.prompt + usage.output + usage.reasoning
    return OPENCODE._replace(outside_output=("reasoning",)) if apart else OPENCODE


def form_of_strands(reported: Mapping[str, Any]) -> UsageForm:
    """The form of Strands' counts: its providers count what was cached as input, or apart."""
    cached = read_usage(reported, STRANDS)
    total = _first(reported, ("totalTokens",))
    return STRANDS if cached and cached.prompt + cached.output == total else STRANDS_UNCACHED


def _whole(reported: Any, counts: Mapping[str, int], name: str, outside: tuple[str, ...]) -> int:
    """The count with those that it leaves out; 0 where the sum is no count."""
    whole = counts[name]
    for other in outside:
        whole += counts[other] if other in counts else _first(reported, (other,))
    return whole if whole <= MOST_TOKENS else 0


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
