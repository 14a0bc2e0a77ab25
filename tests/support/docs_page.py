"""A page of the documentation, followed as a reader follows it.

A block with a file's name is written to that file, or added to it.  A `console` block is run, and must print what it shows;
`…` stands for what differs from run to run.  The rule: a block that nothing runs is a failure.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Command:
    line: str
    shown: tuple[str, ...]


def follow(page: Path, folder: Path) -> list[str]:
    """Do what the page says, in a folder; returns the kinds of its blocks."""
    kinds: list[str] = []
    for kind, name, text in BLOCK.findall(page.read_text()):
        kinds.append(kind)
        if name:
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("a") as out:
                out.write(text)
        else:
            assert kind == "console", f"a block of {kind} that nothing runs"
            for command in commands(text):
                run(command, folder)
    assert page.read_text().count("```") == 2 * len(kinds)
    return kinds


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
