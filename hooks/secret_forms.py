"""The forms of secrets, and those known by themselves: by a provider's prefix or by their shape.

A form is tried only on a text that holds its mark and one of its hints, so that a text without
secrets costs a few substring searches. Invariant: a form takes time in proportion to the text,
whatever the text. Every repeat is possessive, atomic or bounded, and no two starts read the same
long run.

The prefixes are the providers' published ones, a little wider where a provider has changed lengths.
A prefix that could also begin an identifier asks for a digit after it.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from eventctx.text import URL_PASSWORD


class Form(NamedTuple):
    """One form. The last group of ``pattern`` that matched is the secret, else the whole match.

    An empty group is no secret: the search goes on after the match. A pattern uses it to pass over
    a long run of characters that it had to read to find that there is no secret in it; without it,
    every start inside the run would read the rest of the run again.

    ``hints``: a text without any of them holds no such secret. ``folded``: hints are searched in
    the text in lower case. ``before``: characters that belong to the secret if they come directly
    before the match, up to ``MAX_BEFORE`` of them; a match with none before it is no secret.
    """

    kind: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    folded: bool = False
    before: str = ""


class FormGroup(NamedTuple):
    """Forms that can only match a text with one of the marks, and with a match of ``gate``.

    A mark of one character costs next to nothing to rule out, a longer one much more.
    """

    marks: tuple[str, ...]
    forms: tuple[Form, ...]
    gate: re.Pattern[str] | None = None


MARKER: Final = re.compile(
    r"\[redacted:(?:api-key|email|password|pattern|private-key|secret|token)\]"
)
"""The replacement of a secret. A text of this form is never redacted again."""

MAX_BEFORE: Final = 64
SHORT: Final = 20
"""A text of fewer characters can hold only what ``may_hold`` asks for: a value after its name, a
bearer token, an e-mail address, a password on a command line or between tags."""


def may_hold(text: str) -> bool:
    """Whether a text may hold a secret: a quick test for the many short texts that hold none."""
    return len(text) >= SHORT or (
        "=" in text
        or ":" in text
        or "@" in text
        or "--" in text
        or " -p" in text
        or "</" in text
        or " is " in text
        or "earer " in text
    )


def from_start(prefix: str) -> str:
    r"""A pattern for ``prefix`` (of one width) where a word begins.

    The test comes after the prefix, because a search for a pattern that begins with a letter is
    several times as fast as one for a pattern that begins with a look-behind. In JSON inside JSON,
    a line break before a secret is a backslash and the letter n.
    """
    return rf"{prefix}(?:(?<![A-Za-z0-9]{prefix})|(?<=\\[nrt]{prefix}))"


def in_any_case(pattern: str) -> str:
    """``pattern``, which begins with a letter, in upper and lower case; quick to search for.

    With a flag for the whole pattern the search would try it at every character.
    """
    return f"[{pattern[0].lower()}{pattern[0].upper()}](?i:{pattern[1:]})"


# -- secrets known by themselves ------------------------------------------------------------------

_HEX: Final = "[0-9a-f]"
_WORD: Final = "[A-Za-z0-9_-]"
_BASE64: Final = "[A-Za-z0-9+/=_-]"

_CLASS: Final = re.compile(r"\[[^\]]++\]")

Part = tuple[str, str]
"""Prefixes of one width each, separated by blanks, and what must follow them."""


def _known(kind: str, *parts: Part) -> Form:
    """A form of prefixes at the start of a word. The prefixes are the hints."""
    each = [(prefix, rest) for prefixes, rest in parts for prefix in prefixes.split()]
    whole = "|".join([from_start(prefix) + rest for prefix, rest in each])
    hints = dict.fromkeys(prefix.partition("[")[0].replace("\\", "") for prefix, _ in each)
    return Form(kind, tuple(hints), re.compile(whole))


def _ending_in(mark: str, kinds: dict[str, tuple[Part, ...]]) -> FormGroup:
    """Forms of prefixes that end in ``mark``. The gate is a mark after one of the prefixes."""
    prefixes = [one for parts in kinds.values() for words, _ in parts for one in words.split()]
    by_width: dict[int, list[str]] = {}
    for prefix in prefixes:
        by_width.setdefault(len(_CLASS.sub("x", prefix)), []).append(prefix)
    gate = "|".join([f"(?<={'|'.join(words)})" for words in by_width.values()])
    forms = [_known(kind, *parts) for kind, parts in kinds.items()]
    return FormGroup((mark,), tuple(forms), re.compile(f"{re.escape(mark)}(?:{gate})"))


_DASH: Final = _ending_in(
    "-",
    {
        "api-key": (
            ("sk-", r"(?=[A-Za-z_-]{0,64}+\d)[A-Za-z0-9_-]{16,}+"),
            ("nvapi- pplx- tvly- xai-", r"(?=[A-Za-z_-]{0,32}+\d)[A-Za-z0-9_-]{20,}+"),
            ("PMAK-", r"[A-Za-z0-9]{10,}+-[A-Za-z0-9]{20,}+"),
            ("NRAK-", r"[A-Z0-9]{20,}+"),
            ("fc- pul-", rf"{_HEX}{{32,}}+(?![A-Za-z0-9])"),
            # As Mailgun has it: the key of a cache has a word before it (``user-key-…``).
            ("key-", rf"(?<![_-]key-){_HEX}{{32}}(?!{_WORD})"),
        ),
        "token": (
            ("xox[a-z]-", r"[A-Za-z0-9-]{15,}+"),
            ("xapp-", r"\d-[A-Za-z0-9-]{15,}+"),
            ("pypi-", r"[A-Za-z0-9_-]{50,}+"),
            (
                "glcbt- gldt- glft- glpat- glptt- glrt-",
                r"(?=[A-Za-z_-]{0,64}+\d)[A-Za-z0-9_.-]{16,}+",
            ),
            ("tskey-", r"(?=[A-Za-z-]{0,64}+\d)[A-Za-z0-9-]{16,}+"),
            ("CFPAT- HRKU-", rf"(?=[A-Za-z_-]{{0,64}}+\d){_WORD}{{30,}}+"),
        ),
        "secret": (
            ("GOCSPX-", r"[A-Za-z0-9_-]{20,}+"),
            ("A3-", r"[A-Z0-9]{6}(?:-[A-Z0-9]{5,11}+){4,5}+(?![A-Za-z0-9-])"),
        ),
    },
)
_UNDERSCORE: Final = _ending_in(
    "_",
    {
        "api-key": (
            ("sk_live_ sk_test_ rk_live_ rk_test_", r"[A-Za-z0-9]{12,}+"),
            ("gsk_ r8_ sk_", r"(?=[A-Za-z_]{0,32}+\d)[A-Za-z0-9_]{24,}+"),
            ("pcsk_ phx_ bb_live_", rf"(?=[A-Za-z_-]{{0,64}}+\d){_WORD}{{20,}}+"),
            ("lin_api_ napi_ ntn_ rnd_", r"(?=[A-Za-z]{0,32}+\d)[A-Za-z0-9]{30,}+"),
            ("lsv2_pt_ lsv2_sk_", rf"{_HEX}{{32}}_{_HEX}{{10}}"),
            ("re_", r"(?=[A-Za-z]{0,8}+[\d_])[A-Za-z0-9]{8}_?[A-Za-z0-9]{20,}+(?!_)"),
            ("e2b_", rf"{_HEX}{{40}}(?![A-Za-z0-9])"),
            ("pk_", r"\d{6,10}_[A-Z0-9]{30,}+"),
        ),
        "token": (
            ("ghp_ gho_ ghr_ ghs_ ghu_ hf_", r"[A-Za-z0-9]{20,}+"),
            ("github_pat_", r"[A-Za-z0-9_]{20,}+"),
            ("npm_", r"[A-Za-z0-9]{30,}+"),
            ("dckr_pat_", r"[A-Za-z0-9_-]{20,}+"),
            ("dop_v1_ doo_v1_ dor_v1_", r"[A-Za-z0-9]{32,}+"),
            ("shpat_ shpca_ shppa_", r"[A-Za-z0-9]{24,}+"),
            ("glsa_", r"[A-Za-z0-9]{24,}+(?:_[A-Fa-f0-9]{8})?"),
            ("glc_ sntrys_ sntryu_", rf"(?=[A-Za-z_]{{0,64}}+\d){_BASE64}{{32,}}+"),
            ("ops_", rf"(?=eyJ){_BASE64}{{40,}}+"),
            ("bkua_ lin_oauth_ sbp_", rf"{_HEX}{{40,}}+(?![A-Za-z0-9])"),
            ("figd_ fo1_ sb_secret_", rf"(?=[A-Za-z_-]{{0,64}}+\d){_WORD}{{28,}}+"),
            ("nfc_ nfo_ nfp_ nfu_", r"(?=[A-Za-z]{0,40}+\d)[A-Za-z0-9]{36,}+"),
            ("pscale_oauth_ pscale_tkn_", r"(?=[A-Za-z_.-]{0,64}+\d)[A-Za-z0-9_.-]{32,}+"),
            ("CCIPAT_", rf"[A-Za-z0-9]{{20,}}+_{_HEX}{{40}}"),
            ("fm1r_ fm2_", rf"(?=[A-Za-z_]{{0,64}}+[\d+/=]){_BASE64}{{40,}}+"),
        ),
        "secret": (
            ("whsec_", r"[A-Za-z0-9+/=]{16,}+"),
            ("shpss_", r"[A-Za-z0-9]{24,}+"),
            # Notion's until 2024.
            ("secret_", r"(?=[A-Za-z]{0,42}+\d)[A-Za-z0-9]{43}(?![A-Za-z0-9_])"),
            ("pscale_pw_", r"(?=[A-Za-z_.-]{0,64}+\d)[A-Za-z0-9_.-]{32,}+"),
        ),
    },
)
# A bot's id at Discord, digits in base64: three of them make four characters of these classes.
_DIGITS: Final = "[DTjz][AEIMQUYcgk][w-z0-5]"
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_DISCORD_REST: Final = rf"{_WORD}{{6}}\.{_WORD}{{27}}"
_DOT: Final = FormGroup(
    (".",),
    (
        _known("api-key", (r"SG\.", r"[A-Za-z0-9_-]{16,}+\.[A-Za-z0-9_-]{16,}+")),
        _known("token", (r"hvs\. ya29\.", r"[A-Za-z0-9_-]{20,}+")),
        _known("token", (r"dp\.pt\. dp\.st\. dp\.ct\.", r"[A-Za-z0-9_.-]{40,}+")),
        _known("token", (r"sk\.", rf"eyJ{_WORD}{{20,}}+\.{_WORD}{{20,}}+")),
        Form("token", (".atlasv1.",), re.compile(rf"\.atlasv1\.{_WORD}{{40,}}+"), before=_LETTERS),
        Form(
            "token",
            ("pat",),
            re.compile(rf"{from_start('pat')}[A-Za-z0-9]{{14}}\.{_HEX}{{64}}(?![A-Za-z0-9])"),
        ),
        Form(
            "token",
            (".",),
            re.compile(
                rf"{from_start('[MNO]')}{_DIGITS}(?:[MNO]{_DIGITS}){{4,5}}+[A-Za-z0-9]{{0,3}}+"
                rf"\.{_DISCORD_REST}{_WORD}*+"
            ),
        ),
    ),
    re.compile(
        rf"\.(?:(?<=SG\.)|(?<=hvs\.)|(?<=ya29\.)|(?<=dp\.[psc]t\.)|(?<=sk\.)|atlasv1\.|{_HEX}{{64}}"
        rf"|{_DISCORD_REST})"
    ),
)

# The first part is read to its end. Where no second one follows, no start inside it does better.
_JWT: Final = rf"{_WORD}{{8,}}+(?:\.{_WORD}{{8,}}+(?:\.[A-Za-z0-9_-]++){{0,3}}+|())"
_LOWER: Final = FormGroup(
    ("eyJ", "dapi"),
    (
        _known("token", ("eyJ", _JWT)),
        _known("token", ("eyJrIjoi", rf"{_BASE64}{{20,}}+")),
        _known("token", ("dapi", rf"{_HEX}{{32}}(?:-\d{{1,2}})?(?![A-Za-z0-9])")),
    ),
)

_QUOTE: Final = r"(?:\\{0,8}+[\"'])?"
_CAPITALS: Final = FormGroup(
    ("A", "S"),
    (
        _known(
            "api-key",
            ("AIza", r"[A-Za-z0-9_-]{30,}+"),
            ("AKIA ASIA", r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
            ("SK", rf"{_HEX}{{32}}(?![A-Za-z0-9])"),
        ),
        _known(
            "token",
            ("ATATT3", r"[A-Za-z0-9_=-]{40,}+"),
            ("ATBB", r"[A-Za-z0-9_=-]{24,}+"),
            # Twilio's token has no form of its own, but follows the account that it belongs to.
            ("AC", rf"{_HEX}{{32}}{_QUOTE}[ ]?[,:][ ]?{_QUOTE}({_HEX}{{32}})(?![A-Za-z0-9])"),
        ),
    ),
    re.compile(rf"A(?:Iza|KIA|SIA|TATT3|TBB|C{_HEX}{{8}})|SK{_HEX}{{8}}"),
)

# Azure's secrets of applications: three characters, a digit, Q~ and more, forty together.
_AZURE: Final = FormGroup(
    ("~",),
    (
        Form(
            "secret",
            ("Q~",),
            re.compile(
                r"(?:(?<![\w.~-])|(?<=\\[nrt]))[\w.~-]{3}\dQ~[\w.~-]{31,34}(?![\w~-])", re.ASCII
            ),
        ),
    ),
)

_HOOKS: Final = (
    r"(?:hooks\.slack\.com/(?:services|triggers|workflows)/([A-Za-z0-9/_+-]{10,}+)"
    rf"|discord(?:app)?\.com/api/(?:v\d{{1,2}}/)?webhooks/\d{{6,20}}+/({_WORD}{{20,}}+))"
)
_URLS: Final = FormGroup(
    ("/",),
    (
        Form("password", ("@",), URL_PASSWORD),
        Form("token", ("hooks",), re.compile(_HOOKS)),
    ),
)
# Telegram's: the number of a bot, a colon, and 35 characters.
_TELEGRAM: Final = re.compile(rf":(?<=\d{{6}}:)(?=AA|{_WORD}{{0,34}}?\d){_WORD}{{35}}(?!{_WORD})")
_COLON: Final = FormGroup(
    (":",), (Form("token", (":",), _TELEGRAM, before="0123456789"),), _TELEGRAM
)

_BEARER: Final = (
    r"[ \t]{0,7}+(?=[A-Za-z._~+/-]{0,256}+[\d=]|[A-Za-z]{0,64}?[a-z][A-Z])"
    r"([A-Za-z0-9._~+/-]{8,}+=*+)"
)
_BASIC: Final = (
    r"[ \t]{0,7}+(?=[A-Za-z0-9+/]{0,256}?[a-z][A-Z]|[A-Za-z0-9+/]{12,256}+=)"
    r"([A-Za-z0-9+/]{12,}+=*+)"
)
_SCHEMES: Final = Form(
    "token",
    ("earer ", "asic "),
    re.compile(rf"{from_start('[Bb]earer[ ]')}{_BEARER}|{from_start('[Bb]asic[ ]')}{_BASIC}"),
)

# git@host:path is no person's address, and name@1.2.3-rc.one is no address. A dot with nothing
# after it ends a sentence.
_EMAIL: Final = re.compile(
    r"@(?:(?<!git@)|(?<=[\w.%+-]git@))(?!\d++\.\d)"
    r"(?:[^\W_](?:[\w-]{0,62}+)\.(?=[^\W_])){1,8}+[^\W\d_]{2,24}+"
)
_LOCAL: Final = _LETTERS + "._%+-"

_BLOCK: Final = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}?PRIVATE KEY(?: BLOCK)?-----"
    r"(?:(?:[^-]|-(?!----))*+-----END [A-Z0-9 ]{0,40}?PRIVATE KEY(?: BLOCK)?-----"
    r"|[A-Za-z0-9+/=\s\\]*+)"
)

# The end of a key whose beginning was cut off, as in a shortened text.
_BLOCK_END: Final = re.compile(
    r"(?<![A-Za-z0-9+/=\s\\])[A-Za-z0-9+/=\s\\]++"
    r"-----END [A-Z0-9 ]{0,40}?PRIVATE KEY(?: BLOCK)?-----"
)

KEY_BLOCKS: Final = (
    FormGroup(("-----BEGIN",), (Form("private-key", ("-----BEGIN",), _BLOCK),)),
    FormGroup(("-----END",), (Form("private-key", ("-----END",), _BLOCK_END),)),
)
KNOWN: Final = (
    *(_URLS, _COLON, _DASH, _UNDERSCORE, _DOT, _LOWER, _CAPITALS, _AZURE),
    FormGroup(("earer ", "asic "), (_SCHEMES,)),
)
ADDRESSES: Final = (FormGroup(("@",), (Form("email", ("@",), _EMAIL, before=_LOCAL),)),)
_NO_PREFIXES: Final = (
    *(".", "SK", "AC", "key-", ".atlasv1.", "pat", "fc-", "pk_", "re_", "rnd_", "secret_", "sk."),
)
PREFIXES: Final = tuple(
    dict.fromkeys(
        hint
        for group in (_DASH, _UNDERSCORE, _DOT, _LOWER, _CAPITALS)
        for form in group.forms
        for hint in form.hints
        if hint not in _NO_PREFIXES
    )
)
"""The prefixes by which a secret is known from its beginning; not those that words have, too."""
