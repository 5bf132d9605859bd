"""Shortened copies of messages: long texts are cut in the middle, all else stays as it is.

The copies are made for a view and stored as bodies of the compaction that needs them; the message
itself is never changed. Only texts of a kind with a limit change: ids, order, keys, thinking blocks
and their signatures stay.

An image, a document or a recording that a person sent cannot be cut: a line takes its place.

A person's demands are not cut. A limit for a person's words is one for the words besides the
demands: each of these sentences stays, word by word, on a line of its own and in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from eventctx.messages import response_items as items
from eventctx.messages.demands import MOST_DEMANDS, demands_in, demands_of
from eventctx.messages.encoding import decode_json
from eventctx.messages.facts import Facts
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.media import shown_of
from eventctx.messages.parts import Part, Place, parts_of_result, read_parts
from eventctx.messages.pasted import pasted_spans
from eventctx.messages.speaker import persons_part

MARKER: Final = "\n[… {left} characters left out of message {number} …]\n"
MARKER_CHARACTERS: Final = 80
"""No marker is longer: two numbers of up to 19 digits and the words around them."""

MEDIUM_MARKER: Final = "[… {what} left out of message {number} …]"
"""In place of an image, a document or a recording. It is never longer than other markers."""

_MEDIA: Final = {"image": "image", "pages": "document", "audio": "recording"}

GAP: Final = "\n[...]\n"
"""The marker of each further cut in a text."""

MOST_DEMAND_CHARACTERS: Final = 6_000
"""Characters of demands that a shortened message keeps: twelve sentences of sixty long words."""

_WORDS: Final = ("text", "refusal", "document", "other")


class Limit(NamedTuple):
    """Largest number of characters to keep of a message: of its results, arguments and words.

    None leaves that kind as it is. A person's demands do not count as words here, as they stay.
    ``media`` is 0 where a line takes the place of each image, document and recording in a person's
    message.
    """

    outcome: int | None = None
    arguments: int | None = None
    prose: int | None = None
    media: int | None = None

    def leaves_out_media(self, facts: Facts) -> bool:
        """Whether the images, documents and recordings of such a message are left out."""
        return self.media is not None and facts.human and bool(facts.media)


def words_left(facts: Facts, characters: int) -> int:
    """The most characters of words in a message that is shortened to so many of them."""
    most = characters + MARKER_CHARACTERS
    if facts.demands:
        kept = min(facts.demand_characters, MOST_DEMAND_CHARACTERS)
        most += kept + (facts.demands + 1) * len(GAP)
    elif facts.may_demand:
        most += MOST_DEMAND_CHARACTERS + (MOST_DEMANDS + 1) * len(GAP)
    return min(facts.prose, most)


def shorten(
    message: dict[str, Any], number: int, limit: Limit, facts: Facts | None = None
) -> dict[str, Any]:
    """Cut the texts of ``message`` in place to the limits, and return it.

    Each text keeps its beginning (two thirds of its share) and its end (a third), with a marker
    between. Results, arguments or words of so many parts that this is not enough become one text,
    which is cut in the same way. ``facts`` are the message's own, where they are known: an event
    may say that a harness wrote what looks like a person's, or that it is an observation, whose
    words are its result.
    """
    if facts is not None and facts.observation:
        return _shorten_observation(message, number, limit)
    if limit.media is not None and (read_facts(message) if facts is None else facts).human:
        _leave_out_media(message, number)
    # Reading the facts of a long text takes long, so they are read where something was cut.
    kinds = {part.kind for part in read_parts(message, copies=True)}
    if limit.outcome is not None:
        if "result" in kinds:
            _shorten_results(message, number, limit.outcome)
            cut_to = read_facts(message)
            if cut_to.outcome > limit.outcome + MARKER_CHARACTERS * max(1, len(cut_to.results)):
                _replace_results(message, number, limit.outcome)
        if facts is not None and facts.may_hold_pasted:
            _shorten_pasted(message, number, limit.outcome)
    if limit.arguments is not None and not kinds.isdisjoint(("call", "hosted")):
        _shorten_arguments(message, number, limit.arguments)
        cut_to = read_facts(message)
        most = limit.arguments + 2 * MARKER_CHARACTERS * max(1, len(cut_to.calls))
        if cut_to.arguments > most:
            _replace_arguments(message, number, limit.arguments)
    if limit.prose is not None:
        facts = read_facts(message) if facts is None else facts
        if facts.human:
            _shorten_persons_words(message, number, limit.prose, facts)
        else:
            _share(_texts_of_words(message), number, limit.prose)
    return message


def _shorten_observation(message: dict[str, Any], number: int, limit: Limit) -> dict[str, Any]:
    if limit.outcome is not None:
        parts = [part for part in read_parts(message) if part.kind in _WORDS]
        texts = [text for part in parts for text in _texts(message, part)]
        # All the markers together take no more than one may.
        most = limit.outcome - MARKER_CHARACTERS * (len(texts) - 1)
        _share(texts, number, max(0, most))
    return message


def _leave_out_media(message: dict[str, Any], number: int) -> None:
    parts = [part for part in read_parts(message) if part.kind != "result"]
    for result in _results(message):
        parts += parts_of_result(result)
    for part in parts:
        shown = shown_of(part.value) if part.place else None
        if shown is None or not shown.media:
            continue
        marker = MEDIUM_MARKER.format(what=_MEDIA[shown.media[0].kind], number=number)
        holder, key = _at(message, part.place)
        # OpenAI's chat names a recording so, and a text as everybody does.
        responses = part.type.startswith("input_") and part.type != "input_audio"
        kind = "input_text" if responses else "text"
        holder[key] = marker if len(part.place) == 1 else {"type": kind, "text": marker}


def cut(text: str, number: int, characters: int) -> str:
    """The first and last parts of ``text``; at most ``characters`` of it and a marker."""
    if len(text) <= characters + MARKER_CHARACTERS:
        return text
    tail = characters // 3
    head = characters - tail
    marker = MARKER.format(left=len(text) - characters, number=number)
    return text[:head] + marker + (text[len(text) - tail :] if tail else "")


def _shorten_persons_words(
    message: dict[str, Any], number: int, characters: int, facts: Facts
) -> None:
    texts = _texts_of_words(message)
    shares = _shares(texts, characters)
    lengths = [
        min(len(text), share + MARKER_CHARACTERS)
        for (_, _, text), share in zip(texts, shares, strict=True)
    ]
    if sum(lengths) > characters + MARKER_CHARACTERS and _join_texts(message):
        texts = _texts_of_words(message)
        shares = _shares(texts, characters)
    # Most messages have no demands, and finding that in the text takes long.
    left = _kept_demands(message) if facts.may_demand else []
    for (holder, key, text), share in zip(texts, shares, strict=True):
        begins = persons_part(text)
        if begins is None:
            holder[key] = cut(text, number, share)
            continue
        found = demands_of(text[begins:]) if left else ()
        own = [sentence for sentence in found if sentence in left]
        holder[key] = _cut_around(text, number, share, begins, own)
        left = [sentence for sentence in left if sentence not in own]


def _shorten_pasted(message: dict[str, Any], number: int, characters: int) -> None:
    """Cut the pasted blocks of a person's message to so many characters together."""
    texts = [one for part in read_parts(message) if part.kind == "text"
             for one in _texts(message, part)]  # fmt: skip
    blocks = [(one, span) for one in texts for span in pasted_spans(one[2])]
    # All the markers together take no more than one may; of too many blocks only one is left.
    most = characters - MARKER_CHARACTERS * (len(blocks) - 1)
    pieces = [({"text": one[2][span.start : span.stop]}, one, span) for one, span in blocks]
    shares = _shares([(piece, "text", piece["text"]) for piece, _, _ in pieces], max(0, most))
    for place in range(len(pieces) - 1, -1, -1):
        piece, (holder, key, _), span = pieces[place]
        short = cut(piece["text"], number, shares[place]) if most >= 0 or not place else ""
        holder[key] = holder[key][: span.start] + short + holder[key][span.stop :]


