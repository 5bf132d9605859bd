"""Signatures of the synchronous API. Generated: ``python -m tests.sync_stub``."""
# ruff: noqa: A001

import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, Unpack

from eventctx.comparison.compare import Comparison
from eventctx.comparison.defaults import BUDGETS, LOSSES, PRICES, Prices, Progress
from eventctx.hooks.hook_failures import Loss
from eventctx.hooks.registry import Hooks
from eventctx.hooks.sinks import Sink
from eventctx.log.events import Event, EventPattern, InputTransformation, Status
from eventctx.log.ids import CurrentSpan, random_bytes
from eventctx.log.integrity import Signer
from eventctx.log.record import Record
from eventctx.log.store import EventStore, MessageReceipt, Receipt, StreamInfo
from eventctx.log.turn_recorder import CallSettings, ModelRequest, TurnSpan
from eventctx.log.usage import Usage
from eventctx.messages.thinking import ThinkingSetting
from eventctx.messages.tokens import Tokenizer
from eventctx.policies.advisers import Scorer, Summarizer
from eventctx.policies.named import PolicyName
from eventctx.policies.policy import Policy, PolicyFunction
from eventctx.queries.atif.export import AtifExport
from eventctx.queries.audit import Audit
from eventctx.queries.copy_writing import CopyProgress, CopyResult
from eventctx.queries.explain_answers import Explanation, ViewDiff
from eventctx.queries.instructions import Instructions
from eventctx.queries.lost.answers import Lost
from eventctx.queries.records import Message
from eventctx.queries.requests import RequestView
from eventctx.queries.verification import Verification
from eventctx.queries.verify import StoreVerification
from eventctx.search.index import Mark, Place
from eventctx.search.recall import FoundMessage, Recalled
from eventctx.session.activity import Emitter
from eventctx.session.erasure.destruction import ExpiredSession
from eventctx.session.erasure.erasing import ErasureResult
from eventctx.session.host_requests import ObservedRequest
from eventctx.session.host_state import Extension
from eventctx.session.host_turns import NONE_KNOWN
from eventctx.session.open_session import MOST_OPEN_SESSIONS, OPEN_SESSION_BYTES
from eventctx.session.result import CompactionResult
from eventctx.session.scope import Scope
from eventctx.session.sdk_objects import SdkObject
from eventctx.session.settings import SessionSettings, Settings
from eventctx.session.transcript import TranscriptMark

