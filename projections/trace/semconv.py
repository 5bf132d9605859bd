"""Names of span attributes: those of OpenTelemetry's GenAI conventions, and our own.

The conventions are in development and no package on PyPI has all of them, so the names that we use
are defined here, as of open-telemetry/semantic-conventions-genai v0.1.0, its first release. A test
holds the spans of the demo against the rules of that release. The conventions have no compaction
span, only ``gen_ai.conversation.compacted``, so its other attributes are under ``eventctx.``, some
of them also under the names of Google's ADK.
"""

from __future__ import annotations

from typing import Final

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev"
"""The last one that the conventions are known to declare, of their main branch before v0.1.0."""
OPT_IN: Final = "OTEL_SEMCONV_STABILITY_OPT_IN"
"""The environment variable with which a user opts in to newer names; ``LATEST``: of GenAI's."""
LATEST: Final = "gen_ai_latest_experimental"

OPERATION: Final = "gen_ai.operation.name"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
CONVERSATION_COMPACTED: Final = "gen_ai.conversation.compacted"
"""Only ever true: upstream forbids false, which absence already means."""
AGENT_NAME: Final = "gen_ai.agent.name"
PROVIDER_NAME: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_STREAM: Final = "gen_ai.request.stream"
"""Only ever true: without it, a request is taken for one that is not streamed."""
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_ID: Final = "gen_ai.response.id"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
TOOL_DESCRIPTION: Final = "gen_ai.tool.description"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_write.input_tokens"
CACHE_CREATION_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
"""The older name of the same count, which Jaeger's interface and Phoenix read; both are sent."""
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"

_WORDS: Final = {
    "aws.bedrock": "amazon-bedrock aws-bedrock bedrock bedrock-converse",
    "azure.ai.openai": "azure azure-openai azureopenai",
    "gcp.gemini": "gemini google google-genai google-gla",
    "gcp.vertex_ai": "google-cloud google-vertex google-vertexai vertex-ai vertexai",
    "ibm.watsonx.ai": "ibm watsonx",
    "mistral_ai": "mistral mistral-ai mistralai",
    "moonshot_ai": "moonshot moonshot-ai moonshotai",
    "openai": "openai-chat openai-responses",
    "x_ai": "grok x-ai xai",
}
PROVIDERS: Final = {word: name for name, words in _WORDS.items() for word in words.split()}
"""The conventions' names of providers, by the words of hosts, in lower case with hyphens."""

SCOPE: Final = "eventctx"
"""The instrumentation scope of our spans and metrics, and the default service name."""
SERVICE_NAME: Final = "service.name"
SESSION_ID: Final = "session.id"
SEARCHED_ID: Final = "session_id"
"""The session id once more, under the name that log lines have and a person types."""
ERROR_TYPE: Final = "error.type"
ERROR_OTHER: Final = "_OTHER"
"""The value that the conventions require if the type of an error is not known."""

INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"
FUNCTION: Final = "function"
"""The type of a tool that the program runs itself. Those that a provider runs have no span."""
PLAN: Final = "plan"
COMPACT: Final = "compact"

OURS: Final = "eventctx."
TURN_ID: Final = "eventctx.turn.id"
TURN_NUMBER: Final = "eventctx.turn.number"
# "compaction" in a name or a value is kept for the compactions' own spans: the search in a trace of
# Jaeger looks into both, and is to find those alone. Other spans say "plan".
TURN_PLANS: Final = "eventctx.turn.plans"
"""Compactions that were applied in a turn."""
TURN_SAVED: Final = "eventctx.turn.estimated_tokens.saved"
"""Tokens by which they made views smaller, as we count them."""
TURN_DURATION: Final = "eventctx.turn.duration"
"""Nanoseconds that an imported turn's program measured; its span may also hold a wait."""
ITERATION: Final = "eventctx.iteration"
EVENT_SEQ: Final = "eventctx.event.seq"
"""A record's position in its stream; on a span, the position of the record that began it."""
PARENT_SPAN_ID: Final = "eventctx.parent_span_id"
"""On a tool: its parent in the log, the model call that asked for it."""
PLAN_NAME: Final = "eventctx.plan.name"
"""The name of a planning phase. Its span has that of the agent, by the conventions."""
FORK_PARENT: Final = "eventctx.fork.parent"
"""On a turn of a fork: the session that it left, and ``FORK_AT``: the position."""
FORK_AT: Final = "eventctx.fork.at"
PARENT_SESSION: Final = "eventctx.parent.session"
"""On a turn of a subagent: the session that it belongs to; with the kind and the tool call."""
PARENT_KIND: Final = "eventctx.parent.kind"
PARENT_CALL_ID: Final = "eventctx.parent.call_id"
LINK_KIND: Final = "eventctx.link.kind"
"""Of a link: model_call, compaction, fork, or the kind of a session:linked (subagent)."""
LINK_SESSION: Final = "eventctx.link.session"
"""Of a link to another session: its id."""
OUTCOME: Final = "eventctx.outcome"
"""ok, error, cancelled, unfinished (no record ended it); of a compaction also failed, skipped."""
EVENTS_DROPPED: Final = "eventctx.events.dropped"

