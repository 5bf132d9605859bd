"""Token figures of requests and compactions, as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

if TYPE_CHECKING:
    from eventctx.projections.figures import CompactionFigures, RequestFigures


def request_json(figures: RequestFigures) -> dict[str, Any]:
    """``tokens`` and ``estimated`` are the one figure, ``figures`` all that are known of it."""
    return {"tokens": figures.total, "estimated": figures.estimated, "figures": asdict(figures)}


def compaction_json(figures: CompactionFigures | None) -> dict[str, Any]:
    """The two sizes and all that is known of them; all None where nothing was applied."""
    return {
        "tokens_before": None if figures is None else figures.before,
        "tokens_after": None if figures is None else figures.after,
        "figures": None if figures is None else asdict(figures),
    }