class Engine:
    def sessions(
        self, *, after: str | None = None, limit: int | None = None
    ) -> list[StreamInfo]: ...
    def each_session(self, *, after: str | None = None) -> Iterator[StreamInfo]: ...
    def mirror_of(self, session: str) -> str | None: ...
    def forks(self, session: str) -> list[str]: ...
    def expired(self, before: int) -> list[ExpiredSession]: ...
    def records(
        self, session: str, start: int = 0, stop: int | None = None, *, bodies: bool = False
    ) -> Iterator[Record]: ...
    def transcript(
        self, session: str, *, at: int | None = None, turn: int | None = None
    ) -> list[Message]: ...
    def request_view(
        self,
        session: str,
        turn: int | None = None,
        iteration: int | None = None,
        *,
        position: int | None = None,
        allow_damage: bool = False,
    ) -> RequestView: ...
    def audit(self, session: str) -> Audit: ...
    def timeline(self, session: str, *, after: int | None = None) -> dict[str, Any]: ...
    def why(
        self,
        session: str,
        number: int,
        *,
        turn: int | None = None,
        iteration: int | None = None,
        position: int | None = None,
    ) -> Explanation: ...
    def diff(
        self,
        session: str,
        before: int | tuple[int, int],
        after: int | tuple[int, int],
        *,
        by: Literal["turn", "position"] = "turn",
    ) -> ViewDiff: ...
    def lost(
        self, session: str, *, compaction: int | None = None, turn: int | None = None
    ) -> Lost: ...
    def instructions(
        self,
        session: str,
        *,
        turn: int | None = None,
        iteration: int | None = None,
        position: int | None = None,
    ) -> Instructions: ...
    def recaller(self) -> Recall: ...
    def recall(self, query: str, session: str | None = None, limit: int = 10) -> list[Recalled]: ...
    def verify(
        self, session: str, receipt: Receipt | None = None, *, facts: bool = True
    ) -> Verification: ...
    def verify_store(
        self, *, facts: bool = True, began: Callable[[str, int, int], None] | None = None
    ) -> StoreVerification: ...
    def verifications(
        self, *, facts: bool = True, began: Callable[[str, int, int], None] | None = None
    ) -> Iterator[Verification | str]: ...
    @property
    def receipts_path(self) -> Path | None: ...
    def backup(self, path: str | os.PathLike[str]) -> StoreVerification: ...
    def copy_to(
        self,
        target: Engine,
        sessions: Sequence[str] | None = None,
        *,
        progress: CopyProgress | None = None,
    ) -> CopyResult: ...
    def export_atif(self, session: str, path: str | os.PathLike[str]) -> AtifExport: ...
    def dry_run(
        self,
        session: str,
        *,
        policy: PolicyName | Policy | PolicyFunction | None = None,
        reason: str | None = None,
        keep: str | None = None,
        force: bool = False,
        **settings: Unpack[SessionSettings],
    ) -> CompactionResult: ...
    def compare(
        self,
        sessions: Sequence[str],
        *,
        policies: Sequence[str | Policy | PolicyFunction] | None = None,
        budgets: Sequence[int | str] = BUDGETS,
        summarizer: Summarizer | None = None,
        scorer: Scorer | None = None,
        prices: Prices = PRICES,
        losses: int = LOSSES,
        progress: Progress | None = None,
    ) -> Comparison: ...
    def hook_failures(self) -> tuple[Loss, ...]: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    store: EventStore
    hooks: Any
    on: Any
    interceptors: Any
    intercept: Any

    def session(
        self,
        session: str,
        *,
        policy: PolicyName | Policy | PolicyFunction | None = None,
        summarizer: Summarizer | None = None,
        scorer: Scorer | None = None,
        tokenizer: Tokenizer | None = None,
        **settings: Unpack[SessionSettings],
    ) -> Context: ...
    def fork(self, session: str, at: int, new_session: str) -> Receipt: ...
    def link(
        self, parent: str, child: str, *, kind: str = "subagent", call_id: str | None = None
    ) -> None: ...
    def erase(
        self, session: str, numbers: Sequence[int], *, reason: str = "", dry_run: bool = False
    ) -> ErasureResult: ...
    def delete(self, session: str, *, reason: str = "", forks: bool = False) -> list[str]: ...
    def sign(self, session: str, key: Signer) -> Receipt: ...
    def close_session(self, session: str) -> None: ...
    def note_receipt(self, receipt: Receipt) -> None: ...

def open(
    url: str | os.PathLike[str] = "memory://",
    *,
    durability: Literal["full", "normal", "local", "replicated"] | None = None,
    create: bool = True,
    lock_timeout: float = 5.0,
    read_only: bool = False,
    receipts: bool | str | os.PathLike[str] = True,
    hooks: Hooks | None = None,
    sinks: Sequence[Sink] = (),
    current_span: CurrentSpan | None = None,
    clock: Callable[[], int] = time.time_ns,
    random: Callable[[int], bytes] = random_bytes,
    most_open_sessions: int = MOST_OPEN_SESSIONS,
    open_session_bytes: int = OPEN_SESSION_BYTES,
) -> Engine: ...

