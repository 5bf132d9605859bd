"""The forms of secrets that redaction recognises, each with a cheap test before it.

A form is tried only on a text that holds its mark and one of its hints, so that a text without
secrets costs a few substring searches. Every repeat is possessive, atomic or bounded: a form takes
time in proportion to the text, whatever the text. Forms run in the order of this table: a form that
may contain others comes first (a key block, then a named value, then a value known by its form).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class Form(NamedTuple):
    """One form. The last group of ``pattern`` that matched is the secret, else the whole match.

    ``hints``: a text without any of them holds no such secret. ``folded``: hints are searched in
    the text in lower case. ``before``: characters that belong to the secret if they stand directly
    before the match, up to ``MAX_BEFORE`` of them; a match with none before it is no secret.
    """

    kind: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    folded: bool = False
    before: str = ""


class FormGroup(NamedTuple):
    """Forms that can only match a text with one of the marks, and with a match of ``gate``."""

    marks: tuple[str, ...]
    forms: tuple[Form, ...]
    gate: re.Pattern[str] | None = None


MARKER: Final = re.compile(
    r"\[redacted:(?:api-key|email|password|pattern|private-key|secret|token)\]"
)
"""The replacement of a secret. A text of this form is never redacted again."""

MAX_BEFORE: Final = 64
SHORT: Final = 20
"""A text of fewer characters can hold only a named value, a bearer token or an e-mail address."""

# In JSON inside JSON, a line break before a secret is a backslash and the letter n.
_START: Final = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"


def may_hold(text: str) -> bool:
    """Whether a text may hold a secret: a quick test for the many short texts that hold none."""
    return len(text) >= SHORT or (
        "=" in text
        or ":" in text
        or "@" in text
        or "--" in text
        or " is " in text
        or "earer " in text
    )


# -- a value beside the name of a secret ---------------------------------------------------------

_NOT_A_VALUE: Final = (
    r"(?!(?:a|an|and|any|are|bool|bytes|can|cannot|could|expected|expired|false|for|has|have|in|int"
    r"|invalid|is|missing|must|nil|no|none|not|null|of|optional|or|required|secretstr|should|str"
    r"|string|the|to|true|undefined|was|with)(?![\w-]))"
)
# A count of tokens, a time, a share: 4096, 0.31s, 12%.
_NOT_A_COUNT: Final = r"(?!\d[\d_,.]{0,20}+(?:%|[a-z]{1,3})?(?![\w-]))"
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
    kind: str, hints: tuple[str, ...], names: str, unless: str = "", before: str = ""
) -> Form:
    """A form for ``name = value`` in prose, JSON, environments, headers and source code."""
    pattern = rf"(?:{names}){_BETWEEN}{before}(?:{_QUOTED}|{_NOT_A_VALUE}{unless}{_BARE}))"
    return Form(kind, hints, re.compile(pattern, re.IGNORECASE), folded=True)


# Special tokens of a vocabulary, and measures of speed; "unexpected token: }" is a parser's error.
_OTHER_TOKENS: Final = "".join(
    rf"(?<!{word})"
    for word in (
        *("bos_", "cls_", "eos_", "mask_", "pad_", "sep_", "stop_", "unk_"),
        *("first_", "first ", "last_", "per_", "per ", "unexpected ", "illegal "),
    )
)
NAMES: Final = {
    "password": r"pass(?:word|wd|phrase|code)|(?<=[_-])pass|(?<![a-z])pwd(?!\W{1,4}[/~.\\])",
    "secret": r"secret(?:[_-]?(?:access[_-]?)?key)?",
    "api-key": (
        r"(?:access|account|api|encryption|master|private|service|shared|signing|storage"
        r"|subscription)[_. -]?key"
    ),
    "token": rf"{_OTHER_TOKENS}token",
}
"""Patterns for the end of a secret's name, by kind."""
_SCHEMES: Final = r"(?:(?:basic|bearer|token|digest|negotiate|aws4-hmac-sha256)[ \t]{1,8}+)?+"
_FLAGS: Final = (
    r"(?<!-)--(?!-)[a-z-]{0,24}?(?:pass(?:word|wd|phrase)?|secret|token|(?:api|access)-?key)"
    r"[ \t]{1,8}+(?:\"([^\"\r\n]++)|'([^'\r\n]++)|(?!-)([^\s\"']++))"
)

