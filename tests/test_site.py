"""The documentation builds as a site, without a warning and without a link that leads nowhere."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

import pytest

from tests import site
from tests.test_docs import DOCS, PAGES


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("zensical") is None and os.environ.get("CI") != "true",
    reason="needs the extra `docs`: zensical",
)
def test_the_documentation_builds_without_a_complaint(tmp_path: Path) -> None:
    first = site.build(tmp_path)
    assert first.is_file()
    for page in DOCS.rglob("*.md"):
        assert (tmp_path / "html" / page.relative_to(DOCS)).with_suffix(".html").is_file(), page
    found = (tmp_path / "html" / "search.json").read_text(encoding="utf-8")
    assert "how-to/find-out-why.html" in found
    assert "source/tests" not in found, "sources of tests are not what a reader searches for"


def test_the_navigation_has_every_page() -> None:
    places = re.findall(r"'([^']+\.md)'", str(site.navigation()))
    expected = {page.relative_to(DOCS).as_posix() for page in PAGES if page.is_relative_to(DOCS)}
    assert expected <= set(places)


def test_a_link_to_a_file_of_the_repository_leads_to_a_page_of_it(tmp_path: Path) -> None:
    site.stage(tmp_path)
    page = tmp_path / "explanation" / "what-is-tested.md"
    assert "](../source/tests/faults/test_processes.py.md)" in page.read_text(encoding="utf-8")
    source = tmp_path / "source" / "tests" / "faults" / "test_processes.py.md"
    assert "# tests/faults/test_processes.py\n" in source.read_text(encoding="utf-8")


def test_code_of_a_page_is_not_taken_for_links(tmp_path: Path) -> None:
    site.stage(tmp_path)
    for page in DOCS.rglob("*.md"):
        staged = (tmp_path / page.relative_to(DOCS)).read_text(encoding="utf-8")
        fences = re.findall(r"^```.*?^```$", page.read_text(encoding="utf-8"), re.M | re.S)
        assert fences == re.findall(r"^```.*?^```$", staged, re.M | re.S), page


def test_a_dead_link_a_missing_heading_and_another_server_are_complained_of(
    tmp_path: Path,
) -> None:
    (tmp_path / "one.html").write_text(
        '<h2 id="here"></h2><a href="#here"></a><a href="#there"></a><a href="two.html"></a>'
        '<a href="https://example.org/"></a><script src="https://example.org/x.js"></script>'
    )
    assert sorted(site.complaints(tmp_path)) == [
        "one.html: #there leads to no heading",
        "one.html: https://example.org/x.js is on another server",
        "one.html: two.html leads to no page",
    ]
