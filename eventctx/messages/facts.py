"""Facts of a body: role, ids and sizes by kind; small, and enough to decide without its text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import msgspec

from eventctx.errors import DecodeError

READER: Final = 13
"""Version of this reader. It goes up when a body's facts would come out differently.

2: signed thinking is counted in ``bound``; a machine-made summary no longer counts as human, and
text after a harness's elements does.
3: a refusal is prose; arguments under another key, calls of custom tools and reasoning that is not
encrypted are counted.
4: what is after a task notification, Codex's and pi's summaries and a critic's texts no longer
count as human; the arguments of a prompt command do. An event may say that a harness spoke. Items
of OpenAI's Responses API are told apart by type (``item``): shell commands, patches, approvals and
searches pair with their answers; what cannot be cut in an item counts as prose. Images, documents
and recordings are ``media``, no longer tokens by one provider's rule or the characters of their
base64; digits, spaces, and bytes beyond one a character are counted.
5: a person's demands are counted, in number and in characters. An observation of an agent whose
actions are text is a result; a model's text tells whether it holds an action.
6: a server tool's call and its result are told apart where they are in two messages.
7: the finds of a provider's search count nothing: the searching call reports them in its prompt.
8: what a person pasted counts as ``outcome``.
9: texts are weighed (``weight``, ``dense``). Signed thinking without text counts by its signature.
Demands are told by the form of a sentence, in twelve languages; questions, quotes and pasted blocks
hold none. Task notifications in JSON and the tabs of an editor count as a harness's.
10: a result of Ollama's form answers the call of the tool that it names (``tool_name``).
11: a message that holds a provider's own compaction is known by it (``compacts``).
12: several calls without ids, or with empty ones, are several calls (``tool_rounds.number_call``).
13: the number of such a call is its place in its answer; a result with neither an id nor a name
answers the first that waits.
"""

DEMANDS_SINCE: Final = 9
"""The reader since which demands are told as they are now; those of others are read anew."""

PASTED_SINCE: Final = 8
"""The reader since which what a person pasted is counted apart."""

FIRST_WEIGHED: Final = 9

Kind = Literal["system", "human", "user", "assistant", "result", "other"]
"""``human``: written by a person. ``user``: role user, written by a harness. ``result``: carries
tool results, in whichever role."""

Dialect = Literal["chat", "anthropic", "amplifier", "responses"]


Detail = Literal["", "low", "high", "original"]


class Medium(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An image, a document or a recording in a message, measured as no provider's rule asks alone.

    ``amount`` is an image's width in pixels, a document's pages, or tenths of a second; ``height``
    and ``detail`` (the size that OpenAI's blocks ask for) are an image's. An image of 0 by 0 pixels
    could not be read.
    """

    kind: Literal["image", "pages", "audio"]
    amount: int = 0
    height: int = 0
    detail: Detail = ""


