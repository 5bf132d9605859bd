"""Evidence recall: how much of what a recorded model reused a view still holds.

    from eventctx.projections.evidence import Shown, evidence, judged, needs, normalised

``needs`` says once a session what every action of its model repeats of earlier messages. ``judged``
holds one request's need against one view, ``evidence`` sums up. No model is asked, and nothing
here knows which policy made the view.

The names of two classes are taken elsewhere: ``Span`` is ``ReusedSpan``, ``Shown`` is ``HeldTexts``
in their own modules.
"""

from eventctx.projections.evidence.demanded import (
    CarriedDemand,
    DemandRecall,
    carried_demands,
    demand_recall,
)
from eventctx.projections.evidence.judging import Evidence, Judged, evidence, judged
from eventctx.projections.evidence.judging import HeldTexts as Shown
from eventctx.projections.evidence.reuse import Need, needs
from eventctx.projections.evidence.reuse import ReusedSpan as Span
from eventctx.projections.evidence.settings import EvidenceSettings
from eventctx.projections.evidence.texts import normalised, normalised_text

__all__ = [
    "CarriedDemand",
    "DemandRecall",
    "Evidence",
    "EvidenceSettings",
    "Judged",
    "Need",
    "Shown",
    "Span",
    "carried_demands",
    "demand_recall",
    "evidence",
    "judged",
    "needs",
    "normalised",
    "normalised_text",
]
