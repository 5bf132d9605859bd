"""Every exception that eventctx raises, in one tree.

EventctxError
├── InvalidMessage (also a ValueError)
├── InvalidSessionId (also a ValueError)
├── InvalidSetting (also a ValueError)
│   ├── NoSuchDemand
│   └── AlreadyTakenBack
├── NotOpened (also an AttributeError and a TypeError)
├── ImportedSession
├── StoreError
│   ├── WrongExpectedVersion
│   ├── StreamNotFound
│   ├── StreamExists
│   │   └── SessionDiffers
│   ├── SessionWasDeleted
│   ├── StoreUnavailable
│   │   ├── StoreFull
│   │   ├── StoreReadOnly
│   │   └── StoreUnsafe
│   ├── NotAStore
│   ├── StoreTooNew
│   └── LogCorrupted
├── DecodeError
│   └── UpcastMissing
├── CompactionError
│   ├── InvalidPlan
│   ├── ContextOverflow
│   └── CompactionRefused
├── HookError
│   ├── UnknownEventName (also a ValueError)
│   └── ExportFailed
├── TurnError
│   ├── ProviderFailed
│   └── ToolFailed
└── TranscriptError
    ├── UnreadableFile
    ├── UnknownFormat
    │   └── NotATranscript
    ├── MalformedTranscript
    ├── SourceChanged
    ├── WorkerEnded
    └── SessionWasTakenOver

A message names what was expected, what was found, and what to do. The facts are attributes, too.
A database driver's own exception is always the ``__cause__`` of one of these, never raised itself.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal


class EventctxError(Exception):
    """Base of every error raised by eventctx."""


class InvalidMessage(EventctxError, ValueError):
    """A message that cannot be stored exactly as it is.

    ``path`` is the place in the message (``$.content[2].text``), ``found`` the value there,
    ``expected`` the form that it should have.
    """

    def __init__(self, path: str, found: str, expected: str) -> None:
        super().__init__(f"message at {path}: expected {expected}, found {found}")
        self.path = path
        self.found = found
        self.expected = expected


class InvalidSessionId(EventctxError, ValueError):
    """A session id that is empty, too long, or holds path or control characters."""


class InvalidSetting(EventctxError, ValueError):
    """A setting or an argument outside its range or of the wrong type."""


class NotOpened(EventctxError, AttributeError, TypeError):
    """An engine, reader or session that is used before it was opened: an ``await`` is missing."""

    def __init__(
        self, used: str, *, session: bool = False, call: Literal["open", "read"] = "open"
    ) -> None:
        if session:
            text = (
                f"session: expected an opened session, found {used!r} of one that was not awaited; "
                "write `ctx = await engine.session(…)`"
            )
        else:
            handle = "engine" if call == "open" else "reader"
            text = (
                f"{call}: expected an opened {handle}, found {used!r} of one that was not awaited; "
                f"write `async with eventctx.{call}(…) as {handle}:`, or `{handle} = await "
                f"eventctx.{call}(…)`"
            )
        super().__init__(text)
        self.used = used
        self.call = call


class NoSuchDemand(InvalidSetting):
    """A message has no such instruction: no person wrote it, it has fewer, or was erased."""


class AlreadyTakenBack(InvalidSetting):
    """An instruction was taken back before, so it cannot be taken back once more."""


class ImportedSession(EventctxError):
    """A session that mirrors a file of another program was asked to change; nothing was written.

    ``source`` is the file's name, ``asked`` the change; ``command`` makes the session ours.
    """

    def __init__(
        self,
        stream: str,
        source: str,
        asked: str,
        command: str = "eventctx import --take-over FILE",
    ) -> None:
        super().__init__(
            f"session {stream!r} is a mirror of {source} and changes by import alone; it was asked "
            f"to {asked}. Go on in a fork (`--fork NAME`, or engine.fork(...)), or make the "
            f"session yours for good with `{command}`"
        )
        self.stream = stream
        self.source = source
        self.asked = asked
        self.command = command


class StoreError(EventctxError):
    """Base of the errors that a store raises."""


class WrongExpectedVersion(StoreError):
    """The stream's last position is not the one that the writer had seen.

    ``expected`` is the position or the symbol of the request, ``actual`` the stream's last
    position (-1: the stream does not exist).
    """

    def __init__(self, stream: str, expected: int | str, actual: int) -> None:
        super().__init__(
            f"stream {stream!r}: expected version {expected}, found {actual}; another writer "
            "appended in between: read the new records and decide again"
        )
        self.stream = stream
        self.expected = expected
        self.actual = actual


class StreamNotFound(StoreError):
    """There is no such session in the store."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"no session {stream!r} in this store; `eventctx sessions` lists them")
        self.stream = stream


class SessionWasDeleted(StoreError):
    """The session was deleted on purpose; one record is left that says so."""

    def __init__(self, stream: str) -> None:
        super().__init__(
            f"session {stream!r} was deleted on purpose, and its name is not used again; choose "
            "another name"
        )
        self.stream = stream


