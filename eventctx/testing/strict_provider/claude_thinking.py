"""Rules of Anthropic's Messages API for thinking; which of them hold is the model's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from eventctx.testing.strict_provider.claude_request import (
    THINKING,
    ClaudeBlock,
    ClaudeRequest,
    read_model,
)
from eventctx.testing.strict_provider.rule import Found, Rule
from eventctx.testing.strict_provider.seals import (
    Seal,
    digest,
    prefixes,
    read_seal,
    sealed_blocks,
    signature_of,
    text_digest,
)

BINDING_BETA: Final = "thinking-binding-controls-2026-08-01"
"""The beta whose header a request needs to say what becomes of thinking that fails the check."""


class Dropped(msgspec.Struct, frozen=True):
    """A thinking block that the model is not shown, and the reason in the API's words."""

    path: str
    reason: str


def _check_enabled(request: ClaudeRequest) -> Iterator[Found]:
    if request.thinking.get("type") == "enabled" and request.model.refuses_enabled:
        yield (
            "thinking.type",
            (
                '"thinking.type.enabled" is not supported for this model. Use '
                '"thinking.type.adaptive" and "output_config.effort" to control thinking behavior.'
            ),
        )


def _check_budget(request: ClaudeRequest) -> Iterator[Found]:
    budget, most = request.thinking.get("budget_tokens"), request.body.get("max_tokens")
    if request.thinking.get("type") != "enabled" or not isinstance(budget, int):
        return
    if budget < 1024:
        path = "thinking.enabled.budget_tokens"
        yield path, f"{path}: Input should be greater than or equal to 1024"
    elif isinstance(most, int) and budget >= most and not _interleaves(request):
        yield (
            "max_tokens",
            (
                "`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our "
                "documentation at https://docs.claude.com/en/docs/build-with-claude/extended-thinking"
                "#max-tokens-and-context-window-size"
            ),
        )


def _interleaves(request: ClaudeRequest) -> bool:
    """With interleaved thinking and tools, the budget is that of the whole loop."""
    return bool(request.body.get("tools")) and request.model.version >= (4, 0)


def _check_loop(request: ClaudeRequest) -> Iterator[Found]:
    if request.thinking.get("type") != "enabled" or not request.model.thinks_manually:
        return
    loops = request.loops()
    loop = loops[-1] if loops else []
    answers = [turn for turn in loop if turn.role == "assistant" and turn.blocks]
    if not answers:
        return
    # A model that does not think between tools thinks once, in the first answer of the loop.
    firsts = [turn.blocks[0] for turn in (answers[0], answers[-1])]
    if not any(block.type in THINKING for block in firsts):
        found = firsts[-1]
        yield (
            f"{found.path}.type",
            (
                f"{found.path}.type: Expected `thinking` or `redacted_thinking`, but found "
                f"`{found.type}`. When `thinking` is enabled, a final `assistant` message must "
                "start with a thinking block (preceeding the lastmost set of `tool_use` and "
                "`tool_result` blocks). We recommend you include thinking blocks from previous "
                "turns. To avoid this requirement, disable `thinking`."
            ),
        )


def _check_signed(request: ClaudeRequest) -> Iterator[Found]:
    for _, block in request.blocks():
        if block.type in THINKING and signature_of(block) == "":
            yield block.path, f"{block.path}: Invalid `signature` in `{block.type}` block"


def _check_unchanged(request: ClaudeRequest) -> Iterator[Found]:
    answers = [turn for turn in request.turns if turn.role == "assistant"]
    latest = answers[-1].blocks if answers else ()
    for _, block, seal in sealed_blocks(request):
        if seal.text == text_digest(block.type, block.fields.get("thinking")):
            continue
        if block in latest:
            yield (
                block.path,
                (
                    f"{block.path}: `thinking` or `redacted_thinking` blocks in the latest "
                    "assistant message cannot be modified. These blocks must remain as they "
                    "were in the original response."
                ),
            )
        else:
            yield block.path, f"{block.path}: Invalid `signature` in `{block.type}` block"


