"""Calibration: reported usage of providers, made into a scale for our own counts.

An estimator counts a view from its messages alone. Two things are learnt from reported usage: the
tokens of all that is sent with the messages (system prompt, tool definitions), and how far the
estimator's rates are off for this model and this kind of text. So a request has
``factor * count + reserve`` tokens (``Scale``):

- ``factor`` compares growth: by how many tokens the reported prompts grew, per counted token, from
  one request to a later one that only continues it. All that is sent with the messages is equal in
  both and drops out. ``PRIOR`` tokens of growth at factor 1 are there from the start.
- ``reserve`` is the rest of the model's last prompt, or the caller's guess before the first report.

Usage teaches only of the request that it was reported for. Where the host sent another list than
the view, the report is for the size of that list. It teaches nothing where that size is not known,
and where the list differs by more than half of the prompt: the line through it says little of the
view.

After a compaction that an importer found, the view is a tenth of what the last report was for. So
far from it the line through that report is wrong by all that was ever miscounted, and it may even
be below 0. There the line goes through the report for the smallest view as well: what was sent with
few messages is sent with the summary, too.

Invariants: everything is folded from events, so the same log gives the same scale. The scale of a
model maps the size of its last reported request to the prompt that was reported, but for rounding.
"""

from __future__ import annotations

from math import ceil, floor
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from eventctx.messages.tokens import family_of

PRIOR: Final = 10_000
"""Tokens of growth that factor 1 counts as, so that little evidence changes it little."""

LEAST_FACTOR: Final = 0.5
MOST_FACTOR: Final = 2.0

STEP: Final = 2_000
"""Counted tokens of growth from which a step is judged: smaller steps are mostly noise."""

OUTLIER: Final = 3.0
"""A step beyond this ratio of grown to counted tokens, or its inverse, is ignored: it holds text
that is not in the log."""

MOST_BESIDE: Final = 150_000
"""The most tokens besides the messages that are believed of a request without a known budget. They
leave less room in the next request, so a wrong number must not fill a whole one."""

MOST_STANDING: Final = 64_000
"""The most tokens besides the messages that are believed to stay through an imported compaction. A
transcript may begin in mid-session: then its first prompt holds a conversation that is not in the
file, and a compaction takes that out. Programs send 20,000 to 50,000; the most recorded is 74,000.
"""

MAX_REQUESTS: Final = 16
"""Prepared requests that are kept, because their usage may still be reported."""

MAX_MODELS: Final = 16


class Scale(NamedTuple):
    """From an estimator's count to tokens: ``factor`` times the count, plus ``reserve`` tokens.

    Never less than ``least`` times the count: where a whole prompt was smaller than the count of
    its messages, ``reserve`` is negative, and a smaller view must not come out as 0 tokens.
    """

    factor: float = 1.0
    reserve: int = 0
    least: float = 0.0

    def tokens(self, count: int) -> int:
        """Tokens of a request whose messages count ``count``."""
        return max(self.reserve + ceil(count * self.factor), ceil(count * self.least))

    def room(self, tokens: int) -> int:
        """The largest count whose request has at most ``tokens``; below 0 where nothing fits."""
        left = floor((tokens - self.reserve) / self.factor)
        if self.least:
            left = min(left, floor(tokens / self.least))
        while self.tokens(left) > tokens:
            left -= 1
        return left


