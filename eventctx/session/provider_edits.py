"""Records what a provider did to a conversation by itself, as its answers tell.

At a threshold an API may write a summary in the middle of a request: the answer then holds a block
or an item with it, and from there on the API reads nothing that came before. So the view begins
there, too. The message keeps the summary as it came, and is sent back with it.

Invariant: each is one ``context:pre_compact`` and one ``context:post_compact`` with the trigger
``provider``, appended together after the answer. What it replaced stays in the transcript.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import msgspec

from eventctx.errors import WrongExpectedVersion
from eventctx.log import events
from eventctx.log.events import Trigger
from eventctx.log.ids import new_span_id
from eventctx.log.plan import PROVIDER, Plan
from eventctx.log.record import Body, Draft
from eventctx.messages import calibration
from eventctx.policies.planner import summarised_by_provider
from eventctx.projections.view.request_view import ViewState
from eventctx.session.aggregate import preview
from eventctx.session.open_session import OpenSession


async def note_compaction(session: OpenSession, holder: int) -> None:
    """Record that message ``holder`` brought the provider's own summary of what came before.

    Raises what the store raises.
    """
    while True:
        view, version = await session.appends.settle()
        plan = summarised_by_provider(view, holder)
        if plan is None:
            return
        drafts = draft_edit(session, view, plan, PROVIDER)
        # When another process wrote in between, the plan is made for its view.
        with contextlib.suppress(WrongExpectedVersion):
            if await session.appends.append_exactly(version, *drafts) is not None:
                return


def draft_edit(
    session: OpenSession,
    view: ViewState,
    plan: Plan,
    strategy: str,
    bodies: Sequence[Body] = (),
    requested_by: str | None = None,
    trigger: Trigger = "provider",
) -> tuple[Draft, Draft]:
    """The two records of a plan that no policy made, after ``view``; ``bodies`` are the plan's.

    Their tokens are estimated as those of a compaction of ours are, to compare with them.
    """
    around = session.drafts.scope
    scope = msgspec.structs.replace(
        around, span_id=new_span_id(session.random), parent_span_id=around.span_id
    )
    scale = calibration.scale(view.calibration)
    _, messages, counted = view.layout.measure()
    began = events.PreCompact(
        trigger=trigger,
        strategy=strategy,
        strategy_version=1,
        tokens=scale.tokens(counted),
        messages=messages,
        requested_by=requested_by,
    )
    ended = events.PostCompact(
        outcome="applied",
        trigger=trigger,
        strategy=strategy,
        strategy_version=1,
        tokens_before=scale.tokens(counted),
        tokens_after=0,
        messages_before=messages,
        messages_after=0,
        estimator=view.estimator.name,
        factor=scale.factor,
        reserve=scale.reserve,
        plan=plan,
        requested_by=requested_by,
    )
    opening = session.drafts.make(began, scope=scope)
    sketch = session.drafts.make(ended, bodies, scope)
    after = preview(view, session.stream, [opening, sketch])
    _, left, fewer = after.layout.measure()
    ended = msgspec.structs.replace(ended, tokens_after=scale.tokens(fewer), messages_after=left)
    return opening, session.drafts.make(ended, bodies, scope)
