"""Disks that fail writes: full ones, without filling one, and folders that cannot be written to."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def no_file_above(size: int) -> Iterator[None]:
    """Fail every write beyond `size` bytes of a file, in this whole process; Python ignores the signal."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def spoil(folder: Path) -> None:
    """Replace the folder by a file, so that not even root can write into it."""
    folder.rmdir()
    folder.write_text("")


def read_only(folder: Path) -> list[str]:
    """Make the folder read-only; returns the command prefix with which this holds for root too."""
    for path in [folder, *folder.rglob("*")]:
        path.chmod(path.stat().st_mode & ~0o222)
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []


def writable_again(folder: Path) -> None:
    """Undo `read_only`, so that the folder can be removed."""
    for path in [folder, *folder.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o200)
