"""For each rule of Anthropic's API: a request that is accepted, and one that breaks the rule."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

from eventctx.testing.strict_provider.claude_request import read_claude_request
from eventctx.testing.strict_provider.claude_thinking import BINDING_BETA
from eventctx.testing.strict_provider.seals import Seal, prefix_digest, seal_signature, text_digest

Body = dict[str, Any]
Case = tuple[Body, Body, str]
"""An accepted request, a refused one, and words of the refusal."""

PRESERVED = "claude-opus-5-5"
MANUAL = "claude-sonnet-4-5-20250929"
ASKED: Body = {"role": "user", "content": "Read x."}


def text(said: str) -> Body:
    return {"type": "text", "text": said}


def call(number: int = 1, **fields: Any) -> Body:
    return {"type": "tool_use", "id": f"toolu_{number}", "name": "read", "input": {}, **fields}


def result(number: int = 1, content: Any = "text", **fields: Any) -> Body:
    return {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": content, **fields}


def user(*blocks: Body) -> Body:
    return {"role": "user", "content": list(blocks)}


def answer(*blocks: Body) -> Body:
    return {"role": "assistant", "content": list(blocks)}


def search(number: int = 1) -> Body:
    called = {"type": "server_tool_use", "id": f"srvtoolu_{number}", "name": "web_search"}
    return {**called, "input": {"query": "x"}}


def found(number: int = 1, kind: str = "web_search_tool_result") -> Body:
    return {"type": kind, "tool_use_id": f"srvtoolu_{number}", "content": []}


def compaction(said: str, signature: str = "c2lnbmVk") -> Body:
    return {"type": "compaction", "content": said, "signature": signature}


EDITS: Body = {"edits": [{"type": "compact_20260112"}]}
EARLY = {"type": "input_tokens", "value": 49_999}
CLEARS: Body = {"edits": [{"type": "clear_tool_uses_20250919"}]}
SEALED = seal_signature(Seal(PRESERVED, "", "", text_digest("compaction", "Said.")))


def thinking(said: str = "hm", signature: str = "c2lnbmVk") -> Body:
    return {"type": "thinking", "thinking": said, "signature": signature}


def request(*messages: Body, **fields: Any) -> Body:
    return {"messages": list(messages), **fields}


def talk(*blocks: Body, **fields: Any) -> Body:
    """A question, this answer, and the next question."""
    return request(ASKED, answer(*blocks), user(text("And y?")), **fields)


def round_of(*blocks: Body, results: tuple[Body, ...] = (result(),), **fields: Any) -> Body:
    """A question, an answer with these blocks, and results."""
    return request(ASKED, answer(*blocks), user(*results), **fields)


def sealed(before: Body, model: str = PRESERVED, said: str = "hm", after: str = "") -> Body:
    """Thinking that answers a request."""
    prefix = prefix_digest(read_claude_request(before))
    seal = Seal(model, text_digest("thinking", said), prefix or "", after)
    return thinking(said, seal_signature(seal))


def image(width: int, height: int = 10, padding: int = 0) -> Body:
    """An image block of this size, a PNG without pixels."""

    def chunk(name: bytes, data: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(name + data))
        return struct.pack(">I", len(data)) + name + data + checksum

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    content = b"\x89PNG\r\n\x1a\n" + header + b"\0" * padding
    data = base64.b64encode(content).decode()
    source = {"type": "base64", "media_type": "image/png", "data": data}
    return {"type": "image", "source": source}


def images(count: int, width: int = 10) -> Body:
    return request(user(*(image(10) for _ in range(count - 1)), image(width)))


def marked(count: int) -> Body:
    mark = {"cache_control": {"type": "ephemeral"}}
    return request(user(*({**text("x"), **mark} for _ in range(count))))


def without(block: Body, name: str) -> Body:
    return {key: value for key, value in block.items() if key != name}


_FIRST = request(ASKED)
_ADAPTIVE = {"model": PRESERVED, "thinking": {"type": "adaptive"}}
_BINDING: Body = {"model": PRESERVED, "thinking": {"type": "adaptive", "block_binding": {}}}
_BUDGET = {"type": "enabled", "budget_tokens": 2_000}
UNANSWERED = "`tool_use` ids were found without `tool_result` blocks immediately after"
UNTHOUGHT = "Expected `thinking` or `redacted_thinking`, but found `tool_use`"
_LONG_TEXT = "x" * (33 << 20)

CLAUDE: dict[str, Case] = {
    "some-message": (_FIRST, {"messages": []}, "at least one message is required"),
    "known-roles": (_FIRST, request(ASKED, {"role": "tool", "content": "x"}), '"tool"'),
    "system-by-model": (
        request(ASKED, {"role": "system", "content": "Be brief."}, model="claude-opus-4-8"),
        request(ASKED, {"role": "system", "content": "Be brief."}, model="claude-sonnet-5"),
        "role 'system' is not supported on this model",
    ),
    "system-after-user": (
        request(ASKED, {"role": "system", "content": "Be brief."}),
        request({"role": "system", "content": "Be brief."}, ASKED),
        "messages.0: use the top-level 'system' parameter",
    ),
    "first-is-user": (
        _FIRST,
        request(answer(text("Hello.")), ASKED),
        'first message must use the "user" role',
    ),
    "one-compaction": (
        request(answer(compaction("a")), ASKED, answer(text("x")), ASKED),
        request(answer(compaction("a"), compaction("b")), ASKED),
        "`messages` holds more than one `compaction` block with content.",
    ),
    "compaction-first": (
        request(answer(compaction("a")), ASKED),
        request(ASKED, answer(compaction("a"), text("x")), ASKED),
        "The `compaction` block is not the first block of the conversation.",
    ),
    "compaction-unchanged": (
        request(answer(compaction("Said.", SEALED)), ASKED),
        request(answer(compaction("Else.", SEALED)), ASKED),
        "differs from the text its `signature` recorded",
    ),
    "compaction-needs-beta": (
        request(answer(compaction("a")), ASKED, anthropic_beta=["compact-2026-09-04"]),
        request(answer(compaction("a")), ASKED, anthropic_beta=["compact-2026-01-12"]),
        "messages.0.content.0: Input tag 'compaction' found using 'type' does not match",
    ),
    "compaction-by-model": (
        request(answer(compaction("a")), ASKED, model="claude-sonnet-4-6"),
        request(answer(compaction("a")), ASKED, model="claude-haiku-4-5"),
        "`compaction` blocks are not supported on this model",
    ),
    "editing-needs-beta": (
        request(ASKED, context_management=CLEARS, anthropic_beta=["context-management-2025-06-27"]),
        request(ASKED, context_management=CLEARS, anthropic_beta=[]),
        "context_management: Extra inputs are not permitted",
    ),
    "compaction-alone": (
        request(ASKED, compaction={"type": "summarize"}),
        request(ASKED, compaction={"type": "summarize"}, context_management=EDITS),
        "compaction: cannot be combined with `context_management`",
    ),
    "compaction-trigger": (
        request(ASKED, context_management=EDITS),
        request(ASKED, context_management={"edits": [{**EDITS["edits"][0], "trigger": EARLY}]}),
        "trigger must be at least 50000 tokens",
    ),
    "compaction-of-something": (
        request(answer(compaction("a")), ASKED, compaction={"type": "summarize"}),
        request(answer(compaction("a")), compaction={"type": "summarize"}),
        "There is nothing to summarize.",
    ),
    "content-not-empty": (
        request(ASKED, answer()),
        talk(),
        "messages.1: all messages must have non-empty content except for the optional final",
    ),
    "last-block-not-thinking": (
        talk(thinking(), text("x")),
        talk(thinking()),
        "messages.1: The final block in an assistant message cannot be `thinking`.",
    ),
    "no-prefill": (
        request(ASKED, answer(text("The")), model=MANUAL),
        request(ASKED, answer(text("The")), model="claude-opus-4-6"),
        "does not support assistant message prefill",
    ),
    "prefill-without-space": (
        talk(text("The ")),
        request(ASKED, answer(text("The "))),
        "final assistant content cannot end with trailing whitespace",
    ),
    "known-blocks": (
        talk(text("x")),
        talk(text("x"), {"type": "output_text", "text": "x"}),
        "messages.1.content.1: Input tag 'output_text' found using 'type' does not match",
    ),
    "no-extra-fields": (
        talk({**text("x"), "citations": None}),
        talk({**text("x"), "parsed_output": None}),
        "messages.1.content.0.text.parsed_output: Extra inputs are not permitted",
    ),
    "required-fields": (
        round_of(call()),
        round_of(without(call(), "input")),
        "messages.1.content.0.tool_use.input: Field required",
    ),
    "no-null-fields": (
        round_of(call(toolset_name=None)),
        round_of(call(caller=None)),
        "messages.1.content.0.tool_use.caller: Input should be a valid dictionary",
    ),
    "inputs-are-objects": (
        round_of(call(input={"path": "x"})),
        round_of(call(input='{"path": "x"}')),
        "messages.1.content.0.tool_use.input: Input should be a valid dictionary",
    ),
    "block-in-its-role": (
        request(user(image(10))),
        talk(text("x"), image(10)),
        "messages.1: `image` blocks can only be in `user` messages",
    ),
    "text-not-empty": (
        round_of(text("x"), call()),
        round_of(text(""), call()),
        "messages: text content blocks must be non-empty",
    ),
    "text-not-blank": (
        round_of(text(" x\n"), call()),
        round_of(text(" \n"), call()),
        "messages: text content blocks must contain non-whitespace text",
    ),
    "result-text-not-empty": (
        round_of(call(), results=(result(content=""),)),
        round_of(call(), results=(result(content=[text("")]),)),
        "messages: text content blocks must be non-empty",
    ),
    "calls-answered": (
        round_of(call(1), call(2), results=(result(2), result(1))),
        round_of(call(1), call(2)),
        f"messages.1: {UNANSWERED}: toolu_2. Each",
    ),
    "results-first": (
        round_of(call(), results=(result(), text("Go on."))),
        round_of(call(), results=(text("Go on."), result())),
        f"{UNANSWERED}: toolu_1",
    ),
    "results-have-calls": (
        round_of(call(1)),
        round_of(call(1), results=(result(1), result(2))),
        "messages.2.content.1: unexpected `tool_use_id` found in `tool_result` blocks: toolu_2.",
    ),
    "one-result-a-call": (
        round_of(call()),
        round_of(call(), results=(result(), result())),
        "messages.2.content.1: each tool_use must have a single result.",
    ),
    "call-ids-unique": (
        request(ASKED, answer(call(1)), user(result(1)), answer(call(2)), user(result(2))),
        request(ASKED, answer(call(1)), user(result(1)), answer(call(1)), user(result(1))),
        "messages.3.content.0: `tool_use` ids must be unique",
    ),
    "call-id-form": (
        round_of(call(id="a-b_C1"), results=(result(tool_use_id="a-b_C1"),)),
        round_of(call(id="a|b"), results=(result(tool_use_id="a|b"),)),
        "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
    ),
    "server-call-id-form": (
        talk(search(), found(), text("x")),
        talk({**search(), "id": "call_1"}, {**found(), "tool_use_id": "call_1"}, text("x")),
        "server_tool_use.id: String should match pattern '^srvtoolu_[a-zA-Z0-9_]+$'",
    ),
    "server-calls-answered": (
        request(ASKED, answer(text("x"), search())),
        talk(text("x"), search(), text("y")),
        "messages.1: `web_search` tool use with id `srvtoolu_1` was found without a corresponding",
    ),
    "results-alone-while-open": (
        request(ASKED, answer(search(), call()), user(result()), answer(found(), text("x"))),
        request(ASKED, answer(search(), call()), user(result(), text("y")), answer(found())),
        "`web_search` tool use with id `srvtoolu_1` was found without",
    ),
    "server-results-have-calls": (
        request(ASKED, answer(search()), answer(found(), text("x")), ASKED),
        request(ASKED, answer(text("y")), ASKED, answer(found(), text("x")), ASKED),
        "unexpected `tool_use_id` found in `web_search_tool_result` blocks: srvtoolu_1. Each",
    ),
    "server-result-kind": (
        talk(search(), found(), text("x")),
        talk(search(), found(kind="web_fetch_tool_result"), text("x")),
        "without a corresponding `web_search_tool_result` block",
    ),
    "thinking-by-model": (
        request(ASKED, model="claude-opus-4-6", thinking=_BUDGET),
        request(ASKED, model="claude-opus-4-7", thinking=_BUDGET),
        '"thinking.type.enabled" is not supported for this model',
    ),
    "thinking-budget": (
        request(ASKED, model=MANUAL, thinking=_BUDGET, max_tokens=2_001),
        request(ASKED, model=MANUAL, thinking=_BUDGET, max_tokens=2_000),
        "`max_tokens` must be greater than `thinking.budget_tokens`",
    ),
    "loop-begins-with-thinking": (
        round_of(thinking(), call(), model=MANUAL, thinking=_BUDGET),
        round_of(call(), model=MANUAL, thinking=_BUDGET),
        f"messages.1.content.0.type: {UNTHOUGHT}",
    ),
    "thinking-signed": (
        talk(thinking(), text("x")),
        talk(thinking(signature=""), text("x")),
        "messages.1.content.0: Invalid `signature` in `thinking` block",
    ),
    "thinking-unchanged": (
        talk(sealed(_FIRST), text("x"), **_ADAPTIVE),
        talk({**sealed(_FIRST), "thinking": "ha"}, text("x"), **_ADAPTIVE),
        "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest",
    ),
    "thinking-bound": (
        talk(sealed(_FIRST), text("x"), **_ADAPTIVE),
        talk(sealed(request(user(text("Read z.")))), text("x"), **_ADAPTIVE),
        "Invalid `signature` in `thinking` block. The block is bound to a different conversation.",
    ),
    "binding-needs-beta": (
        request(ASKED, **_BINDING, anthropic_beta=[BINDING_BETA]),
        request(ASKED, **_BINDING, anthropic_beta=[]),
        "thinking.adaptive.block_binding: Extra inputs are not permitted",
    ),
    "image-count": (images(100), images(101), "0 document pages + 101 images > 100"),
    "many-images-small": (images(21, 2_000), images(21, 2_001), "many-image requests: 2000 pixels"),
    "image-side": (images(20, 8_000), images(20, 8_001), "exceed max allowed size: 8000 pixels"),
    "image-bytes": (
        request(user(image(10, padding=(5 << 20) - 100))),
        request(user(image(10, padding=5 << 20))),
        "messages.0.content.0.image.source.base64: image exceeds 5 MB maximum",
    ),
    "request-size": (
        request(user(text(_LONG_TEXT[: 31 << 20]))),
        request(user(text(_LONG_TEXT))),
        "Request exceeds the maximum size",
    ),
    "cache-marks": (marked(4), marked(5), "A maximum of 4 blocks with cache_control"),
}
