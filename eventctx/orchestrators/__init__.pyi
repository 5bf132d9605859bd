"""The public names, one a line; ``eventctx.lazy_names`` reads them."""

from eventctx.orchestrators.loops.kinds import BasicOrchestrator as BasicOrchestrator
from eventctx.orchestrators.loops.kinds import EventsOrchestrator as EventsOrchestrator
from eventctx.orchestrators.loops.recording import current_ids as current_ids
from eventctx.orchestrators.loops.settings import OrchestratorSettings as OrchestratorSettings
from eventctx.orchestrators.loops.streaming import StreamingOrchestrator as StreamingOrchestrator
from eventctx.orchestrators.loops.streaming import server_sent_events as server_sent_events
from eventctx.orchestrators.protocol import Answer as Answer
from eventctx.orchestrators.protocol import Chunk as Chunk
from eventctx.orchestrators.protocol import ContextManager as ContextManager
from eventctx.orchestrators.protocol import Ids as Ids
from eventctx.orchestrators.protocol import OrchestratorModule as OrchestratorModule
from eventctx.orchestrators.protocol import Provider as Provider
from eventctx.orchestrators.protocol import Request as Request
from eventctx.orchestrators.protocol import Response as Response
from eventctx.orchestrators.protocol import StreamingProvider as StreamingProvider
from eventctx.orchestrators.protocol import Tool as Tool
from eventctx.orchestrators.protocol import ToolDefinition as ToolDefinition
from eventctx.orchestrators.protocol import ToolOutcome as ToolOutcome
from eventctx.orchestrators.protocol import ToolRequest as ToolRequest
from eventctx.orchestrators.protocol import Usage as Usage
from eventctx.orchestrators.providers.anthropic import AnthropicProvider as AnthropicProvider
from eventctx.orchestrators.providers.openai_chat import OpenAIChatProvider as OpenAIChatProvider
from eventctx.orchestrators.providers.openai_responses import (
    OpenAIResponsesProvider as OpenAIResponsesProvider,
)
from eventctx.orchestrators.tools.functions import as_tools as as_tools
from eventctx.orchestrators.tools.functions import definition_of as definition_of
from eventctx.orchestrators.tools.functions import run_tool as run_tool
from eventctx.orchestrators.tools.functions import tool as tool