def _kept_demands(message: dict[str, Any]) -> list[str]:
    kept: list[str] = []
    room = MOST_DEMAND_CHARACTERS
    for sentence in demands_in(message):
        room -= len(sentence)
        if room < 0:
            break
        kept.append(sentence)
    return kept


def _join_texts(message: dict[str, Any]) -> bool:
    """Make one text of a person's texts, without those of a harness; whether there were several."""
    parts = [part for part in read_parts(message) if part.kind == "text" and len(part.place) > 1]
    spoken = [part for part in parts if persons_part(part.value) is not None]
    if len(parts) < 2 or not spoken:
        return False
    holder, key = _at(message, spoken[0].place)
    holder[key] = "\n".join([part.value for part in spoken])
    # The place of a text is its list's, its block's index, and perhaps a key in the block.
    others = [part.place[:2] for part in parts if part is not spoken[0]]
    for place in reversed(others):
        blocks, index = _at(message, place)
        del blocks[index]
    return True


def _cut_around(text: str, number: int, characters: int, begins: int, demands: list[str]) -> str:
    """``cut`` of a person's text, which begins at ``begins``, around the demands in it.

    A cut may make a demand of a part of a longer sentence, or of a harness's words. Then less of
    the words next to the demands is kept: no end, at last no beginning.
    """
    most = characters + MARKER_CHARACTERS
    if demands:
        most += sum([len(one) for one in demands]) + (len(demands) + 1) * len(GAP)
    if len(text) <= most:
        return text
    tail = characters // 3
    made = text
    for head, end in ((characters - tail, tail), (characters, 0), (0, 0)):
        made = _around(text, number, begins, (head, end), demands)
        now = persons_part(made)
        if now is not None and list(demands_of(made[now:])) == demands:
            break
    return made


