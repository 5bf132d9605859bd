"""The calibration of a session: what providers reported, made into a scale for our own counts.

An estimator counts a view from its messages alone. What it cannot know is learnt from reported
usage: the size of what is sent beside the messages (system prompt, tool definitions), and how far
its rates are off for this model and this kind of text. Everything here is folded from events, so
the same log gives the same scale.
"""

from __future__ import annotations

from math import ceil, floor
from typing import Final, NamedTuple

from eventctx.messages.tokens import family_of

PRIOR: Final = 10_000
"""Tokens of growth that the factor 1 is worth: little evidence moves it little."""

LEAST_FACTOR: Final = 0.5
MOST_FACTOR: Final = 2.0

STEP: Final = 2_000
"""Counted tokens of growth that are judged as one step: smaller ones are mostly noise."""

OUTLIER: Final = 3.0
"""A step that grew this many times more, or less, than counted holds something not in the log."""

MAX_ASKED: Final = 16
"""Prepared requests whose report may still come."""

MAX_MODELS: Final = 16


class Scale(NamedTuple):
    """From an estimator's count to tokens: ``factor`` times the count, plus ``reserve`` tokens.

    Never less than ``least`` times the count: where a whole prompt was smaller than its messages
    were counted, ``reserve`` is negative, and a smaller view must not come out as nothing.
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


class RequestSize(NamedTuple):
    """A prepared request, its size as counted, and whether it goes on from the one before."""

    position: int
    size: int
    continued: bool
    budget: int | None


class Reading(NamedTuple):
    """One model's last prompt with its size as counted, and how both grew so far.

    ``position`` is that of the request it answers, ``since`` is the ``(size, prompt)`` from where
    growth has not been judged yet.
    """

    model: str
    position: int
    size: int
    prompt: int
    since: tuple[int, int]
    counted: int = 0
    grown: int = 0


class Calibration(NamedTuple):
    """The state: the family whose rates are in force, the model last called, and readings.

    ``asked`` and ``readings`` have the newest last.
    """

    family: str = "other"
    model: str | None = None
    asked: tuple[RequestSize, ...] = ()
    readings: tuple[Reading, ...] = ()


UNCALIBRATED: Final = Calibration()


def prepared(calibration: Calibration, asked: RequestSize) -> Calibration:
    """The calibration after a request was prepared."""
    return calibration._replace(asked=(*calibration.asked[1 - MAX_ASKED :], asked))


def called(calibration: Calibration, model: str | None) -> Calibration:
    """The calibration after a call of ``model``; its family's rates hold from here on."""
    if model is None or model == calibration.model:
        return calibration
    return calibration._replace(model=model, family=family_of(model))


def reported(calibration: Calibration, at: int, prompt: int, model: str | None) -> Calibration:
    """The calibration after a provider counted ``prompt`` tokens for the request at ``at``."""
    calibration = called(calibration, model)
    asked = next((one for one in reversed(calibration.asked) if one.position == at), None)
    if asked is None or not _plausible(asked, prompt):
        return calibration
    name = calibration.model or ""
    before = next((one for one in calibration.readings if one.model == name), None)
    now = Reading(name, at, asked.size, prompt, (asked.size, prompt))
    if before is not None:
        if at <= before.position:
            return calibration  # reported twice, or out of order
        now = now._replace(counted=before.counted, grown=before.grown)
        if _continued(calibration.asked, before.position, at):
            now = _learnt(before, now)
    others = tuple([one for one in calibration.readings if one.model != name])
    return calibration._replace(readings=(*others[1 - MAX_MODELS :], now))


def recounted(calibration: Calibration, size: int, before: int) -> Calibration:
    """The calibration after the rates changed: a view of ``before`` counts ``size`` now.

    The requests that may still be reported change in proportion. Readings stay: each was made
    with the rates of its own model's family.
    """
    asked = [one._replace(size=one.size * size // max(1, before)) for one in calibration.asked]
    return calibration._replace(asked=tuple(asked))


def scale(calibration: Calibration, reserve: int = 0) -> Scale:
    """The scale for the next request; ``reserve`` tokens are assumed until one was reported."""
    name = calibration.model or ""
    reading = next((one for one in calibration.readings if one.model == name), None)
    if reading is None:
        return Scale(1.0, reserve)
    factor = growth_factor(reading)
    beside = reading.prompt - ceil(reading.size * factor)
    if beside >= 0 or reading.size == 0:
        return Scale(factor, max(0, beside))
    return Scale(factor, beside, round(reading.prompt / reading.size, 4))


def growth_factor(reading: Reading) -> float:
    """Tokens per counted token, as prompts grew; 1 while nothing has."""
    return _rounded((PRIOR + reading.grown) / (PRIOR + reading.counted))


def _rounded(factor: float) -> float:
    # Four digits, so that the factor that a record tells is the one that was used.
    return round(min(MOST_FACTOR, max(LEAST_FACTOR, factor)), 4)


def _continued(asked: tuple[RequestSize, ...], first: int, last: int) -> bool:
    """Whether every request behind the one at ``first`` up to ``last`` goes on from the one before.

    Calls of other models lie in between; a request no longer known may have been a break.
    """
    return asked[0].position <= first and all(
        one.continued for one in asked if first < one.position <= last
    )


def _plausible(asked: RequestSize, prompt: int) -> bool:
    """Hosts report uncached tokens, running sums and placeholders as prompts, too."""
    if prompt <= 0 or prompt < asked.size * LEAST_FACTOR:
        return False
    return asked.budget is None or prompt <= 2 * asked.budget


def _learnt(before: Reading, now: Reading) -> Reading:
    size, prompt = before.since
    counted, grown = now.size - size, now.prompt - prompt
    if 0 <= counted < STEP:
        return now._replace(since=before.since)
    if counted <= 0 or not counted / OUTLIER <= grown <= counted * OUTLIER:
        return now
    return now._replace(counted=before.counted + counted, grown=before.grown + grown)
