"""docs/quick-start.md works for a reader who has the wheel and an empty folder outside the checkout."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.docs.pages import ROOT, follow, substituted
from tests.support.docs.wheels import prepare_reader

pytestmark = pytest.mark.slow


def test_a_reader_with_the_wheel_gets_what_the_quick_start_shows(tmp_path: Path) -> None:
    there = prepare_reader(tmp_path)
    folder = tmp_path / "empty"
    folder.mkdir()
    page = substituted(
        (ROOT / "docs/quick-start.md").read_text(),
        {"--wheel-dir wheels ~/perago": f"--wheel-dir wheels {there.checkout}"},
    )

    assert follow(page, folder, there.environment) > 15

    python = folder / "weather/.venv/bin/python"
    code = "import perago; print(perago.__file__)"
    done = subprocess.run(
        [python, "-c", code], env=there.environment, stdout=subprocess.PIPE, text=True, check=True
    )
    # It was the wheel that ran, and not the checkout.
    assert Path(done.stdout.strip()).is_relative_to(folder / "weather/.venv")
