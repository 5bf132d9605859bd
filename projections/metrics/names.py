"""Every metric instrument: name, unit, attributes, buckets. No other file spells them.

Names under ``gen_ai.`` are those of OpenTelemetry's GenAI conventions v0.1.0
(open-telemetry/semantic-conventions-genai, its first release). Two have older names, of schema
1.37.0. The conventions ask an instrumentation to go on with the older ones until the user opts in
(``semconv.OPT_IN``), and then to send the new ones alone. All other names are under ``eventctx.``;
attributes are named as on spans.

Attributes have few values. None holds an id, a path, a message or the text of an error. Units are
UCUM's. Boundaries are advice: a view that the host sets up replaces them.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from eventctx.projections.trace import semconv as conv

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.37.0"
"""Of the older names; the new ones have that of the spans."""

Kind = Literal["counter", "histogram"]

TRIGGER: Final = conv.COMPACTION + "trigger"
STRATEGY: Final = conv.COMPACTION + "strategy"
COMPACTION_OUTCOME: Final = conv.COMPACTION + "outcome"
BREAK: Final = conv.REQUEST + "break"
HANDLER: Final = "eventctx.hook.handler"
TOKEN_TYPE: Final = "gen_ai.token.type"  # noqa: S105 - a name, no secret
TOKEN_MODALITY: Final = "gen_ai.token.modality"  # noqa: S105 - a name, no secret
UNKNOWN_MODALITY: Final = "unknown"
"""The conventions' word for a count that the provider does not break down, as none of ours are."""


class Instrument(NamedTuple):
    """An instrument, and the attributes that its measurements may have.

    ``boundaries`` are the upper, inclusive bounds of a histogram's buckets, in its unit. An
    ``operational`` instrument measures the running program, and cannot be folded from a log.
    ``opt_in`` is whether the user has to have opted in to the newest conventions, or must not have
    (an older name); None for an instrument that is sent in any case.
    """

    name: str
    kind: Kind
    unit: str
    description: str
    attributes: tuple[str, ...]
    boundaries: tuple[float, ...] = ()
    operational: bool = False
    opt_in: bool | None = None


_TOKENS: Final = (
    *(500.0, 1_000.0, 2_000.0, 4_000.0, 8_000.0, 16_000.0, 32_000.0, 64_000.0, 100_000.0),
    *(128_000.0, 160_000.0, 200_000.0, 400_000.0, 1_000_000.0, 2_000_000.0),
)
_SHARES: Final = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
_USED: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.25, 1.5, 2.0)
_COMPACTING: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_INSTRUCTIONS: Final = (0.0, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)
_APPENDING: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0),
)
# The conventions' own.
_CALLING: Final = (
    *(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92),
)
_INVOKING: Final = tuple([round(0.1 * 2**power, 1) for power in range(13)])
_USAGE: Final = tuple([float(4**power) for power in range(14)])

_MODEL: Final = (conv.REQUEST_MODEL,)
_CALL: Final = (conv.OPERATION, conv.PROVIDER_NAME, conv.REQUEST_MODEL)
_ANSWERED: Final = (*_CALL, conv.RESPONSE_MODEL, conv.SERVER_ADDRESS, conv.SERVER_PORT)

COMPACTIONS: Final = Instrument(
    "eventctx.compactions",
    "counter",
    "{compaction}",
    "Compactions that ended, those that changed nothing included.",
    (TRIGGER, STRATEGY, COMPACTION_OUTCOME),
)
TOKENS_BEFORE: Final = Instrument(
    "eventctx.compaction.estimated_tokens.before",
    "histogram",
    "{token}",
    "Estimated tokens of the view before a compaction that was applied.",
    (TRIGGER, STRATEGY),
    _TOKENS,
)
TOKENS_AFTER: Final = Instrument(
    "eventctx.compaction.estimated_tokens.after",
    "histogram",
    "{token}",
    "Estimated tokens of the view after a compaction that was applied.",
    (TRIGGER, STRATEGY),
    _TOKENS,
)
COMPACTION_DURATION: Final = Instrument(
    "eventctx.compaction.duration",
    "histogram",
    "s",
    "How long a compaction took to be decided, questions to a model included.",
    (STRATEGY, COMPACTION_OUTCOME),
    _COMPACTING,
)
REQUEST_TOKENS: Final = Instrument(
    "eventctx.request.estimated_tokens",
    "histogram",
    "{token}",
    "Estimated tokens of a prepared request, what is sent beside the messages included.",
    _MODEL,
    _TOKENS,
)
BUDGET_USED: Final = Instrument(
    "eventctx.request.budget.used",
    "histogram",
    "1",
    "Estimated tokens of a prepared request as a share of its budget; above 1 a floor was sent.",
    _MODEL,
    _USED,
)
PREFIX_REUSED: Final = Instrument(
    "eventctx.request.prefix.reused",
    "histogram",
    "1",
    "Share of a request's estimated tokens, whole messages, with which the next one begins.",
    _MODEL,
    _SHARES,
)
INSTRUCTIONS_ABSENT: Final = Instrument(
    conv.INSTRUCTIONS_ABSENT,
    "histogram",
    "{instruction}",
    "Instructions of a person that a prepared request holds nowhere word by word, if any.",
    _MODEL,
    _INSTRUCTIONS,
)
BREAKS: Final = Instrument(
    "eventctx.request.breaks",
    "counter",
    "{break}",
    "Reasons why prepared requests did not begin with the whole of the one before.",
    (BREAK,),
)
PROMPT_CACHED: Final = Instrument(
    "eventctx.prompt.cached",
    "histogram",
    "1",
    "Share of a call's prompt tokens that the provider read from its cache, as it reported.",
    (conv.PROVIDER_NAME, conv.REQUEST_MODEL),
    _SHARES,
)
OPERATION_DURATION: Final = Instrument(
    "gen_ai.client.operation.duration",
    "histogram",
    "s",
    "GenAI operation duration.",
    (*_CALL, conv.ERROR_TYPE),
    _CALLING,
    opt_in=False,
)
TOKEN_USAGE: Final = Instrument(
    "gen_ai.client.token.usage",
    "histogram",
    "{token}",
    "Number of input and output tokens used.",
    (*_CALL, TOKEN_TYPE),
    _USAGE,
    opt_in=False,
)
INFERENCE_DURATION: Final = Instrument(
    "gen_ai.client.inference.duration",
    "histogram",
    "s",
    "How long a model call took.",
    (*_ANSWERED, conv.ERROR_TYPE),
    _CALLING,
    opt_in=True,
)


