"""The measure of images, documents and recordings that a model is shown: pixels, pages, seconds.

Never the length of an encoding. Every provider has a rule of its own for what these cost
(``tokens.MediaRates``), so what is stored with a message is what all rules start from.

Read are: Anthropic's ``image`` and ``document``; OpenAI's ``image_url``, ``input_image``, ``file``,
``input_file`` and ``input_audio``; the ``audio`` and ``resource`` of the Model Context Protocol;
Gemini's inline data; blocks of other frameworks with ``data`` and a media type.
"""

from __future__ import annotations

import base64
import binascii
import io
import struct
import zlib
from typing import Any, Final, NamedTuple

from eventctx.messages.facts import Detail, Medium
from eventctx.text import pattern

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
    """The content of a block: characters of text (and the text, where it is at hand), and media."""

    texts: tuple[str, ...] = ()
    media: tuple[Medium, ...] = ()
    characters: int = 0


def shown_of(block: Any) -> Shown | None:
    """The content of a block; None if it is none of the blocks that are read here."""
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
    shown = _show_holder(str(kind), block, holder)
    if shown is None or kind != "document" or not titles:
        return shown
    return shown._replace(texts=(*titles, *shown.texts))


def _show_holder(kind: str, block: dict[str, Any], holder: dict[str, Any]) -> Shown | None:
    form = next((holder[key] for key in _TYPES if isinstance(holder.get(key), str)), "").lower()
    text = holder.get("text")
    if isinstance(text, str):
        return Shown((text,))
    if holder.get("type") == "content":
        return _show_blocks(holder.get("content"))
    data = next((holder[key] for key in _DATA if isinstance(holder.get(key), str)), None)
    if data is not None:
        if holder.get("type") == "text":
            return Shown((data,))
        names = [one.get(key) for one in (holder, block) for key in ("filename", "name", "title")]
        name = next((one for one in names if isinstance(one, str)), "")
        return _show_data(kind, data, form, name.lower())
    if any(isinstance(holder.get(key), str) for key in _REFERENCES):
        if "audio" in kind or form.startswith("audio/"):
            return Shown(media=(Medium("audio", UNKNOWN_TENTHS),))
        if form.startswith("image/"):
            return Shown(media=(Medium("image"),))
        return Shown(media=(Medium("pages", UNKNOWN_PAGES),))
    return None


def _show_blocks(content: Any) -> Shown:
    """The content of a document in blocks (Anthropic's ``source.type`` ``content``)."""
    texts: list[str] = []
    media: list[Medium] = []
    for one in content if isinstance(content, list) else [content]:
        text = one.get("text") if isinstance(one, dict) else one
        if isinstance(text, str):
            texts.append(text)
        elif isinstance(one, dict) and one.get("type") == "image":
            media.append(image_medium(one))
    return Shown(tuple(texts), tuple(media))


