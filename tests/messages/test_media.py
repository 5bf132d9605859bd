"""Images, documents and recordings count by what a model is shown, never by their base64."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventctx.messages import media
from eventctx.messages.facts import Facts, Medium, decode_facts, encode_facts
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.media import audio_tenths, pdf_pages
from eventctx.messages.shorten import Limit, shorten
from eventctx.messages.tokens import FAMILIES, family_of

Block = dict[str, Any]


def pdf(pages: int, filling: bytes = b"", *, packed: bool = False) -> bytes:
    """A PDF of so many empty pages, with a stream of other bytes."""
    kids = [b"<</Type /Page /Parent 2 0 R>>" for _ in range(pages)]
    tree = b"<</Type /Pages /Kids [] /Count %d>>" % pages
    head = b"%PDF-1.7\n1 0 obj <</Type /Catalog /Pages 2 0 R>> endobj\n"
    if packed:
        text = zlib.compress(b" ".join([tree, *kids]))
        objects = b"3 0 obj <</Type /ObjStm /Filter /FlateDecode /Length %d>> stream\n" % len(text)
        objects += text + b"\nendstream endobj\n"
    else:
        numbered = enumerate([tree, *kids], 2)
        objects = b"".join(b"%d 0 obj %s endobj\n" % (n, one) for n, one in numbered)
    return head + objects + b"9 0 obj <<>> stream\n" + filling + b"\nendstream endobj\n%%EOF"


def wav(seconds: float, rate: int = 32_000) -> bytes:
    samples = bytes(round(seconds * rate))
    head = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate // 2, rate, 2, 16)
    return b"RIFF\0\0\0\0WAVE" + head + struct.pack("<4sI", b"data", len(samples)) + samples


def mp3(seconds: float) -> bytes:
    """Frames of MPEG 1 layer III at 128 kbit/s and 44,100 Hz, behind an empty tag."""
    frame = b"\xff\xfb\x90\x00" + bytes(413)
    return b"ID3\x04\0\0\0\0\0\0" + frame * round(seconds * 44_100 / 1_152)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def documents(data: bytes) -> list[Block]:
    """A PDF in the forms that providers and frameworks know."""
    encoded = b64(data)
    url = "data:application/pdf;base64," + encoded
    source = {"type": "base64", "media_type": "application/pdf", "data": encoded}
    return [
        {"type": "document", "source": source},
        *({"type": "file", "file": {"filename": "a.pdf", "file_data": d}} for d in (url, encoded)),
        {"type": "input_file", "filename": "a.pdf", "file_data": url},
        {"type": "file", "mime_type": "application/pdf", "data": encoded},
        {"type": "resource", "resource": {"mimeType": "application/pdf", "blob": encoded}},
        {"inline_data": {"mime_type": "application/pdf", "data": encoded}},
        {"inlineData": {"mimeType": "application/pdf", "data": encoded}},
    ]


def facts_of(*blocks: Block) -> Facts:
    return read_facts({"role": "user", "content": list(blocks)})


@pytest.mark.parametrize("block", documents(pdf(12, b"\x93" * 1_000_000)), ids=range(8))
def test_a_megabyte_of_pdf_counts_by_its_pages_in_every_form(block: Block) -> None:
    facts = facts_of(block)
    assert (facts.media, facts.prose) == ((Medium("pages", 12),), 0)
    for family, rates in FAMILIES.items():
        most = 4_500 if family != "gpt-4o-mini" else 40_000
        assert 12 * 250 < rates.tokens(facts) < 12 * most, family
    assert decode_facts(encode_facts(facts)) == facts


@given(st.integers(1, 40), st.integers(0, 200_000), st.booleans(), st.sampled_from([*FAMILIES]))
def test_what_a_file_weighs_beside_its_pages_counts_nothing(
    pages: int, filling: int, packed: bool, family: str
) -> None:
    light, heavy, longer = (
        FAMILIES[family].tokens(facts_of(documents(pdf(count, b"\xfe" * size, packed=packed))[0]))
        for count, size in ((pages, 0), (pages, filling), (pages + 1, 0))
    )
    assert light == heavy < longer


@given(data=st.binary(max_size=3_000), cut=st.integers(0, 3_000))
def test_no_bytes_make_the_pages_of_a_pdf_or_the_tenths_of_a_sound_fail(
    data: bytes, cut: int
) -> None:
    whole = pdf(3, data, packed=True)
    for broken in (data, whole[:cut], whole[:cut] + data):
        assert 1 <= pdf_pages(broken) <= media.MOST_PAGES
        assert 1 <= audio_tenths(broken) <= media.MOST_TENTHS
        assert 1 <= audio_tenths(wav(1)[:cut] + data) <= media.MOST_TENTHS


def test_a_pdf_that_lies_about_its_pages_or_cannot_be_read_is_bounded() -> None:
    lie = b"%PDF-1.4 1 0 obj <</Type /Pages /Count 999999999>> endobj"
    assert pdf_pages(lie) == media.MOST_PAGES
    assert pdf_pages(lie + b"2 0 obj <</Type /Page>> endobj") == 1
    assert pdf_pages(b"%PDF-1.4" + b"\x80" * 100_000) == 6
    assert pdf_pages(b"%PDF-1.4" + b"\x80" * 5_000_000) == media.MOST_GUESSED
    bomb = zlib.compress(bytes(20_000_000))
    assert pdf_pages(b"%PDF-1.5 1 0 obj <</Type /ObjStm>> stream\n" + bomb + b"endstream") >= 1
    # A page of an older version of the file is not counted twice.
    second = b"1 0 obj <</Type /Page>> endobj 2 0 obj <</Type /Pages /Count 4>> endobj"
    assert pdf_pages(pdf(4) + second) == 4


def test_sound_counts_by_its_seconds() -> None:
    for data, form, tenths in [
        (wav(2.5), "wav", 25),
        (mp3(12), "mp3", 120),
        (bytes(96_000), "pcm16", 20),
    ]:
        block = {"type": "input_audio", "input_audio": {"data": b64(data), "format": form}}
        facts = facts_of(block)
        assert facts.media[0].amount == pytest.approx(tenths, abs=1)
        assert FAMILIES["gpt"].tokens(facts) == facts.media[0].amount + 4
        assert FAMILIES["gemini"].tokens(facts) == -(-facts.media[0].amount * 32 // 10) + 6


def test_the_text_of_a_document_counts_as_text_and_one_in_a_result_by_its_pages() -> None:
    text = "Dear Sir, " * 500
    plain = {"type": "document", "source": {"type": "text", "data": text}, "title": "A letter"}
    blocks = {"type": "content", "content": [{"type": "text", "text": text}]}
    for block in (plain, {"type": "document", "source": blocks}):
        facts = facts_of(block)
        assert facts.media == () and len(text) <= facts.prose <= len(text) + 8
    csv = {"type": "input_file", "filename": "a.csv", "file_data": b64(text.encode())}
    assert facts_of(csv).prose == len(text)
    shorter = shorten({"role": "user", "content": [plain]}, 7, Limit(prose=300))
    assert read_facts(shorter).prose < 400
    listing = {"type": "file", "name": "a.py", "url": "https://example.org/a.py", "size": 77}
    content = [documents(pdf(3, bytes(50_000)))[0], listing]
    facts = facts_of({"type": "tool_result", "tool_use_id": "c", "content": content})
    assert facts.media == (Medium("pages", 3),)
    assert 60 < facts.outcome < 90


def test_a_document_that_is_elsewhere_counts_as_a_few_pages() -> None:
    elsewhere: list[Block] = [
        {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}},
        {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "input_file", "file_url": "https://example.org/a.pdf"},
    ]
    for block in elsewhere:
        assert facts_of(block).media == (Medium("pages", media.UNKNOWN_PAGES),)


def png(width: int, height: int) -> str:
    return b64(b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + bytes(99))


def image(width: int, height: int, detail: str | None = None) -> Block:
    url: Block = {"url": "data:image/png;base64," + png(width, height)}
    return {"type": "image_url", "image_url": url if detail is None else {**url, "detail": detail}}


def test_an_image_counts_by_the_rule_of_the_model_that_sees_it() -> None:
    for model, size, detail, tokens in [
        # OpenAI's examples: https://platform.openai.com/docs/guides/images-vision
        ("gpt-4o", (1024, 1024), "high", 765),
        ("gpt-4o", (1024, 1024), None, 765),
        ("gpt-4o", (2048, 4096), "high", 1_105),
        ("gpt-4o", (2048, 4096), "low", 85),
        ("gpt-4o-mini", (512, 512), "high", 8_500),
        # Measured: https://huggingface.co/datasets/JOHNISKING/image-token-cost
        ("gpt-5.5", (256, 256), None, 77),
        ("gpt-5.5", (1024, 1024), None, 1_229),
        ("gpt-5.5", (1920, 1080), None, 2_448),
        # Anthropic's rule, within 4 % of what was measured: 1,369, 2,691 and 1,560.
        ("claude-haiku-4-5", (1024, 1024), None, 1_399),
        ("claude-opus-5-5", (1920, 1080), None, 2_765),
        ("claude-haiku-4-5", (1920, 1080), None, 1_600),
        # https://ai.google.dev/gemini-api/docs/tokens
        ("gemini-2.5-pro", (300, 300), None, 258),
        ("gemini-2.5-pro", (960, 540), None, 516),
        ("gemini-3-pro", (4032, 3024), None, 1_120),
    ]:
        rates = FAMILIES[family_of(model)]
        found = rates.tokens(facts_of(image(*size, detail))) - rates.per_message
        assert found == tokens


@given(st.integers(1, 5_000), st.integers(1, 5_000), st.sampled_from([*FAMILIES]))
def test_a_larger_image_never_counts_less_by_much(width: int, height: int, family: str) -> None:
    rates = FAMILIES[family].media
    small = rates.tokens(Medium("image", width, height))
    # Scaling to a shorter side and to whole tiles makes steps, but never below half.
    assert rates.tokens(Medium("image", width * 2, height * 2)) * 2 >= small >= 1
