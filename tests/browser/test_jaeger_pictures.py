"""What the program that makes the pictures of Jaeger's interface says where it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser.jaeger_pictures import UI, Missing, interface, searchable
from tests.services.jaeger import Jaeger

PROGRAM = "tests.browser.jaeger_pictures"


def test_without_an_interface_the_variable_that_names_one_is_told() -> None:
    with pytest.raises(Missing, match=rf"\${UI}.*2\.20"):
        interface({})


def test_a_folder_that_holds_no_interface_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(Missing, match=r"has no index\.html") as refused:
        interface({UI: str(tmp_path)})
    assert str(tmp_path) in str(refused.value)


def test_a_folder_with_the_interfaces_page_is_taken(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<!doctype html>")
    assert interface({UI: str(tmp_path)}) == tmp_path.resolve()


def test_the_program_says_in_one_line_what_is_missing(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", PROGRAM, str(tmp_path)],
        env={name: value for name, value in os.environ.items() if name != UI},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    assert run.stderr.startswith(f"no web interface of Jaeger: set ${UI}")
    assert run.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_jaeger_too_old_for_its_search_is_refused_before_a_picture_is_made(
    jaeger: Jaeger,
) -> None:
    with pytest.raises(Missing, match=r"older than 2\.20.*EVENTCTX_JAEGER"):
        searchable(jaeger)