class Facts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The facts of a body. Sizes are in characters: code points that a model is shown.

    ``calls`` and ``results`` are the ids of the tool calls made and answered. ``images`` were
    tokens of images before reader 4, and of the finds of a provider's search before reader 7.
    ``mark`` is a digest of role and first 100 characters. ``human`` is true where a person's words
    are in the body. ``bound`` is the part of ``thinking`` in blocks that a provider binds to the
    messages before them. ``tokens`` is the count of a plugged-in tokenizer for the texts (0: there
    was none); the reader itself never sets it. ``digits`` are those among the characters of
    ``prose``, ``arguments`` and ``outcome``; ``wide`` are the bytes that these have in UTF-8 beyond
    one a character, ``spaces`` the pairs of spaces in them. ``weight`` is what they all weigh, in
    hundredths of a token of OpenAI's (``messages.text_weight``), counted with its vocabulary where
    that was at hand; ``dense`` is the weight above the usual. ``item`` is the type of an item of
    OpenAI's Responses API that has no role. ``demands`` is how many demands a person makes in it
    (``messages.demands``), ``demand_characters`` how long these sentences are together.
    ``observation``: the text is the result of the action in the model's text before it
    (``tool_results.observes``), and counts as ``outcome``, as does what a person pasted next to
    words that they typed (``messages.pasted``). ``action`` is the form in which a
    model's text without calls holds an action. ``server_calls`` are the ids of calls to the
    provider's own tools whose result is not in the body, ``server_results`` those of such results
    whose call is not: an answer that ended in ``pause_turn`` goes on in the next message.
    ``compacts``: it is, or a block in it is, the provider's own summary of all that came before.
    """

    reader: int
    role: str
    kind: Kind
    dialect: Dialect
    calls: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    prose: int = 0
    arguments: int = 0
    outcome: int = 0
    thinking: int = 0
    images: int = 0
    mark: bytes = b""
    human: bool = False
    bound: int = 0
    tokens: int = 0
    digits: int = 0
    wide: int = 0
    spaces: int = 0
    media: tuple[Medium, ...] = ()
    item: str = ""
    demands: int = 0
    demand_characters: int = 0
    observation: bool = False
    action: str = ""
    server_calls: tuple[str, ...] = ()
    server_results: tuple[str, ...] = ()
    weight: int = 0
    dense: int = 0
    compacts: bool = False

    @property
    def summarises(self) -> bool:
        """Whether it holds a provider's own compaction: the API reads nothing before that."""
        return self.compacts or self.item == "compaction"

    @property
    def answers(self) -> bool:
        """Whether it holds a tool's results, or is one, as an observation."""
        return bool(self.results) or self.observation

    @property
    def goes_on(self) -> bool:
        """Whether the model's answer may go on in the next message (``tool_rounds.joins``)."""
        return self.kind == "assistant" and (self.dialect == "responses" or bool(self.server_calls))

    @property
    def may_hold_pasted(self) -> bool:
        """Whether a person's message may hold a pasted block."""
        counted = self.reader >= PASTED_SINCE
        return self.human and not self.results and (self.outcome > 0 or not counted)

    @property
    def may_demand(self) -> bool:
        """Whether a person makes demands here, or an older reader told them by other rules."""
        return self.human and (self.demands > 0 or self.reader < DEMANDS_SINCE)


NO_FACTS: Final = Facts(READER, "erased", "other", "chat")
"""The facts of a body whose own facts were destroyed with it."""


def without_bound(facts: Facts) -> Facts:
    """The facts of a message whose bound thinking blocks are left out."""
    thinking = max(0, facts.thinking - facts.bound)
    return msgspec.structs.replace(facts, thinking=thinking, bound=0)


def as_observation(facts: Facts) -> Facts:
    """The facts of a message in role user that is an observation; others stay as they are."""
    if facts.role != "user" or facts.results or facts.observation:
        return facts
    return msgspec.structs.replace(
        facts,
        kind="result",
        human=False,
        demands=0,
        demand_characters=0,
        outcome=facts.outcome + facts.prose,
        prose=0,
        observation=True,
    )


def outline_facts(facts: Facts) -> Facts:
    """The facts that stay of an erased body: its speaker, and the ids that tie calls to results.

    Also whether it had bound thinking, since older views that left it out must stay as they were.
    """
    bound = min(facts.bound, 1)
    return Facts(
        facts.reader,
        facts.role,
        facts.kind,
        facts.dialect,
        facts.calls,
        facts.results,
        thinking=bound,
        human=facts.human,
        bound=bound,
        item=facts.item,
        observation=facts.observation,
    )


encode_facts: Final[Callable[[Facts], bytes]] = msgspec.msgpack.Encoder().encode
"""The stored form of facts."""

_decode = msgspec.msgpack.Decoder(Facts).decode


def decode_facts(data: bytes) -> Facts:
    """Facts from their stored form; ``NO_FACTS`` for empty bytes (an erased body).

    Raises DecodeError for bytes that hold no facts.
    """
    if not data:
        return NO_FACTS
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"the stored facts of a body are damaged: {error}") from error
