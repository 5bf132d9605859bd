"""The forms of secrets that redaction recognises, each with a cheap test before it.

A form is tried only on a text that holds its mark and one of its hints, so that a text without
secrets costs a few substring searches. A form takes time in proportion to the text, whatever the
text: every repeat is possessive, atomic or bounded, and no two starts read the same long run. Forms
run in the order of this table: a form that may contain others comes first (a key block, then a
named value, then a value known by its form).
"""

from __future__ import annotations

from typing import Final

from eventctx.hooks.secret_forms.commands import COMMANDS
from eventctx.hooks.secret_forms.form import FormGroup
from eventctx.hooks.secret_forms.known import ADDRESSES, KEY_BLOCKS, KNOWN
from eventctx.hooks.secret_forms.named import NAMED

KEYS: Final[tuple[FormGroup, ...]] = (*KEY_BLOCKS, *NAMED, *COMMANDS, *KNOWN)
"""Keys, tokens and passwords."""

EMAILS: Final[tuple[FormGroup, ...]] = ADDRESSES
"""E-mail addresses."""
