"""examples/README.md is true: its commands work as it shows them, and it leaves out no file."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.support.docs.pages import ROOT, follow, reader

EXAMPLES = ROOT / "examples"
PAGE = (EXAMPLES / "README.md").read_text()


@pytest.mark.parametrize("folder", ["listening", "deploy"])
def test_every_file_is_in_the_page(folder: str) -> None:
    ignored = {"__init__.py", "__pycache__"}
    names = {file.name for file in (EXAMPLES / folder).iterdir()} - ignored

    assert [name for name in sorted(names) if f"`{name}" not in PAGE] == []


@pytest.mark.slow
def test_a_reader_of_the_examples_gets_what_the_page_shows(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "plain", tmp_path / "examples" / "plain")

    assert follow(PAGE, tmp_path / "examples", reader(Path(sys.executable).parent)) == 3
