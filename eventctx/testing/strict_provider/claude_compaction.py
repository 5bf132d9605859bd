"""Rules of Anthropic's Messages API for compactions: those asked for, and those sent back.

A compaction on demand (``compaction``) is a request of its own, and its block is signed. A
compaction at a threshold (``compact_20260112``) is made within an ordinary request, and its block
stays in the answer that it came with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from eventctx.testing.strict_provider.claude_request import ClaudeBlock, ClaudeRequest
from eventctx.testing.strict_provider.rule import Found, Rule
from eventctx.testing.strict_provider.seals import read_seal, text_digest

ON_DEMAND: Final = "compact-2026-09-04"
AT_THRESHOLD: Final = "compact-2026-01-12"

EDITING: Final = "context-management-2025-06-27"

_EDIT: Final = "compact_20260112"
_LEAST_TRIGGER: Final = 50_000


def _compactions(request: ClaudeRequest) -> list[ClaudeBlock]:
    """The blocks that hold a summary; one without content is a failed compaction, and nothing."""
    return [
        block
        for _, block in request.blocks()
        if block.type == "compaction" and block.fields.get("content") is not None
    ]


def _signed(request: ClaudeRequest) -> list[ClaudeBlock]:
    """Compactions that were made on demand; those at a threshold stay among what they replace."""
    return [block for block in _compactions(request) if block.fields.get("signature")]


def _edits(request: ClaudeRequest) -> list[Mapping[str, Any]]:
    """The threshold edits that the request asks for."""
    return _asked_edits(request, _EDIT)


def _asked_edits(request: ClaudeRequest, kind: str) -> list[Mapping[str, Any]]:
    """The edits of a type that begins with ``kind``."""
    asked = request.body.get("context_management")
    edits = asked.get("edits") if isinstance(asked, Mapping) else None
    found = [one for one in edits if isinstance(one, Mapping)] if isinstance(edits, list) else []
    return [one for one in found if str(one.get("type")).startswith(kind)]


def _check_one(request: ClaudeRequest) -> Iterator[Found]:
    for block in _signed(request)[1:]:
        yield (
            block.path,
            (
                "`messages` holds more than one `compaction` block with content. Send only the "
                "block the conversation returned last."
            ),
        )


def _check_first(request: ClaudeRequest) -> Iterator[Found]:
    first = next((block for _, block in request.blocks()), None)
    for block in _signed(request)[:1]:
        if block is not first:
            yield (
                block.path,
                "The `compaction` block is not the first block of the conversation.",
            )


def _check_unchanged(request: ClaudeRequest) -> Iterator[Found]:
    for block in _signed(request):
        seal = read_seal(block.fields.get("signature"))
        if seal is not None and seal.after != text_digest("compaction", block.fields["content"]):
            yield (
                block.path,
                (
                    "The `compaction` block's `content` differs from the text its `signature` "
                    "recorded."
                ),
            )


def _check_beta(request: ClaudeRequest) -> Iterator[Found]:
    # A body says nothing of the headers unless the caller adds them, as the server does.
    betas = request.body.get("anthropic_beta")
    if not isinstance(betas, list):
        return
    if request.body.get("compaction") is not None and ON_DEMAND not in betas:
        yield "compaction", "compaction: Extra inputs are not permitted"
    if _edits(request) and AT_THRESHOLD not in betas:
        yield "context_management", "context_management: Extra inputs are not permitted"
    for block in _compactions(request):
        needed = (ON_DEMAND,) if block.fields.get("signature") else (AT_THRESHOLD, ON_DEMAND)
        if not any(one in betas for one in needed):
            yield (
                block.path,
                (
                    f"{block.path}: Input tag 'compaction' found using 'type' does not match any "
                    "of the expected tags"
                ),
            )


def _check_editing_beta(request: ClaudeRequest) -> Iterator[Found]:
    betas = request.body.get("anthropic_beta")
    if isinstance(betas, list) and _asked_edits(request, "clear_") and EDITING not in betas:
        yield "context_management", "context_management: Extra inputs are not permitted"


def _check_model(request: ClaudeRequest) -> Iterator[Found]:
    if not request.model.version or request.model.compacts:
        return
    if request.body.get("compaction"):
        yield "compaction", "compaction: not supported on this model"
    for block in _compactions(request)[:1]:
        yield block.path, f"{block.path}: `compaction` blocks are not supported on this model"


def _check_alone(request: ClaudeRequest) -> Iterator[Found]:
    if request.body.get("compaction") and request.body.get("context_management"):
        yield "compaction", "compaction: cannot be combined with `context_management`"


def _check_trigger(request: ClaudeRequest) -> Iterator[Found]:
    for edit in _edits(request):
        trigger = edit.get("trigger")
        value = trigger.get("value") if isinstance(trigger, Mapping) else _LEAST_TRIGGER
        if not isinstance(value, int) or value < _LEAST_TRIGGER:
            yield (
                "context_management.edits",
                f"context_management.edits: trigger must be at least {_LEAST_TRIGGER} tokens",
            )


def _check_something(request: ClaudeRequest) -> Iterator[Found]:
    if not request.body.get("compaction"):
        return
    if not any(block.type != "compaction" for _, block in request.blocks()):
        yield "messages", "There is nothing to summarize."


RULES: Final = (
    Rule(
        "anthropic/one-compaction",
        "anthropic",
        "A request has one signed compaction block, the last that the API returned.",
        "SDK anthropic 2.14: CompactionBlockAmbiguousError",
        _check_one,
    ),
    Rule(
        "anthropic/compaction-first",
        "anthropic",
        "A signed compaction block is the first block of the conversation.",
        "SDK anthropic 2.14: CompactionBlockMisplacedError",
        _check_first,
    ),
    Rule(
        "anthropic/compaction-unchanged",
        "anthropic",
        "The text of a signed compaction block is the one that was signed.",
        "SDK anthropic 2.14: CompactionContentMismatchError",
        _check_unchanged,
    ),
    Rule(
        "anthropic/compaction-needs-beta",
        "anthropic",
        "A compaction, asked for or sent back, needs its beta: `compact-2026-09-04` on demand, "
        "`compact-2026-01-12` at a threshold.",
        "Compaction on demand; Compaction at a token threshold",
        _check_beta,
    ),
    Rule(
        "anthropic/editing-needs-beta",
        "anthropic",
        "Clearing tool uses or thinking needs the beta `context-management-2025-06-27`.",
        "Context editing",
        _check_editing_beta,
    ),
    Rule(
        "anthropic/compaction-by-model",
        "anthropic",
        "A model from 4.6 on (Haiku from 5.5 on) compacts, and takes a compaction back.",
        "Compaction on demand: supported models",
        _check_model,
    ),
    Rule(
        "anthropic/compaction-alone",
        "anthropic",
        "A compaction on demand is not combined with `context_management`.",
        "SDK anthropic 2.14: `compaction` of the Messages API",
        _check_alone,
    ),
    Rule(
        "anthropic/compaction-trigger",
        "anthropic",
        "A threshold of the API's own compaction is 50,000 tokens at least.",
        "Compaction at a token threshold",
        _check_trigger,
    ),
    Rule(
        "anthropic/compaction-of-something",
        "anthropic",
        "A request for a compaction has a message to summarize.",
        "SDK anthropic 2.14: CompactionNothingToSummarizeError",
        _check_something,
    ),
)
