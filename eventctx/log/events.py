"""The catalogue of events: the facts that a log can hold, and the promise about each.

A session is the list of its events, and nothing else is stored about it: transcript, request views,
audits, traces and figures are computed from them. Two families share the list. Context events
change the context; activity events record what happened around it. Messages have numbers, from 0 in
the order in which they were first added, and events name them by number.

Invariant: a payload holds no contents. Messages and all other texts are bodies of the record, and
the payload refers to them by index. So a fold decodes no contents, and an erasure finds every copy.

Invariant: a stored payload keeps its meaning. A field is added with a default, or the type gets a
new version and an upcaster (``log.codec``).

``CATALOGUE`` at the end is the one table that code, documentation, tests and the command line read:
a new event is a payload here and a row there. A type name is also the name that hooks subscribe to.
Times are UTC nanoseconds, durations nanoseconds, sizes tokens unless a name states another unit.
Payloads are stored as JSON with the type name in ``event``.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

from eventctx.log.plan import TAKEN_BACK, Insertion, Plan
from eventctx.log.wire import Injected, WireForm

Trigger = Literal["threshold", "budget", "max_messages", "manual", "imported", "provider"]
"""``provider``: the API did it by itself, as its answer says."""

Outcome = Literal["applied", "skipped", "stale", "failed", "cancelled"]
Status = Literal["ok", "error", "cancelled", "lost"]
"""How a span ended. ``lost``: its process ended first, and the next turn recorded that."""
FailedStatus = Literal["error", "cancelled", "lost"]
Encoding = Literal["plain", "zlib"]
Known = Literal["observed", "prepared", "reconstructed"]
ContentKind = Literal["message", "system", "tools", "parameters"]
Break = Literal[
    "compaction", "set", "clear", "restore", "erase", "insertion", "late_result", "model"
]
"""Reasons why a request does not begin with the whole request before it: a prompt cache misses."""

CountedPart = Literal["prompt", "cache"]
LossCause = Literal["model", "tools", "edited", "resumed", "expired", "unknown"]
"""Likely causes of a suspected loss, inferred by ``projections.timeline.silent_loss``."""


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event"):
    """Base of the payloads; it only carries msgspec's settings."""


# -- context events ------------------------------------------------------------------------------


class MessageAdded(Event, frozen=True, tag="context:message_added"):
    """One message, body 0. Its number is the count of the messages added to the stream before.

    ``unbound`` as in ``Plan``. ``origin``: a harness wrote this message of the user's role, not a
    person. ``observation``: it is the result of an action in the model's text.
    """

    # Thinking is bound to the messages before it, so a late result in place of a synthetic one
    # unbinds the thinking after it.
    unbound: tuple[tuple[int, int], ...] = ()
    origin: Literal["harness"] | None = None
    observation: bool = False


class MessagesSet(Event, frozen=True, tag="context:messages_set"):
    """The transcript was replaced. ``order`` lists runs ``[first, last]`` of message numbers.

    Numbers not seen before belong to the record's bodies, in rising order. ``harness`` and
    ``observations`` are indexes of bodies. The rest as in ``context:message_added``.
    """

    order: tuple[tuple[int, int], ...]
    unbound: tuple[tuple[int, int], ...] = ()
    harness: tuple[int, ...] = ()
    observations: tuple[int, ...] = ()


class Cleared(Event, frozen=True, tag="context:cleared"):
    """The transcript was emptied; ``messages`` is how many it held."""

    messages: int


class Pinned(Event, frozen=True, tag="context:pinned"):
    """These messages stay in every view until they are unpinned."""

    numbers: tuple[int, ...]


class Unpinned(Event, frozen=True, tag="context:unpinned"):
    """These messages may be compacted again."""

    numbers: tuple[int, ...]


class InstructionWithdrawn(Event, frozen=True, tag="context:instruction_withdrawn"):
    """The instruction ``demand`` (from 1) of a person's message ``number`` no longer holds.

    ``by`` is the message that takes it back. ``said_by`` is who said so.
    """

    number: int
    demand: int
    by: int | None = None
    said_by: Literal["person", "model"] = "person"


