"""docs/spark-tasks.md is true: its files are written, its commands run, and they print what the page shows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.docs.pages import ROOT, follow, reader

pytestmark = pytest.mark.slow


def test_a_reader_who_follows_the_page_gets_what_it_shows(tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    page = (ROOT / "docs/spark-tasks.md").read_text()

    assert follow(page, folder, reader(Path(sys.executable).parent)) == 9