_COOKIE: Final = r"cookie[\"']?[ \t]{0,4}+:[ \t\"']{0,4}+([^\s=;\"'\\]++=[^\r\n\"'\\]++)"

_NAMED: Final = (
    _named("token", ("authorization",), "authorization", before=_SCHEMES),
    Form("token", ("cookie",), re.compile(_COOKIE, re.IGNORECASE), folded=True),
    _named("password", ("pass", "pwd"), NAMES["password"]),
    _named("secret", ("secret",), NAMES["secret"]),
    _named("api-key", ("key",), NAMES["api-key"]),
    _named("token", ("token",), NAMES["token"], _NOT_A_COUNT),
)


# -- secrets known by their form -----------------------------------------------------------------

_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}?PRIVATE KEY(?: BLOCK)?-----"
    r"(?:(?:[^-]|-(?!----))*+-----END [A-Z0-9 ]{0,40}?PRIVATE KEY(?: BLOCK)?-----"
    r"|[A-Za-z0-9+/=\s\\]*+)"
)
_URL_PASSWORD: Final = re.compile(
    r"://[^\s/:@\"'<>\\]{0,256}+:((?:[^\s/@\"'<>\\]|@(?=[^\s/@\"'<>\\]{0,128}@)){1,256}+)@"
)
_SLACK_HOOK: Final = re.compile(
    r"hooks\.slack\.com/(?:services|triggers|workflows)/([A-Za-z0-9/_+-]{10,}+)"
)
_BEARER: Final = (
    r"[Bb]earer[ \t]{1,8}+(?=[A-Za-z._~+/-]{0,256}+[\d=]|[A-Za-z]{0,64}?[a-z][A-Z])"
    r"([A-Za-z0-9._~+/-]{8,}+=*+)"
)
_BASIC: Final = (
    r"[Bb]asic[ \t]{1,8}+(?=[A-Za-z0-9+/]{0,256}?[a-z][A-Z]|[A-Za-z0-9+/]{12,256}+=)"
    r"([A-Za-z0-9+/]{12,}+=*+)"
)
# git@host:path is no person's address, and name@1.2.3-rc.one is no address.
_EMAIL: Final = re.compile(
    r"(?:(?<!git)|(?<=[\w.%+-]git))@(?!\d++\.\d)(?:[^\W_](?:[\w-]{0,62}+)\.){1,8}+[^\W\d_]{2,24}+"
)
_LOCAL: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._%+-"


def _known(kind: str, hints: tuple[str, ...], *patterns: str) -> Form:
    return Form(kind, hints, re.compile(f"{_START}(?:{'|'.join(patterns)})"))


