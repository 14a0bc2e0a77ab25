"""Finds the commits that the records below a root name: runs and their tasks, and results that were not sent yet.

A garbage collection keeps them, so that a run can be shown and resumed as long as its record exists.  The rule: any text
that looks like a commit id counts, wherever it is in a record; a record that cannot be read is an error.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path

from perago.errors import RuntimeConfigError, storage_remedy

_COMMIT_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_DATABASES = ("orchestrator.db", "runs/*/orchestrator.db")
_RUN_FILES = "runs/*/*.json"
_WORKER_FILES = ("outbox/**/*", "in-flight/**/*")


def recorded_commits(root: Path, workspace_root: Path) -> set[str]:
    """Return everything that looks like a commit id in the records below a root and its workspace root."""
    found: set[str] = set()
    try:
        for pattern in _DATABASES:
            for file in root.glob(pattern):
                for text in _texts(file):
                    found.update(_COMMIT_ID.findall(text))
        workers = (file for pattern in _WORKER_FILES for file in workspace_root.glob(pattern))
        for file in chain(root.glob(_RUN_FILES), workers):
            # A worker removes its files whenever a result was accepted.
            with suppress(FileNotFoundError):
                if file.is_file():
                    found.update(_COMMIT_ID.findall(file.read_text(encoding="utf-8", errors="replace")))
    except (OSError, sqlite3.Error) as error:
        raise RuntimeConfigError(
            f"nothing was removed, because a record below {root} cannot be read: {error}{storage_remedy(error)}"
        ) from error
    return found


def _texts(file: Path) -> Iterator[str]:
    """Yield the content of a database as SQL, from one snapshot."""
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as db:
        yield from db.iterdump()
