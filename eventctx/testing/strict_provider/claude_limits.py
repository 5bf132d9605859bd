"""Limits of Anthropic's Messages API: media, size, and marks for the cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from eventctx.messages.media import image_medium
from eventctx.testing.strict_provider.claude_request import ClaudeBlock, ClaudeRequest, blocks_of
from eventctx.testing.strict_provider.rule import Found, Rule

MOST_IMAGES: Final = 100
MANY_IMAGES: Final = 20
"""Images in a request above which none may have a long side."""

LONG_SIDE: Final = 2_000
LONGEST_SIDE: Final = 8_000
MOST_IMAGE_BYTES: Final = 5 << 20
MOST_BYTES: Final = 32 << 20
MOST_MARKS: Final = 4


def _check_image_count(request: ClaudeRequest) -> Iterator[Found]:
    count = len(_images(request))
    if count > MOST_IMAGES:
        yield (
            "messages",
            f"Too much media: 0 document pages + {count} images > {MOST_IMAGES}",
        )


def _check_many_images(request: ClaudeRequest) -> Iterator[Found]:
    images = _images(request)
    if len(images) <= MANY_IMAGES:
        return
    for image in images:
        if LONG_SIDE < _side(image) <= LONGEST_SIDE:
            path = f"{image.path}.image.source.base64.data"
            yield (
                path,
                (
                    f"{path}: At least one of the image dimensions exceed max allowed size for "
                    f"many-image requests: {LONG_SIDE} pixels"
                ),
            )


def _check_image_side(request: ClaudeRequest) -> Iterator[Found]:
    for image in _images(request):
        if _side(image) > LONGEST_SIDE:
            path = f"{image.path}.image.source.base64.data"
            yield (
                path,
                (
                    f"{path}: At least one of the image dimensions exceed max allowed size: "
                    f"{LONGEST_SIDE} pixels"
                ),
            )


def _check_image_bytes(request: ClaudeRequest) -> Iterator[Found]:
    for image in _images(request):
        source = image.fields.get("source")
        data = source.get("data") if isinstance(source, Mapping) else None
        size = len(data) * 3 // 4 if isinstance(data, str) else 0
        if size > MOST_IMAGE_BYTES:
            path = f"{image.path}.image.source.base64"
            yield (
                path,
                f"{path}: image exceeds 5 MB maximum: {size} bytes > {MOST_IMAGE_BYTES} bytes",
            )


def _check_size(request: ClaudeRequest) -> Iterator[Found]:
    if len(msgspec.json.encode(request.body)) > MOST_BYTES:
        yield "", "Request exceeds the maximum size"


def _check_marks(request: ClaudeRequest) -> Iterator[Found]:
    marks = _count_marks([request.body.get(part) for part in ("tools", "system", "messages")])
    if marks > MOST_MARKS:
        yield (
            "messages",
            f"A maximum of {MOST_MARKS} blocks with cache_control may be provided. Found {marks}.",
        )


def _images(request: ClaudeRequest) -> list[ClaudeBlock]:
    """The images of a request, those in results too."""
    found = []
    for _, block in request.blocks():
        if block.type == "image":
            found.append(block)
        elif block.type == "tool_result":
            inner = blocks_of(block.fields.get("content"), f"{block.path}.tool_result.content")
            found += [one for one in inner if one.type == "image"]
    return found


def _side(image: ClaudeBlock) -> int:
    """The longer side in pixels; 0 where the request does not hold the image."""
    medium = image_medium(dict(image.fields))
    return max(medium.amount, medium.height)


def _count_marks(value: Any) -> int:
    """Blocks with a mark, wherever they are; the arguments of calls have none."""
    if isinstance(value, list):
        return sum(_count_marks(one) for one in value)
    if not isinstance(value, Mapping):
        return 0
    own = int(value.get("cache_control") is not None)
    return own + sum(_count_marks(one) for key, one in value.items() if key == "content")


RULES: Final = (
    Rule(
        "anthropic/image-count",
        "anthropic",
        f"A request has at most {MOST_IMAGES} images.",
        "Vision: limits; error: Too much media",
        _check_image_count,
    ),
    Rule(
        "anthropic/many-images-small",
        "anthropic",
        f"With more than {MANY_IMAGES} images, none has a side above {LONG_SIDE:,} pixels.",
        "Vision: limits; error: max allowed size for many-image requests",
        _check_many_images,
    ),
    Rule(
        "anthropic/image-side",
        "anthropic",
        f"No image has a side above {LONGEST_SIDE:,} pixels.",
        "Vision: limits; error: image dimensions exceed max allowed size",
        _check_image_side,
    ),
    Rule(
        "anthropic/image-bytes",
        "anthropic",
        "An image has at most 5 MB.",
        "Vision: limits; error: image exceeds 5 MB maximum",
        _check_image_bytes,
    ),
    Rule(
        "anthropic/request-size",
        "anthropic",
        "A request has at most 32 MB.",
        "API errors: request_too_large",
        _check_size,
    ),
    Rule(
        "anthropic/cache-marks",
        "anthropic",
        f"At most {MOST_MARKS} blocks have `cache_control`.",
        "Prompt caching; error: A maximum of 4 blocks with cache_control may be provided",
        _check_marks,
    ),
)
