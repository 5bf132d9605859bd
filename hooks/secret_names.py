"""Secrets known by their place: values after a name, on command lines, in .netrc files and XML.

``password=…``, ``"api_key": "…"``, ``Cookie: …``, ``curl -u name:…``. ``KEYS`` holds these and the
forms of ``secret_forms`` in the order in which redaction runs them: a form that may contain others
comes first (a key block, then a named value, then a value known by its form).
"""

from __future__ import annotations

import re
from typing import Final

from eventctx.hooks.secret_forms import (
    ADDRESSES,
    KEY_BLOCKS,
    KNOWN,
    Form,
    FormGroup,
    in_any_case,
)

NO_VALUES: Final = (
    r"(?:a|an|and|any|are|bool|bytes|can|cannot|could|expected|expired|false|for|has|have|in|int"
    r"|invalid|is|missing|must|nil|no|none|not|null|of|optional|or|required|secretstr|should|str"
    r"|string|the|to|true|undefined|was|with)"
)
"""Words of prose and types of programs in the place of a value."""
NOT_A_VALUE: Final = rf"(?!{NO_VALUES}(?![\w-]))"
NOT_A_COUNT: Final = r"(?!\d[\d_,.]{0,20}+(?:%|[a-z]{1,3})?(?![\w-]))"
"""A count of tokens, a time, a share: 4096, 0.31s, 12%."""

NOT_A_LOOKUP: Final = (
    r"(?!(?:os\.(?:environ|getenv)|process\.env|System\.getenv|getenv|ENV|\$env)(?=[.\[(:]))"
)
"""Code that looks a secret up, and has none: ``os.environ["API_KEY"]``, ``process.env.TOKEN``."""

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
    pattern = rf"{name}{_BETWEEN}{before}(?:{_QUOTED}|{NOT_A_VALUE}{NOT_A_LOOKUP}{unless}{_BARE}))"
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

``client-key-data`` is the private key in a configuration of Kubernetes; the certificates next to it
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

# -- command lines -------------------------------------------------------------------------------

_FLAGS: Final = (
    r"--(?<!---)(?!-)(?i:[a-z-]{0,24}?(?:pass(?:word|wd|phrase)?|secret|token|(?:api|access)-?key))"
    r"[ \t]{1,8}+(?:\"([^\"\r\n]++)|'([^'\r\n]++)|(?!-)([^\s\"']++))"
)
_SPACE: Final = r"(?:[ \t]|\\\r?\n)"
# A backslash belongs to a value, except before a quote, where it is JSON's, not the value's.
_REST: Final = (
    r"(?:\\++[\"']{0}([^\"'\\\r\n]++)"
    r"|\"{0}((?:[^\"\\\r\n]|\\.)++)"
    r"|'{0}([^'\r\n]++)"
    r"|{0}((?:[^\s\"'`\\]|\\(?![\"']))++))"
)
_VALUE: Final = _REST.replace("{0}", "")
_BEHIND_A_NAME: Final = _REST.replace("{0}", r"[^\s:\"'\\]{0,256}+:")


def _command(names: str, flag: str, value: str) -> re.Pattern[str]:
    """A pattern for the value after a flag of one of the commands, whose names begin alike.

    The text between command and flag is read to the end of the line, or to the next command of the
    same name, so that no character is read for two commands.
    """
    word = rf"(?<![\w.-]{names[0]}){names[1:]}(?=[ \t])"
    between = rf"(?:[^\s\\{names[0]}]++|{names[0]}(?!{word})|\\(?!\r?\n)|{_SPACE}++(?!{flag}))*+"
    return re.compile(rf"{names[0]}{word}{between}{_SPACE}++{flag}{value}")


_USER_FLAG: Final = (
    r"(?:-[#0-9afgikLlnNOpqRsSv]{0,8}u[ \t]{0,8}+|--(?:proxy-)?user(?:=|[ \t]{1,8}+))"
)
# mysql takes -port for the password "ort"; its writer means the port. After a pipe in the same
# line other programs have flags that begin so (find -print, cp -pr).
_OTHER_FLAGS: Final = r"(?!(?:ath|attern|ipe|lugin-dir|ort|rint0?|rotocol)\b)"
_GLUED_FLAG: Final = rf"-p(?=\S{{3}}){_OTHER_FLAGS}"
_COMMANDS: Final = (
    Form("password", ("curl",), _command("curl", _USER_FLAG, _BEHIND_A_NAME)),
    Form(
        "password",
        ("mysql",),
        _command(r"mysql(?:admin|check|dump|import|pump|show|slap)?", _GLUED_FLAG, _VALUE),
    ),
    Form(
        "password",
        ("mariadb",),
        _command(r"mariadb(?:-[a-z]{1,16}+)?", _GLUED_FLAG, _VALUE),
    ),
    Form("password", ("sshpass",), _command("sshpass", r"-v?p[ \t]{0,8}+", _VALUE)),
    Form("password", ("docker",), _command(r"docker[ \t]{1,8}+login", r"-p[ \t=]{0,8}+", _VALUE)),
    Form("password", ("redis-cli",), _command("redis-cli", r"-a[ \t]{1,8}+", _VALUE)),
    Form("password", ("zip ",), _command("unzip", r"-P[ \t]{0,8}+", _VALUE)),
    Form("password", ("zip ",), _command("zip", r"-P[ \t]{0,8}+", _VALUE)),
    Form("password", ("ldap",), _command("ldap[a-z]{3,9}+", r"-w[ \t]{0,8}+", _VALUE)),
)