def _around(text: str, number: int, begins: int, ends: tuple[int, int], demands: list[str]) -> str:
    """The beginning, the demands and the end of a text, with markers between."""
    spans = [(begins, begins + ends[0])] if ends[0] else []
    at = begins
    for sentence in demands:
        place = text.find(sentence, at)
        spans.append((place, place + len(sentence)))
        at = place + len(sentence)
    if ends[1]:
        spans.append((len(text) - ends[1], len(text)))
    kept: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        if kept and start <= kept[-1][1] + len(GAP):
            kept[-1] = (kept[-1][0], max(kept[-1][1], stop))
        else:
            kept.append((start, stop))
    left = len(text) - sum([stop - start for start, stop in kept])
    marker, made, at = MARKER.format(left=left, number=number), "", 0
    for start, stop in [*kept, (len(text), len(text))]:
        if start > at:
            made, marker = made + marker, GAP
        made += text[start:stop]
        at = stop
    return made.removeprefix("\n")


def _texts_of_words(message: dict[str, Any]) -> list[tuple[Any, Any, str]]:
    parts = [part for part in read_parts(message) if part.kind in _WORDS]
    return [text for part in parts for text in _texts(message, part)]


def _at(message: dict[str, Any], place: Place) -> tuple[Any, Any]:
    """The holder of the value at a place, and the value's key or index in it."""
    holder: Any = message
    for step in place[:-1]:
        holder = holder[step]
    return holder, place[-1]


def _results(message: dict[str, Any]) -> list[Part]:
    """The results of a message; for a result whose blocks are results, the blocks."""
    found: list[Part] = []
    for part in read_parts(message):
        if part.kind == "result":
            inner = [one for one in parts_of_result(part) if one.kind == "result"]
            found += inner or [part]
    return found


def _texts(message: dict[str, Any], part: Part) -> list[tuple[Any, Any, str]]:
    """The texts in a part or a result: for each its holder, its key there, and the text."""
    value = part.value
    if not part.place:
        return []  # a whole item, which nobody knows how to cut
    typed = items.cuttable(part.type, value)
    if typed is not None:
        return [(holder, key, holder[key]) for holder, key in typed]
    if part.kind == "result" and isinstance(value, list):
        return [text for one in parts_of_result(part) for text in _texts(message, one)]
    if isinstance(value, str):
        return [(*_at(message, part.place), value)]
    if isinstance(value, dict) and part.kind == "result":
        # A structured output (Amplifier's {"error", "output", "success"}): its long texts.
        return [(value, name, item) for name, item in value.items() if isinstance(item, str)]
    if not isinstance(value, dict):
        return []
    source = value.get("source")
    if part.kind == "document" and isinstance(source, dict) and source.get("type") == "text":
        value = source  # a document in plain text, under "data"
    key = "text" if value is not source else "data"
    return [(value, key, value[key])] if isinstance(value.get(key), str) else []


