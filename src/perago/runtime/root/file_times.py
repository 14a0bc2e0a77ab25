"""Finds out whether a file system updates a file's times on writes through a memory map.

Perago uses the times to know which files of a workdir a body may have changed.  tmpfs and ramfs do not update them when a
body reads and then writes through `mmap` (`np.memmap(…, "r+")`), and others may not either; so each file system is probed
once per process, not looked up in a list.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path

_LONG_AGO = 10**18
_results: dict[int, bool] = {}
"""Results by device."""


def mapped_writes_show(folder: Path) -> bool:
    """Return whether writes through a memory map change the times of files in a folder. False if the probe fails."""
    try:
        device = folder.stat().st_dev
        if device not in _results:
            _results[device] = _probe(folder)
        return _results[device]
    except (OSError, ValueError):
        return False


def _probe(folder: Path) -> bool:
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        file.write(b"before")
        # So old that the next write gets another time, however coarse the file system's clock is.
        os.utime(file.fileno(), ns=(_LONG_AGO, _LONG_AGO))
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_WRITE) as mapped:
            # Read first: tmpfs updates the time only on the first access to a page, and not if that is a read.
            if mapped[:] == b"before":
                mapped[:] = b"after!"
        return os.fstat(file.fileno()).st_mtime_ns != _LONG_AGO