class Context:
    policy: Policy
    settings: Settings

    @property
    def session_id(self) -> str: ...
    def add_message(
        self, message: Mapping[str, Any] | SdkObject, *, observation: bool | None = None
    ) -> MessageReceipt: ...
    def add_messages(
        self, messages: Sequence[Mapping[str, Any] | SdkObject]
    ) -> list[MessageReceipt]: ...
    def get_messages_for_request(
        self,
        token_budget: int | None = None,
        provider: Any | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        model: str | None = None,
        thinking: Mapping[str, Any] | ThinkingSetting | None = None,
        call: ProviderCall | HostReporter | None = None,
        adding: Sequence[Mapping[str, Any] | SdkObject] = (),
    ) -> list[Any]: ...
    def get_messages(self) -> list[dict[str, Any]]: ...
    def get_timed_messages(self) -> list[tuple[dict[str, Any], int]]: ...
    def transcript_mark(self) -> TranscriptMark: ...
    def get_messages_after(self, mark: TranscriptMark) -> list[dict[str, Any]] | None: ...
    def set_messages(self, messages: Sequence[Mapping[str, Any] | SdkObject]) -> None: ...
    @property
    def mirror(self) -> str | None: ...
    def resume_messages(
        self, messages: Sequence[Mapping[str, Any] | SdkObject], *, may_be_behind: bool = False
    ) -> bool: ...
    def extend(self, decide: Callable[[int], Awaitable[Extension]]) -> tuple[Record, ...]: ...
    def clear(self) -> None: ...
    def set_system_prompt(self, text: str | None, *, replaces_stored: bool = False) -> bool: ...
    def set_memory(self, texts: Sequence[str]) -> bool: ...
    def memory(self) -> tuple[str, ...]: ...
    def get_token_count(self) -> int: ...
    def compact(
        self,
        *,
        reason: str | None = None,
        keep: str | None = None,
        policy: PolicyName | Policy | PolicyFunction | None = None,
        budget: int | None = None,
        dry_run: bool = False,
        force: bool = False,
    ) -> CompactionResult: ...
    def pin(self, *numbers: int) -> None: ...
    def restore(self, *numbers: int) -> tuple[int, ...]: ...
    def unpin(self, *numbers: int) -> None: ...
    def withdraw_instruction(
        self,
        number: int,
        demand: int = 1,
        *,
        by: int | None = None,
        said_by: Literal["person", "model"] = "person",
    ) -> Receipt: ...
    def recall_tool(self, *, max_characters: int = 8000, limit: int = 5) -> RecallTool: ...
    @property
    def emitter(self) -> Emitter: ...
    def turn(self, turn_id: str | None = None, *, agent: str | None = None) -> Turn: ...
    def record_sent(
        self,
        prepared: int,
        messages: int,
        additions: int | Sequence[tuple[int, dict[str, Any]]],
        missing: int | Sequence[dict[str, Any]] = 0,
    ) -> None: ...
    def observe_request(
        self, sent: ObservedRequest, *, call: ProviderCall | HostReporter | None = None
    ) -> int: ...
    def emit(self, event: Event) -> None: ...
    def following(self) -> HostReporter: ...
    def on(self, name: EventPattern, handler: Callable[[Record], Any]) -> Callable[[], None]: ...
    def close(self) -> None: ...

class Turn:
    span_id: Any

    @property
    def scope(self) -> Scope: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    turn_id: str
    agent: str | None
    number: Any

    def __enter__(self) -> Turn: ...
    def iteration(self, number: int | None = None) -> Iteration: ...

class Iteration:
    span_id: Any

    @property
    def scope(self) -> Scope: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    @property
    def number(self) -> int: ...
    def __enter__(self) -> Iteration: ...
    def provider_call(
        self, model: str | None = None, provider: str | None = None
    ) -> ProviderCall: ...
    def tool_call(self, name: str, call_id: str | None = None) -> ToolCall: ...
    def plan(self, name: str | None = None) -> PlanPhase: ...

class PlanPhase:
    span_id: Any

    @property
    def scope(self) -> Scope: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    name: Any

    def __enter__(self) -> PlanPhase: ...
    def provider_call(
        self, model: str | None = None, provider: str | None = None
    ) -> ProviderCall: ...

