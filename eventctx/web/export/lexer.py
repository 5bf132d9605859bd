"""Tokens of the page's scripts: enough of JavaScript's grammar to leave out comments and blanks.

Strings, template literals and regular expressions are tokens that are never changed. Where a slash
could be a division or begin a regular expression, the token before it decides; the one place where
that is not enough (after a closing brace) is refused rather than guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from eventctx.errors import EventctxError

Kind = Literal["blank", "comment", "word", "number", "string", "template", "regex", "sign"]


class UnreadableScript(EventctxError):
    """A script of the page is not in the form that one file can be made from."""


class Token(NamedTuple):
    """A piece of a script; the texts of all its tokens make up the script again."""

    kind: Kind
    text: str


_BLANK: Final = re.compile(r"\s+")
_LINE_COMMENT: Final = re.compile(r"//[^\n\r\u2028\u2029]*")
_BLOCK_COMMENT: Final = re.compile(r"/\*.*?\*/", re.DOTALL)
_WORD: Final = re.compile(r"[#@]?(?:[\w$]|\\u\{?[0-9a-fA-F]+\}?)+")
_NUMBER: Final = re.compile(
    r"0[xXbBoO][0-9a-fA-F_]+n?|(?:\d[\d_]*\.?|\.\d)[\d_]*(?:[eE][+-]?\d+)?n?"
)
_STRING: Final = re.compile(
    r"'(?:[^'\\\n\r]|\\(?:\r\n|.))*'" + r'|"(?:[^"\\\n\r]|\\(?:\r\n|.))*"', re.DOTALL
)
_REGEX: Final = re.compile(
    r"/(?![*/])(?:[^\\/\[\n\r]|\\[^\n\r]|\[(?:[^\]\\\n\r]|\\[^\n\r])*\])+/[A-Za-z]*"
)
_SIGN: Final = re.compile(
    r">>>=|\.\.\.|===|!==|\*\*=|<<=|>>=|>>>|&&=|\|\|=|\?\?=|=>|==|!=|<=|>=|&&|\|\||\?\?|\?\.(?!\d)"
    r"|\+\+|--|\+=|-=|\*=|/=|%=|&=|\|=|\^=|<<|>>|\*\*|[{}()\[\];,<>+\-*/%&|^!~?:=.]"
)

_BEFORE_AN_EXPRESSION: Final = frozenset(
    (
        *("return", "typeof", "instanceof", "in", "of", "new", "delete", "void", "throw"),
        *("case", "do", "else", "yield", "await"),
    )
)
"""Words behind which a slash begins a regular expression."""

_HEADS: Final = frozenset(("if", "while", "for", "with"))
"""Words whose closing parenthesis is followed by a statement, not by an operator."""


def tokens(script: str) -> list[Token]:
    """All tokens of a script, in order. Raises UnreadableScript."""
    return list(_Reader(script).read(0))


class _Reader:
    """Reads one script; nested readers read what is in the braces of template literals."""

    def __init__(self, script: str) -> None:
        self._script = script
        self._before: Token | None = None
        self._heads: list[bool] = []
        self._after_head = False

    def read(self, at: int, *, nested: bool = False) -> Iterator[Token]:
        """Tokens from ``at`` on; a nested reader ends before the brace that it did not open."""
        depth = 0
        while at < len(self._script):
            if nested and depth == 0 and self._script[at] == "}":
                return
            token = self._next(at)
            yield token
            at += len(token.text)
            depth += {"{": 1, "}": -1}.get(token.text, 0) if token.kind == "sign" else 0
            self._noted(token)

    def _noted(self, token: Token) -> None:
        if token.kind in ("blank", "comment"):
            return
        if token.text == "(" and token.kind == "sign":
            self._heads.append(self._before is not None and self._before.text in _HEADS)
        self._after_head = False
        if token.text == ")" and token.kind == "sign":
            self._after_head = self._heads.pop() if self._heads else False
        self._before = token

    def _next(self, at: int) -> Token:
        script = self._script
        first = script[at]
        if first == "`":
            return Token("template", script[at : self._end_of_template(at)])
        if script.startswith("//", at):
            return self._matched("comment", _LINE_COMMENT, at)
        if script.startswith("/*", at):
            return self._matched("comment", _BLOCK_COMMENT, at)
        if first == "/" and self._begins_a_regex(at):
            return self._matched("regex", _REGEX, at)
        if first in "'\"":
            return self._matched("string", _STRING, at)
        if first.isdigit() or (first == "." and script[at + 1 : at + 2].isdigit()):
            return self._matched("number", _NUMBER, at)
        if first.isspace() or first == "\ufeff":
            return self._matched("blank", _BLANK, at)
        kind: Kind = "word" if _WORD.match(script, at) else "sign"
        return self._matched(kind, _WORD if kind == "word" else _SIGN, at)

    def _begins_a_regex(self, at: int) -> bool:
        before = self._before
        if before is None:
            return True
        if before.kind == "word":
            return before.text in _BEFORE_AN_EXPRESSION
        if before.kind != "sign":
            return False
        if before.text == "}":
            raise self._refused(at, "a slash behind a closing brace: a division, or an expression?")
        if before.text == ")":
            return self._after_head
        return before.text not in ("]", "++", "--")

    def _end_of_template(self, at: int) -> int:
        script, start = self._script, at
        at += 1
        while at < len(script):
            if script[at] == "\\":
                at += 2
            elif script[at] == "`":
                return at + 1
            elif script.startswith("${", at):
                inner = _Reader(script)
                at += 2
                at += sum(len(token.text) for token in inner.read(at, nested=True)) + 1
            else:
                at += 1
        raise self._refused(start, "a template literal that does not end")

    def _matched(self, kind: Kind, pattern: re.Pattern[str], at: int) -> Token:
        found = pattern.match(self._script, at)
        if found is None:
            raise self._refused(at, f"expected a {kind}, found {self._script[at : at + 20]!r}")
        return Token(kind, found.group())

    def _refused(self, at: int, why: str) -> UnreadableScript:
        return UnreadableScript(f"line {self._script.count(chr(10), 0, at) + 1}: {why}")
