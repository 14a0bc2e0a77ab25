"""Processes of this machine: their parents and children, whether they run, and the files this one opens."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def is_running(pid: int) -> bool:
    """Return whether a process exists and has not ended."""
    return _stat(pid)[:1] not in ([], ["Z"], ["X"])


def command(pid: int) -> str:
    """Return the command line of a process, or "" if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""


def name_of(pid: int) -> str:
    """Return the name of a process, or "" if it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def all_commands() -> str:
    """Return the command line of every process, as `ps` shows them."""
    return "\n".join(map(command, _all()))


def ancestors(pid: int) -> list[int]:
    """Return the parent of a process, its parent, and so on up to the first process."""
    found: list[int] = []
    while len(stat := _stat(found[-1] if found else pid)) > 1 and int(stat[1]) > 0:
        found.append(int(stat[1]))
    return found


def descendants(pid: int) -> list[int]:
    """Return the children of a process, their children, and so on."""
    started: dict[str, list[int]] = {}
    for one in _all():
        for parent in _stat(one)[1:2]:
            started.setdefault(parent, []).append(one)
    found = started.get(str(pid), [])
    # The list grows during the loop.
    for one in found:
        found.extend(started.get(str(one), []))
    return found


def _all() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _stat(pid: int) -> list[str]:
    """Return the fields after the name, which may contain anything: state, parent and so on."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


# --- opened files ------------------------------------------------------------------------------------------------------


class OpenedFiles:
    """Records files that Python opens below a folder, by the interpreter's own audit events."""

    def __init__(self) -> None:
        self._below: str | None = None
        self._files: list[str] = []
        # A hook cannot be removed, so there is one for the whole run, which mostly does nothing.
        sys.addaudithook(self._record)

    def start(self, folder: Path) -> None:
        """Record from now on."""
        self._below = f"{folder}{os.sep}"

    @contextmanager
    def recorded(self) -> Iterator[list[str]]:
        """Yield the names of files opened below the folder of `start`, which may be called before or within the block."""
        self._files.clear()
        try:
            yield self._files
        finally:
            self._below = None

    def _record(self, event: str, arguments: tuple[Any, ...]) -> None:
        below = self._below
        if below is not None and event == "open" and isinstance(arguments[0], (str, bytes)):
            path = os.fsdecode(arguments[0])
            if path.startswith(below):
                self._files.append(path.removeprefix(below))


OPENED_FILES = OpenedFiles()