class StreamExists(StoreError):
    """A new stream was requested under a name that is taken."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"session {stream!r} exists already; choose another name")
        self.stream = stream


class SessionDiffers(StreamExists):
    """A session was to be copied to a store that has another one of its name; nothing was written.

    ``position`` is the first one at which the two hold different records, -1 where they differ in
    what they are: one is a fork, or deleted, and the other is not.
    """

    def __init__(self, stream: str, position: int, problem: str) -> None:
        super().__init__(stream)
        self.args = (f"session {stream!r} is another one in the target: {problem}",)
        self.position = position


class StoreUnavailable(StoreError):
    """The store cannot be opened or used now (missing rights, locked, closed)."""


class StoreFull(StoreUnavailable):
    """No space is left on the disk; nothing of the append was kept, and it can be retried."""


class StoreUnsafe(StoreUnavailable):
    """The server could lose an acknowledged append, so this one is not acknowledged.

    Raised before anything is written, except for an append whose standbys are lost while it is
    committed: that one may be in the log, and a retry recognises it. The message names the setting
    that was found, and the one that is safe.
    """


class StoreReadOnly(StoreUnavailable):
    """The store can be read but not written."""


class NotAStore(StoreError):
    """The path is a folder, or a file that eventctx did not write."""


class StoreTooNew(StoreError):
    """The store was written by a later release of eventctx."""


class LogCorrupted(StoreError):
    """Stored bytes contradict their digests, or each other.

    ``position`` is -1 where no single record is damaged, and ``stream`` is then empty where no
    single stream is.
    """

    def __init__(self, stream: str, position: int, problem: str) -> None:
        where = f"stream {stream!r}" if stream or position >= 0 else "the log"
        record = f", position {position}" if position >= 0 else ""
        command = f"eventctx verify {stream}".rstrip()
        super().__init__(f"{where}{record}: {problem}; `{command}` lists all damage")
        self.stream = stream
        self.position = position
        self.problem = problem


class DecodeError(EventctxError):
    """A stored payload that does not have the form of its type and version."""


class UpcastMissing(DecodeError):
    """A stored version for which this release has no upcaster."""


class CompactionError(EventctxError):
    """Base of the errors that planning a compaction raises."""


class InvalidPlan(CompactionError):
    """A compaction plan that would break a rule of the view.

    ``rule`` names the rule, ``numbers`` the messages concerned.
    """

    def __init__(self, rule: str, numbers: tuple[int, ...], problem: str) -> None:
        super().__init__(f"plan breaks the rule {rule!r} at messages {list(numbers)}: {problem}")
        self.rule = rule
        self.numbers = numbers


class ContextOverflow(CompactionError):
    """The messages that must stay in the view are larger than the budget.

    ``budget`` and ``floor`` are tokens; the floor is the smallest budget that would do. ``parts``
    maps each part of the floor to its tokens. ``messages`` is how many must stay, where a
    compaction was requested for this budget; nothing was recorded then, and ``loses`` names the
    summaries and notices that a forced one would lose.
    """

    def __init__(
        self,
        budget: int,
        floor: int,
        parts: dict[str, int],
        *,
        messages: int | None = None,
        loses: tuple[str, ...] = (),
    ) -> None:
        listed = ", ".join(f"{name} ~{tokens:,}" for name, tokens in parts.items() if tokens)
        how_many = "" if messages is None else f" in {messages} message{'s'[: messages != 1]}"
        advice = (
            "raise the budget, unpin messages, or open the session with on_overflow='send_floor'"
            if messages is None
            else f"nothing was changed; the smallest budget that works is {floor}, and leaves "
            f"nothing else{f', not even {_join(loses)}' if loses else ''}; raise the budget, "
            "unpin messages, or force it"
        )
        super().__init__(
            f"what must stay takes ~{floor:,} tokens{how_many} ({listed}), "
            f"~{floor - budget:,} more than the budget of {budget:,}: {advice}"
        )
        self.budget = budget
        self.floor = floor
        self.parts = parts
        self.messages = messages
        self.loses = loses


class CompactionRefused(CompactionError):
    """A compaction on demand, for a budget that leaves too little to be of use.

    Of a view of ``tokens_before`` and ``messages_before``, ``tokens`` and ``messages`` would be
    left in a ``budget``, all in tokens as screens show them; ``floor`` counts the tokens that must
    stay. ``loses`` names the summaries and notices that would go without replacement.
    """

    def __init__(
        self,
        budget: int,
        floor: int,
        *,
        tokens_before: int,
        tokens: int,
        messages_before: int,
        messages: int,
        loses: tuple[str, ...] = (),
    ) -> None:
        left = f"{messages:,} of {messages_before:,} messages, ~{tokens:,} of ~{tokens_before:,}"
        without = "nothing of what came before the message that is to be answered"
        super().__init__(
            f"a budget of {budget:,} would leave {left} tokens, and "
            f"{f'lose {_join(loses)}' if loses else without}; what must stay takes "
            f"~{floor:,} tokens: nothing was changed; raise the budget, or force it"
        )
        self.budget = budget
        self.floor = floor
        self.tokens_before, self.tokens = tokens_before, tokens
        self.messages_before, self.messages = messages_before, messages
        self.loses = loses


def _join(names: tuple[str, ...]) -> str:
    return " and ".join(names)


class HookError(EventctxError):
    """Base of errors in the use of hooks; never raised into an agent's turn."""


