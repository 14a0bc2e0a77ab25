"""One supervisor per workspace root, by a lock that the system gives back when its holder dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from perago.errors import RuntimeConfigError

LOCK = ".lock"


@contextmanager
def locked_root(root: Path) -> Iterator[None]:
    """Hold the root for as long as the block runs; `RuntimeConfigError` names the process that has it."""
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise RuntimeConfigError(
            f"workspace root {root} is not writable ({error.strerror}): give one that is, by --root, PERAGO_ROOT or "
            "PERAGO_WORKSPACE_ROOT"
        ) from error
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(file, 32, 0).decode("ascii", "replace").strip() or "unknown"
            raise RuntimeConfigError(
                f"workspace root {root} is in use by another worker (process {holder}): stop that one, or give this "
                "one a root of its own by --root or PERAGO_WORKSPACE_ROOT"
            ) from None
        except OSError as error:
            raise RuntimeConfigError(
                f"workspace root {root} cannot be locked ({error.strerror}): give one on a local disk, by --root or "
                "PERAGO_WORKSPACE_ROOT"
            ) from error
        # Who waits for the lock reads the pid; the lock itself goes with the open file, and needs no room on the disk.
        with suppress(OSError):
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(file)