class RequestSize(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A prepared request, its counted size, and whether it only continues the one before.

    What was sent counts ``difference`` more: a host may send another list. None: not known.
    """

    position: int
    size: int
    continued: bool
    budget: int | None
    difference: int | None = 0


class Base(NamedTuple):
    """A report for a small view; at most ``standing`` tokens of it stay through a compaction."""

    size: int
    prompt: int
    standing: int


class Reading(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One model's last reported prompt with its counted size, and how both grew so far.

    ``position`` is that of the request. Growth since ``since``, a ``(size, prompt)``, has not been
    judged yet; ``counted`` and ``grown`` are the sums of the growth that was accepted, in counted
    and in reported tokens. ``base`` is the report from which the view grew to this one.
    """

    model: str
    position: int
    size: int
    prompt: int
    since: tuple[int, int]
    base: Base
    counted: int = 0
    grown: int = 0


class Calibration(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The state: the family whose rates are in force, the model last called, requests, readings.

    ``requests`` and ``readings`` (one a model) have the newest last. ``compacted`` is the position
    of the last compaction that an importer found.
    """

    family: str = "other"
    model: str | None = None
    requests: tuple[RequestSize, ...] = ()
    readings: tuple[Reading, ...] = ()
    compacted: int = -1


UNCALIBRATED: Final = Calibration()


def note_prepared(calibration: Calibration, request: RequestSize) -> Calibration:
    """The calibration after a request was prepared."""
    return replace(calibration, requests=(*calibration.requests[1 - MAX_REQUESTS :], request))


def note_sent(calibration: Calibration, at: int, difference: int | None) -> Calibration:
    """The calibration after the host sent another list than the request prepared at ``at``.

    A report that came before this is forgotten: it was taken for one of the view.
    """
    requests = [
        replace(one, difference=difference) if one.position == at else one
        for one in calibration.requests
    ]
    readings = [one for one in calibration.readings if one.position != at]
    return replace(calibration, requests=tuple(requests), readings=tuple(readings))


def note_called(calibration: Calibration, model: str | None) -> Calibration:
    """The calibration after a call of ``model``; its family's rates hold from here on."""
    if model is None or model == calibration.model:
        return calibration
    return replace(calibration, model=model, family=family_of(model))


def note_compacted(calibration: Calibration, at: int) -> Calibration:
    """The calibration after an importer found a compaction, whose record is at position ``at``."""
    return replace(calibration, compacted=at)


def note_reported(calibration: Calibration, at: int, prompt: int, model: str | None) -> Calibration:
    """The calibration after ``prompt`` tokens were reported for the request prepared at ``at``."""
    calibration = note_called(calibration, model)
    request = next((one for one in reversed(calibration.requests) if one.position == at), None)
    if request is None or request.difference is None or 2 * abs(request.difference) > prompt:
        return calibration
    size = max(0, request.size + request.difference)
    if not _plausible(size, request.budget, prompt):
        return calibration
    name = calibration.model or ""
    before = next((one for one in calibration.readings if one.model == name), None)
    # Without a known budget the session may be imported from its middle: then not all of a prompt
    # beyond the messages is system prompt and tools.
    standing = MOST_STANDING if request.budget is None else prompt
    now = Reading(name, at, size, prompt, (size, prompt), Base(size, prompt, standing))
    if before is not None:
        if at <= before.position:
            return calibration  # reported twice, or out of order
        now = replace(now, counted=before.counted, grown=before.grown)
        # A view that fell to half was compacted, and one below the base is smaller than any before:
        # from both a new growth begins, and this report is its base.
        if now.size * 2 > before.size and now.size > before.base.size:
            now = replace(now, base=before.base)
        if _continued(calibration.requests, before.position, at):
            now = _learn_growth(before, now)
    others = tuple([one for one in calibration.readings if one.model != name])
    return replace(calibration, readings=(*others[1 - MAX_MODELS :], now))


def recount(calibration: Calibration, size: int, before: int) -> Calibration:
    """The calibration after the rates changed: a view that counted ``before`` counts ``size`` now.

    The sizes of the kept requests change in proportion. Readings stay: each was made with the rates
    of its own model's family.
    """
    before = max(1, before)
    # A report for one of these may still come, and is compared with counts by the new rates.
    requests = [
        replace(
            one,
            size=one.size * size // before,
            difference=one.difference and one.difference * size // before,
        )
        for one in calibration.requests
    ]
    return replace(calibration, requests=tuple(requests))


def scale(calibration: Calibration, reserve: int = 0) -> Scale:
    """The scale for the next request; ``reserve`` is the guess until a prompt was reported."""
    name = calibration.model or ""
    reading = next((one for one in calibration.readings if one.model == name), None)
    if reading is None:
        return Scale(1.0, reserve)
    if reading.position < calibration.compacted:
        return _scale_below(reading)
    return _line(growth_factor(reading), reading.size, reading.prompt)


def _line(factor: float, size: int, prompt: int) -> Scale:
    beside = prompt - ceil(size * factor)
    # The rates count too much even at this factor. The line still goes through the reported prompt,
    # and ``least`` keeps a smaller view from counting less than its share of that prompt.
    if beside >= 0 or size == 0:
        return Scale(factor, max(0, beside))
    return Scale(factor, beside, round(prompt / size, 4))


def _scale_below(reading: Reading) -> Scale:
    """The scale of views far smaller than that of the reading: through its base, and it."""
    base = reading.base
    counted, grown = reading.size - base.size, reading.prompt - base.prompt
    # The slope between the two reports themselves, not the accepted growth: the line must go
    # through both, or the error of one would be carried to a view a tenth of its size.
    factor = growth_factor(reading) if counted < STEP else _round_factor(grown / counted)
    line = _line(factor, base.size, base.prompt)
    return line._replace(reserve=min(line.reserve, base.standing))


def growth_factor(reading: Reading) -> float:
    """Reported tokens of growth per counted one; 1 while no growth was accepted."""
    return _round_factor((PRIOR + reading.grown) / (PRIOR + reading.counted))


def _round_factor(factor: float) -> float:
    # Four digits, so that the factor in a record is exactly the one that was used.
    return round(min(MOST_FACTOR, max(LEAST_FACTOR, factor)), 4)


def _continued(requests: tuple[RequestSize, ...], first: int, last: int) -> bool:
    """Whether every request after ``first`` up to ``last`` only continues the one before it.

    Requests to other models in between count too. False where a request is no longer kept: it may
    have been a break.
    """
    return requests[0].position <= first and all(
        one.continued for one in requests if first < one.position <= last
    )


def _plausible(size: int, budget: int | None, prompt: int) -> bool:
    """Whether ``prompt`` can be that of a request that counts ``size``.

    Some hosts report uncached tokens, running sums or placeholders as prompts.
    """
    if prompt <= 0 or prompt < size * LEAST_FACTOR:
        return False
    if budget is None:
        return prompt <= MOST_FACTOR * size + MOST_BESIDE
    return prompt <= 2 * budget


def _learn_growth(before: Reading, now: Reading) -> Reading:
    """The new reading with its growth since ``before.since``, if that is a step to accept."""
    size, prompt = before.since
    counted, grown = now.size - size, now.prompt - prompt
    if 0 <= counted < STEP:
        # Too small to judge alone. The step goes on from the same start, so small ones add up.
        return replace(now, since=before.since)
    if counted <= 0 or not counted / OUTLIER <= grown <= counted * OUTLIER:
        return now
    return replace(now, counted=before.counted + counted, grown=before.grown + grown)
