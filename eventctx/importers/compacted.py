"""A compaction that a transcript tells of, as the records of one."""

from __future__ import annotations

from eventctx import events
from eventctx.codec import encode_message
from eventctx.importers.items import Compaction
from eventctx.importers.track import Content
from eventctx.messages import encode_facts, read_facts
from eventctx.plan import Insertion, Plan, Run
from eventctx.projections import request_view
from eventctx.projections.request_view import ViewState
from eventctx.record import Body, Record
from eventctx.refs import MessageRef
from eventctx.tokens import BY_KIND

STRATEGY = "imported"


class Compacted:
    """The events of a compaction, from the view before it and what replaced it."""

    def __init__(self, view: ViewState, item: Compaction, source_format: str) -> None:
        self.contents = [
            Content(encode_message(message), encode_facts(read_facts(message)))
            for message in item.messages
        ]
        self._view = view
        self._requested_by = f"{source_format}:{item.trigger}" if item.trigger else source_format
        _, self._messages, self._tokens = view.layout.measure()
        self._plan = _plan(view, item)

    def before(self) -> events.PreCompact:
        """The compaction begins."""
        return events.PreCompact(
            trigger="imported",
            strategy=STRATEGY,
            strategy_version=1,
            tokens=self._tokens,
            messages=self._messages,
            requested_by=self._requested_by,
        )

    def after(self, stream: str, position: int) -> events.PostCompact:
        """The compaction as applied, in a record at ``position``."""
        bodies = tuple([Body(b"", content.facts) for content in self.contents])
        record = Record(
            stream, position, -1, b"", "", 1, 0, b"", bodies, None, None, None, None, b""
        )
        view = request_view.apply_plan(self._view, self._plan, record)
        _, messages, tokens = view.layout.measure()
        return events.PostCompact(
            outcome="applied",
            trigger="imported",
            strategy=STRATEGY,
            strategy_version=1,
            tokens_before=self._tokens,
            tokens_after=tokens,
            messages_before=self._messages,
            messages_after=messages,
            estimator=BY_KIND.name,
            plan=self._plan,
            requested_by=self._requested_by,
        )


def _plan(view: ViewState, item: Compaction) -> Plan:
    """All is summarised but system messages and the last ``kept`` messages."""
    visible: list[MessageRef] = list(view.layout.refs)
    kept = {ref.number for ref in visible[len(visible) - item.kept :]} if item.kept else set()
    replaced = {read_facts(message).role for message in item.messages}
    staying: list[tuple[int, str]] = []
    for ref in visible:
        if ref.number in kept:
            staying.append((ref.number, "recent"))
        elif ref.facts.kind == "system" and ref.facts.role not in replaced:
            # A history that brings its own developer messages stands for the old ones too.
            staying.append((ref.number, "system"))
    runs: list[Run] = []
    gone: list[tuple[int, int]] = []
    through = view.next_number - 1
    start = 0
    for number, reason in [*staying, (through + 1, "")]:
        if number > start:
            runs.append(Run(start, number - 1, "summarised", STRATEGY))
            gone.append((start, number - 1))
        if reason:
            if runs and runs[-1].reason == reason and runs[-1].last == number - 1:
                runs[-1] = Run(runs[-1].first, number, "kept", reason)
            else:
                runs.append(Run(number, number, "kept", reason))
        start = number + 1
    insertions = [
        Insertion("summary", body, stands_for=tuple(gone)) for body in range(len(item.messages))
    ]
    return Plan(through, tuple(runs), (), tuple(insertions))
