"""Removing a folder, whatever a body did in it.

- Folders that are closed to their owner are opened up first.
- Links are removed, never followed.  Nothing is removed from a file system that is mounted in the folder.
- Every folder below is moved to the top before it is emptied, so depth and length of a path do not matter, and a
  mount point gives itself away: it cannot be moved.
- A child process that the body left behind may still write: what is not empty after all is tried again for a while.
- One thing that cannot be removed keeps nothing else.

Folders of executions below a workspace root, as they are made and removed.

A folder has its working name only while it is whole: it is made under another name with its marker in it, and renamed
before it is emptied.  A kill at any moment leaves a name that says what may be done with it.
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
"""Seconds between the tries to remove a folder that something is still written into."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILLED_AGAIN = {errno.ENOTEMPTY, errno.EEXIST}
# On a full disk even a move may want room, which the first try has made.
_WORTH_ANOTHER_TRY = {*_FILLED_AGAIN, errno.ENOSPC, errno.EDQUOT}


def remove_tree(path: Path, *, last: str = "", pause: Callable[[float], None] = time.sleep) -> None:
    """Remove a folder, its file `last` after everything else; a folder that is not there is no error."""
    for seconds in (*PAUSES, None):
        try:
            _remove(path, last)
            return
        except FileNotFoundError:
            return
        except OSError as error:
            if seconds is None or error.errno not in _WORTH_ANOTHER_TRY:
                raise
            pause(seconds)


def _remove(path: Path, last: str) -> None:
    if os.path.ismount(path):
        raise OSError(errno.EBUSY, "something is mounted there: unmount it", str(path))
    _open_up(os.fspath(path), os.lstat(path))
    top = os.open(path, _FOLDER)
    try:
        for keep in (last, "") if last else ("",):
            _Emptying(top, keep).do()
    finally:
        os.close(top)
    os.rmdir(path)


class _Emptying:
    """One try to empty a folder, `keep` at its top aside."""

    def __init__(self, top: int, keep: str) -> None:
        self._top = top
        self._keep = keep
        self._moved: list[str] = []
        self._trouble: OSError | None = None

    def do(self) -> None:
        """Remove what can be removed, then raise what went wrong."""
        self._empty(self._top)
        while self._moved:
            self._try(self._remove, self._moved.pop())
        if self._trouble is not None:
            raise self._trouble

    def _empty(self, folder: int) -> None:
        """Unlink the files of an open folder and move its folders to the top."""
        for name in os.listdir(folder):
            if name != self._keep or folder != self._top:
                self._try(partial(self._put_away, folder), name)

    def _try(self, work: Callable[[str], None], name: str) -> None:
        """Do what can be done; what somebody else has removed meanwhile is fine."""
        try:
            work(name)
        except FileNotFoundError:
            pass
        except OSError as error:
            # A folder that is not empty is often so because something in it could not be removed: that is the news.
            if self._trouble is None or self._trouble.errno in _FILLED_AGAIN:
                self._trouble = error

    def _remove(self, name: str) -> None:
        folder = os.open(name, _FOLDER, dir_fd=self._top)
        try:
            self._empty(folder)
        finally:
            os.close(folder)
        os.rmdir(name, dir_fd=self._top)

    def _put_away(self, folder: int, name: str) -> None:
        found = os.lstat(name, dir_fd=folder)
        if not stat.S_ISDIR(found.st_mode):
            os.unlink(name, dir_fd=folder)
            return
        # A closed folder cannot be moved either: its `..` changes.
        _open_up(name, found, folder)
        moved = f".{secrets.token_hex(8)}"
        os.rename(name, moved, src_dir_fd=folder, dst_dir_fd=self._top)
        self._moved.append(moved)


def _open_up(path: str, found: os.stat_result, folder: int | None = None) -> None:
    if stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_IRWXU != stat.S_IRWXU:
        os.chmod(path, stat.S_IRWXU, dir_fd=folder)


def make_workdir(root: Path, name: WorkdirName, marker: str) -> None:
    """Make the folder with its marker in it, or not at all."""
    making, path = root / name.making, root / name.working
    making.mkdir(mode=0o700)
    try:
        (making / MARKER).write_text(marker, encoding="utf-8")
        # A rename would take the place of an empty folder.
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        making.rename(path)
    except OSError:
        remove_tree(making)
        raise


def remove_workdir(root: Path, name: WorkdirName) -> None:
    """Remove the folder of an execution, whichever part of its life it is in."""
    remove_tree(root / name.making)
    put_away(root / name.working, root / name.removing)


def put_away(path: Path, removing: Path) -> None:
    """Remove a workdir, under another name.

    Once it is renamed nobody takes it for a workdir any more, half empty as it may be; and if a kill cuts the
    removal, the name says that the rest may go.
    """
    if path != removing:
        # What a removal before this one has left is in the way.
        remove_tree(removing, last=MARKER)
        with contextlib.suppress(FileNotFoundError):
            path.rename(removing)
    if removing.is_symlink() or removing.is_file():
        # A body put it in the folder's place; what it points to is not ours.
        removing.unlink()
    else:
        remove_tree(removing, last=MARKER)
