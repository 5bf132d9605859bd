"""Evidence recall: the share of what a recorded model reused that a view still holds.

    from eventctx.projections.evidence import HeldTexts, evidence, judge, needs, normalise

``needs`` gives, once for a session, all that its model's actions repeat of earlier messages.
``judge`` holds one request's need against one view, ``evidence`` sums up. No model is asked, and
nothing here knows which policy made the view.
"""

from eventctx.projections.evidence.judging import (
    CarriedDemand,
    DemandRecall,
    Evidence,
    HeldTexts,
    Judged,
    carried_demands,
    demand_recall,
    evidence,
    judge,
)
from eventctx.projections.evidence.reuse import EvidenceSettings, Need, ReusedSpan, needs
from eventctx.projections.evidence.texts import normalise, normalise_text

__all__ = [
    "CarriedDemand",
    "DemandRecall",
    "Evidence",
    "EvidenceSettings",
    "HeldTexts",
    "Judged",
    "Need",
    "ReusedSpan",
    "carried_demands",
    "demand_recall",
    "evidence",
    "judge",
    "needs",
    "normalise",
    "normalise_text",
]