OUTPUT_EXACT: Final = "eventctx.usage.output_exact"
"""Only ever false: the transcript's output count is a placeholder, so the span has none."""
INEXACT_OUTPUTS: Final = "eventctx.usage.inexact_outputs"
"""On a turn: its model calls whose output is not recorded, and not in the turn's sum."""

REQUEST: Final = "eventctx.request."
COMPACTION: Final = "eventctx.compaction."
COMPACTION_ID: Final = "eventctx.compaction.id"
CACHE_GIVEN_UP: Final = "eventctx.request.cache_given_up"
"""Of a chat: tokens that the cache held before a compaction and did not serve after it."""
"""Position of the post_compact; ``REQUEST_PLAN`` refers to it."""
REQUEST_PLAN: Final = "eventctx.request.plan"
COMPACTION_SEQUENCE: Final = "eventctx.compaction.sequence"
COMPACTION_SENTENCE: Final = "compaction"
"""The whole in one sentence. Jaeger sorts attributes by name, so this name is to come first."""
COMPACTION_DESCRIPTION: Final = "gen_ai.compaction.description"
"""The same sentence for Jaeger's GenAI view, which shows gen_ai.* alone and opens first."""
COMPACTION_VIEW_BEFORE: Final = "verify.view_before"
"""Digest of the last request before a compaction; the next chat has the first one's after it."""
COMPACTION_DIGEST: Final = "verify.record"
"""Digest of the post_compact in the chain. Nobody reads digests, so their names come last."""
# Google's ADK (adk-python 2.13.0, and its Go and Dart versions) has these for its own compactions;
# Jaeger's GenAI view shows what begins with gen_ai. We send those that are true of ours.
ADK_TRIGGER: Final = "gen_ai.compaction.trigger"
ADK_SUMMARIZER: Final = "gen_ai.compaction.summarizer_type"
ADK_EVENT_COUNT: Final = "gen_ai.compaction.event_count"
ADK_THRESHOLD: Final = "gen_ai.compaction.token_threshold"
ADK_RETENTION: Final = "gen_ai.compaction.event_retention_size"
ADK_RESULT: Final = "gen_ai.compaction.result_event_id"
REQUEST_DIGEST: Final = "eventctx.request.digest"

INSTRUCTIONS_ABSENT: Final = "eventctx.instructions.absent"
"""Demands of a person that a request's view holds nowhere; on a turn the most of its requests."""

INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
SYSTEM_INSTRUCTIONS: Final = "gen_ai.system_instructions"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"
TOOL_DEFINITIONS: Final = "gen_ai.tool.definitions"
COMPACTION_SUMMARY: Final = "eventctx.compaction.summary"
SESSION_TITLE: Final = "eventctx.session.title"
CONTENT: Final = frozenset(
    (
        *(INPUT_MESSAGES, OUTPUT_MESSAGES, SYSTEM_INSTRUCTIONS),
        *(TOOL_ARGUMENTS, TOOL_RESULT, TOOL_DESCRIPTION, TOOL_DEFINITIONS),
        *(COMPACTION_SUMMARY, SESSION_TITLE),
    )
)
"""Attributes that hold contents, as JSON text; spans have them only if contents are enabled."""
CAPTURE_CONTENT: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The conventions' environment variable that enables contents."""