def _show_data(kind: str, data: str, form: str, name: str) -> Shown:
    if data.startswith("data:"):
        head, _, data = data.partition(",")
        form = head[5:].partition(";")[0].lower() or form
    if form.startswith("image/"):
        return Shown(media=(image_medium({"data": data}),))
    raw = _decode(data)
    if raw[:1_024].lstrip().startswith(b"%PDF") or "pdf" in form or name.endswith(".pdf"):
        return Shown(media=(Medium("pages", pdf_pages(raw)),))
    if "audio" in kind or form.startswith("audio/"):
        return Shown(media=(Medium("audio", audio_tenths(raw, form)),))
    if form.startswith(_TEXT_TYPES) or name.endswith(_TEXT_NAMES):
        return Shown(characters=len(raw.decode("utf-8", "replace")))
    # Of office documents a provider reads the text alone, which cannot be told from the pictures.
    return Shown(media=(Medium("pages", min(MOST_GUESSED, 1 + len(raw) // BYTES_PER_PAGE)),))


def _decode(data: str) -> bytes:
    try:
        return base64.b64decode(data[:MOST_BASE64])
    except (binascii.Error, ValueError):
        return data.encode("utf-8", "surrogatepass")


# -- images: pixels, from the header -------------------------------------------------------------

MOST_PIXELS: Final = 1 << 16
"""Pixels of an edge; formats can say more, providers refuse 8,000."""

# Enough for the headers of PNG, GIF and WebP, and for JPEGs with large embedded profiles.
_HEADER_CHARACTERS: Final = 262_144

_DETAILS: Final[dict[Any, Detail]] = {"low": "low", "high": "high", "original": "original"}


def image_medium(block: dict[str, Any]) -> Medium:
    """The size of an image block of any dialect; 0 times 0 where it cannot be read (a URL, an id).

    With the ``detail`` that OpenAI's blocks ask for; ``auto`` and none are empty.
    """
    link = block.get("image_url")
    asked = link.get("detail") if isinstance(link, dict) else block.get("detail")
    detail = _DETAILS.get(asked, "") if isinstance(asked, str) else ""
    data = _base64_of(block)
    if data is None:
        return Medium("image", detail=detail)
    # Imported here: it loads urllib and the http client, a fifth of the engine's start.
    import imagesize  # type: ignore[import-untyped]

    try:
        header = base64.b64decode(data[:_HEADER_CHARACTERS], validate=False)
        width, height = imagesize.get(io.BytesIO(header))
    except (binascii.Error, ValueError, IndexError):
        return Medium("image", detail=detail)
    if not (0 < width <= MOST_PIXELS and 0 < height <= MOST_PIXELS):
        return Medium("image", detail=detail)
    return Medium("image", int(width), int(height), detail)


def _base64_of(block: dict[str, Any]) -> str | None:
    source = block.get("source")
    data = source.get("data") if isinstance(source, dict) else block.get("data")
    if isinstance(data, str):
        return data
    url = block.get("image_url")
    if isinstance(url, dict):
        url = url.get("url")
    if isinstance(url, str) and url.startswith("data:"):
        _, _, encoded = url.partition(",")
        return encoded
    return None


# -- recordings: tenths of a second, from the header ---------------------------------------------

BYTES_PER_SECOND: Final = 4_000
"""Of a recording in a format that is not read here: 32 kbit/s, a low rate for speech."""

PCM_BYTES_PER_SECOND: Final = 48_000
"""Of OpenAI's ``pcm16``: 24,000 samples of two bytes a second."""

MOST_TENTHS: Final = 95 * 3_600
"""Of one request: 9.5 hours, Gemini's limit. A larger number in a file is a mistake or a trap."""

_MP3_RATES: Final = {
    # MPEG 1 layer III, then MPEG 2 and 2.5 layer III (ISO/IEC 11172-3 and 13818-3), in kbit/s.
    3: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0),
    2: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0),
    0: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0),
}
_MP3_SAMPLES: Final = {
    3: (44_100, 48_000, 32_000, 0),
    2: (22_050, 24_000, 16_000, 0),
    0: (11_025, 12_000, 8_000, 0),
}


def audio_tenths(data: bytes, form: str = "") -> int:
    """Tenths of a second of a recording, at least 1; ``form`` is its media type or format.

    Never raises.
    """
    if form == "pcm16":
        seconds: float | None = len(data) / PCM_BYTES_PER_SECOND
    else:
        seconds = _wav_seconds(data) or _mp3_seconds(data)
    if seconds is None:
        seconds = len(data) / BYTES_PER_SECOND
    return max(1, min(MOST_TENTHS, round(seconds * 10)))


def _wav_seconds(data: bytes) -> float | None:
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        return None
    at, rate = 12, 0
    while at + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, at)
        if name == b"fmt " and at + 20 <= len(data):
            (rate,) = struct.unpack_from("<I", data, at + 16)
        elif name == b"data":
            # Written while recording, a header says 0 or the largest number.
            present = len(data) - at - 8
            return min(size or present, present) / rate if rate else None
        at += 8 + size + size % 2
    return None


def _mp3_seconds(data: bytes) -> float | None:
    start = _behind_tag(data)
    start = data.find(b"\xff", start, start + 4_096)
    while 0 <= start < len(data) - 4:
        version, layer = data[start + 1] >> 3 & 3, data[start + 1] >> 1 & 3
        if data[start + 1] >> 5 == 7 and version in _MP3_RATES and layer == 1:
            rate = _MP3_RATES[version][data[start + 2] >> 4]
            samples = _MP3_SAMPLES[version][data[start + 2] >> 2 & 3]
            if rate and samples:
                frames = _frames(data[start : start + 200])
                if frames:
                    return frames * (1_152 if version == 3 else 576) / samples
                return (len(data) - start) / (rate * 125)
        start = data.find(b"\xff", start + 1, start + 4_096)
    return None


