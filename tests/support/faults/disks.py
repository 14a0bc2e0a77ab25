"""Disks that do not take what they are given: full ones, without filling one, and folders that nobody can write into."""

from __future__ import annotations

import contextlib
import os
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


def read_only(folder: Path) -> list[str]:
    """Let nobody write below the folder; returns what to put before a command so that this holds for root too."""
    for path in [folder, *folder.rglob("*")]:
        path.chmod(path.stat().st_mode & ~0o222)
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []


def writable_again(folder: Path) -> None:
    """Undo `read_only`, so that the folder can be removed."""
    for path in [folder, *folder.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o200)
