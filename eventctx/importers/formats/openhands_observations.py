"""OpenHands' observations as its SDK shows them to the model.

The event of a tool's result has fields, and each kind of observation makes its text of them: a
command's output is followed by its folder and exit code, an error has a heading, long texts lose
their middle. The rules are those of openhands-sdk and openhands-tools 1.58; observations of their
releases before 1.0, which have ``output`` and ``error`` for ``content`` and ``is_error``, follow
those of 1.0.0a6. A kind that is not known is shown as the SDK shows one without rules of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final, NamedTuple

from eventctx.importers.source.lines import object_or_empty, text_or_none, without
from eventctx.importers.source.values import encode

_FAILED: Final = "[An error occurred during execution.]\n"
_COMMAND_FAILED: Final = "[There was an error during command execution.]\n"
_COMMAND_LIMIT: Final = 30_000
_LIMIT: Final = 50_000
_CLIPPED: Final = (
    "<response clipped><NOTE>Due to the max output limit, only part of the full response has been "
    "shown to you.</NOTE>"
)
_SAVED: Final = (
    "<response clipped><NOTE>Due to the max output limit, only part of the full response has been "
    "shown to you. The complete output has been saved to {file} - you can use other tools to view "
    "the full content (truncated part starts around line {line}).</NOTE>"
)
_PICTURES: Final = {"/9j/": "jpeg", "iVBORw0KGgo": "png", "R0lGODlh": "gif", "UklGR": "webp"}
_COMMANDS: Final = frozenset(("TerminalObservation", "ExecuteBashObservation"))
_PLAIN: Final = frozenset(("type", "text", "image_urls", "cache_prompt"))

Blocks = list[Any]
_Made = tuple[Blocks, tuple[str, ...]]


class ShownObservation(NamedTuple):
    """The blocks of a result, and the fields of the observation that they hold whole."""

    blocks: Blocks
    used: tuple[str, ...]
    failed: bool


def shown(seen: object) -> ShownObservation:
    """The result that the model is shown for an observation."""
    if not isinstance(seen, dict):
        return ShownObservation([text_block(_as_text(seen))], (), False)
    kind = text_or_none(seen.get("kind")) or ""
    failed = seen.get("is_error") is True or bool(seen.get("error"))
    has_content = isinstance(seen.get("content"), str | list)
    made, used = _of_content(kind, seen) if has_content else _of_fields(kind, seen)
    blocks = [_within_limit(block) for block in made]
    return ShownObservation(blocks, used if blocks == made else (), failed)


def text_block(text: str) -> dict[str, Any]:
    """A text as a block."""
    return {"type": "text", "text": text}


def with_pictures(blocks: Blocks) -> Blocks:
    """Replace each block with ``image_urls`` by one image block for each URL."""
    made: Blocks = []
    for block in blocks:
        urls = block.get("image_urls") if isinstance(block, dict) else None
        if isinstance(urls, list):
            made += [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        else:
            made.append(block)
    return made


# -- observations with content ---------------------------------------------------------------------


def _of_content(kind: str, seen: dict[str, Any]) -> _Made:
    content = seen["content"]
    given = [text_block(content)] if isinstance(content, str) else content
    heading = [text_block(_FAILED)] if seen.get("is_error") is True else []
    if kind in _TOMS:
        return [text_block(_TOMS[kind](seen))], ()
    if kind in _COMMANDS:
        whole = _command(_join(given), seen)
        text = _clipped(whole, _COMMAND_LIMIT, seen, "terminal")
        return [*heading, text_block(text)], _used(given, whole=text == whole, texts=True)
    if kind == "BrowserObservation":
        whole = _join(given)
        text = _clipped(whole, _LIMIT, seen, "browser")
        pictured = ("screenshot_data",) if seen.get("screenshot_data") else ()
        blocks = [*heading, *([text_block(text)] if text else []), *_picture(seen)]
        return blocks, (*_used(given, whole=text == whole, texts=True), *pictured)
    if kind == "TaskObservation":
        facts = (("Task ID", "task_id"), ("Subagent", "subagent"), ("Status", "status"))
        heading = [text_block("\n".join(f"{n}: {seen.get(key)}" for n, key in facts)), *heading]
    if kind == "MCPToolObservation" and not _join(given[:1]).startswith("[Tool '"):
        # Before 1.0 the heading was no part of the content.
        error = _FAILED if heading else ""
        heading = [text_block(f"[Tool '{seen.get('tool_name')}' executed.]\n{error}")]
    return [*heading, *_plain(with_pictures(given))], _used(given)


def _command(text: str, seen: dict[str, Any]) -> str:
    """A command's output with what surrounds it."""
    about = object_or_empty(seen.get("metadata"))
    told = f"{about.get('prefix') or ''}{text}{about.get('suffix') or ''}"
    if about.get("working_dir"):
        told += f"\n[Current working directory: {about['working_dir']}]"
    if about.get("py_interpreter_path"):
        told += f"\n[Python interpreter: {about['py_interpreter_path']}]"
    code = about.get("exit_code", -1)
    return told if code == -1 else f"{told}\n[Command finished with exit code {code}]"


def _picture(seen: dict[str, Any]) -> Blocks:
    data = text_or_none(seen.get("screenshot_data"))
    if not data:
        return []
    kind = next((kind for start, kind in _PICTURES.items() if data.startswith(start)), "png")
    url = data if data.startswith("data:") else f"data:image/{kind};base64,{data}"
    picture = {"type": "image_url", "image_url": {"url": url}}
    ending = "jpg" if kind == "jpeg" else kind
    file = _saved_file(seen, f"browser_screenshot_{_short_hash(data)}.{ending}")
    return [picture] if file is None else [text_block(f"Screenshot saved to: {file}"), picture]


