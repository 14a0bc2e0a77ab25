"""Bringing a folder into a lake: the files, as they are, as uploads."""

from __future__ import annotations

from pathlib import Path

from perago.errors import PostGuardrailViolation, RuntimeConfigError
from perago.lake.base import Upload
from perago.runtime.attempt.workdir import hash_file, scan_folder


def folder_uploads(folder: Path, algorithm: str, *, leave_out: Path) -> list[Upload]:
    """Every file of a folder; what a workspace cannot hold is refused by name.

    `leave_out` is Perago's own root, which may be inside the folder and changes while it is read.
    """
    if not folder.is_dir():
        raise RuntimeConfigError(f"cannot import {folder}: it is not a folder")
    uploads = []
    try:
        for path, _ in scan_folder(folder, leave_out=leave_out):
            state = hash_file(folder / path, algorithm)
            uploads.append(Upload(folder / path, path, state.size, state.checksum or ""))
    except (OSError, PostGuardrailViolation) as error:
        raise RuntimeConfigError(f"cannot import {folder}: {error}") from error
    return uploads