def _replace_results(message: dict[str, Any], number: int, characters: int) -> None:
    results = [part for part in _results(message) if part.place]
    for part in results:
        holder, key = _at(message, part.place)
        share = max(0, characters // len(results))
        if _join(message, part, number, share):
            continue
        holder[key] = cut(_as_text(part.value), number, share)[: characters + 80]


def _join(message: dict[str, Any], part: Part, number: int, characters: int) -> bool:
    """Cut all the texts of a typed value as one; whether the part has such a value."""
    if items.cuttable(part.type, part.value) is None:
        return False
    text = "\n".join([text for _, _, text in _texts(message, part)])
    if text:
        items.joined(part.type, part.value, cut(text, number, characters))
    return True


def _replace_arguments(message: dict[str, Any], number: int, characters: int) -> None:
    parts = [part for part in read_parts(message) if part.kind == "call" and part.place]
    if parts and items.cuttable(parts[0].type, parts[0].value) is not None:
        _join(message, parts[0], number, characters)
        return
    holders = _argument_holders(message)
    for holder, key in holders:
        text = cut(_as_text(holder[key]), number, characters // (2 * len(holders)))
        short = {"shortened": text}
        # A text stays a text: a function takes JSON, a custom tool any text.
        as_text = isinstance(holder[key], str)
        holder[key] = msgspec.json.encode(short).decode() if as_text else short


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _shorten_results(message: dict[str, Any], number: int, characters: int) -> None:
    results = [part for part in read_parts(message) if part.kind == "result"]
    _share([text for part in results for text in _texts(message, part)], number, characters)


def _share(texts: list[tuple[Any, Any, str]], number: int, characters: int) -> None:
    for (holder, key, text), share in zip(texts, _shares(texts, characters), strict=True):
        holder[key] = cut(text, number, share)


def _shares(texts: list[tuple[Any, Any, str]], characters: int) -> list[int]:
    return share_out([len(text) for _, _, text in texts], characters)


def share_out(lengths: Sequence[int], characters: int) -> list[int]:
    """A share of ``characters`` for each length: short ones are whole, long ones get the rest."""
    shares = [0] * len(lengths)
    remaining = characters
    for done, place in enumerate(sorted(range(len(lengths)), key=lengths.__getitem__)):
        shares[place] = remaining // (len(lengths) - done)
        remaining -= min(lengths[place], shares[place])
    return shares


def _argument_holders(message: dict[str, Any]) -> list[tuple[Any, Any]]:
    """The holder of the arguments of each call, and their key there; copies of calls included.

    An item of a call that the provider answers (mcp_call) counts as arguments too.
    """
    holders: list[tuple[Any, Any]] = []
    for part in read_parts(message, copies=True):
        if part.kind == "call" and part.place:
            holders.append(_at(message, part.place))
        elif part.kind == "hosted" and not part.place:
            holders += [(part.value, "arguments"), (part.value, "input")]
    return [(holder, key) for holder, key in holders if key in holder]


def _shorten_arguments(message: dict[str, Any], number: int, characters: int) -> None:
    parts = [part for part in read_parts(message) if part.kind == "call"]
    if parts and items.cuttable(parts[0].type, parts[0].value) is not None:
        _share(_texts(message, parts[0]), number, characters)
        return
    holders = _argument_holders(message)
    for holder, key in holders:
        share = characters // len(holders)
        holder[key] = _shorter_arguments(holder[key], number, share)


def _shorter_arguments(value: Any, number: int, characters: int) -> Any:
    if not isinstance(value, str):
        return _shorter_values(value, number, characters)
    if len(value) <= characters + MARKER_CHARACTERS:
        return value
    # A JSON text must stay JSON: providers parse it again.
    try:
        parsed = decode_json(value)
    except msgspec.DecodeError:
        return cut(value, number, characters)
    return msgspec.json.encode(_shorter_values(parsed, number, characters)).decode()


def _shorter_values(value: Any, number: int, characters: int) -> Any:
    texts: list[tuple[Any, Any, str]] = []
    root = [value]
    stack: list[tuple[Any, Any]] = [(root, 0)]
    while stack:
        holder, key = stack.pop()
        item = holder[key]
        if isinstance(item, str):
            texts.append((holder, key, item))
        elif isinstance(item, dict):
            stack.extend((item, name) for name in item)
        elif isinstance(item, list):
            stack.extend((item, place) for place in range(len(item)))
    _share(texts, number, characters)
    return root[0]