class ProviderCall:
    span_id: Any

    @property
    def scope(self) -> Scope: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    def __enter__(self) -> ProviderCall: ...
    @property
    def sends(self) -> TurnSpan[ModelRequest] | None: ...
    @property
    def came_in(self) -> None: ...
    def not_entered(self, error: BaseException) -> None: ...
    @property
    def prepared(self) -> int | None: ...
    @property
    def provider(self) -> str | None: ...
    @provider.setter
    def provider(self, name: str | None) -> None: ...
    @property
    def model(self) -> str | None: ...
    @model.setter
    def model(self, name: str | None) -> None: ...
    def usage(
        self,
        prompt: int | None,
        output: int | None = 0,
        *,
        cache_read: int | None = 0,
        cache_write: int | None = 0,
        reasoning: int | None = 0,
        cache_write_1h: int | None = 0,
    ) -> None: ...
    def usage_from(self, response: object) -> None: ...
    def finished(
        self,
        reason: str | None = None,
        response_id: str | None = None,
        transformed: tuple[InputTransformation, ...] = (),
    ) -> None: ...

class ToolCall:
    span_id: Any

    @property
    def scope(self) -> Scope: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    name: Any
    call_id: Any

    def __enter__(self) -> ToolCall: ...
    def answered(self, text: str) -> None: ...
    def failed(self, kind: str, message: str = "") -> None: ...

class HostReporter:
    @property
    def in_turn(self) -> bool: ...
    @property
    def awaits_answer(self) -> bool: ...
    @property
    def scope(self) -> Scope | None: ...
    @property
    def came_in(self) -> Scope | None: ...
    def send(self) -> None: ...
    @property
    def sends(self) -> TurnSpan[ModelRequest] | None: ...
    def turn_began(self, turn_id: str | None = None, agent: str | None = None) -> None: ...
    def turn_ended(self, status: Status = "ok", error: str | None = None) -> None: ...
    def iteration_began(
        self,
        provider: str | None = None,
        model: str | None = None,
        settings: CallSettings = NONE_KNOWN,
    ) -> None: ...
    def request_prepared(self) -> None: ...
    def model_known(
        self,
        *,
        model: str | None = None,
        usage: Usage | None = None,
        response_id: str | None = None,
        finish_reason: str | None = None,
        transformed: tuple[InputTransformation, ...] = (),
    ) -> None: ...
    def model_answered(self) -> None: ...
    def model_failed(self, kind: str, message: str, *, cancelled: bool = False) -> None: ...
    @property
    def open_tools(self) -> int: ...
    def tool_began(
        self, name: str, call_id: str | None, key: object, *, alike: int = 0
    ) -> None: ...
    def tool_ended(
        self, key: object, answer: str | None = None, *, name: str | None = None
    ) -> None: ...
    def tool_failed(
        self,
        key: object,
        kind: str,
        message: str,
        *,
        cancelled: bool = False,
        answer: str | None = None,
        name: str | None = None,
    ) -> None: ...
    def tool_result_added(
        self, call_id: str, text: str, failure: tuple[str, str] | None = None
    ) -> None: ...

class Recall:
    def search(
        self,
        query: str,
        session: str | None = None,
        limit: int = 10,
        *,
        every: bool = True,
        besides: frozenset[int] = frozenset(),
    ) -> list[Recalled]: ...
    def matches(
        self, query: str, session: str | None, keeps: Callable[[Place], bool]
    ) -> Iterator[Recalled]: ...
    def count(self, query: str, session: str | None = None) -> int: ...
    def message(self, session: str, number: int) -> FoundMessage: ...
    def close(self) -> None: ...
    def exists(self) -> bool: ...
    def forget_destroyed(self) -> None: ...
    def catch_up(self) -> Mark | None: ...

class RecallTool:
    session: str
    max_characters: int
    limit: int
    name: Any
    description: Any

    @property
    def parameters(self) -> dict[str, Any]: ...
    @property
    def anthropic(self) -> dict[str, Any]: ...
    @property
    def openai(self) -> dict[str, Any]: ...
    def __call__(self, arguments: object) -> str: ...