def _check_bound(request: ClaudeRequest) -> Iterator[Found]:
    if _drops(request):
        return
    for block in _unbound(request):
        yield (
            block.path,
            (
                f"{block.path}: Invalid `signature` in `{block.type}` block. The block is bound "
                "to a different conversation. Remove the block, or set "
                '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
            ),
        )


def _check_binding_beta(request: ClaudeRequest) -> Iterator[Found]:
    # A body says nothing of the headers unless the caller adds them, as the server does.
    betas = request.body.get("anthropic_beta")
    if not isinstance(betas, list) or BINDING_BETA in betas:
        return
    if "block_binding" in request.thinking:
        path = f"thinking.{request.thinking.get('type')}.block_binding"
        yield path, f"{path}: Extra inputs are not permitted"


def dropped_thinking(request: ClaudeRequest) -> list[Dropped]:
    """The thinking that the model of a request is not shown, as ``input_transformations`` say."""
    foreign = [
        Dropped(block.path, "model_binding_mismatch")
        for _, block, seal in sealed_blocks(request)
        if not _reads(request, seal)
    ]
    unbound = _unbound(request) if _drops(request) else []
    return foreign + [Dropped(block.path, "prefix_binding_mismatch") for block in unbound]


def _unbound(request: ClaudeRequest) -> list[ClaudeBlock]:
    """The thinking whose prefix is not the one that it was made for."""
    if not request.model.preserves_thinking:
        return []
    found = []
    before: object = None
    for block, prefix in prefixes(request):
        if block.type not in THINKING:
            continue
        seal = read_seal(signature_of(block))
        if seal is not None and prefix is not None and _reads(request, seal):
            left_out = before is not None and seal.after != digest(before)
            if left_out or seal.prefix != prefix:
                found.append(block)
        before = signature_of(block)
    return found


def _reads(request: ClaudeRequest, seal: Seal) -> bool:
    """Whether the model reads the thinking of the one that made it."""
    maker = read_model(seal.model)
    exception = (maker.family, maker.version) == ("haiku", (5, 5))
    return maker == request.model or exception or not request.body.get("model")


def _drops(request: ClaudeRequest) -> bool:
    binding = request.thinking.get("block_binding")
    asked = binding.get("prefix_mismatch_behavior") if isinstance(binding, Mapping) else None
    return asked == "drop_block"


RULES: Final = (
    Rule(
        "anthropic/thinking-by-model",
        "anthropic",
        "`thinking: enabled` is refused from Claude Opus 4.7 on.",
        'error: "thinking.type.enabled" is not supported for this model',
        _check_enabled,
    ),
    Rule(
        "anthropic/thinking-budget",
        "anthropic",
        "A budget of thinking is 1,024 tokens at least and less than `max_tokens`.",
        "Extended thinking; error: `max_tokens` must be greater than `thinking.budget_tokens`",
        _check_budget,
    ),
    Rule(
        "anthropic/loop-begins-with-thinking",
        "anthropic",
        "With `thinking: enabled` (Claude 3.7 to 4.5), the answers of an open tool loop begin "
        "with thinking.",
        "Extended thinking; error: Expected `thinking` or `redacted_thinking`, but found …",
        _check_loop,
    ),
    Rule(
        "anthropic/thinking-signed",
        "anthropic",
        "Thinking has its signature.",
        "error: Invalid `signature` in `thinking` block",
        _check_signed,
    ),
    Rule(
        "anthropic/thinking-unchanged",
        "anthropic",
        "The text of thinking is the one that was signed.",
        "error: blocks in the latest assistant message cannot be modified",
        _check_unchanged,
    ),
    Rule(
        "anthropic/thinking-bound",
        "anthropic",
        "On a model with preserved thinking, nothing before a thinking block changed since it "
        "was made, and no thinking between others is left out, unless the request asks to drop "
        "such blocks.",
        "Prefix checks on thinking blocks; error: The block is bound to a different conversation",
        _check_bound,
    ),
    Rule(
        "anthropic/binding-needs-beta",
        "anthropic",
        f"`thinking.block_binding` needs the beta `{BINDING_BETA}`.",
        "Fix a thinking block bound to a different conversation",
        _check_binding_beta,
    ),
)
