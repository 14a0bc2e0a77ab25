"""Copies whole files.  Tries a clone first, then a copy inside the kernel, then reading and writing.

A clone (reflink) takes hardly any time, and no space until one side changes.  Both lakes copy files this way.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable

_PIECE = 1 << 20
_MOST_AT_ONCE = 1 << 30
_FICLONE = 0x40049409
_CANNOT_CLONE = {errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM}
_CANNOT_COPY_RANGE = {errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM}


def copy_whole(source: int, out: int) -> None:
    """Copy all of `source` to the empty file `out`.  Both must be positioned at their start."""
    if try_kernel_copy(source, out):
        return
    while piece := os.read(source, _PIECE):
        write_all(out, piece)


def try_clone(source: int, out: int) -> bool:
    """Make `out` a clone of `source`.  Returns False, leaving `out` unchanged, if the file system cannot clone."""
    try:
        fcntl.ioctl(out, _FICLONE, source)
        return True
    except OSError as error:
        if error.errno not in _CANNOT_CLONE:
            raise
    return False


def try_kernel_copy(source: int, out: int) -> bool:
    """Copy all of `source` inside the kernel.

    Returns False if the kernel cannot copy everything.  Both files are then positioned at the first byte not copied.
    """
    if try_clone(source, out):
        return True
    try:
        while _copy_range(source, out, _MOST_AT_ONCE):
            pass
        return True
    except OSError as error:
        if error.errno not in _CANNOT_COPY_RANGE:
            raise
    return False


def write_all(out: int, data: bytes | memoryview) -> None:
    """Write all of `data`, in several calls if the kernel accepts only part of it."""
    written = os.write(out, data)
    while written < len(data):
        data = memoryview(data)[written:]
        written = os.write(out, data)


def _copy_range(source: int, out: int, most: int) -> int:
    # copy_file_range exists only on Linux.
    call: Callable[[int, int, int], int] | None = getattr(os, "copy_file_range", None)
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    return call(source, out, most)