def _behind_tag(data: bytes) -> int:
    if data[:3] != b"ID3" or len(data) < 10:
        return 0
    size = 0
    for byte in data[6:10]:
        size = size << 7 | byte & 0x7F
    return 10 + size


def _frames(frame: bytes) -> int:
    """The number of frames in the header that encoders of variable rates write; 0 without it."""
    for name in (b"Xing", b"Info"):
        at = frame.find(name)
        if at >= 0 and len(frame) >= at + 12:
            flags, frames = struct.unpack_from(">II", frame, at + 4)
            return int(frames) if flags & 1 else 0
    return 0


# -- documents: pages of a PDF -------------------------------------------------------------------
# A page is an object of ``/Type /Page``; the root of the page tree has their number in ``/Count``
# (ISO 32000-1, 7.7.3). Since PDF 1.5 objects may lie in object streams (7.5.7), which are inflated,
# up to a limit. A file of which nothing can be read this way (broken, encrypted) is judged by size.

BYTES_PER_PAGE: Final = 20_000
"""Of a PDF whose pages cannot be counted. Pages of text take 2,000 to 20,000 bytes, scans more."""

MOST_PAGES: Final = 600
"""Pages that a provider reads of one request: 600 (Anthropic; 100 with a window of 200,000
tokens), 1,000 (Gemini). A larger number in a file is a mistake or a trap."""

MOST_GUESSED: Final = 100

_MOST_INFLATED: Final = 4 << 20
_MOST_STREAMS: Final = 512
_REACH: Final = 4_096
"""Bytes on either side of ``/Type /Pages`` in which its ``/Count`` is looked for."""

_TYPE: Final = pattern(rb"/Type\s*/(Pages?|ObjStm)(?![A-Za-z])")
_COUNT: Final = pattern(rb"/Count\s+(\d{1,9})(?!\d)")
_LINEAR: Final = pattern(rb"/Linearized\b[^>]{0,400}?/N\s+(\d{1,9})(?!\d)")
_BOUNDS: Final = (b"endobj", b" obj")


def pdf_pages(data: bytes) -> int:
    """Pages of a PDF, from 1 to ``MOST_PAGES``; never raises."""
    pages, tree, packed = _count_pages(data)
    left = _MOST_INFLATED
    for place in packed[:_MOST_STREAMS]:
        text = _inflate(data, place, left)
        left -= len(text)
        more, count, _ = _count_pages(text)
        pages, tree = pages + more, max(tree, count)
        if left <= 0:
            break
    if not pages and not tree:
        linear = _LINEAR.search(data, 0, 2_048)
        tree = int(linear[1]) if linear is not None else 0
    # An updated file holds old pages too; a count alone may be anything.
    found = min(pages, tree) if pages and tree else max(pages, tree)
    if not found:
        return min(MOST_GUESSED, 1 + len(data) // BYTES_PER_PAGE)
    return min(MOST_PAGES, found)


def _count_pages(text: bytes) -> tuple[int, int, list[int]]:
    """The number of pages, the largest count of a page tree, and where packed objects begin."""
    pages = tree = 0
    packed: list[int] = []
    for found in _TYPE.finditer(text):
        if found[1] == b"Page":
            pages += 1
        elif found[1] == b"Pages":
            tree = max(tree, _count_of_tree(text, found.start(), found.end()))
        else:
            packed.append(found.end())
    return pages, tree, packed


def _count_of_tree(text: bytes, start: int, end: int) -> int:
    """The number in the object around ``/Type /Pages``; 0 if there is none in reach."""
    first = max(0, start - _REACH)
    first = max(first, *(text.rfind(bound, first, start) for bound in _BOUNDS))
    last = text.find(b"endobj", end, end + _REACH)
    last = end + _REACH if last < 0 else last
    return max([int(count[1]) for count in _COUNT.finditer(text, first, last)], default=0)


def _inflate(data: bytes, place: int, most: int) -> bytes:
    """The text of the stream after ``place``, at most ``most`` bytes; empty if it is broken."""
    start = data.find(b"stream", place, place + _REACH)
    if start < 0:
        return b""
    start += len(b"stream")
    start += 2 if data[start : start + 2] == b"\r\n" else 1
    end = data.find(b"endstream", start)
    try:
        # A view, not a copy: without an end the stream is the rest of the file.
        stream = memoryview(data)[start : end if end >= 0 else len(data)]
        return zlib.decompressobj().decompress(stream, most)
    except zlib.error:
        return b""
