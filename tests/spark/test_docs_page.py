"""docs/spark-tasks.md is true: its files are written, its commands run, and they print what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.docs_page import DOCS, follow

pytestmark = pytest.mark.slow


def test_a_reader_who_follows_the_page_gets_what_it_shows(tmp_path: Path) -> None:
    assert follow(DOCS / "spark-tasks.md", tmp_path).count("console") == 4