class Located(msgspec.Struct, frozen=True, array_like=True):
    """A message with all that a fold needs to show it again: its body's place, and its facts."""

    number: int
    position: int
    index: int
    digest: bytes
    facts: bytes


class Restored(Event, frozen=True, tag="context:restored"):
    """These messages were brought back into view; they stay until the next compaction.

    ``before`` names for each the message in view that follows it (null: none); without it, numbers
    give the order. ``unbound`` as in ``Plan``.
    """

    messages: tuple[Located, ...]
    before: tuple[int | None, ...] = ()
    unbound: tuple[tuple[int, int], ...] = ()


class Erased(Event, frozen=True, tag="context:erased"):
    """These messages' contents, and all derived from them, were destroyed.

    ``bodies`` are the emptied ``[position, index]``. ``unbound`` as in ``Plan``.
    """

    numbers: tuple[int, ...]
    bodies: tuple[tuple[int, int], ...]
    reason: str = ""
    unbound: tuple[tuple[int, int], ...] = ()


class SetIgnored(Event, frozen=True, tag="context:set_ignored"):
    """A host set a list of ``messages`` known messages that its storage had cut: no change.

    ``missing_roles`` are the roles of the messages that it left out. ``ahead`` counts the messages
    here after its last one.
    """

    messages: int
    missing_roles: tuple[str, ...]
    ahead: int = 0


class SystemPromptSet(Event, frozen=True, tag="context:system_prompt_set"):
    """The host's system prompt for every request from here on: body 0; none without a body.

    The last ``memory`` bodies are texts of its memory, each a system row after the prompt. No view
    shows the transcript's system messages ``replaced`` (runs) until the next such event.
    ``unbound`` as in ``Plan``.
    """

    unbound: tuple[tuple[int, int], ...] = ()
    replaced: tuple[tuple[int, int], ...] = ()
    memory: int = 0


# -- session and turn ----------------------------------------------------------------------------


class SessionStart(Event, frozen=True, tag="session:start"):
    """A session begins. Importers set ``source``, ``format`` and ``imported_at``.

    ``folder`` is a mark of the folder of a source whose name alone names the session.
    """

    library: str
    settings: dict[str, Any] = {}
    source: str | None = None
    format: str | None = None
    imported_at: int | None = None
    folder: str | None = None


class SessionFork(Event, frozen=True, tag="session:fork"):
    """Everything up to ``at`` (inclusive) is the parent's."""

    parent: str
    at: int


class SessionLinked(Event, frozen=True, tag="session:linked"):
    """Another session belongs to this one: a ``subagent``, or a ``branch`` that a person took.

    A ``transcript`` holds the lines that a session was imported from, verbatim.

    In a child, ``trace_id`` and ``span_id`` are those of the call in its parent, if known.
    """

    session: str
    relation: Literal["parent", "child"]
    kind: str = "subagent"
    call_id: str | None = None
    trace_id: str | None = None
    span_id: str | None = None


class SessionTakenOver(Event, frozen=True, tag="session:taken_over"):
    """An imported session takes new messages from here on; its file is not imported again."""

    source: str
    format: str


class SessionEnd(Event, frozen=True, tag="session:end"):
    """The session was closed on purpose."""

    reason: str = ""


class SessionDeleted(Event, frozen=True, tag="session:deleted"):
    """All ``records`` records and their contents were destroyed.

    ``position`` and ``digest`` (hex) are those of the last one.
    """

    position: int
    digest: str
    records: int
    reason: str = ""


class SessionSigned(Event, frozen=True, tag="session:signed"):
    """All records up to ``position``, whose digest is ``digest``, are signed.

    Digest, key and signature are hex.
    """

    position: int
    digest: str
    public_key: str
    signature: str
    algorithm: Literal["ed25519"] = "ed25519"


class PromptSubmit(Event, frozen=True, tag="prompt:submit"):
    """A turn begins. ``number`` counts a session's turns from 1.

    ``trace_id`` is the ambient trace's (32 hex digits), if there was one.
    """

    number: int
    agent: str | None = None
    trace_id: str | None = None