def _tokens_per_call(name: str, description: str) -> Instrument:
    of = f"gen_ai.client.inference.operation.{name}"
    by = (*_ANSWERED, conv.ERROR_TYPE)
    return Instrument(of, "histogram", "{token}", description, by, _USAGE, opt_in=True)


def _tokens_used(name: str, description: str) -> Instrument:
    of = f"gen_ai.client.inference.usage.{name}"
    by = (*_ANSWERED, TOKEN_MODALITY)
    return Instrument(of, "counter", "{token}", description, by, opt_in=True)


INPUT_PER_CALL: Final = _tokens_per_call(
    "input_tokens", "Tokens of a call's prompt, cached parts included."
)
OUTPUT_PER_CALL: Final = _tokens_per_call(
    "output_tokens", "Tokens of a call's answer, reasoning included."
)
INPUT_USED: Final = _tokens_used("input_tokens", "Tokens of prompts, cached parts included.")
OUTPUT_USED: Final = _tokens_used("output_tokens", "Tokens of answers, reasoning included.")
CACHE_READ_USED: Final = _tokens_used(
    "cache_read.input_tokens", "Tokens of prompts that the provider read from its cache."
)
CACHE_WRITE_USED: Final = _tokens_used(
    "cache_write.input_tokens", "Tokens of prompts that the provider wrote to its cache."
)
REASONING_USED: Final = _tokens_used("reasoning.output_tokens", "Tokens of answers for reasoning.")
AGENT_DURATION: Final = Instrument(
    "gen_ai.invoke_agent.duration",
    "histogram",
    "s",
    "How long a turn of an agent took.",
    (conv.OPERATION, conv.AGENT_NAME, conv.ERROR_TYPE),
    _INVOKING,
)
TOOL_DURATION: Final = Instrument(
    "gen_ai.execute_tool.duration",
    "histogram",
    "s",
    "How long a tool call took.",
    (conv.TOOL_NAME, conv.TOOL_TYPE, conv.AGENT_NAME, conv.ERROR_TYPE),
    _CALLING,
)
APPEND_DURATION: Final = Instrument(
    "eventctx.append.duration",
    "histogram",
    "s",
    "How long a durable append took, from the call until its records were on disk.",
    (),
    _APPENDING,
    operational=True,
)
HOOK_ERRORS: Final = Instrument(
    "eventctx.hook.errors",
    "counter",
    "{error}",
    "Observers that raised, were cancelled or took too long.",
    (HANDLER,),
    operational=True,
)
HOOK_DROPS: Final = Instrument(
    "eventctx.hook.drops",
    "counter",
    "{record}",
    "Records that never reached an observer: its queue was full, or its loop had ended.",
    (HANDLER,),
    operational=True,
)

INSTRUMENTS: Final = (
    *(COMPACTIONS, TOKENS_BEFORE, TOKENS_AFTER, COMPACTION_DURATION),
    *(REQUEST_TOKENS, BUDGET_USED, PREFIX_REUSED, INSTRUCTIONS_ABSENT, BREAKS),
    *(PROMPT_CACHED, OPERATION_DURATION, TOKEN_USAGE, AGENT_DURATION, TOOL_DURATION),
    *(INFERENCE_DURATION, INPUT_PER_CALL, OUTPUT_PER_CALL, INPUT_USED, OUTPUT_USED),
    *(CACHE_READ_USED, CACHE_WRITE_USED, REASONING_USED),
    *(APPEND_DURATION, HOOK_ERRORS, HOOK_DROPS),
)
"""All instruments, in the order of the reference page."""


def sent_instruments(latest: bool) -> tuple[Instrument, ...]:
    """The instruments to send; ``latest``: the user opted in to the newest conventions."""
    return tuple([one for one in INSTRUMENTS if one.opt_in in (None, latest)])
