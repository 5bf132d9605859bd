"""Markdown as a tree of allowed elements: never a string of HTML.

A tree is JSON: a text, or ``[tag, {"class"?, "href"?}, children]``. The page builds its nodes from
it against a list of its own, so a text that was written to attack the page stays a text.

Invariant: a tree holds every letter and digit of its text, once. Markdown can hide words (a comment
as a link's definition, a quote that is nested too deeply); where it would, there is no tree, and
the text is shown as it was written.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Generic, Keyword, Name, Number, String
from pygments.util import ClassNotFound

Tree = str | list[Any]
"""A text, or ``[tag, attributes, children]``."""

# fmt: off
TAGS: Final = frozenset((
    "a", "blockquote", "code", "del", "em", "hr", "li", "ol", "p", "pre", "span", "strong", "table",
    "tbody", "td", "th", "thead", "tr", "ul",
))

CLASSES: Final = frozenset((
    "c", "del", "h1", "h2", "h3", "h4", "h5", "h6", "hunk", "ins", "k", "lang", "m", "mark", "n",
    "s",
))
# fmt: on

MOST_CODE: Final = 30_000
"""Characters of a block of code that is highlighted; a longer one is plain."""

MOST_LINE: Final = 2_000
"""Characters of its longest line: what is longer was made by a machine, and is slow to read."""

MOST_NODES: Final = 20_000
"""Elements of a tree: more could stop the page."""

_LINK: Final = re.compile(r"(?:https?://|mailto:)[^\s\x00-\x20\x7f]+", re.IGNORECASE)
_BARE: Final = re.compile(r"https?://[^\s<>\"'`()\[\]{}]+[^\s<>\"'`()\[\]{}.,;:!?*_]")

_TAG_OF: Final = {
    "paragraph": "p",
    "bullet_list": "ul",
    "ordered_list": "ol",
    "list_item": "li",
    "s": "del",
    "link": "a",
    **{tag: tag for tag in ("blockquote", "table", "thead", "tbody", "tr", "th", "td")},
    **{tag: tag for tag in ("strong", "em")},
}

_CLASS_OF: Final = (
    # The first that a token's type is within.
    (Comment, "c"),
    (Generic.Inserted, "ins"),
    (Generic.Deleted, "del"),
    (Generic.Subheading, "hunk"),
    (Keyword, "k"),
    (Name.Function, "n"),
    (Name.Class, "n"),
    (Name.Tag, "k"),
    (Name.Attribute, "n"),
    (String, "s"),
    (Number, "m"),
)


def _parser() -> MarkdownIt:
    made = MarkdownIt("commonmark", {"html": False})
    made.enable(["table", "strikethrough"])
    # A definition shows nothing at all, and an entity another character than was written.
    made.disable(["reference", "entity"])
    # An address stays as it was written; the page shows it before it is opened.
    replaced: Any = made
    replaced.normalizeLink = replaced.normalizeLinkText = lambda address: address
    replaced.validateLink = lambda address: _LINK.fullmatch(address) is not None
    return made


_PARSER: Final = _parser()


def tree_of(text: str) -> list[Tree] | None:
    """The children of the tree of a text; None where one would not show all of it, or be huge."""
    made = _Builder()
    made.read_blocks(_PARSER.parse(text))
    if made.nodes > MOST_NODES:
        return None
    shown = Counter(made.shown())
    whole = Counter(text)
    if any(shown[one] < count for one, count in whole.items() if one.isalnum()):
        return None
    return made.children


class _Builder:
    """Puts nodes into the innermost element that is open."""

    def __init__(self) -> None:
        self.children: list[Tree] = []
        self.nodes = 0
        self._open: list[list[Tree]] = [self.children]
        self._shown: list[str] = []

    def shown(self) -> str:
        """All that the tree shows of the text."""
        return "".join(self._shown)

    def read_blocks(self, tokens: Sequence[Token]) -> None:
        for token in tokens:
            if token.nesting < 0:
                if not token.hidden:
                    self._open.pop()
            elif token.type == "inline":
                self._read_words(token.children or ())
            elif token.type in ("fence", "code_block"):
                self._put_code(token)
            elif token.type == "hr":
                self._put(["hr", {}, []])
            elif token.type == "heading_open":
                self._begin("p", {"class": token.tag})
            elif not token.hidden:
                self._begin(_TAG_OF[token.type.removesuffix("_open")], {})
                if token.type == "list_item_open" and token.info:
                    self._put(["span", {"class": "mark"}, [self._say(token.info + token.markup)]])
                    self._put(" ")

    def _read_words(self, tokens: Sequence[Token]) -> None:
        inside = 0
        for token in tokens:
            if token.nesting < 0:
                self._open.pop()
                inside -= token.type == "link_close"
            elif token.type == "link_open":
                href = str(token.attrs.get("href", ""))
                inside += 1
                self._begin("a", {"href": href})
                if token.info != "auto":
                    self._shown += [href, str(token.attrs.get("title", ""))]
            elif token.nesting > 0:
                self._begin(_TAG_OF[token.type.removesuffix("_open")], {})
            elif token.type == "code_inline":
                self._put(["code", {}, [self._say(token.content)]])
            elif token.type == "image":
                self._put_image(token)
            elif token.type in ("softbreak", "hardbreak"):
                self._put("\n")
            elif inside:
                self._put(self._say(token.content))
            else:
                self._put_text(token.content)

    def _put_text(self, text: str) -> None:
        """A text, with the addresses in it as links."""
        at = 0
        for found in _BARE.finditer(text):
            if found.start() > at:
                self._put(self._say(text[at : found.start()]))
            self._put(["a", {"href": found[0]}, [self._say(found[0])]])
            at = found.end()
        if at < len(text):
            self._put(self._say(text[at:]))

    def _put_image(self, token: Token) -> None:
        """An image from elsewhere is never fetched: a link with its words stands for it."""
        href, title = str(token.attrs.get("src", "")), str(token.attrs.get("title", ""))
        self._shown += [href, title]
        self._put(["a", {"href": href}, [f"image: {self._say(token.content)}"]])

    def _put_code(self, token: Token) -> None:
        info = token.info.strip()
        if info:
            self._put(["p", {"class": "lang"}, [self._say(info)]])
        code = self._say(token.content.removesuffix("\n"))
        language = info.split(maxsplit=1)[0].lower() if info else ""
        pieces = list(highlighted(code, language))
        self.nodes += len(pieces)
        self._put(["pre", {}, pieces])

    def _begin(self, tag: str, attributes: dict[str, str]) -> None:
        children: list[Tree] = []
        self._put([tag, attributes, children])
        self._open.append(children)

    def _put(self, node: Tree) -> None:
        inner = self._open[-1]
        self.nodes += 1
        if isinstance(node, str) and inner and isinstance(inner[-1], str):
            inner[-1] += node
        elif node != "":
            inner.append(node)

    def _say(self, text: str) -> str:
        self._shown.append(text)
        return text


def highlighted(code: str, language: str) -> Iterator[Tree]:
    """The code in pieces: texts, and spans with the class of what they are."""
    lexer = _lexer(language)
    if lexer is None or len(code) > MOST_CODE or max(map(len, code.split("\n"))) > MOST_LINE:
        yield code
        return
    pieces: list[tuple[str, str]] = []
    for kind, text in lexer.get_tokens(code + "\n"):
        name = next((name for one, name in _CLASS_OF if kind in one), "")
        if pieces and (pieces[-1][0] == name or not text.strip()):
            pieces[-1] = (pieces[-1][0], pieces[-1][1] + text)
        else:
            pieces.append((name, text))
    if "".join(text for _, text in pieces) != code + "\n":  # a lexer that changes what it reads
        yield code
        return
    pieces[-1] = (pieces[-1][0], pieces[-1][1].removesuffix("\n"))
    for name, text in pieces:
        if text:
            yield ["span", {"class": name}, [text]] if name else text


def _lexer(language: str) -> Lexer | None:
    if not language:
        return None
    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None
