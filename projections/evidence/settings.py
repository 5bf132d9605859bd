"""The thresholds of the metric, and where each one comes from."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class EvidenceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What counts as reused. Figures of different settings cannot be compared.

    The defaults are those with which the metric was checked (docs/explanation/evidence.md). With
    ``least_name`` 6 a reader found a third of the lost spans to be coincidence, with 10 a tenth.
    ``least_run`` was tried with 16, 24 and 40, ``least_name`` with 6, 10 and 14, ``rarity`` with 3,
    10 and 30 %: recall moved by up to 3 points, the order of the policies held in all but one.

    ``least_run``: characters of a run. ``least_name``: characters of a name that is no hexadecimal
    and no number. ``rarity``: the share of the earlier messages that may hold a span, and
    ``few_carriers`` the number of messages that always may. ``most_runs``: runs of an action.
    ``messages_tried``: a run is looked for in so many of the last messages that have its beginning.
    """

    least_run: AtLeastOne = 24
    least_name: AtLeastOne = 10
    rarity: Share = 0.1
    few_carriers: AtLeastOne = 3
    most_runs: AtLeastOne = 60
    messages_tried: AtLeastOne = 4


DEFAULT: Final = EvidenceSettings()
