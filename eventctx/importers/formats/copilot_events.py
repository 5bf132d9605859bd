"""The items of GitHub Copilot CLI's events, one event after the other (``copilot.py``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from eventctx.importers.formats import copilot_chat
from eventctx.importers.formats.copilot_chat import Agents, Rounds
from eventctx.importers.source.document import stem
from eventctx.importers.source.items import (
    CallEnded,
    CompactionItem,
    Ended,
    Item,
    Linked,
    MessageItem,
    ModelCall,
    Raw,
    Session,
    TurnBegan,
    TurnEnded,
    Undone,
    Waiting,
    Warned,
)
from eventctx.importers.source.lines import (
    count,
    nanoseconds,
    not_understood,
    object_or_empty,
    text_or_none,
    without,
)
from eventctx.importers.source.naming import session_name
from eventctx.importers.source.values import encode
from eventctx.log.usage import COPILOT, read_usage, with_prompt
from eventctx.messages.facts_reader import read_facts

FAMILIES: Final = frozenset(
    (
        *("session", "user", "assistant", "tool", "system", "subagent", "hook", "skill", "abort"),
        *("permission", "user_input", "elicitation", "sampling", "external_tool", "command"),
        *("commands", "exit_plan_mode", "mcp", "mcp_app", "capabilities", "auto_mode_switch"),
        *("pending_messages", "model", "factory", "ui", "tool_search", "session_limits_exhausted"),
    )
)
"""The first words of the events' types. Only few events change what the model is sent."""

_UNREAD: Final = frozenset(("session.import_legacy",))
"""Events that hold messages of a form that no release writes any more."""


class _Place(NamedTuple):
    """The messages and compactions before an event."""

    messages: int
    compactions: int


