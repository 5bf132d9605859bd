"""What a model is shown of images, documents and recordings: pixels, pages, seconds.

Never the length of an encoding. Every provider has a rule of its own for what these cost
(``media_tokens``), so what is stored with a message is what all rules start from.

Read are: Anthropic's ``image`` and ``document``; OpenAI's ``image_url``, ``input_image``, ``file``,
``input_file`` and ``input_audio``; the ``audio`` and ``resource`` of the Model Context Protocol;
Gemini's inline data; blocks of other frameworks with ``data`` and a media type beside it.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final, NamedTuple

from eventctx.messages.facts import Medium
from eventctx.messages.images import image_medium
from eventctx.messages.lengths.audio_length import audio_tenths
from eventctx.messages.lengths.pdf_pages import BYTES_PER_PAGE, MOST_GUESSED, pdf_pages

UNKNOWN_PAGES: Final = 10
"""Pages of a document that is given by a URL or an id: nothing of it is in the message."""

UNKNOWN_TENTHS: Final = 600
"""Length of a recording that is given by an id: one minute."""

MOST_BASE64: Final = 64 << 20
"""Characters of base64 that are decoded; larger than any provider's largest request."""

_DATA: Final = ("data", "file_data", "blob", "base64")
_REFERENCES: Final = ("file_id", "file_url", "url", "uri", "file_uri", "fileUri", "id", "fileId")
_TYPES: Final = ("media_type", "mime_type", "mimeType", "format")
_HOLDERS: Final = (
    *("source", "file", "input_audio", "audio", "resource"),
    *("inline_data", "inlineData", "file_data", "fileData"),
)
_IMAGES: Final = ("image", "image_url", "input_image", "computer_screenshot")
_TEXT_TYPES: Final = ("text/", "application/json", "application/xml", "application/yaml")
_TEXT_NAMES: Final = (".txt", ".md", ".json", ".html", ".xml", ".csv", ".tsv", ".py", ".yaml")


class Shown(NamedTuple):
    """What a block shows: characters of text (and that text, where it is at hand), and media."""

    texts: tuple[str, ...] = ()
    media: tuple[Medium, ...] = ()
    characters: int = 0


def shown_of(block: Any) -> Shown | None:
    """What a block shows; None if it is none of the blocks that are read here."""
    if not isinstance(block, dict):
        return None
    kind = block.get("type")
    if kind in _IMAGES:
        return Shown(media=(image_medium(block),))
    holder = next((block[key] for key in _HOLDERS if isinstance(block.get(key), dict)), None)
    if holder is None:
        # A tool's own data may have a "url" or an "id" of its own, so only these types do without.
        known = kind == "input_file" or any(isinstance(block.get(key), str) for key in _TYPES)
        if not known and not isinstance(block.get("file_data"), str):
            return None
        holder = block
    titles = [block[key] for key in ("title", "context") if isinstance(block.get(key), str)]
    shown = _shown(str(kind), block, holder)
    if shown is None or kind != "document" or not titles:
        return shown
    return shown._replace(texts=(*titles, *shown.texts))


def _shown(kind: str, block: dict[str, Any], holder: dict[str, Any]) -> Shown | None:
    form = next((holder[key] for key in _TYPES if isinstance(holder.get(key), str)), "").lower()
    text = holder.get("text")
    if isinstance(text, str):
        return Shown((text,))
    if holder.get("type") == "content":
        return _of_blocks(holder.get("content"))
    data = next((holder[key] for key in _DATA if isinstance(holder.get(key), str)), None)
    if data is not None:
        if holder.get("type") == "text":
            return Shown((data,))
        names = [one.get(key) for one in (holder, block) for key in ("filename", "name", "title")]
        name = next((one for one in names if isinstance(one, str)), "")
        return _of_data(kind, data, form, name.lower())
    if any(isinstance(holder.get(key), str) for key in _REFERENCES):
        if "audio" in kind or form.startswith("audio/"):
            return Shown(media=(Medium("audio", UNKNOWN_TENTHS),))
        if form.startswith("image/"):
            return Shown(media=(Medium("image"),))
        return Shown(media=(Medium("pages", UNKNOWN_PAGES),))
    return None


def _of_blocks(content: Any) -> Shown:
    """What the blocks of a document in blocks show (Anthropic's ``source.type`` ``content``)."""
    texts: list[str] = []
    media: list[Medium] = []
    for one in content if isinstance(content, list) else [content]:
        text = one.get("text") if isinstance(one, dict) else one
        if isinstance(text, str):
            texts.append(text)
        elif isinstance(one, dict) and one.get("type") == "image":
            media.append(image_medium(one))
    return Shown(tuple(texts), tuple(media))


def _of_data(kind: str, data: str, form: str, name: str) -> Shown:
    if data.startswith("data:"):
        head, _, data = data.partition(",")
        form = head[5:].partition(";")[0].lower() or form
    if form.startswith("image/"):
        return Shown(media=(image_medium({"data": data}),))
    raw = _decoded(data)
    if raw[:1_024].lstrip().startswith(b"%PDF") or "pdf" in form or name.endswith(".pdf"):
        return Shown(media=(Medium("pages", pdf_pages(raw)),))
    if "audio" in kind or form.startswith("audio/"):
        return Shown(media=(Medium("audio", audio_tenths(raw, form)),))
    if form.startswith(_TEXT_TYPES) or name.endswith(_TEXT_NAMES):
        return Shown(characters=len(raw.decode("utf-8", "replace")))
    # Of office documents a provider reads the text alone, which cannot be told from the pictures.
    return Shown(media=(Medium("pages", min(MOST_GUESSED, 1 + len(raw) // BYTES_PER_PAGE)),))


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode(data[:MOST_BASE64])
    except (binascii.Error, ValueError):
        return data.encode("utf-8", "surrogatepass")
