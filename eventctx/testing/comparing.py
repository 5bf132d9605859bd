"""A user's own policy, measured over recorded transcripts in a test.

    found = await compare_policies([messages], ["ladder", MyPolicy()], budgets=[16_000])
    assert found.row("mine").evidence.value >= found.row("ladder").evidence.value

The figures are those of ``engine.compare``; no engine, store or model is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eventctx.comparison.compare import Comparison, compare
from eventctx.comparison.defaults import BUDGETS, LOSSES, PRICES, Prices
from eventctx.comparison.recording import Recording
from eventctx.errors import InvalidSetting
from eventctx.policies.advisers import Scorer, Summarizer
from eventctx.policies.policy import Policy


async def compare_policies(
    transcripts: Sequence[Sequence[dict[str, Any]]],
    policies: Sequence[str | Policy],
    *,
    budgets: Sequence[int | str] = BUDGETS,
    model: str | None = None,
    summarizer: Summarizer | None = None,
    scorer: Scorer | None = None,
    prices: Prices = PRICES,
    losses: int = LOSSES,
) -> Comparison:
    """Play the policies over transcripts, each a list of messages of any dialect.

    The sessions of the answer are called ``transcript 1`` and so on. ``model`` is what the
    estimator counts for; the other arguments are those of ``engine.compare``. Raises InvalidMessage
    and InvalidSetting.
    """
    recordings = []
    for place, messages in enumerate(transcripts, start=1):
        recording = Recording(messages, name=f"transcript {place}", model=model)
        if not recording.requests:
            raise InvalidSetting(
                f"transcript {place}: expected an answer of a model to a request, found "
                f"{len(messages)} messages and none"
            )
        recordings.append(recording)
    return await compare(
        recordings,
        policies,
        budgets,
        summarizer=summarizer,
        scorer=scorer,
        prices=prices,
        losses=losses,
    )
