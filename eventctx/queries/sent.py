"""A request as it was sent, rebuilt from the log and compared with the digest of what was sent."""

from __future__ import annotations

import copy
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from eventctx.log.integrity import check_bodies, damage_found, is_sound
from eventctx.log.record import Body
from eventctx.log.store import Address, EventStore
from eventctx.log.wire import (
    APIS,
    BodyAt,
    CacheMark,
    Injected,
    SentApi,
    WireForm,
    hash_of,
    request_digest,
)
from eventctx.messages.encoding import as_sent, decode_body
from eventctx.projections.explain.changes import Origin
from eventctx.projections.timeline.fold import SentContent, TimelineState
from eventctx.projections.view.series import Series

_ERASED: Final = "[erased]"


class SentMessage(msgspec.Struct, frozen=True):
    """A message of a sent request; ``message`` is None where its contents were erased.

    ``numbers`` are the messages of the transcript that it carries, ``injected`` the texts in it
    that the client put there.
    """

    message: dict[str, Any] | None
    numbers: tuple[int, ...] = ()
    injected: tuple[Injected, ...] = ()


class SentForm(msgspec.Struct, frozen=True):
    """A request as it was sent.

    ``system`` is as the provider's field of that name, ``tools`` are the definitions,
    ``parameters`` all other fields. ``digest`` is made of what the log holds; ``holds`` says
    whether it is the one that was recorded, and every content has its own. ``erased`` says whether
    contents are gone.
    """

    messages: tuple[SentMessage, ...]
    system: Any
    tools: Any
    parameters: dict[str, Any]
    cache_control: tuple[CacheMark, ...]
    digest: str
    holds: bool
    erased: bool = False
    rule: str = ""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The messages as they were sent, with their cache marks."""
        found: list[dict[str, Any]] = self.body()[self._api.messages]
        return found

    @property
    def _api(self) -> SentApi:
        return APIS.get(self.rule, SentApi())

    def body(self) -> dict[str, Any]:
        """The fields of the request as a dict of its own, with its cache marks in their places."""
        found: dict[str, Any] = {**self.parameters}
        if self.system is not None:
            found[self._api.system] = self.system
        if self.tools is not None:
            found["tools"] = self.tools
        found[self._api.messages] = [
            {"role": "user", "content": _ERASED} if one.message is None else one.message
            for one in self.messages
        ]
        found = copy.deepcopy(found)
        for mark in self.cache_control:
            _put_mark(found, mark)
        return found


class Sources(NamedTuple):
    """The bodies that requests name, as a session's records describe them.

    ``forms`` are by the position of their request, ``contents`` by their address, ``tools`` are
    addresses by the digest of the definitions. ``origins`` are all messages, by number.
    """

    forms: Mapping[int, WireForm]
    contents: Mapping[BodyAt, SentContent]
    tools: Mapping[str, BodyAt]
    origins: Series[Origin]

    def numbers(self, at: BodyAt) -> tuple[int, ...]:
        """The messages of the transcript that the content at an address carries."""
        content = self.contents.get(at)
        if content is not None:
            return content.numbers
        place = bisect_left(self.origins, at, key=_place)
        found = place < len(self.origins) and _place(self.origins[place]) == at
        return (place,) if found else ()


def sources_of(state: TimelineState) -> Sources:
    """The sources of the requests up to the position of ``state``."""
    contents = {one.place: one for one in state.extras.contents if one.kind == "message"}
    tools = {one.digest: one.place for one in state.extras.contents if one.kind == "tools"}
    return Sources(dict(state.extras.forms), contents, tools, state.changes.origins)


def _place(origin: Origin) -> BodyAt:
    return origin.ref.position, origin.ref.index


def addresses_of(forms: Mapping[int, WireForm], form: WireForm) -> list[BodyAt]:
    """The addresses of all messages of a request, in order."""
    found: list[BodyAt] = list(form.tail)
    keep, base = form.keep, form.base
    while keep and base is not None and base in forms:
        below = forms[base]
        found[:0] = below.tail[: max(0, keep - below.keep)]
        keep = min(keep, below.keep)
        # An edited record may name itself, or a later request, and there would be no end.
        base = below.base if below.base is not None and below.base < base else None
    return found


async def sent_form(
    store: EventStore, stream: str, sources: Sources, form: WireForm, *, allow_damage: bool
) -> SentForm:
    """Rebuild a request.

    Raises LogCorrupted for a body that lost its digest, unless ``allow_damage``, and for one that
    is no JSON or, where a message belongs, no message.
    """
    places = addresses_of(sources.forms, form)
    beside = (form.system, form.tools, form.parameters)
    wanted = [Address(*at) for at in (*[one for one in beside if one is not None], *places)]
    bodies = await store.bodies(stream, wanted)
    if not allow_damage:
        check_bodies(stream, zip(wanted, bodies, strict=True))
    by_place = dict(zip(wanted, bodies, strict=True))
    try:
        system, tools, parameters = [
            None if one is None else _value(by_place[Address(*one)]) for one in beside
        ]
        stored = [_message(by_place[Address(*at)]) for at in places]
    except msgspec.DecodeError as error:
        raise damage_found(stream, wanted, bodies) from error
    digest = request_digest(
        hash_of([by_place[Address(*at)].digest for at in places]),
        *[None if one is None else by_place[Address(*one)].digest for one in beside],
    )
    whole = APIS.get(form.rule, SentApi()).whole
    messages = [
        SentMessage(
            # A stored content is all that was sent, a transcript's message more than that.
            one if one is None or whole or at in sources.contents else as_sent(one),
            sources.numbers(at),
            sources.contents[at].injected if at in sources.contents else (),
        )
        for at, one in zip(places, stored, strict=True)
    ]
    return SentForm(
        tuple(messages),
        system,
        tools,
        parameters if isinstance(parameters, dict) else {},
        form.cache_control,
        digest,
        digest == form.digest and all(map(is_sound, bodies)),
        any(body.data is None for body in bodies),
        form.rule,
    )


async def tools_of(
    store: EventStore, stream: str, sources: Sources, digest: str | None, *, allow_damage: bool
) -> tuple[list[Any] | None, bool]:
    """The tool definitions with this digest, and whether they are as they were stored.

    None where only the digest was kept. Raises LogCorrupted for definitions that were edited,
    unless ``allow_damage``, and for those that are no JSON.
    """
    at = sources.tools.get(digest or "")
    if at is None:
        return None, True
    places = [Address(*at)]
    bodies = await store.bodies(stream, places)
    if not allow_damage:
        check_bodies(stream, zip(places, bodies, strict=True))
    try:
        value = _value(bodies[0])
    except msgspec.DecodeError as error:
        raise damage_found(stream, places, bodies) from error
    return value.get("tools") if isinstance(value, dict) else value, is_sound(bodies[0])


def _value(body: Body) -> Any:
    return None if body.data is None else decode_body(body.data)


def _message(body: Body) -> dict[str, Any] | None:
    value = _value(body)
    if value is None or isinstance(value, dict):
        return value
    raise msgspec.DecodeError(f"expected a message, found {type(value).__name__}")


def _put_mark(body: dict[str, Any], mark: CacheMark) -> None:
    """Put a cache mark at its path; a text that it marks becomes a block, as it did when sent."""
    value: Any = body
    try:
        # An empty path is the request itself.
        for step, following in zip(mark.path, (*mark.path[1:], None), strict=False):
            if isinstance(value[step], str) and isinstance(following, int):
                value[step] = [{"type": "text", "text": value[step]}]
            value = value[step]
        value["cache_control"] = mark.value
    except (LookupError, TypeError):
        return  # the path leads nowhere in this request
