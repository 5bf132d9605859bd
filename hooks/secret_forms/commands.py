"""Secrets on command lines (``curl -u name:…``), in .netrc files and between XML tags."""

from __future__ import annotations

import re
from typing import Final

from eventctx.hooks.secret_forms.form import Form, FormGroup
from eventctx.hooks.secret_forms.named import NO_VALUES, NOT_A_COUNT, NOT_A_VALUE

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
    """A pattern for the value behind a flag of one of the commands, whose names begin alike.

    What stands between command and flag is read to the end of the line, or to the next command of
    the same name, so that no character is read for two commands.
    """
    word = rf"(?<![\w.-]{names[0]}){names[1:]}(?=[ \t])"
    between = rf"(?:[^\s\\{names[0]}]++|{names[0]}(?!{word})|\\(?!\r?\n)|{_SPACE}++(?!{flag}))*+"
    return re.compile(rf"{names[0]}{word}{between}{_SPACE}++{flag}{value}")


_USER_FLAG: Final = (
    r"(?:-[#0-9afgikLlnNOpqRsSv]{0,8}u[ \t]{0,8}+|--(?:proxy-)?user(?:=|[ \t]{1,8}+))"
)
# mysql takes -port for the password "ort"; who writes it means the port. Behind a pipe in the same
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
