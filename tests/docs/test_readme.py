"""README.md is true: its task and workflow are written to files, its commands run, and they print what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()
CHANGING = (
    (r"[0-9a-f]{64}", "04ad7c34…"),
    (r"\b\d+\.\d s\b", "0.1 s"),
    (r"\S*/\.perago", "…/.perago"),
    (r"\d{8}-\d{6}-[0-9a-f]{6}", "20261116-200527-0c798f"),
)
"""What no two runs have in common, and how the page shows it."""
OPTIONAL = "clean: IN_PROGRESS"
"""A status that a quick step may have left before anybody looked."""


def block(kind: str) -> str:
    """The first block of a kind of code."""
    found = re.search(rf"```{kind}\n(.*?)```", README, re.DOTALL)
    assert found is not None
    return found[1]


def same_every_time(text: str) -> list[str]:
    for pattern, shown in CHANGING:
        text = re.sub(pattern, shown, text)
    return [line.rstrip() for line in text.splitlines() if line != OPTIONAL]


@pytest.mark.slow
def test_what_the_readme_shows_is_what_its_commands_print(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(block("python"))
    (tmp_path / "workflow.json").write_text(block("json"))
    steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block("console"), re.MULTILINE)
    assert [command.split()[0] for command, _ in steps] == ["mkdir", "printf", "perago", "perago"]

    servers = ("PERAGO_", "LAKECTL_", "CONDUCTOR_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(servers)}

    for command, shown in steps:
        done = subprocess.run(
            re.sub(r"^perago", f"{sys.executable} -m perago", command),
            shell=True,
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        # The page has the same lines, with times of its own.
        assert same_every_time(done.stdout) == same_every_time(shown), command
