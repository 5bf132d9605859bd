"""The root of a document: its agent, its sums, and what it says of the session under our name."""

from __future__ import annotations

from typing import Any

import msgspec

from eventctx.log.integrity import check_bodies
from eventctx.log.plan import TAKEN_BACK
from eventctx.log.store import Address, EventStore, StreamInfo
from eventctx.messages.encoding import decode_body
from eventctx.messages.tool_definitions import in_openais_form
from eventctx.projections.timeline.fold import TimelineExtras
from eventctx.queries.atif.calls import LogSurvey
from eventctx.queries.atif.verbatim import FORMAT, NAME
from eventctx.version import __version__


async def describe_agent(store: EventStore, info: StreamInfo, known: LogSurvey) -> dict[str, Any]:
    """The trajectory's ``agent``: its name, version, first model and newest tool definitions.

    The name is the one that the first turn has, else the format of an imported file. An imported
    file's program is of a version that the log does not know.
    """
    source = known.extras.provenance.format
    found: dict[str, Any] = {
        "name": known.agent or source or "eventctx",
        "version": "unknown" if source else __version__,
    }
    if len(known.extras.models):
        found["model_name"] = known.extras.models[0]
    tools = await _tools(store, info.stream, known.extras)
    if tools:
        found["tool_definitions"] = tools
    parent = next((one.session for one in known.extras.links if one.relation == "parent"), None)
    if parent is not None:
        found["extra"] = {"parent_session_id": parent}
    return found


async def _tools(store: EventStore, stream: str, extras: TimelineExtras) -> list[dict[str, Any]]:
    """The newest tool definitions, in OpenAI's form; none where the log has only their digest."""
    places = [Address(*one.place) for one in extras.contents if one.kind == "tools"]
    if not places:
        return []
    bodies = await store.bodies(stream, places[-1:])
    check_bodies(stream, zip(places[-1:], bodies, strict=True))
    data = bodies[0].data
    value = None if data is None else decode_body(data)
    tools = value.get("tools") if isinstance(value, dict) else value
    return [in_openais_form(one) for one in tools or () if isinstance(one, dict)]


def describe_session(info: StreamInfo, extras: TimelineExtras) -> dict[str, Any]:
    """What the root of a document says of its session, under our name.

    ``digest`` is that of the last record: it names the log that the file was made of.
    """
    found: dict[str, Any] = {
        "format": FORMAT,
        "library": __version__,
        "session": info.stream,
        "position": info.head,
        "digest": info.digest.hex(),
    }
    source = extras.provenance
    if source.format is not None:
        found["source"] = {"format": source.format, "file": source.source}
    if source.parent is not None:
        found["fork"] = {"parent": source.parent[0], "at": source.parent[1]}
    others = [one for one in extras.links if one.kind != "subagent"]
    if others:
        found["linked"] = [
            {"session": one.session, "kind": one.kind, "relation": one.relation} for one in others
        ]
    return found


# -- counts ----------------------------------------------------------------------------------------


class Completeness(msgspec.Struct):
    """How much of a trajectory's requests is known, and what its format has no field for.

    ``exact`` requests are known to the last byte that eventctx saw: *observed* ones, and *prepared*
    ones whose host added no text that it does not tell. ``requests_without_answer`` are system
    steps. ``agent_steps_without_request``: the log does not say what the model saw.
    ``left_in_shape`` counts the parts of messages, by type, that only their shape holds.
    """

    steps: int = 0
    copied_steps: int = 0
    requests: int = 0
    exact: int = 0
    observed: int = 0
    prepared: int = 0
    reconstructed: int = 0
    with_usage: int = 0
    requests_without_answer: int = 0
    agent_steps_without_request: int = 0
    compactions: int = 0
    erased: int = 0
    left_in_shape: dict[str, int] = {}

    def add(self, other: Completeness) -> None:
        """Add the counts of another document."""
        for name in self.__struct_fields__:
            if name == "left_in_shape":
                for kind, count in other.left_in_shape.items():
                    self.left_in_shape[kind] = self.left_in_shape.get(kind, 0) + count
            else:
                setattr(self, name, getattr(self, name) + getattr(other, name))


class MetricSums(msgspec.Struct):
    """Sums of the metrics of a document's own steps, in tokens."""

    prompt: int = 0
    output: int = 0
    cached: int = 0
    reports: int = 0

    def take(self, metrics: dict[str, Any]) -> None:
        """Add the metrics of a call."""
        self.prompt += metrics["prompt_tokens"]
        self.output += metrics["completion_tokens"]
        self.cached += metrics["cached_tokens"]
        self.reports += 1

    def final(self, steps: int) -> dict[str, int]:
        """The final metrics of a document with so many steps."""
        if not self.reports:
            return {"total_steps": steps}
        return {
            "total_prompt_tokens": self.prompt,
            "total_completion_tokens": self.output,
            "total_cached_tokens": self.cached,
            "total_steps": steps,
        }


def count_step(here: Completeness, sums: MetricSums, step: dict[str, Any]) -> None:
    """Count a step that was written."""
    own = step["extra"][NAME]
    here.steps += 1
    if step.get("is_copied_context"):
        here.copied_steps += 1
        return
    here.erased += sum([bool(one.get("erased")) for one in own["messages"]])
    here.compactions += own.get("compaction", {}).get("strategy", TAKEN_BACK) != TAKEN_BACK
    metrics = step.get("metrics") or own.get("metrics")
    asked = [one["metrics"] for one in own.get("compaction", {}).get("asked", ())]
    for one in [metrics, *asked]:
        if one is not None:
            sums.take(one)
    request = own.get("request")
    if request is None:
        called = step["source"] == "agent" and "llm_call_count" not in step
        here.agent_steps_without_request += called
        return
    here.requests_without_answer += step["source"] == "system"
    known = request["known"]
    if known is None:
        here.agent_steps_without_request += 1
        return
    here.requests += 1
    here.exact += request["exact"]
    here.with_usage += metrics is not None
    setattr(here, known, getattr(here, known) + 1)
