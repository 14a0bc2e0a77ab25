"""Sweeps workdirs that dead processes left behind.  A full disk or an unexpected file cannot stop the periodic sweep.

Only folders that Perago created are ever touched.  They are recognized by name.  A folder whose name has the form that
earlier versions used must also have a marker with the same task and execution.

    the marker names            the workdir is removed, unless this worker is running its execution
    a living process            never: its attempt may still be running, or the process is removing the workdir
    a dead process              immediately
    a process on another host   when the workdir is older than the time to live: this host cannot see the process

A workdir without a marker (the body removed it, or a kill interrupted the creation or removal) is removed immediately.  That
is safe because the caller holds the root's lock, so no other process creates workdirs there.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perago.protocol.names import WorkdirName, parse_workdir_name, removing_name, workdir_name
from perago.protocol.paths import MARKER
from perago.runtime.root.state_dir import is_alive
from perago.runtime.root.workdirs import put_away
from perago.settings import Settings

log = logging.getLogger("perago.sweep")
supervisor_log = logging.getLogger("perago.supervisor")

Marker = Mapping[str, Any]
_LARGEST_MARKER = 64 * 1024


def sweep_workdirs(
    root: Path,
    *,
    now: float,
    ttl: float,
    runs_here: Callable[[str], bool] = lambda _execution_id: False,
    alive: Callable[[Marker], bool] = is_alive,
) -> list[Path]:
    """Remove orphaned workdirs in a root and return their paths.  The caller holds the root's lock."""
    removed = []
    for path in _folders(root):
        owner = parse_workdir_name(path.name)
        if owner is None or runs_here(owner.execution_id):
            continue
        if (marker := _marker_of(path)) is not None:
            orphaned = _is_orphan(marker, alive, older=_age(path, now) > ttl)
        else:
            # Check again: the owner's process may have removed the workdir in the meantime.
            orphaned = owner.certain and os.path.isdir(path)
        if orphaned and _remove(path):
            removed.append(path)
    return removed


def _folders(root: Path) -> list[Path]:
    """Return the folders in a root.  Reads only its directory entries, so that a broken mount among them is not an error."""
    try:
        with os.scandir(root) as found:
            return sorted(root / entry.name for entry in found if entry.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []
    except OSError as error:
        log.warning("workspace root %s cannot be swept: %s", root, error)
        return []


def _is_orphan(marker: Marker, alive: Callable[[Marker], bool], *, older: bool) -> bool:
    return older if marker.get("host") != socket.gethostname() else not alive(marker)


def _marker_of(path: Path) -> Marker | None:
    """Return the folder's marker, or None if it is missing, unreadable or names another folder."""
    try:
        with open(path / MARKER, encoding="utf-8", opener=_open_regular) as file:
            marker = json.loads(file.read(_LARGEST_MARKER))
        name = workdir_name(marker["attempt"]["task_id"], marker["execution_id"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return marker if path.name in _names(name) else None


def _open_regular(path: str, flags: int) -> int:
    # A body may have put anything there; opening a pipe would block forever.
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)


def _names(name: WorkdirName) -> tuple[str, ...]:
    return name.working, name.making, name.removing, name.old


def _remove(path: Path) -> bool:
    try:
        put_away(path, path.with_name(removing_name(path.name)))
    except OSError as error:
        log.warning("failed to clean workdir %s: %s", path, error)
        return False
    log.info("swept workdir %s", path.name)
    return True


def _age(path: Path, now: float) -> float:
    try:
        return now - path.stat().st_mtime
    except OSError:
        return 0.0


@dataclass(frozen=True, slots=True)
class WorkdirSweep:
    """The worker's sweep: every `interval` seconds, removes the workdirs that none of its executions is using."""

    settings: Settings
    runs_here: Callable[[str], bool]

    @property
    def interval(self) -> float:
        """Seconds between two sweeps."""
        return max(1.0, self.settings.workspace_gc_interval)

    def sweep(self) -> int:
        """Sweep once, and return the number of workdirs removed; 0 if the sweep failed."""
        root, ttl = self.settings.workspace_root, self.settings.workspace_gc_ttl
        try:
            return len(sweep_workdirs(root, now=time.time(), ttl=ttl, runs_here=self.runs_here))
        except OSError as error:
            supervisor_log.warning("could not sweep workdirs, will retry: %s", error)
            return 0