class CopilotConversation:
    """The main session, or the subagent that the call ``agent`` began; reads every event."""

    def __init__(self, name: str, agent: str | None = None) -> None:
        self.name = stem(name)
        self.agent = agent
        self.agents = Agents()
        self.session = self.name
        self.begun = False
        self.places = 0
        self.compactions = 0
        self.rounds = Rounds()
        self.model: str | None = None
        self.system: dict[str, tuple[int, dict[str, Any]]] = {}
        self.asked: list[str] = []
        self.before: dict[str, _Place] = {}
        self.checkpoint: int | None = None
        self.call: str | None = None
        self.usages: dict[str, dict[str, Any]] = {}
        self.failed: str | None = None
        self.first: list[Item] = []

    def row(self, line: int, data: bytes, row: Any) -> Iterator[Item]:
        """The items of one event."""
        kind = row.get("type") if isinstance(row, dict) else None
        if not isinstance(kind, str) or not isinstance(row.get("data"), dict):
            if self.agent is None:
                yield from self._begin(line, {})
                yield from not_understood(line, "untyped", data, "an event without type or data")
            return
        if kind == "session.start":
            named = text_or_none(row["data"].get("sessionId"))
            self.session = named or self.session
        speaker = self.agents.of(row)
        if speaker != self.agent:
            if self.agent is None:
                yield from self._begin(line, row)
                yield Raw(line, f"agent.{kind}", data)
            return
        yield from self._begin(line, row)
        if isinstance(row.get("id"), str):
            self.before.setdefault(row["id"], _Place(self.places, self.compactions))
        if kind != "system.message":
            yield from self._release()
        read = _READERS.get(kind)
        if read is None:
            yield Raw(line, kind, data, _is_known(kind))
            return
        yield from read(self, line, data, row)

    def _begin(self, line: int, row: dict[str, Any]) -> Iterator[Item]:
        if self.begun:
            return
        self.begun = True
        time = nanoseconds(row.get("timestamp"))
        about = object_or_empty(row.get("data"))
        if self.agent is not None:
            own = session_name(f"{self.session}.agent-{self.agent}")
            of = session_name(self.session)
            yield Session(line, time, own, agent=self.agent, parent=of)
            return
        started_by = text_or_none(about.get("detachedFromSpawningParentSessionId"))
        parent = session_name(started_by) if started_by else None
        yield Session(line, time, self.session, parent=parent)

    # -- events ----------------------------------------------------------------------------------

    def start(self, line: int, data: bytes, row: dict[str, Any]) -> Iterator[Item]:
        """The beginning or resumption of the session, or a change of its model."""
        about = row["data"]
        chosen = text_or_none(about.get("newModel")) or text_or_none(about.get("selectedModel"))
        self.model = chosen or self.model
        yield Raw(line, row["type"], data)

    def user(self, line: int, data: bytes, row: dict[str, Any]) -> Iterator[Item]:
        """A prompt of a person, of an agent, or of the program."""
        about, time = row["data"], nanoseconds(row.get("timestamp"))
        key = (
            "transformedContent" if isinstance(about.get("transformedContent"), str) else "content"
        )
        if not isinstance(about.get(key), str):
            yield from not_understood(line, row["type"], data, "a prompt without its text")
            return
        message = {"role": "user", "content": about[key]}
        source = about.get("source")
        sent = source in (None, "", "user") and about.get("isAutopilotContinuation") is not True
        shown = about.get("content")
        if sent and isinstance(shown, str):
            self.asked.append(shown)
        yield _envelope(line, row, key)
        begins = sent and self.agent is None and read_facts(message).human
        if begins and self.failed is not None:
            yield TurnEnded(line, time, "error", self.failed)
        self.failed = None
        found: list[Item] = [TurnBegan(line, time)] if begins else []
        found += self._add(line, time, message, by_harness=not sent)
        if self.places == 1:
            # The system prompt is sent before it, and stands after it in the file.
            self.first = found
        else:
            yield from found

    def _release(self, line: int | None = None) -> Iterator[Item]:
        """The first prompt, at the line of the system prompt that was waited for."""
        found, self.first = self.first, []
        for item in found:
            yield item if line is None else msgspec.structs.replace(item, line=line)

    def system_prompt(self, line: int, data: bytes, row: dict[str, Any]) -> Iterator[Item]:
        """A system prompt; it takes the place of the one before of its role and name."""
        about = row["data"]
        if not isinstance(about.get("content"), str):
            yield from not_understood(line, row["type"], data, "a system prompt without its text")
            return
        role = "developer" if about.get("role") == "developer" else "system"
        message = {"role": role, "content": about["content"]}
        place = f"{role}/{about.get('name')}"
        last = self.system.get(place)
        if last is not None and last[1] == message:
            yield Raw(line, row["type"], data)
            return
        if last is not None:
            yield Undone(line, nanoseconds(row.get("timestamp")), frozenset((last[0],)))
        yield _envelope(line, row, "content")
        self.system[place] = self.places - len(self.first[-1:]), message
        yield from self._add(line, nanoseconds(row.get("timestamp")), message)
        yield from self._release(line)

    def notification(self, line: int, data: bytes, row: dict[str, Any]) -> Iterator[Item]:
        """What the program tells the model, such as the end of a task in the background."""
        about = row["data"]
        found = object_or_empty(about.get("kind")).get("type") == "instruction_discovered"
        if found or not isinstance(about.get("content"), str):
            yield Raw(line, row["type"], data, understood=found)
            return
        yield _envelope(line, row, "content")
        message = {"role": "user", "content": about["content"]}
        yield from self._add(line, nanoseconds(row.get("timestamp")), message, by_harness=True)

    def answer(self, line: int, data: bytes, row: dict[str, Any]) -> Iterator[Item]:
        """An answer of the model, or a part of one between two stretches of reasoning."""
        about, time = row["data"], nanoseconds(row.get("timestamp"))
        message, rest = copilot_chat.answer_of(about)
        if message is None:
            yield Raw(line, row["type"], data, understood=about.get("content") == "")
            return
        yield Raw(line, f"{row['type']}.envelope", encode({**row, "data": rest}))
        self.failed = None
        of_call = text_or_none(about.get("apiCallId"))
        joins = of_call is not None and of_call == self.call
        self.call = of_call
        if not joins:
            report = self.usages.pop(of_call, {}) if of_call is not None else {}
            yield ModelCall(
                line,
                None,
                model=text_or_none(about.get("model")) or self.model,
                provider=text_or_none(report.get("modelProvider")),
                usage=with_prompt(read_usage(report, COPILOT)),
                finish_reason=text_or_none(report.get("finishReason")),
                context_window=count(report.get("maxPromptTokens")) or None,
                response_id=of_call,
            )
        self.rounds.answered(self.places, message)
        yield from self._add(line, time, message)
        if not joins:
            yield CallEnded(line, time)

    def result(self, line: int, data: bytes, row: dict[str, Any]) -> Iterator[Item]:
        """The result of a tool; a second one for the same call is not sent."""
        about, time = row["data"], nanoseconds(row.get("timestamp"))
        call = about.get("toolCallId")
        self.model = text_or_none(about.get("model")) or self.model
        if not isinstance(call, str) or about.get("isUserRequested") is True:
            yield Raw(line, row["type"], data, understood=isinstance(call, str))
            return
        if not self.rounds.took(call, self.places):
            yield Raw(line, f"{row['type']}.again", data)
            return
        message, rest = copilot_chat.result_of(about)
        yield Raw(line, f"{row['type']}.envelope", encode({**row, "data": rest}))
        yield from self._add(line, time, message, failed=about.get("success") is not True)

    def _add(
        self,
        line: int,
        time: int | None,
        message: dict[str, Any],
        *,
        by_harness: bool = False,
        failed: bool = False,
    ) -> Iterator[Item]:
        yield MessageItem(line, time, message, failed, by_harness)
        self.places += 1

    def usage(self, line: int, data: bytes, row: dict[str, Any]) -> Iterator[Item]:
        """The usage of a call, before its answer or after it. Older releases do not store it."""
        yield Raw(line, row["type"], data)
        about = row["data"]
        report = object_or_empty(about.get("usage")) or about
        of_call = text_or_none(report.get("apiCallId"))
        if of_call is not None and of_call == self.call:
            usage, reason = read_usage(report, COPILOT), text_or_none(report.get("finishReason"))
            yield CallEnded(
                line, nanoseconds(row.get("timestamp")), usage=usage, finish_reason=reason
            )
        elif of_call is not None:
            self.usages[of_call] = report

    def aborted(self, line: int, data: bytes, row: dict[str, Any]) -> Iterator[Item]:
        """A person stopped the model."""
        yield Raw(line, row["type"], data)
        if self.agent is None:
            yield TurnEnded(line, nanoseconds(row.get("timestamp")), "cancelled")

    def error(self, line: int, data: bytes, row: dict[str, Any]) -> Iterator[Item]:
        """An error. The program may try again: only the next prompt shows that it did not."""
        yield Raw(line, row["type"], data)
        self.failed = text_or_none(row["data"].get("errorType")) or "error"

    def subagent(self, line: int, data: bytes, row: dict[str, Any]) -> Iterator[Item]:
        """The beginning of a subagent, which a call asked for."""
        yield Raw(line, row["type"], data)
        call = text_or_none(row["data"].get("toolCallId"))
        if call:
            name = session_name(f"{self.session}.agent-{call}")
            yield Linked(line, nanoseconds(row.get("timestamp")), name, call)

    # -- what leaves the context -----------------------------------------------------------------

    def compaction_began(self, line: int, data: bytes, row: dict[str, Any]) -> Iterator[Item]:
        """The summary is of the messages up to here; what comes meanwhile stays."""
        self.checkpoint = self.places
        yield Raw(line, row["type"], data)

    def compacted(self, line: int, data: bytes, row: dict[str, Any]) -> Iterator[Item]:
        """A summary in place of the messages before the beginning of the compaction."""
        about = row["data"]
        checkpoint, self.checkpoint = self.checkpoint, None
        summary = about.get("summaryContent")
        if about.get("success") is not True or not isinstance(summary, str) or not summary:
            known = about.get("success") is False
            yield Raw(line, row["type"], data, understood=known)
            if not known:
                yield Warned(line, "a compaction without its summary")
            return
        kept = None
        if checkpoint is not None and checkpoint < self.places:
            kept = self.rounds.round_before(checkpoint)
        trigger = text_or_none(about.get("trigger"))
        message = copilot_chat.summary_of(summary, self.asked, manual=trigger == "manual")
        yield _envelope(line, row, "summaryContent")
        yield CompactionItem(
            line,
            nanoseconds(row.get("timestamp")),
            trigger,
            (message,),
            kept_from=kept,
            tokens_before=count(about.get("preCompactionTokens")) or None,
            took=copilot_chat.duration_of(about),
        )
        self.compactions += 1
        self.rounds.forget_before(self.places if kept is None else kept)

    def truncated(self, line: int, data: bytes, row: dict[str, Any]) -> Iterator[Item]:
        """The oldest answers and results are left out of a request; the event only counts them."""
        about = row["data"]
        yield Raw(line, row["type"], data)
        gone = self.rounds.oldest(count(about.get("messagesRemovedDuringTruncation")))
        if gone:
            before = count(about.get("preTruncationTokensInMessages")) or None
            time = nanoseconds(row.get("timestamp"))
            yield CompactionItem(line, time, "truncation", (), forgotten=gone, tokens_before=before)
            self.compactions += 1

    def cleared(self, line: int, data: bytes, row: dict[str, Any]) -> Iterator[Item]:
        """A person cleared the context; a first message may be left."""
        first = text_or_none(row["data"].get("initialMessage"))
        left = ({"role": "user", "content": first},) if first else ()
        yield Raw(line, row["type"], data)
        yield CompactionItem(line, nanoseconds(row.get("timestamp")), "clear", left)
        self.compactions += 1
        self.rounds.forget_before(self.places)
        self.asked.clear()

    def rewound(self, line: int, data: bytes, row: dict[str, Any]) -> Iterator[Item]:
        """An event and all after it were taken back."""
        yield Raw(line, row["type"], data)
        back = self.before.get(str(row["data"].get("upToEventId")))
        if back is None or back.messages == self.places:
            return
        places = frozenset(range(back.messages, self.places))
        undone = frozenset(range(back.compactions, self.compactions))
        yield Undone(line, nanoseconds(row.get("timestamp")), places, undone)
        self.rounds.forget(places)

    def end(self, ended: Ended) -> Iterator[Item]:
        """The first prompt waits for the system prompt, and nothing else: events are whole."""
        if not self.begun:
            yield Waiting(1, "no line names the session yet")
        if self.first and not ended():
            yield Waiting(self.first[0].line, "the system prompt may still follow")
        else:
            yield from self._release()