# The same as lists of arguments: ["curl", "-u", "name:…"], in JSON or a program.
_NEXT: Final = r"\\{0,8}+[\"'],\s{0,16}+\\{0,8}+[\"']"
_ITEM: Final = r"((?:(?!\\{0,8}+[\"'][ ]?[,\])])[^\r\n]){1,256}+)"


def _listed(names: str, flag: str, value: str) -> re.Pattern[str]:
    """As ``_command``, for a list, which is read to its bracket."""
    first, rest = names[0], names[1:]
    flag = rf"(?<=[\"']-){flag}"
    between = rf"(?:[^\r\n\]){first}-]|{first}(?!{rest})|-(?!{flag}))*+"
    return re.compile(rf"{first}{rest}{_NEXT}{between}-{flag}{value}")


_USER_ITEM: Final = rf"(?:u|-(?:proxy-)?user){_NEXT}"
_GLUED_ITEM: Final = rf"p(?=[^\s\"'\\]{{3}}){_OTHER_FLAGS}"
_ARGUMENTS: Final = (
    Form(
        "password",
        ("curl",),
        _listed("curl", _USER_ITEM, rf"[^\s:\"'\\]{{0,256}}+:{_ITEM}"),
    ),
    Form(
        "password",
        ("mysql", "mariadb"),
        _listed(r"m(?:ysql|ariadb)[a-z-]{0,16}+", _GLUED_ITEM, _ITEM),
    ),
    Form("password", ("sshpass",), _listed("sshpass", rf"p(?:{_NEXT})?", _ITEM)),
)

# -- files ---------------------------------------------------------------------------------------

_GAP: Final = r"(?:\s|\\[nrt]){1,16}+"
_NETRC_WORD: Final = r"(?:[^\s\\\"]|\\(?![nrt\"])){1,256}+"
_NETRC: Final = re.compile(
    rf"(?:machine{_GAP}{_NETRC_WORD}|default){_GAP}"
    rf"(?:(?:(?:login|account){_GAP}{NOT_A_VALUE}{_NETRC_WORD}{_GAP}){{1,2}}+password{_GAP}({_NETRC_WORD})"
    rf"|password{_GAP}({_NETRC_WORD}){_GAP}login\b)"
)


def _tag(kind: str, words: str, unless: str = "") -> Form:
    """A form for the text of an XML element whose name ends in one of the words."""
    ends = "|".join([rf"(?<={word})" for word in words.split()])
    pattern = (
        rf"<([\w:.-]{{1,64}}+)(?i:{ends})(?:\s[^<>]{{0,256}}+)?>\s{{0,64}}+(?:<!\[CDATA\[)?+"
        rf"(?i:(?!{NO_VALUES}\s{{0,64}}+<){unless})"
        r"([^\s<\]](?:[^<\]]|\](?!\]>))*+)(?:\]\]>\s{0,64}+)?</\1"
    )
    return Form(kind, ("</",), re.compile(pattern))


_TAGS: Final = (
    _tag("password", "password passwd passphrase passcode pwd"),
    _tag("secret", "secret secretkey secret_key secret-key"),
    _tag("api-key", "apikey api-key api_key accesskey access_key access-key privatekey"),
    _tag("token", "token", NOT_A_COUNT),
)

COMMANDS: Final = (
    FormGroup(("-",), (Form("password", ("--",), re.compile(_FLAGS)), *_COMMANDS, *_ARGUMENTS)),
    FormGroup(("login",), (Form("password", ("password",), _NETRC),)),
    FormGroup(("<",), _TAGS),
)

# -- all forms -----------------------------------------------------------------------------------

KEYS: Final[tuple[FormGroup, ...]] = (*KEY_BLOCKS, *NAMED, *COMMANDS, *KNOWN)
"""Keys, tokens and passwords."""

EMAILS: Final[tuple[FormGroup, ...]] = ADDRESSES
"""E-mail addresses."""
