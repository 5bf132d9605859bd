"""Whatever a log holds, the view that is sent is one that its provider accepts (rule 8)."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eventctx
from eventctx.errors import EventctxError
from eventctx.projections.view.sendable.sending import make_sendable, sendable
from eventctx.testing.strict_provider import violations
from eventctx.testing.strict_provider.rule import Api
from tests.how_much import some
from tests.view.sdk_messages import chat_rows, claude_rows, response_rows

examples = settings(
    max_examples=some(6, 2_000), deadline=None, suppress_health_check=list(HealthCheck)
)
POLICIES: Final = ("workset", "simple", "ladder", "truncate", "token-budget")
ROWS: Final[dict[Api, Any]] = {
    "anthropic": claude_rows(),
    "openai-chat": chat_rows(),
    "openai-responses": response_rows(),
}

LEFT_TO_THE_CALLER: Final = {
    # A request that ends with an answer asks for more of it.
    "anthropic/no-prefill",
    "anthropic/prefill-without-space",
    # Made by the strategies, where only the fields that a type needs are drawn.
    "openai-responses/known-parts",
    "openai-responses/no-extra-fields",
    "openai-responses/required-fields",
    "openai-chat/no-extra-fields",
    "openai-chat/required-fields",
}


def broken(api: Api, rows: list[dict[str, Any]]) -> list[Any]:
    if not rows:
        return []  # nothing was said yet but a result of no call
    request = {"input" if api == "openai-responses" else "messages": rows}
    return [one for one in violations(api, request) if one.rule not in LEFT_TO_THE_CALLER]


class Story:
    """A session that is written, forked, restored, erased and asked for its view, at any place."""

    def __init__(self, api: Api, rows: list[dict[str, Any]], draw: st.DrawFn, policy: str) -> None:
        places = st.integers(0, len(rows) - 1)
        self._api = api
        self._rows = rows
        self._asked = draw(st.sets(places)) | {len(rows) - 1}
        self._forked, self._erased, self._restored, self._compacted = draw(
            st.tuples(places, st.none() | places, st.none() | places, st.none() | places)
        )
        self._options: dict[str, Any] = {
            "max_tokens": draw(st.sampled_from([600, 3_000, 50_000])),
            "policy": policy,
            "on_overflow": "send_floor",
        }

    async def play(self) -> None:
        async with eventctx.open() as engine:
            session = "s"
            ctx = await engine.session(session, **self._options)
            for number, row in enumerate(self._rows):
                receipt = await ctx.add_message(row)
                if number == self._forked:
                    await engine.fork("s", receipt.position, "forked")
                    session = "forked"
                    ctx = await engine.session(session, **self._options)
                if number == self._erased:
                    await engine.erase(session, [number])
                    ctx = await engine.session(session, **self._options)
                if number == self._compacted:
                    await ctx.compact(force=True)
                if number == self._restored:
                    # A result of no call, or an erased message, cannot come back.
                    with suppress(EventctxError):
                        await ctx.restore(number // 2)
                if number in self._asked:
                    view = await ctx.get_messages_for_request()
                    found = broken(self._api, view)
                    assert not found, f"{found}\n{json.dumps(view, indent=1)}"


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("api", ROWS)
@examples
@given(data=st.data())
async def test_a_view_of_any_rows_is_accepted_under_every_policy(
    api: Api, policy: str, data: st.DataObject
) -> None:
    await Story(api, data.draw(ROWS[api]), data.draw, policy).play()


@pytest.mark.parametrize("api", ROWS)
@examples
@given(data=st.data())
def test_rows_that_were_made_sendable_are_not_changed_again(api: Api, data: st.DataObject) -> None:
    once = sendable(data.draw(ROWS[api]))
    again, changes = make_sendable(once)
    assert changes == ()
    assert again == once