def _is_known(kind: str) -> bool:
    return kind.partition(".")[0] in FAMILIES and kind not in _UNREAD


def _envelope(line: int, row: dict[str, Any], key: str) -> Raw:
    """The rest of an event whose text under ``key`` is in a message."""
    rest = {**row, "data": without(row["data"], key)}
    return Raw(line, f"{row['type']}.envelope", encode(rest))


_READERS: Final = {
    "session.start": CopilotConversation.start,
    "session.resume": CopilotConversation.start,
    "session.model_change": CopilotConversation.start,
    "user.message": CopilotConversation.user,
    "system.message": CopilotConversation.system_prompt,
    "system.notification": CopilotConversation.notification,
    "assistant.message": CopilotConversation.answer,
    "assistant.usage": CopilotConversation.usage,
    "session.usage_record": CopilotConversation.usage,
    "tool.execution_complete": CopilotConversation.result,
    "abort": CopilotConversation.aborted,
    "session.error": CopilotConversation.error,
    "subagent.started": CopilotConversation.subagent,
    "session.compaction_start": CopilotConversation.compaction_began,
    "session.compaction_complete": CopilotConversation.compacted,
    "session.truncation": CopilotConversation.truncated,
    "session.context_cleared": CopilotConversation.cleared,
    "session.snapshot_rewind": CopilotConversation.rewound,
}
