"""Folders that belong to one process each; those of the dead are removed when the next one is made."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from perago.runtime.root.identity import is_alive, process_identity
from perago.runtime.root.removal import remove_tree

_OWNER = "owner.json"


def own_folder(root: Path, kind: str) -> Path:
    """A folder of this process's own below `root`; those of dead processes go."""
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    for folder in root.iterdir():
        try:
            owner = json.loads((folder / _OWNER).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(owner, dict) and not is_alive(owner):
            with contextlib.suppress(OSError):
                remove_tree(folder)
    mine = root / f"{kind}-{os.getpid()}-{os.urandom(4).hex()}"
    mine.mkdir(mode=0o700)
    (mine / _OWNER).write_text(json.dumps(process_identity()), encoding="utf-8")
    return mine
