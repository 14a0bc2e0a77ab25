"""Creates and removes workdirs, and removes any other folder, whatever a body did in it.

A workdir has its working name only while it is complete: it is created under another name, with its marker in it, and
renamed again before it is emptied.  No matter when the process is killed, the name shows what may be done with the
folder.

A folder is removed as follows:
- Folders that their owner has no permission to change are made accessible first.
- Links are removed, never followed.  Nothing is removed from a file system that is mounted in the folder.
- Every subfolder is moved to the top before it is emptied, so the depth and length of paths do not matter, and mount points
  are detected, because they cannot be moved.
- A process that the body left running may still write files.  If a folder is not empty afterwards, its removal is retried
  for a while.
- An entry that cannot be removed does not prevent the removal of others.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from perago.protocol.names import WorkdirName
from perago.protocol.paths import MARKER

PAUSES = (0.01, 0.05, 0.2, 0.5)
"""Delays, in seconds, between tries to remove a folder that a process may still be writing to."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NOT_EMPTY = {errno.ENOTEMPTY, errno.EEXIST}
# On a full disk, even a move may need space; the first try has freed some.
_RETRYABLE = {*_NOT_EMPTY, errno.ENOSPC, errno.EDQUOT}


def remove_tree(path: Path, *, last: str = "", pause: Callable[[float], None] = time.sleep) -> None:
    """Remove a folder. Its file `last` is removed after everything else. A missing folder is not an error."""
    for seconds in (*PAUSES, None):
        try:
            _remove(path, last)
            return
        except FileNotFoundError:
            return
        except OSError as error:
            if seconds is None or error.errno not in _RETRYABLE:
                raise
            pause(seconds)


def _remove(path: Path, last: str) -> None:
    if os.path.ismount(path):
        raise OSError(errno.EBUSY, "something is mounted there: unmount it", str(path))
    _open_up(os.fspath(path), os.lstat(path))
    top = os.open(path, _FOLDER)
    try:
        for keep in (last, "") if last else ("",):
            _FolderEmptier(top, keep).run()
    finally:
        os.close(top)
    os.rmdir(path)


class _FolderEmptier:
    """Makes one pass at emptying a folder.  The top-level entry named `keep` is not removed."""

    def __init__(self, top: int, keep: str) -> None:
        self._top = top
        self._keep = keep
        self._moved: list[str] = []
        self._error: OSError | None = None

    def run(self) -> None:
        """Remove everything that can be removed, then raise the first error."""
        self._empty(self._top)
        while self._moved:
            self._try(self._remove, self._moved.pop())
        if self._error is not None:
            raise self._error

    def _empty(self, folder: int) -> None:
        """Unlink the files in an open folder and move its subfolders to the top."""
        for name in os.listdir(folder):
            if name != self._keep or folder != self._top:
                self._try(partial(self._unlink_or_move, folder), name)

    def _try(self, work: Callable[[str], None], name: str) -> None:
        """Call `work` and record its error. Entries that another process has removed are ignored."""
        try:
            work(name)
        except FileNotFoundError:
            pass
        except OSError as error:
            # A folder is often not empty because an entry could not be removed: report that entry's error instead.
            if self._error is None or self._error.errno in _NOT_EMPTY:
                self._error = error

    def _remove(self, name: str) -> None:
        folder = os.open(name, _FOLDER, dir_fd=self._top)
        try:
            self._empty(folder)
        finally:
            os.close(folder)
        os.rmdir(name, dir_fd=self._top)

    def _unlink_or_move(self, folder: int, name: str) -> None:
        found = os.lstat(name, dir_fd=folder)
        if not stat.S_ISDIR(found.st_mode):
            os.unlink(name, dir_fd=folder)
            return
        # A folder without write permission cannot be moved either, because its `..` entry changes.
        _open_up(name, found, folder)
        moved = f".{secrets.token_hex(8)}"
        os.rename(name, moved, src_dir_fd=folder, dst_dir_fd=self._top)
        self._moved.append(moved)


def _open_up(path: str, found: os.stat_result, folder: int | None = None) -> None:
    if stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_IRWXU != stat.S_IRWXU:
        os.chmod(path, stat.S_IRWXU, dir_fd=folder)


def make_workdir(root: Path, name: WorkdirName, marker: str) -> None:
    """Create the workdir with its marker in it, or not at all."""
    making, path = root / name.making, root / name.working
    making.mkdir(mode=0o700)
    try:
        (making / MARKER).write_text(marker, encoding="utf-8")
        # A rename would silently replace an empty folder.
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        making.rename(path)
    except OSError:
        remove_tree(making)
        raise


def remove_workdir(root: Path, name: WorkdirName) -> None:
    """Remove an execution's workdir, under whichever of its names it exists now."""
    remove_tree(root / name.making)
    put_away(root / name.working, root / name.removing)


def put_away(path: Path, removing: Path) -> None:
    """Rename a workdir to `removing`, then remove it.

    After the rename, the folder cannot be mistaken for a workdir, even if it is half empty.  If a kill interrupts the
    removal, the name shows that the rest may be removed.
    """
    if path != removing:
        # The remains of an earlier removal would be in the way.
        remove_tree(removing, last=MARKER)
        with contextlib.suppress(FileNotFoundError):
            path.rename(removing)
    if removing.is_symlink() or removing.is_file():
        # A body replaced the folder with a link or a file.  A link's target is not ours to remove.
        removing.unlink()
    else:
        remove_tree(removing, last=MARKER)