class PromptComplete(Event, frozen=True, tag="prompt:complete"):
    """The turn ended, or is presumed ``lost``."""

    status: Status = "ok"
    error: str | None = None


class PromptMeasured(Event, frozen=True, tag="prompt:measured"):
    """The duration of the turn since its last measure, as an imported file has it.

    It may leave out the waiting for a person.
    """

    duration: int


class PlanStart(Event, frozen=True, tag="plan:start"):
    """A planning phase begins."""

    name: str | None = None


class PlanEnd(Event, frozen=True, tag="plan:end"):
    """The planning phase ended."""

    status: Status = "ok"
    error: str | None = None


class ToolUseClearing(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request lets Anthropic's API clear old tool uses (``clear_tool_uses_20250919``).

    The API keeps the last ``keep`` and those of the tools ``exclude``. ``inputs``: it clears the
    arguments of the calls, too; of these tools alone where it is a list.
    """

    keep: int = 3
    exclude: tuple[str, ...] = ()
    inputs: bool | tuple[str, ...] = False


class ProviderRequest(Event, frozen=True, tag="provider:request"):
    """A model call begins. ``prepared``: the position of its ``context:request_prepared``.

    ``stream``: the answer comes in pieces. ``max_tokens`` is the most that the request allows it,
    ``server`` the host that is asked, at ``port``. ``clears`` is the edit that it asks of the API.
    """

    model: str | None = None
    provider: str | None = None
    prepared: int | None = None
    stream: bool = False
    max_tokens: int | None = None
    server: str | None = None
    port: int | None = None
    clears: ToolUseClearing | None = None


class InputTransformation(msgspec.Struct, frozen=True, array_like=True):
    """A change that an API made to a block of the request: ``thinking_dropped``, for example.

    ``path`` is the block's place as it was sent (``messages.2.content.0``), ``reason`` the check
    that it failed. Of an edit of context management (``clear_tool_uses_20250919``), which names no
    block, ``path`` is ``messages``, and ``reason`` what the API counts.
    """

    kind: str
    path: str
    reason: str = ""


class ProviderResponse(Event, frozen=True, tag="provider:response"):
    """The model answered. ``provider`` is set where only the answer names it.

    ``transformed`` are the changes that the API reports of the request.
    """

    model: str | None = None
    response_id: str | None = None
    finish_reason: str | None = None
    provider: str | None = None
    transformed: tuple[InputTransformation, ...] = ()


class ProviderError(Event, frozen=True, tag="provider:error"):
    """The model call failed, was cancelled, or is presumed lost."""

    error_type: str
    message: str = ""
    status: FailedStatus = "error"


class ToolPre(Event, frozen=True, tag="tool:pre"):
    """A tool call begins."""

    name: str
    call_id: str | None = None


class ToolPost(Event, frozen=True, tag="tool:post"):
    """The tool call ended with a result.

    Body 0 is its result, where other calls of its round were still open.
    """

    name: str
    call_id: str | None = None


class ToolError(Event, frozen=True, tag="tool:error"):
    """The tool call failed, was cancelled, or is presumed lost. Body 0 as in ``tool:post``.

    A lost tool may have done its work.
    """

    name: str
    error_type: str
    call_id: str | None = None
    message: str = ""
    status: FailedStatus = "error"


# -- compaction and requests ---------------------------------------------------------------------


class PreCompact(Event, frozen=True, tag="context:pre_compact"):
    """A compaction begins; exactly one ``context:post_compact`` with the same span follows.

    ``settings`` are the policy's. ``reason`` and body ``hint`` were given with the request for it.
    ``pins`` and ``veto`` are interceptors'; a veto has no effect when the trigger is the budget.
    The last ``texts`` bodies are the host's, for the compacted view; ``texts_left_out`` more were
    too long. ``background``: requests went on while a model was asked.
    """

    trigger: Trigger
    strategy: str
    strategy_version: int
    tokens: int
    messages: int
    budget: int | None = None
    threshold: int | None = None
    requested_by: str | None = None
    settings: dict[str, int | float | bool | str | None] = {}
    reason: str | None = None
    hint: int | None = None
    pins: tuple[int, ...] = ()
    veto: str | None = None
    texts: int = 0
    texts_left_out: int = 0
    background: bool = False


class PostCompact(Event, frozen=True, tag="context:post_compact"):
    """A compaction ended. If ``applied``, its plan is in force from here on.

    ``stale``: it was decided in the background on what changed meanwhile, so its plan was dropped.

    Bodies are the plan's shortened and inserted texts; body ``scores`` has the policy's scores by
    message number. Counts are of the view. ``fallback`` is the policy that decided instead,
    ``error`` why. ``estimator``, ``factor`` and ``reserve`` as in ``context:request_prepared``. An
    imported file gives ``tokens_recorded`` (the size before, as it counts) and ``duration``.
    """

    outcome: Outcome
    trigger: Trigger
    strategy: str
    strategy_version: int
    tokens_before: int
    tokens_after: int
    messages_before: int
    messages_after: int
    estimator: str
    factor: float = 1.0
    budget: int | None = None
    threshold: int | None = None
    target: int | None = None
    plan: Plan | None = None
    fallback: str | None = None
    duration: int = 0
    error: str | None = None
    requested_by: str | None = None
    reserve: int = 0
    scores: int | None = None
    tokens_recorded: int | None = None


def takes_back(event: PreCompact | PostCompact) -> bool:
    """Whether the plan of an imported file drops what was undone, and is no compaction."""
    return event.trigger == "imported" and event.strategy == TAKEN_BACK


# Constant in size, and enough to derive the request's bytes again.
class RequestPrepared(Event, frozen=True, tag="context:request_prepared"):
    """A request about to be sent to a model.

    ``plan`` is the position of the ``context:post_compact`` in force, ``last_message`` the last
    message number (-1: none), ``digest`` the view's (hex). ``insertions`` are this request's alone,
    their bodies this record's. ``reconstructed``: an importer inferred the view. ``tokens`` is the
    ``estimator``'s count of the view, times ``factor``, plus ``reserve`` for the rest of the
    request (system prompt, tool definitions). ``wire``: the request as sent, where the client
    recorded it. ``demands_absent`` counts a person's instructions that the view lacks word by word;
    None if none was known. ``unbound`` as in ``Plan``: a model cannot read the thinking of another.
    """

    renderer: int
    last_message: int
    messages: int
    tokens: int
    digest: str
    plan: int | None = None
    insertions: tuple[Insertion, ...] = ()
    breaks: tuple[Break, ...] = ()
    budget: int | None = None
    model: str | None = None
    tools_digest: str | None = None
    floor_sent: bool = False
    reconstructed: bool = False
    estimator: str = "by-kind-1"
    factor: float = 1.0
    reserve: int = 0
    wire: WireForm | None = None
    demands_absent: int | None = None
    unbound: tuple[tuple[int, int], ...] = ()


def known_as(event: RequestPrepared) -> Known:
    """How a request is known: as it was sent, as it was made, or by inference."""
    if event.wire is not None:
        return "observed"
    return "reconstructed" if event.reconstructed else "prepared"


class RequestContent(Event, frozen=True, tag="context:request_content"):
    """A content of requests, body 0, stored once for all requests that hold it.

    A live session writes ``tools``, an import everything that its file has as sent; ``parameters``
    are all other fields. ``digest`` (hex) is the content's: of ``tools``, the ``tools_digest`` of
    requests; of a ``message``, none. A message of the transcript names its ``numbers``, and in
    ``injected`` the client's additions.
    """

    kind: ContentKind
    # A message has none: a digest without salt would tell of an erased text.
    digest: str = ""
    numbers: tuple[int, ...] = ()
    injected: tuple[Injected, ...] = ()


class Addition(msgspec.Struct, frozen=True, array_like=True):
    """A text that a host sent with a prepared request, after its first ``behind`` messages.

    Its body is ``index`` of the record at ``position``, which is None for the first record with
    this text.
    """

    behind: int
    index: int
    position: int | None = None


class RequestSent(Event, frozen=True, tag="context:request_sent"):
    """The difference between the request prepared at ``prepared`` and the one that the host sent.

    ``messages`` counts the messages sent, ``missing`` the prepared messages that were not sent. The
    sent request has ``difference`` more tokens than the prepared view, by the view's estimator;
    None where that is not known. ``untold``: the host tells no text that it adds; this many
    messages it added, at least, by its count. ``messages`` is then 0 where it tells no count, and
    ``difference`` 0 where the request before had as many, so that both are taken for alike.
    """

    prepared: int
    messages: int
    additions: tuple[Addition, ...] = ()
    missing: int = 0
    difference: int | None = None
    untold: int | None = None


class UsageReported(Event, frozen=True, tag="usage:reported"):
    """Tokens that the provider counted for one call.

    ``prompt`` is the whole prompt, cache reads and writes included. ``prepared`` as in
    ``provider:request``. ``output_exact`` is false where an imported file has placeholders.
    ``cache_write_1h`` is the part of ``cache_write`` that lives an hour.
    """

    prompt: int
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    model: str | None = None
    prepared: int | None = None
    output_exact: bool = True
    cache_write_1h: int = 0


class LossSuspected(Event, frozen=True, tag="context:loss_suspected"):
    """An inference: the request prepared at ``prepared`` lost tokens, and no record says why.

    ``kind`` is ``prompt``: the provider counted ``found`` tokens where the log says that
    ``expected`` were sent. Or ``cache``: its cache served ``found`` tokens, ``expected`` for the
    request before. ``messages`` are runs of the numbers that were probably dropped.
    """

    prepared: int
    kind: CountedPart
    tokens: int
    expected: int
    found: int
    cause: LossCause
    messages: tuple[tuple[int, int], ...] = ()


class ImportRaw(Event, frozen=True, tag="import:raw"):
    """Parts of an imported file that became no message, verbatim: one body per batch.

    ``lines`` are the first and last line (from 1), ``kinds`` counts the parts by record kind.
    """

    source: str
    lines: tuple[int, int]
    kinds: dict[str, int]
    imported_at: int
    encoding: Encoding = "plain"


# -- the table -----------------------------------------------------------------------------------


class EventType(NamedTuple):
    """A row of the catalogue.

    ``durable``: a call that appends it returns only when it is on disk. Calls do not wait for the
    other events, which keep their place in the order; if one cannot be written, the next durable
    call raises the error. ``interceptable``: interceptors are called before it is appended.
    ``emitted``: a caller may append it by itself; each other type has a command, which keeps its
    promise, and no other way in.
    """

    name: str
    payload: type[Event]
    version: int
    family: Literal["context", "activity"]
    durable: bool
    promise: str
    interceptable: bool = False
    emitted: bool = False


def _row(
    payload: type[Event],
    family: Literal["context", "activity"],
    durable: bool,
    promise: str,
    interceptable: bool = False,
    emitted: bool = False,
) -> tuple[str, EventType]:
    name = str(payload.__struct_config__.tag)
    return name, EventType(name, payload, 1, family, durable, promise, interceptable, emitted)


EventName = Literal[
    "context:message_added",
    "context:messages_set",
    "context:cleared",
    "context:pinned",
    "context:unpinned",
    "context:restored",
    "context:instruction_withdrawn",
    "context:erased",
    "context:set_ignored",
    "context:system_prompt_set",
    "context:pre_compact",
    "context:post_compact",
    "context:request_prepared",
    "context:request_content",
    "context:request_sent",
    "session:start",
    "session:fork",
    "session:linked",
    "session:taken_over",
    "session:end",
    "session:deleted",
    "session:signed",
    "prompt:submit",
    "prompt:complete",
    "prompt:measured",
    "plan:start",
    "plan:end",
    "provider:request",
    "provider:response",
    "provider:error",
    "tool:pre",
    "tool:post",
    "tool:error",
    "usage:reported",
    "context:loss_suspected",
    "import:raw",
]
"""The names of all events, for type checkers; those of ``CATALOGUE``."""

EventPattern = (
    EventName
    | Literal[
        "*",
        "context:*",
        "session:*",
        "prompt:*",
        "plan:*",
        "provider:*",
        "tool:*",
        "usage:*",
        "import:*",
    ]
)
"""What the ``on`` of a registry takes, for type checkers: an event's name, a family, or all."""

CATALOGUE: dict[str, EventType] = dict(
    (
        _row(MessageAdded, "context", True, "once per message; the body equals what was given"),
        _row(MessagesSet, "context", True, "messages recognised by an ordered diff keep numbers"),
        _row(Cleared, "context", True, "numbers go on counting afterwards"),
        _row(Pinned, "context", True, "holds for every policy"),
        _row(Unpinned, "context", True, "takes effect at the next compaction"),
        _row(Restored, "context", True, "a recorded break of the prefix"),
        _row(InstructionWithdrawn, "context", True, "once per instruction at most; views stay"),
        _row(Erased, "context", True, "the chain still verifies"),
        _row(SetIgnored, "context", True, "the transcript is unchanged", emitted=True),
        _row(SystemPromptSet, "context", True, "once per change; precedes every view from then on"),
        _row(PreCompact, "activity", False, "followed by exactly one context:post_compact", True),
        _row(PostCompact, "activity", True, "on disk before a request that uses its plan leaves"),
        _row(RequestPrepared, "activity", True, "on disk before the messages are returned"),
        _row(RequestContent, "activity", True, "once per digest, before the first request with it"),
        _row(
            RequestSent,
            "activity",
            False,
            "only where a host sent another list, or tells too little",
        ),
        _row(SessionStart, "activity", True, "first record of a stream that is no fork"),
        _row(SessionFork, "activity", True, "first own record of a fork"),
        _row(SessionLinked, "activity", True, "written to both sessions", emitted=True),
        _row(SessionTakenOver, "activity", True, "at most once; no import adds a record after it"),
        _row(
            SessionEnd,
            "activity",
            True,
            "more records may follow when a session resumes",
            emitted=True,
        ),
        _row(SessionDeleted, "activity", True, "the only record that is left of the session"),
        _row(SessionSigned, "activity", True, "the signature can be checked with the public key"),
        _row(PromptSubmit, "activity", True, "once per turn, first; numbers never repeat"),
        _row(
            PromptComplete,
            "activity",
            False,
            "once per turn, however it ended; its own end may follow a lost one",
            emitted=True,
        ),
        _row(PromptMeasured, "activity", False, "by imports alone; the measures of a turn add up"),
        _row(PlanStart, "activity", False, "once per planning phase", emitted=True),
        _row(PlanEnd, "activity", False, "once per planning phase, as with turns", emitted=True),
        _row(ProviderRequest, "activity", False, "once per model call", emitted=True),
        _row(ProviderResponse, "activity", False, "at most once per model call", emitted=True),
        _row(
            ProviderError,
            "activity",
            False,
            "once if no provider:response, or before it where lost",
            emitted=True,
        ),
        _row(ToolPre, "activity", False, "once per tool call", emitted=True),
        _row(ToolPost, "activity", False, "at most once per tool call", emitted=True),
        _row(
            ToolError,
            "activity",
            False,
            "once if no tool:post, or before it where lost",
            emitted=True,
        ),
        _row(UsageReported, "activity", False, "as the provider counted", emitted=True),
        _row(LossSuspected, "activity", False, "an inference, by live sessions, once a request"),
        _row(ImportRaw, "activity", True, "verbatim; line ranges of one source do not overlap"),
    )
)
"""Event types by name."""

ABOUT_A_SESSION: frozenset[str] = frozenset(
    ("context:erased", "import:raw", "session:linked", "session:signed")
)
"""Types of records about a session, which may be written long after its use.

Their times say nothing of its own."""
