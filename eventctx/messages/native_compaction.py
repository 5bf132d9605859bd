"""Edits that a provider makes of a conversation: how its API is asked, what it leaves of it.

Anthropic answers with a block (``compaction``): signed where it was asked for on demand, and then
the first block of the conversation; without a signature where it was made at a threshold, and then
it stays in the answer that it came with. OpenAI's Responses API answers with an opaque item of that
type. Each is sent back as it came, and only to a model that reads it.

Anthropic's context editing clears tool uses of each request anew: the oldest first, except the last
ones and those of excluded tools. The answer counts them and names none, and the next request has
them all again.

Source: Anthropic's "Compaction on demand", "Compaction that keeps recent turns", "Compaction at a
token threshold" and "Context editing"; OpenAI's "Compaction"; read in November 2026.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from eventctx.messages.thinking import generation_of
from eventctx.text import pattern

ON_DEMAND: Final = "compact-2026-09-04"
"""The beta of a request for a compaction, and of every later one that sends its block."""

AT_THRESHOLD: Final = "compact-2026-01-12"
"""The beta of requests that let the API compact at a threshold, and send its block."""

BETA_HEADER: Final = "anthropic-beta"

Maker = Literal["anthropic", "openai"]

_CLAUDE: Final = pattern(r"claude|(?:opus|sonnet|haiku|fable|mythos)[-_. ]?\d")
_OPENAI: Final = pattern(r"(?:^|[/:.])(?:gpt|chatgpt|codex|o\d)\b")


def compaction_blocks(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Anthropic's compactions in a message; one without content has failed, and is none."""
    content = row.get("content")
    blocks = content if isinstance(content, list) else ()
    return [
        one
        for one in blocks
        if isinstance(one, Mapping) and one.get("type") == "compaction" and one.get("content")
    ]


def made_up_summary(text: str) -> dict[str, Any]:
    """A message such as an API's own summary, where none is asked: a dry run, a simulation."""
    return {"role": "assistant", "content": [{"type": "compaction", "content": text}]}


def beta_of(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """The beta without which Anthropic's API refuses these messages; None if it needs none."""
    found = [block for row in rows for block in compaction_blocks(row)]
    if not found:
        return None
    return ON_DEMAND if any(one.get("signature") for one in found) else AT_THRESHOLD


def with_beta(header: str | None, beta: str | None) -> str | None:
    """The value of the header ``anthropic-beta`` with one more beta; None where there is none."""
    named = [one.strip() for one in (header or "").split(",") if one.strip()]
    if beta is not None and beta not in named:
        named.append(beta)
    return ",".join(named) or None


def compacts_on_demand(model: str | None) -> bool:
    """Whether a Claude model is taken to compact on demand: from 4.6 on, and unknown later ones."""
    return model is not None and bool(_CLAUDE.search(model.lower())) and _is_late(model)


def reads_compaction(model: str | None, maker: Maker) -> bool:
    """Whether a model other than the one that was called before reads a compaction of ``maker``.

    A name that tells no provider reads none: the view is then made from the log.
    """
    if model is None:
        return True
    if maker == "anthropic":
        return compacts_on_demand(model)
    return bool(_OPENAI.search(model.lower()))


def summary_in(body: Mapping[str, Any]) -> dict[str, Any] | None:
    """The summary in the answer to a request for one, as it is sent back; None without one.

    Anthropic's is a message with a block, OpenAI's an item. Fields that are null are left out: the
    APIs refuse them.
    """
    content, output = body.get("content"), body.get("output")
    if isinstance(content, list) and body.get("stop_reason") == "compaction":
        row = {"role": "assistant", "content": [*map(_without_nulls, content)]}
        return row if compaction_blocks(row) else None
    items = [one for one in output if isinstance(one, Mapping)] if isinstance(output, list) else []
    found = [one for one in items if one.get("type") == "compaction"]
    return _without_nulls(found[-1]) if found else None


def _without_nulls(block: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in block.items() if value is not None}


_HOSTED: Final = ("server_tool_use", "mcp_tool_use")
"""Calls that have their results in the same message; whether they count as tool uses is not said.
"""

CLEARED: Final = "[cleared by the provider]"
"""In place of a cleared result; the API's own words for it are not published."""


def cleared_calls(
    rows: Sequence[Mapping[str, Any]], uses: int, keep: int, exclude: Collection[str] = ()
) -> frozenset[str] | None:
    """The ids of the ``uses`` calls of a request that Anthropic's API cleared; None if unclear.

    It clears the oldest first, but neither the last ``keep`` nor those of the tools ``exclude``.
    The number alone says which, whether or not the last ones are counted among all. It is unclear
    where the API counted more than it may clear, or where calls that it ran itself lie among them.
    """
    answered = {one.get("tool_use_id") for one in _blocks(rows, "tool_result")}
    calls = [
        one
        for one in _blocks(rows, "tool_use", *_HOSTED)
        if one["type"] in _HOSTED or one.get("id") in answered
    ]
    known = [one for one in calls if one.get("name") not in exclude]
    own = [one for one in known if one["type"] not in _HOSTED]
    last = calls[-keep:] if keep else []
    most = sum([one not in last for one in known])
    oldest = [one for one in known[:uses] if one["type"] not in _HOSTED]
    if not 0 < uses <= most or oldest != own[:uses]:
        return None
    return frozenset([str(one.get("id")) for one in oldest])


def without_cleared(
    row: dict[str, Any], calls: Collection[str], inputs: bool | Collection[str] = False
) -> dict[str, Any]:
    """A message of a request as the model reads it after these calls were cleared.

    ``inputs``: the arguments were cleared, too; of the tools with these names alone.
    """

    def read(block: Any) -> Any:
        if not isinstance(block, Mapping):
            return block
        if block.get("type") == "tool_result" and block.get("tool_use_id") in calls:
            return {**block, "content": CLEARED}
        if block.get("type") == "tool_use" and block.get("id") in calls:
            bare = inputs if isinstance(inputs, bool) else block.get("name") in inputs
            return {**block, "input": {}} if bare else block
        return block

    content = row.get("content")
    return {**row, "content": [read(one) for one in content]} if isinstance(content, list) else row


def _blocks(rows: Iterable[Mapping[str, Any]], *types: str) -> list[Mapping[str, Any]]:
    contents = [row.get("content") for row in rows]
    blocks = [one for content in contents if isinstance(content, list) for one in content]
    return [one for one in blocks if isinstance(one, Mapping) and one.get("type") in types]


def _is_late(model: str) -> bool:
    return generation_of(model) != "manual"
