"""Room on disk: whether the folders that Perago writes to can be written, and how much is free there.

Looking makes no folder: one that is not there yet is judged by the nearest folder above it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from perago.runtime.doctor.finding import Finding, Level
from perago.runtime.doctor.settings_look import shown_size
from perago.runtime.root.file_times import mapped_writes_show
from perago.settings import Settings

LITTLE = 1024**3
"""Below this a workspace of any size may not fit."""
TOO_LITTLE = 64 * 1024**2
_TRIED = 64 * 1024


def look_at_disks(settings: Settings) -> Iterator[Finding]:
    """The workspace root, the cache where there is one, and the folder for temporary files."""
    workspaces = look_at_folder("disk: workspaces", settings.workspace_root, setting="PERAGO_WORKSPACE_ROOT")
    yield workspaces
    if workspaces.level != "fail":
        yield look_at_times(settings.workspace_root)
    if settings.lakefs is not None and settings.cache_bytes:
        yield look_at_folder("disk: cache", settings.cache_dir, setting="PERAGO_CACHE_DIR")
    yield look_at_folder("disk: temporary", Path(tempfile.gettempdir()), setting="TMPDIR")


def look_at_folder(part: str, folder: Path, *, setting: str) -> Finding:
    """Whether a folder takes files, and how much room there is."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    elsewhere = f"name another folder with {setting}"
    if not there.is_dir():
        return Finding(part, "fail", f"{folder} cannot be made: {there} is a file", elsewhere)
    free = shutil.disk_usage(there).free
    try:
        _write_a_little(there)
    except OSError as error:
        says = f"{folder} cannot be written to: {error.strerror} ({shown_size(free)} free)"
        return Finding(part, "fail", says, f"make room, allow writing there, or {elsewhere}")
    return judged(part, free, folder, elsewhere)


def look_at_times(folder: Path) -> Finding:
    """Whether the workspaces' file system shows every write by a file's times."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if mapped_writes_show(there):
        return Finding("file times", "ok", f"{folder} shows by times which files were changed")
    return Finding(
        "file times",
        "warn",
        f"{folder} does not show writes through memory maps, as tmpfs does not: all files that a body may change are hashed",
        "name a folder on a disk with PERAGO_WORKSPACE_ROOT if workspaces are large",
    )


def judged(part: str, free: int, folder: Path, elsewhere: str) -> Finding:
    """Whether so many bytes are enough."""
    says = f"{shown_size(free)} free at {folder}"
    if free >= LITTLE:
        return Finding(part, "ok", says)
    level: Level = "warn" if free >= TOO_LITTLE else "fail"
    return Finding(part, level, f"only {says}", f"make room, or {elsewhere}")


def _write_a_little(folder: Path) -> None:
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(os.urandom(_TRIED))
        file.flush()
        # A file system may take the bytes first and find no room for them later.
        os.fsync(file.fileno())
