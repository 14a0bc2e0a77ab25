"""Whether a file system shows by a file's times that it was written through a memory map.

Perago goes by times to know which files of a workdir a body may have changed.  tmpfs and ramfs leave them as they are when a
body reads and then writes through `mmap` (`np.memmap(…, "r+")`), and others may; so each file system is tried once in a
process, not looked up in a list.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path

_LONG_AGO = 10**18
_told: dict[int, bool] = {}
"""By device."""


def mapped_writes_show(folder: Path) -> bool:
    """Whether a write through a memory map changes the times of files below a folder; false if that cannot be tried."""
    try:
        device = folder.stat().st_dev
        if device not in _told:
            _told[device] = _try(folder)
        return _told[device]
    except (OSError, ValueError):
        return False


def _try(folder: Path) -> bool:
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        file.write(b"before")
        # So long ago that the next write has another time, however slow the file system's clock is.
        os.utime(file.fileno(), ns=(_LONG_AGO, _LONG_AGO))
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_WRITE) as mapped:
            # Read first: on tmpfs the first touch of a page shows, and if that was a read, no write to it does.
            if mapped[:] == b"before":
                mapped[:] = b"after!"
        return os.fstat(file.fileno()).st_mtime_ns != _LONG_AGO
