"""Shell completion: what the shells ask for, and the whole way in a real bash."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from perago.cli import app


def completed(line: str) -> list[str]:
    """Return what bash offers for a command line that ends at the cursor."""
    words = line.split(" ")
    asked = {"_PERAGO_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    return CliRunner().invoke(app, [], prog_name="perago", env=asked).stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("perago ch", {"check"}),
        ("perago fence ", {"install", "prove", "remove"}),
        ("perago start --eng", {"--engine"}),
        ("perago start --engine ", {"process", "spark"}),
        ("perago sweep --t", {"--tags"}),
    ],
)
def test_commands_options_and_choices_are_completed(line: str, offered: set[str]) -> None:
    assert set(completed(line)) == offered


def test_the_shell_offers_files_where_a_file_is_expected() -> None:
    assert completed("perago check ") == [], "bash falls back to files where nothing is offered"


@pytest.mark.slow
def test_the_script_that_is_shown_works_in_bash(tmp_path: Path) -> None:
    script = tmp_path / "perago"
    script.write_text(f"#!{sys.executable}\nfrom perago.cli import main\nmain()\n")
    script.chmod(0o755)
    lines = [
        'eval "$(perago --show-completion)"',
        "COMP_WORDS=(perago fence ins) COMP_CWORD=2",
        '_perago_completion perago; echo "${COMPREPLY[@]}"',
    ]

    done = subprocess.run(
        ["bash", "--norc", "-c", "\n".join(lines)],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout.strip() == "install", done.stderr
