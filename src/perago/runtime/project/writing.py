"""Writing a new project's folder: all of it or nothing, and never over what is there.

The files are written into a folder beside the project's own, which then takes its name in one step.  So a full disk leaves
no half project behind, which the next try would refuse to touch.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from perago.errors import RuntimeConfigError


def write_project(folder: Path, texts: Mapping[str, str]) -> None:
    """Make `folder` with these files; it may exist if it is empty."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise RuntimeConfigError(f"{folder} is there already and is not a folder: choose another name")
    try:
        if folder.is_dir() and any(folder.iterdir()):
            raise RuntimeConfigError(
                f"{folder} is there already and is not empty: choose another name, or remove it first"
            )
        _write(folder, texts)
    except OSError as error:
        raise RuntimeConfigError(
            f"cannot make {folder}: {error.strerror or error}; go to a folder that you may write to, then try again"
        ) from error


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    making = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        for path, text in texts.items():
            file = making / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        # A temporary folder is closed to others; a project is as open as any folder that its owner makes.
        making.chmod(0o777 & ~_umask())
        # Onto an empty folder this works, onto any other it fails, also if it was filled just now.
        making.rename(folder)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
