"""docs/testing-tasks.md is true: its project is written, its tests run, and they print what the page shows."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from perago.testing import STEPS
from tests.support.docs.pages import ROOT, follow, reader

PAGE = (ROOT / "docs/testing-tasks.md").read_text()


@pytest.mark.slow
def test_a_reader_who_follows_the_page_gets_what_it_shows(tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()

    assert follow(PAGE, folder, reader(Path(sys.executable).parent)) == 4


def test_the_page_names_every_step_in_order() -> None:
    listed = re.search(r"The steps are (.*?) \(\[publication", PAGE, re.DOTALL)

    assert listed is not None
    assert tuple(re.findall(r"`([^`]+)`", listed[1])) == STEPS