class UnknownEventName(HookError, ValueError):
    """A handler was registered for an event that does not exist."""


class ExportFailed(HookError):
    """Spans could not be sent to ``where``; ``reason`` is the first that the receiver gave.

    ``arrived`` and ``rejected`` are the spans that the receiver took and refused until then. With
    ``others`` it took all the others.
    """

    def __init__(
        self, where: str, reason: str, arrived: int = 0, rejected: int = 0, *, others: bool = False
    ) -> None:
        again = "send again: what arrived already is not shown twice"
        if others:
            text = (
                f"{where} rejected {rejected:,} of {arrived + rejected:,} spans: {reason}; "
                f"{arrived:,} arrived; mend that at the receiver, and {again}"
            )
        else:
            before = f"{arrived:,} {'span' if arrived == 1 else 'spans'}" if arrived else "none"
            refused = f" and {rejected:,} been rejected" if rejected else ""
            text = (
                f"{where} did not take the spans: {reason}; {before} had arrived before"
                f"{refused}; check that a collector or Jaeger listens there (OTLP: port 4317 for "
                "gRPC, 4318 for HTTP; 16686 is Jaeger's web interface and takes none), and "
                f"{again}"
            )
        super().__init__(text)
        self.where = where
        self.reason = reason
        self.arrived = arrived
        self.rejected = rejected
        self.others = others


class TurnError(EventctxError):
    """Base of the errors that keep a turn from being completed.

    Raised itself for a block of a turn that is used before it is entered, or entered twice.
    """


class ProviderFailed(TurnError):
    """A model call failed.

    ``retryable`` is true where the same request may succeed later, ``retry_after`` is the number
    of seconds that the provider wants the caller to wait. ``too_long``: the request is larger than
    the model's window. ``status`` is the HTTP status, where there was one.
    """

    def __init__(
        self,
        provider: str,
        problem: str,
        *,
        status: int | None = None,
        retryable: bool = False,
        retry_after: float | None = None,
        too_long: bool = False,
    ) -> None:
        again = "trying again later may help" if retryable else "the same request fails again"
        shown = "" if status is None else f" with status {status}"
        super().__init__(f"provider {provider!r} failed{shown}: {problem}; {again}")
        self.provider = provider
        self.problem = problem
        self.status = status
        self.retryable = retryable
        self.retry_after = retry_after
        self.too_long = too_long


class ToolFailed(TurnError):
    """A tool call without a result, for a reason that is not the tool's own exception.

    It is recorded as a ``tool:error`` and reported to the model; a turn does not raise it.
    """

    def __init__(self, tool: str, problem: str) -> None:
        super().__init__(f"tool {tool!r}: {problem}")
        self.tool = tool


class TranscriptError(EventctxError):
    """Base of the errors that importing a file raises."""


class UnknownFormat(TranscriptError):
    """The file has no format that eventctx can read."""


class NotATranscript(UnknownFormat):
    """The file is JSON, but of no format that eventctx knows: a settings file, an index.

    ``name`` is the file's, ``found`` describes its content, ``known`` are the names of the formats.
    """

    def __init__(self, name: str, found: str, known: tuple[str, ...]) -> None:
        super().__init__(
            f"{name}: expected one of {', '.join(known)}, found {found}; name the format with "
            "--format if it is one of these"
        )
        self.name = name
        self.found = found
        self.known = known


class UnreadableFile(TranscriptError):
    """The operating system does not let the file be read."""


class MalformedTranscript(TranscriptError):
    """The file has a known format, but a damage after which nothing in it can be used."""


class SourceChanged(TranscriptError):
    """Lines that were imported before are different in the file now."""


class WorkerEnded(TranscriptError):
    """The worker process that read a file ended before the file did.

    ``name`` is the file's, ``how`` says how the process ended. What it had handed over is in the
    store, in whole batches, and the next import goes on after it.
    """

    def __init__(self, name: str, how: str) -> None:
        super().__init__(
            f"{name}: the process that read it ended too early ({how}), perhaps as memory ran out; "
            "import it again, alone or without other workers (--workers 1)"
        )
        self.name = name
        self.how = how


class SessionWasTakenOver(TranscriptError):
    """A file was imported whose session was taken over, so it takes nothing more from the file.

    ``since`` is when it was taken over, in UTC nanoseconds.
    """

    def __init__(self, stream: str, since: int) -> None:
        moment = datetime.fromtimestamp(since // 10**9, UTC).isoformat(sep=" ", timespec="seconds")
        super().__init__(
            f"session {stream!r} was taken over at {moment} and is ours since; nothing was "
            "imported: import the file as another session with --session NEW"
        )
        self.stream = stream
        self.since = since