def _suggested(seen: dict[str, Any]) -> str:
    if not seen.get("suggestions"):
        return "Tom agent did not provide suggestions."
    lines = [f"Tom agent's guidance:\n{seen['suggestions']}"]
    if seen.get("reasoning"):
        lines.append(f"\nReasoning: {seen['reasoning']}")
    confidence = seen.get("confidence")
    if isinstance(confidence, int | float):
        lines.append(f"\nConfidence: {confidence:.0%}")
    return "\n".join(lines)


def _indexed(seen: dict[str, Any]) -> str:
    number = seen.get("sessions_processed")
    told = "Sleeptime compute completed."
    if isinstance(number, int) and number > 0:
        told = f"Successfully indexed {number} conversation(s) for user modeling."
    return f"{told}\n{seen.get('message') or ''}"


_TOMS: Final[dict[str, Callable[[dict[str, Any]], str]]] = {
    "ConsultTomObservation": _suggested,
    "SleeptimeComputeObservation": _indexed,
}


# -- observations of releases before 1.0 -----------------------------------------------------------


def _of_fields(kind: str, seen: dict[str, Any]) -> _Made:
    error, output = text_or_none(seen.get("error")), text_or_none(seen.get("output"))
    if kind in _COMMANDS:
        whole = f"{_COMMAND_FAILED if seen.get('error') else ''}{_command(output or '', seen)}"
        text = _clipped(whole, _COMMAND_LIMIT, seen, "terminal")
        return [text_block(text)], ("output",) if text == whole else ()
    if error:
        plain = kind == "FileEditorObservation"
        return [text_block(error if plain else f"Error: {error}")], ("error",)
    found = _find(kind, seen)
    if found is not None:
        return [text_block(found)], ()
    if output is not None:
        pictured = ("screenshot_data",) if seen.get("screenshot_data") else ()
        return [text_block(output), *_picture(seen)], ("output", *pictured)
    message = text_or_none(seen.get("message"))
    if message is not None:
        return [text_block(message)], ("message",)
    return [text_block(_as_text(without(seen, "kind")))], ()


def _find(kind: str, seen: dict[str, Any]) -> str | None:
    """The text of a search for files by name, or by content."""
    key = {"GlobObservation": "files", "GrepObservation": "matches"}.get(kind)
    if key is None or not isinstance(seen.get(key), list):
        return None
    by_name = key == "files"
    found = [one for one in seen[key] if isinstance(one, str)]
    pattern, place = seen.get("pattern"), seen.get("search_path")
    only = seen.get("include_pattern")
    filtered = f" (filtered by '{only}')" if only and not by_name else ""
    how = "matching pattern" if by_name else "containing pattern"
    if not found:
        return f"No files found {how} '{pattern}' in directory '{place}'{filtered}"
    text = f"Found {len(found)} file(s) {how} '{pattern}' in '{place}'{filtered}:\n"
    text += "\n".join(found)
    if seen.get("truncated"):
        text += (
            "\n\n[Results truncated to first 100 files. Consider using a more specific pattern.]"
        )
    return text


# -- texts -----------------------------------------------------------------------------------------


def _clipped(text: str, limit: int, seen: dict[str, Any], name: str) -> str:
    """A text without its middle, if it is longer than the limit. Its file is named, if saved."""
    if len(text) <= limit:
        return text
    room = limit - len(_CLIPPED)
    head = room // 2 + room % 2
    notice = _CLIPPED
    file = _saved_file(seen, f"{name}_output_{_short_hash(text)}.txt")
    if file is not None:
        notice = _SAVED.format(file=file, line=len(text[:head].splitlines()) + 1)
    room = limit - len(notice)
    if room <= 0:
        return notice[:limit]
    head = min(head, room)
    return f"{text[:head]}{notice}{text[len(text) - (room - head) :]}"


def _saved_file(seen: dict[str, Any], name: str) -> str | None:
    folder = text_or_none(seen.get("full_output_save_dir"))
    return f"{folder.rstrip('/')}/{name}" if folder else None


def _short_hash(text: str) -> str:
    return sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]


def _within_limit(block: Any) -> Any:
    text = text_or_none(object_or_empty(block).get("text"))
    if text is None or len(text) <= _LIMIT:
        return block
    return {**block, "text": _clipped(text, _LIMIT, {}, "")}


def _plain(blocks: Blocks) -> Blocks:
    """The blocks without a mark that says that the cache does not end here."""
    return [
        without(block, "cache_prompt")
        if isinstance(block, dict) and block.get("cache_prompt") is False
        else block
        for block in blocks
    ]


def _used(given: Blocks, *, whole: bool = True, texts: bool = False) -> tuple[str, ...]:
    """``content``, if the message says all that it says: ``texts``, if only its texts are in it."""
    plain = all(
        isinstance(block, dict)
        and block.keys() <= _PLAIN
        and not block.get("cache_prompt")
        and not (texts and "image_urls" in block)
        for block in given
    )
    return ("content",) if plain and whole else ()


def _join(blocks: Blocks) -> str:
    texts = (object_or_empty(block).get("text") for block in blocks)
    return "".join(text for text in texts if isinstance(text, str))


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else encode(value).decode()
