"""Disks that do not take what they are given: full ones, without filling one, and folders that nobody can write into."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def no_file_above(size: int) -> Iterator[None]:
    """Every write beyond `size` bytes of a file fails, in all of this process; Python ignores the signal."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def spoil(folder: Path) -> None:
    """Leave a file where the folder was, so that nobody, root included, can write into it."""
    folder.rmdir()
    folder.write_text("")
