"""Processes of this machine: who started whom, and who still runs."""

from __future__ import annotations

from pathlib import Path


def is_running(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    return _stat(pid)[:1] not in ([], ["Z"], ["X"])


def command(pid: int) -> str:
    """Its command line; empty for one that is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""


def name_of(pid: int) -> str:
    """What it calls itself; empty for one that is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def all_commands() -> str:
    """What `ps` shows: the command line of every process."""
    return "\n".join(map(command, _all()))


def ancestors(pid: int) -> list[int]:
    """Who started it, and who started that one, up to the first process."""
    found: list[int] = []
    while len(stat := _stat(found[-1] if found else pid)) > 1 and int(stat[1]) > 0:
        found.append(int(stat[1]))
    return found


def descendants(pid: int) -> list[int]:
    """All that it has started, and what these have started."""
    started: dict[str, list[int]] = {}
    for one in _all():
        for parent in _stat(one)[1:2]:
            started.setdefault(parent, []).append(one)
    found = started.get(str(pid), [])
    # Grows while it is gone through.
    for one in found:
        found.extend(started.get(str(one), []))
    return found


def _all() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _stat(pid: int) -> list[str]:
    """State, parent and so on: what stands behind the name, which may hold anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
