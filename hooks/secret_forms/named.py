"""Values beside the name of a secret: ``password=…``, ``"api_key": "…"``, ``Cookie: …``."""

from __future__ import annotations

import re
from typing import Final

from eventctx.hooks.secret_forms.form import Form, FormGroup, in_any_case

NO_VALUES: Final = (
    r"(?:a|an|and|any|are|bool|bytes|can|cannot|could|expected|expired|false|for|has|have|in|int"
    r"|invalid|is|missing|must|nil|no|none|not|null|of|optional|or|required|secretstr|should|str"
    r"|string|the|to|true|undefined|was|with)"
)
"""Words of prose and types of programs, where a value would stand."""
NOT_A_VALUE: Final = rf"(?!{NO_VALUES}(?![\w-]))"
NOT_A_COUNT: Final = r"(?!\d[\d_,.]{0,20}+(?:%|[a-z]{1,3})?(?![\w-]))"
"""A count of tokens, a time, a share: 4096, 0.31s, 12%."""

_QUOTE: Final = r"(?:\\{0,8}+[\"'])"
_BETWEEN: Final = (
    r"(?:[_-]?\d{1,3}+|[_-](?:dev|live|new|old|prod|production|staging|test))?"
    rf"(?:(?:{_QUOTE}\]?)?[ \t]{{0,8}}+(?:=>|:=|={{1,3}}+|:(?!:|//))[ \t]{{0,8}}+"
    r"|[ \t]{1,8}+(?:is|was)[ \t]{1,8}+(?=\S{6})(?=[^\s\d]{0,64}+\d))"
)
_QUOTED: Final = (
    r"(?:[bfru]{1,2}+(?=[\"']))?+"
    r"(?:\\++[\"']([^\"'\\\r\n]++)"
    r"|\"((?:[^\"\\\r\n]|\\.)++)"
    r"|'((?:[^'\\\r\n]|\\.)++)"
)
_STOP: Final = r"\s\"'`,;&<>(){}\[\]|\\"
_BARE: Final = (
    r"((?:[^\s\"'`,;&<>)}\]|\\]"
    rf"|[,;&<>)}}\]|](?![{_STOP}.]|\Z|[\w.-]{{1,40}}+[ \t]?[=:]))++)"
)


def _named(
    kind: str, hints: tuple[str, ...], name: str, unless: str = "", before: str = ""
) -> Form:
    """A form for ``name = value`` in prose, JSON, environments, headers and source code."""
    pattern = rf"{name}{_BETWEEN}{before}(?:{_QUOTED}|{NOT_A_VALUE}{unless}{_BARE}))"
    return Form(kind, hints, re.compile(in_any_case(pattern)), folded=True)


# Special tokens of a vocabulary, and measures of speed; "unexpected token: }" is a parser's error.
_OTHER_TOKENS: Final = "".join(
    rf"(?<!{word}token)"
    for word in (
        *("bos_", "cls_", "eos_", "mask_", "pad_", "sep_", "stop_", "unk_"),
        *("first_", "first ", "last_", "per_", "per ", "unexpected ", "illegal "),
    )
)
_KEYS: Final = "|".join(
    rf"(?<={word}key)|(?<={word}[_. -]key)"
    for word in (
        *("access", "account", "api", "encryption", "master", "private", "service", "shared"),
        *("signing", "storage", "subscription"),
    )
)
NAMES: Final = {
    "password": (
        r"p(?:ass(?:word|wd|phrase|code)|ass(?<=[_-]pass)|wd(?<![a-z]pwd)(?!\W{1,4}[/~.\\]))"
    ),
    "secret": r"secret(?:[_-]?(?:access[_-]?)?key)?",
    "private-key": r"client[_-]key[_-]data",
    "api-key": rf"key(?:{_KEYS})",
    "token": rf"token{_OTHER_TOKENS}",
}
"""Patterns for the end of a secret's name, by kind. Each begins with a letter (``in_any_case``).

``client-key-data`` is the private key in a configuration of Kubernetes; the certificates beside it
(``client-certificate-data``, ``certificate-authority-data``) are public and stay.
"""
_SCHEMES: Final = r"(?:(?:basic|bearer|token|digest|negotiate|aws4-hmac-sha256)[ \t]{1,8}+)?+"

_COOKIE: Final = (
    r"cookie[\"']?[ \t]{0,4}+:[ \t\"']{0,4}+"
    r"(?:([^\s=;\"'\\]++=[^\r\n\"'\\]++)|[^\s=;\"'\\]++())"
)
# The signature of a shared access in Azure: 32 bytes in base64, as a parameter of a URL.
_SIGNATURE: Final = (
    r"sig=(?:(?<![A-Za-z0-9_-]sig=)|(?<=\\u0026sig=))"
    r"((?:[A-Za-z0-9+/]|%(?:2[BbFf]|3[Dd])){43,}+=?)"
)

_NAMED: Final = (
    _named("token", ("authorization",), "authorization", before=_SCHEMES),
    Form("token", ("cookie",), re.compile(in_any_case(_COOKIE)), folded=True),
    _named("password", ("pass", "pwd"), NAMES["password"]),
    _named("secret", ("secret",), NAMES["secret"]),
    _named("private-key", ("lient",), NAMES["private-key"]),
    _named("api-key", ("key",), NAMES["api-key"]),
    _named("token", ("token",), NAMES["token"], NOT_A_COUNT),
    Form("token", ("sig=",), re.compile(_SIGNATURE), folded=True),
)

NAMED: Final = (FormGroup(("=", ":", " is ", " was "), _NAMED),)
