"""Finds out whether a file system updates a file's timestamps on writes through a memory map.

Perago uses timestamps to tell which files in a workdir a body may have changed.  tmpfs and ramfs do not update them when a
body reads and then writes through `mmap` (`np.memmap(…, "r+")`), and other file systems may not either.  So each file system
is probed once per process, not looked up in a list.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path

_LONG_AGO = 10**18
_results: dict[int, bool] = {}
"""Results of the probes so far, keyed by device."""


def mapped_writes_show(folder: Path) -> bool:
    """Return whether writes through a memory map update timestamps in a folder. Returns False if the probe fails."""
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
        # So old that the next write gets a different timestamp, however coarse the file system's clock is.
        os.utime(file.fileno(), ns=(_LONG_AGO, _LONG_AGO))
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_WRITE) as mapped:
            # Read first: tmpfs updates the time only on the first access to a page, and not if that is a read.
            if mapped[:] == b"before":
                mapped[:] = b"after!"
        return os.fstat(file.fileno()).st_mtime_ns != _LONG_AGO
