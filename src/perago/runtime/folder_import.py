"""Bringing a folder into a lake: its files, as they are, become a repository's first commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from perago.errors import PostGuardrailViolation, RuntimeConfigError
from perago.lake.base import Lake, Progress, Upload
from perago.protocol.nearest import did_you_mean, listed
from perago.runtime.attempt.workdir import hash_file, scan_folder

Shown = Callable[[str, Sequence[Upload]], AbstractContextManager[Progress | None]]
"""Shows how far a transfer is: what it is called, and its files."""


def import_folder(lake: Lake, name: str, folder: Path, *, leave_out: Path, shown: Shown) -> None:
    """Make a new repository of a folder."""
    if name in lake.repositories():
        raise RuntimeConfigError(
            f"repository {name!r} exists already: leave out --import to go on with it, or give another "
            "name or --root"
        )
    files = folder_uploads(folder, lake.checksum_algorithm, leave_out=leave_out)
    with shown(f"import {name}", files) as progress:
        lake.create_repository(name, files, f"import of {folder}", progress)


def folder_uploads(folder: Path, algorithm: str, *, leave_out: Path, doing: str = "import") -> list[Upload]:
    """Every file of a folder; what a workspace cannot hold is refused by name, as a reason not to be `doing` that.

    `leave_out` is Perago's own root, which may be inside the folder and changes while it is read.
    """
    if not folder.exists():
        beside = (
            [path.name for path in folder.parent.iterdir() if path.is_dir()] if folder.parent.is_dir() else []
        )
        there = did_you_mean(folder.name, beside, otherwise=f"; folders there: {listed(sorted(beside))}")
        raise RuntimeConfigError(f"cannot {doing} {folder}: there is no such folder{there}")
    if not folder.is_dir():
        raise RuntimeConfigError(
            f"cannot {doing} {folder}: it is not a folder; give the folder that holds it"
        )
    uploads = []
    try:
        for path, _ in scan_folder(folder, leave_out=leave_out):
            state = hash_file(folder / path, algorithm)
            uploads.append(Upload(folder / path, path, state.size, state.checksum or ""))
    except PostGuardrailViolation as error:
        raise RuntimeConfigError(
            f"cannot {doing} {folder}: {error}; take it out, or put a file in its place"
        ) from error
    except OSError as error:
        raise RuntimeConfigError(
            f"cannot {doing} {folder}: cannot read {error.filename} ({error.strerror}); let this user read it"
        ) from error
    return uploads
