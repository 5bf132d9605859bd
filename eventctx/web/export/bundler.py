"""One script from the modules of the page, since a page from a file cannot import modules.

The modules stand in the order of their imports, without their import lines and the word ``export``.
So a name of a module's top is a name for all of them: two modules with one name are refused, and so
is every form of import and export but the plain ones.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from eventctx.web.export.compact import compact_script
from eventctx.web.export.lexer import Token, UnreadableScript, tokens

ReadModule = Callable[[str], str]
"""The source of a module, given its path below the page's folder."""

_OPENING: Final = frozenset("{[(")
_CLOSING: Final = frozenset("}])")
_DECLARING: Final = frozenset(("const", "let", "var", "class", "function"))
_FORBIDDEN_IN_HTML: Final = ("</script", "<script", "<!--")


@dataclass(frozen=True, slots=True)
class ScriptModule:
    """A module: what it imports, by module; the names of its top; its code without the rest."""

    path: str
    imports: dict[str, tuple[str, ...]]
    names: tuple[str, ...]
    exports: frozenset[str]
    code: tuple[Token, ...]


def bundle(entry: str, read: ReadModule) -> str:
    """The script of ``entry`` and all that it imports. Raises UnreadableScript."""
    modules = list(in_order(entry, read))
    owners: dict[str, str] = {}
    for module in modules:
        for name in module.names:
            if name in owners:
                raise UnreadableScript(
                    f"{module.path} and {owners[name]} both have a top-level name {name}"
                )
            owners[name] = module.path
    script = "".join(compact_script(module.code) for module in modules)
    for text in _FORBIDDEN_IN_HTML:
        if text in script.lower():
            raise UnreadableScript(f"{text!r} in a script would end or change its element")
    return script


def in_order(entry: str, read: ReadModule) -> Iterator[ScriptModule]:
    """The modules that ``entry`` needs, each after those that it imports.

    In a cycle, the module that is reached first comes last, as in a browser.
    """
    known: dict[str, ScriptModule] = {}

    def reach(path: str) -> Iterator[ScriptModule]:
        module = known[path] = parse(path, read(path))
        for imported, names in module.imports.items():
            if imported not in known:
                yield from reach(imported)
            missing = set(names) - known[imported].exports
            if missing:
                raise UnreadableScript(f"{path}: {imported} exports no {sorted(missing)[0]}")
        yield module

    return reach(entry)


def parse(path: str, source: str) -> ScriptModule:
    """Take a module apart. Raises UnreadableScript with its path."""
    try:
        return _Parser(path, tokens(source)).parsed()
    except UnreadableScript as error:
        raise UnreadableScript(f"{path}: {error}") from None


class _Parser:
    """Reads the statements of a module's top level, and leaves all below them as it is."""

    def __init__(self, path: str, parts: Sequence[Token]) -> None:
        self._folder = posixpath.dirname(path)
        self._path = path
        self._parts = parts
        self._imports: dict[str, tuple[str, ...]] = {}
        self._names: list[str] = []
        self._exports: set[str] = set()
        self._code: list[Token] = []

    def parsed(self) -> ScriptModule:
        at = depth = 0
        while at < len(self._parts):
            token = self._parts[at]
            if token.kind == "sign":
                depth += (token.text in _OPENING) - (token.text in _CLOSING)
            elif token.kind == "word" and not self._is_property(at):
                if token.text == "import":
                    at = self._import(at, depth)
                    continue
                if token.text == "export":
                    at = self._export(at, depth)
                    continue
                if depth == 0 and token.text in _DECLARING and self._begins_a_statement(at):
                    self._names += self._declared(at)
            self._code.append(token)
            at += 1
        return ScriptModule(
            self._path, self._imports, tuple(self._names), frozenset(self._exports),
            tuple(self._code),
        )  # fmt: skip

    def _is_property(self, at: int) -> bool:
        before = self._meaningful(at - 1, -1)
        return before is not None and self._parts[before].text in (".", "?.")

    def _begins_a_statement(self, at: int) -> bool:
        before = self._meaningful(at - 1, -1)
        if before is None or self._parts[before].kind != "sign":
            return True
        return self._parts[before].text in (";", "}", ")")

    def _meaningful(self, at: int, step: int = 1) -> int | None:
        """The next place from ``at`` on that is neither blank nor comment."""
        while 0 <= at < len(self._parts):
            if self._parts[at].kind not in ("blank", "comment"):
                return at
            at += step
        return None

    def _texts(self, at: int) -> Iterator[tuple[int, Token]]:
        place = self._meaningful(at)
        while place is not None:
            yield place, self._parts[place]
            place = self._meaningful(place + 1)

    def _import(self, at: int, depth: int) -> int:
        if depth:
            raise UnreadableScript("an import that is not at the top of the module")
        following = self._texts(at + 1)
        place, token = next(following, (at, Token("blank", "")))
        names: list[str] = []
        if token.text == "{":
            for _, token in following:
                if token.text == "}":
                    break
                if token.text != ",":
                    names.append(token.text)
            if "as" in names:
                raise UnreadableScript("an import under another name")
            place, token = next(following, (at, token))
            if token.text != "from":
                raise UnreadableScript("expected `import { a } from './x.js';`")
            place, token = next(following, (at, token))
        if token.kind != "string" or not token.text[1:].startswith(("./", "../")):
            raise UnreadableScript("expected `import { a } from './x.js';`")
        target = posixpath.normpath(posixpath.join(self._folder, token.text[1:-1]))
        self._imports[target] = (*self._imports.get(target, ()), *names)
        end, token = next(following, (place, token))
        return (end if token.text == ";" else place) + 1

    def _export(self, at: int, depth: int) -> int:
        words: list[str] = []
        for place, token in self._texts(at + 1):
            words.append(token.text)
            if token.text == "async":
                continue
            if depth or token.text not in _DECLARING:
                break
            self._exports.update(self._declared(place))
            following = self._meaningful(at + 1)
            return at + 1 if following is None else following
        raise UnreadableScript(f"an export of another form: export {' '.join(words)}")

    def _declared(self, at: int) -> list[str]:
        """The names that the declaration at a place gives, those of a flat pattern included."""
        found: list[str] = []
        depth = 0
        expected = True
        for _, token in self._texts(at + 1):
            if token.kind == "word" and expected:
                if token.text in ("of", "in"):
                    break
                found.append(token.text)
                if self._parts[at].text in ("class", "function"):
                    break
                expected = False
            elif token.text in _OPENING and (expected or depth):
                depth += 1
                expected = True
            elif token.text in _CLOSING:
                depth -= 1
            elif token.text == ",":
                expected = True
            elif token.text == ":" and depth == 1:
                found.pop()
                expected = True
            elif token.text not in ("*", "..."):
                break
            if depth < 0:
                break
        return found
