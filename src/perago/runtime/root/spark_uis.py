"""The addresses of Spark UIs whose sessions run on this root, by task.

A session with a UI keeps a file in its own folder below the root: the UI's address, and the newest tasks that used it.
Readers get an address only while the session's process lives and the UI accepts a connection.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from perago.runtime.root.state_dir import lives

_FILE = "ui.json"
_TASKS = 1000
_CONNECT_SECONDS = 2.0
"""A port that nobody listens on refuses at once, so only a busy or distant machine takes that long."""


def note_ui(folder: Path, address: str, task_id: str | None = None) -> None:
    """Write down in a session's folder where its UI is, and that a task uses it."""
    file = folder / _FILE
    known = _read(file).get("tasks")
    tasks = known if isinstance(known, list) else []
    written = folder / f"{_FILE}.new"
    text = json.dumps({"address": address, "tasks": [*tasks, *filter(None, [task_id])][-_TASKS:]})
    written.write_text(text, encoding="utf-8")
    written.replace(file)


def forget_ui(folder: Path) -> None:
    """Remove the file, once the session has stopped."""
    (folder / _FILE).unlink(missing_ok=True)


def spark_uis(root: Path) -> dict[str, str]:
    """Return the addresses of the UIs that can be opened now, by task id."""
    found: dict[str, str] = {}
    for file in sorted((root / "spark").glob(f"*/{_FILE}")):
        read = _read(file)
        address, tasks = str(read.get("address", "")), read.get("tasks", ())
        if isinstance(tasks, list) and lives(file.parent) and _answers(address):
            found |= {str(task): address for task in tasks}
    return found


def _read(file: Path) -> Mapping[str, object]:
    with suppress(OSError, ValueError):
        read = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(read, dict):
            return read
    return {}


def _answers(address: str) -> bool:
    try:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or parts.hostname is None:
            return False
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
        with socket.create_connection((parts.hostname, port), timeout=_CONNECT_SECONDS):
            return True
    except (OSError, ValueError):
        return False
