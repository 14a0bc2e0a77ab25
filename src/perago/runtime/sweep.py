"""Sweeping: workdirs that a dead process left behind.

A workdir goes when the process in its marker is gone.  One whose process is alive stays, whatever its age: its
attempt may still be running.  Where nobody can tell, because there is no marker or it names another host, it goes
when it is older than the time to live.  The outbox is no workdir.
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from perago.protocol.changes import MARKER
from perago.runtime.outbox import OUTBOX
from perago.runtime.process import is_alive
from perago.runtime.workdir import remove_tree

log = logging.getLogger("perago.sweep")


def sweep_workdirs(
    root: Path, *, now: float, ttl: float, alive: Callable[[Mapping[str, Any]], bool] = is_alive
) -> list[Path]:
    """Remove orphaned workdirs below `root` and return them."""
    removed = []
    for path in sorted(root.iterdir()) if root.is_dir() else []:
        if path.name == OUTBOX or path.is_symlink() or not path.is_dir():
            continue
        if _orphaned(path, now, ttl, alive):
            try:
                remove_tree(path)
            except OSError as error:
                log.warning("failed to clean workdir %s: %s", path, error)
                continue
            log.info("swept workdir %s", path.name)
            removed.append(path)
    return removed


def _orphaned(path: Path, now: float, ttl: float, alive: Callable[[Mapping[str, Any]], bool]) -> bool:
    try:
        marker = json.loads((path / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        # Not marked yet, or the body removed the marker: only age can tell.
        return _age(path, now) > ttl
    if not isinstance(marker, dict) or marker.get("host") != socket.gethostname():
        return _age(path, now) > ttl
    return not alive(marker)


def _age(path: Path, now: float) -> float:
    try:
        return now - path.stat().st_mtime
    except OSError:
        return 0.0
