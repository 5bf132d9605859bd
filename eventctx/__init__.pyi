"""The public names, one a line; ``eventctx.lazy_names`` reads them."""

from eventctx.adapters.clients.wrapping import wrap as wrap
from eventctx.engine import Engine as Engine
from eventctx.engine import open_engine
from eventctx.errors import ContextOverflow as ContextOverflow
from eventctx.errors import EventctxError as EventctxError
from eventctx.errors import ImportedSession as ImportedSession
from eventctx.errors import InvalidMessage as InvalidMessage
from eventctx.errors import InvalidSetting as InvalidSetting
from eventctx.errors import LogCorrupted as LogCorrupted
from eventctx.errors import ProviderFailed as ProviderFailed
from eventctx.errors import StoreError as StoreError
from eventctx.errors import StoreUnavailable as StoreUnavailable
from eventctx.errors import StreamExists as StreamExists
from eventctx.errors import StreamNotFound as StreamNotFound
from eventctx.errors import ToolFailed as ToolFailed
from eventctx.errors import WrongExpectedVersion as WrongExpectedVersion
from eventctx.log.integrity import signer as signer
from eventctx.log.record import Record as Record
from eventctx.log.store import MessageReceipt as MessageReceipt
from eventctx.log.store import Receipt as Receipt
from eventctx.log.store import StreamInfo as StreamInfo
from eventctx.messages.speaker import for_audience as for_audience
from eventctx.policies.advisers import CompactionAsked as CompactionAsked
from eventctx.policies.advisers import ModelAnswer as ModelAnswer
from eventctx.policies.advisers import ScoreRequest as ScoreRequest
from eventctx.policies.advisers import SummaryRequest as SummaryRequest
from eventctx.policies.advisers import Verdict as Verdict
from eventctx.queries.records import Message as Message
from eventctx.queries.requests import RequestView as RequestView
from eventctx.reader import Reader as Reader
from eventctx.reader import read as read
from eventctx.session.context import Context as Context
from eventctx.session.result import CompactionResult as CompactionResult
from eventctx.session.settings import Settings as Settings
from eventctx.session.turns import Iteration as Iteration
from eventctx.session.turns import PlanPhase as PlanPhase
from eventctx.session.turns import ProviderCall as ProviderCall
from eventctx.session.turns import ToolCall as ToolCall
from eventctx.session.turns import Turn as Turn
from eventctx.version import __version__ as __version__

open = open_engine  # noqa: A001
