"""Scripts and styles without comments, indentation and needless blanks; names stay as they are.

A line break of a script stays wherever JavaScript could read one as the end of a statement.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from eventctx.web.export.lexer import Token

_NO_BLANK_BESIDE: Final = frozenset("(){}[];,:?=<>&|*!~^%")
_NO_BREAK_AFTER: Final = frozenset("([{,;:?=&|<>*%^!~.")
_NO_BREAK_BEFORE: Final = frozenset(")],.?:;}=&|<>")
_BREAKS: Final = frozenset("\n\r\u2028\u2029")
_STYLE_PIECE: Final = re.compile(
    r"(?P<string>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')"
    r"|(?P<gap>(?:\s|/\*.*?\*/)*[{};,](?:\s|/\*.*?\*/)*|:\s+|(?:\s|/\*.*?\*/)+)",
    re.DOTALL,
)


def compact_script(parts: Sequence[Token]) -> str:
    """The script of these tokens, shorter."""
    out: list[str] = []
    before: Token | None = None
    gap = ""
    for token in parts:
        if token.kind in ("blank", "comment"):
            # A comment counts as a blank; one over several lines, as a line break.
            gap = "\n" if gap == "\n" or not _BREAKS.isdisjoint(token.text) else " "
            continue
        if gap and before is not None:
            out.append(_between(before, token, gap))
        out.append(token.text)
        before, gap = token, ""
    return "".join(out) + "\n"


def _between(before: Token, after: Token, gap: str) -> str:
    if gap == "\n":
        if _is_sign(before, _NO_BREAK_AFTER) or _is_sign(after, _NO_BREAK_BEFORE):
            gap = " "
        else:
            return "\n"
    if _is_sign(before, _NO_BLANK_BESIDE) or _is_sign(after, _NO_BLANK_BESIDE):
        return ""
    if after.text in (".", "?.") and before.kind != "number":
        return ""
    return gap


def _is_sign(token: Token, signs: frozenset[str]) -> bool:
    # By the first and last character: `=>` and `&&` are as good as `=` and `&` for this. Signs of
    # plus and minus are in no set, since `a + +b` must keep its blank.
    return token.kind == "sign" and token.text[0] in signs and token.text[-1] in signs


def compact_style(style: str) -> str:
    """A style sheet without comments and indentation; strings stay."""
    return _STYLE_PIECE.sub(_shorter, style).replace(";}", "}").strip() + "\n"


def _shorter(found: re.Match[str]) -> str:
    if found["string"] is not None:
        return found["string"]
    sign = re.sub(r"/\*.*?\*/|\s+", "", found["gap"], flags=re.DOTALL)
    return sign or " "
