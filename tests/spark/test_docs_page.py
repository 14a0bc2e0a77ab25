"""docs/spark-tasks.md is true: its files are written, its commands run, and they print what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "spark-tasks.md"
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Command:
    line: str
    shown: tuple[str, ...]


def commands(block: str) -> Iterator[Command]:
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        line, *shown = part.splitlines()
        yield Command(line, tuple(text for text in shown if text.strip()))


def pattern(shown: str) -> str:
    """A line of the page; `…` stands for what differs from run to run, and space for any space."""
    words = (".*".join(map(re.escape, word.split("…"))) for word in shown.split())
    return r"\s+".join(words)


def run(command: Command, folder: Path) -> None:
    hidden = ("CONDUCTOR_", "LAKECTL_", "PERAGO_", "PYTEST_")
    environ = {key: value for key, value in os.environ.items() if not key.startswith(hidden)}
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"
    done = subprocess.run(
        ["/bin/sh", "-c", command.line],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for shown in command.shown:
        assert re.search(pattern(shown), done.stdout), f"{shown!r} is not in {done.stdout}{done.stderr}"


def test_a_reader_who_follows_the_page_gets_what_it_shows(tmp_path: Path) -> None:
    kinds: list[str] = []
    for kind, name, text in BLOCK.findall(PAGE.read_text()):
        kinds.append(kind)
        if name:
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("a") as out:
                out.write(text)
        else:
            assert kind == "console", f"a block of {kind} that nothing runs"
            for command in commands(text):
                run(command, tmp_path)
    assert kinds.count("console") == 4
    assert PAGE.read_text().count("```") == 2 * len(kinds)