_WITH_DASH: Final = (
    _known(
        "api-key",
        ("sk-", "xai-", "tvly-", "pplx-", "nvapi-"),
        r"sk-(?=[A-Za-z_-]{0,64}+\d)[A-Za-z0-9_-]{16,}+",
        r"(?:nvapi|pplx|tvly|xai)-(?=[A-Za-z_-]{0,32}+\d)[A-Za-z0-9_-]{20,}+",
    ),
    _known(
        "token",
        ("xox", "xapp-", "pypi-", "glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-"),
        r"xox[a-z]-[A-Za-z0-9-]{15,}+",
        r"xapp-\d-[A-Za-z0-9-]{15,}+",
        r"pypi-[A-Za-z0-9_-]{50,}+",
        r"gl(?:cbt|dt|ft|pat|ptt|rt)-(?=[A-Za-z_-]{0,64}+\d)[A-Za-z0-9_.-]{16,}+",
    ),
    _known("secret", ("GOCSPX-",), r"GOCSPX-[A-Za-z0-9_-]{20,}+"),
)
_WITH_UNDERSCORE: Final = (
    _known(
        "api-key",
        ("sk_", "rk_", "r8_"),
        r"[rs]k_(?:live|test)_[A-Za-z0-9]{12,}+",
        r"(?:gsk_|r8_|sk_)(?=[A-Za-z_]{0,32}+\d)[A-Za-z0-9_]{24,}+",
    ),
    _known(
        "token",
        ("ghp_", "gho_", "ghr_", "ghs_", "ghu_", "github_pat_", "npm_", "hf_", "dckr_pat_"),
        r"gh[oprsu]_[A-Za-z0-9]{20,}+",
        r"github_pat_[A-Za-z0-9_]{20,}+",
        r"npm_[A-Za-z0-9]{30,}+",
        r"hf_[A-Za-z0-9]{20,}+",
        r"dckr_pat_[A-Za-z0-9_-]{20,}+",
    ),
    _known("secret", ("whsec_",), r"whsec_[A-Za-z0-9+/=]{16,}+"),
)
_WITH_DOT: Final = (
    _known("api-key", ("SG.",), r"SG\.[A-Za-z0-9_-]{16,}+\.[A-Za-z0-9_-]{16,}+"),
    _known(
        "token",
        ("eyJ", "hvs.", "ya29."),
        r"eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]++){0,3}+",
        r"hvs\.[A-Za-z0-9_-]{20,}+",
        r"ya29\.[A-Za-z0-9_-]{20,}+",
    ),
)


def _behind(character: str, *words: str) -> re.Pattern[str]:
    """A gate that finds the character behind one of the words; quick to rule out."""
    return re.compile(f"{character}(?:{'|'.join(f'(?<={word}{character})' for word in words)})")


_DASH_GATE: Final = _behind(
    *("-", "sk", "xai", "tvly", "pplx", "nvapi", "xox[a-z]", "xapp", "pypi", "GOCSPX"),
    *("gl[a-z]{2}", "gl[a-z]{3}"),
)
_UNDERSCORE_GATE: Final = _behind(
    *("_", "sk", "rk", "r8", "gh[a-z]", "github_pat", "npm", "hf", "pat", "whsec")
)

KEYS: Final = (
    FormGroup(("-----BEGIN",), (Form("private-key", ("-----BEGIN",), _PRIVATE_KEY),)),
    FormGroup(("=", ":", " is ", " was "), _NAMED),
    FormGroup(("--",), (Form("password", ("--",), re.compile(_FLAGS, re.IGNORECASE)),)),
    FormGroup(
        ("://", "hooks.slack"),
        (
            Form("password", ("://",), _URL_PASSWORD),
            Form("token", ("hooks.slack.com/",), _SLACK_HOOK),
        ),
    ),
    FormGroup(("-",), _WITH_DASH, _DASH_GATE),
    FormGroup(("_",), _WITH_UNDERSCORE, _UNDERSCORE_GATE),
    FormGroup(("eyJ", "SG.", "hvs.", "ya29."), _WITH_DOT),
    FormGroup(
        ("AIza", "AKIA", "ASIA"),
        (
            _known("api-key", ("AIza",), r"AIza[A-Za-z0-9_-]{30,}+"),
            _known("api-key", ("AKIA", "ASIA"), r"A[KS]IA[A-Z0-9]{16}(?![A-Za-z0-9])"),
        ),
    ),
    FormGroup(("earer ", "asic "), (_known("token", ("earer ", "asic "), _BEARER, _BASIC),)),
)
"""Keys, tokens and passwords."""

EMAILS: Final = (FormGroup(("@",), (Form("email", ("@",), _EMAIL, before=_LOCAL),)),)
"""E-mail addresses."""
