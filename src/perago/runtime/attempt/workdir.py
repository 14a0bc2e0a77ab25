"""The workdir: an execution's private folder.  It contains the view of one commit: the whole prefix or a part of it.

- It is below the workspace root and has mode 0700.  Its name contains the task id and the execution id, so no execution
  ever sees another one's folder, even within the same attempt.
- `.perago-attempt.json` names the owner.  It exists as soon as the folder does and is removed last.  It is never
  published and never downloaded.  Sweeps rely on it.
- The index (path, stat, checksum) is built after the download and lasts as long as the execution: a workdir is never
  reused for another input.  If file times do not show writes through a memory map, every file that the task may change
  is hashed.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from perago.errors import PostGuardrailViolation
from perago.lake.base import Download, Entry, Progress, ReadableLake, Verification
from perago.protocol.attempt import Attempt
from perago.protocol.changes import (
    EditedStates,
    FileStat,
    FileState,
    FileStates,
    check_projection,
    must_hash,
)
from perago.protocol.names import WorkdirName, workdir_name
from perago.protocol.paths import ACTIONS, MARKER, in_actions, is_marker, is_not_unicode
from perago.protocol.publication import Workspace
from perago.runtime.attempt.listing import Listing, list_view
from perago.runtime.root.file_times import mapped_writes_show
from perago.runtime.root.state_dir import process_identity
from perago.runtime.root.workdirs import make_workdir, remove_workdir

_FEW = 16
"""With this many files or fewer, hashing them all is cheaper than waiting for the file system's clock to tick."""

_TICKS = 100
"""Maximum number of milliseconds to wait for the next tick; enough for any clock that advances."""

_BATCH = 5000
"""Number of files per download call, to limit the memory used for per-file state."""


class Workdir:
    """One execution's folder, from its creation to its removal."""

    def __init__(self, root: Path, name: WorkdirName, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._root = root
        self._name = name
        self.path = root / name.working
        self._sleep = sleep
        self._files = FileStates()
        self.left_out = FileStates()
        """The files of the view that were not downloaded."""
        self._index_ns = 0
        self._marker = _stat(os.stat(self.path / MARKER))
        self._folder = _identity(self.path)

    @classmethod
    def create(
        cls,
        root: Path,
        attempt: Attempt,
        execution_id: str,
        *,
        now: float,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Workdir:
        """Create one execution's folder, with the marker that names its owner."""
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        marker = {
            "attempt": {
                "workflow_instance_id": attempt.workflow_instance_id,
                "task_id": attempt.task_id,
                "reference_task_name": attempt.reference_task_name,
                "task_name": attempt.task_name,
                "retry_count": attempt.retry_count,
            },
            "execution_id": execution_id,
            **process_identity(),
            "started": now,
        }
        name = workdir_name(attempt.task_id, execution_id)
        make_workdir(root, name, json.dumps(marker, indent=2) + "\n")
        return cls(root, name, sleep=sleep)

    def fill(
        self,
        lake: ReadableLake,
        workspace: Workspace,
        progress: Progress | None = None,
        verification: Verification | None = None,
        is_left_out: Callable[[str], bool] = lambda _path: False,
    ) -> Listing:
        """Check every path, download the view of the input commit and build the index.

        Files that are left out are not downloaded, and are in neither the listing nor the index.  With `verification`,
        files may still be unverified on return.  The caller then corrects the returned listing, which shares its states
        with the index, using the checksums that `verification` finds.
        """
        files = list_view(lake, workspace.repository, workspace.ref, workspace.view).files
        check_projection(files, folds_case=self._folds_case())
        files = self._leave_out(files, is_left_out)
        for folder in {path.rpartition("/")[0] for path in files} - {""}:
            (self.path / folder).mkdir(parents=True, exist_ok=True)
        # Large files first, so that the download does not end with a single thread busy on one of them.
        paths = sorted(files, key=lambda path: files[path].size, reverse=True)
        differing = FileStates()
        newest = 0
        for at in range(0, len(paths), _BATCH):
            batch = {path: files[path] for path in paths[at : at + _BATCH]}
            states = self._download(lake, workspace, batch, progress, verification)
            for path, state in states.items():
                found = _stat(os.lstat(self.path / path))
                newest = max(newest, found.mtime_ns, found.ctime_ns)
                files.put(path, state, found if state.checksum is not None else None)
                if state != batch[path]:
                    differing.put(path, batch[path])
        self._take_index(files, newest)
        return Listing(files, differing)

    def _leave_out(self, files: FileStates, is_left_out: Callable[[str], bool]) -> FileStates:
        """Return the files to download, and keep the names and sizes of the others."""
        kept = FileStates()
        for path, state in files.items():
            (self.left_out if is_left_out(path) else kept).put(path, state)
        return kept if self.left_out else files

    def _download(
        self,
        lake: ReadableLake,
        workspace: Workspace,
        batch: Mapping[str, FileState],
        progress: Progress | None,
        verification: Verification | None,
    ) -> dict[str, FileState]:
        """Write objects to their files, and return their states with the checksums of their bytes."""
        prefix = workspace.prefix
        files = [
            Download(Entry(prefix + path, state.size, state.checksum), self.path / path)
            for path, state in batch.items()
        ]
        checksums = lake.download(
            workspace.repository, workspace.ref, files, progress, verification=verification
        )
        return {
            path: FileState(state.size, checksums.get(prefix + path, state.checksum))
            for path, state in batch.items()
        }

    def result(
        self, lake: ReadableLake, workspace: Workspace, ignored: Callable[[str], bool] = lambda _path: False
    ) -> EditedStates:
        """Return the folder's current content without `ignored` files, reading only files that may have changed."""
        self._check_folder()
        times_tell = mapped_writes_show(self._root)
        read, gone = FileStates(), set(self._files)
        for path, found in scan_folder(self.path):
            if path == MARKER:
                self._check_marker(found)
                continue
            if ignored(path):
                continue
            _check_publishable(path, workspace)
            gone.discard(path)
            unseen = not times_tell and workspace.view.may_change(workspace.prefix + path)
            if unseen or must_hash(found, self._files.stat(path), self._index_ns):
                state = hash_file(self.path / path, lake.checksum_algorithm)
                # Do not store an unchanged state twice: this loop may read every file.
                if state != self._files.get(path):
                    read.put(path, state)
        return EditedStates(self._files, read, gone)

    def drop(self) -> None:
        """Remove the folder, no matter what the body did in it."""
        remove_workdir(self._root, self._name)

    def _take_index(self, files: FileStates, newest: int) -> None:
        self._files = files
        self._index_ns = self._file_clock()
        # Files written in the same tick as the index must all be hashed later, so with many files, wait for the next
        # tick.  If it does not come (the clock was set back, or ticks last seconds), hashing is still correct.
        for _ in range(_TICKS if len(files) > _FEW else 0):
            if self._index_ns > newest:
                break
            self._sleep(0.001)
            self._index_ns = self._file_clock()

    def _file_clock(self) -> int:
        """Return the current time on the file system's clock.

        File times advance with the ticks of that clock, not with those of Python's clock.
        """
        os.utime(self.path / MARKER)
        self._marker = _stat(os.stat(self.path / MARKER))
        return self._marker.mtime_ns

    def _folds_case(self) -> bool:
        return (self.path / MARKER.upper()).exists()

    def _check_folder(self) -> None:
        """Raise `PostGuardrailViolation` if the body removed or replaced the folder.

        This includes replacing it with a symlink.
        """
        try:
            same = _identity(self.path) == self._folder
        except FileNotFoundError:
            raise PostGuardrailViolation(
                f"the task removed its workspace folder {self.path.name}; remove files in it, never the folder itself"
            ) from None
        if not same:
            raise PostGuardrailViolation(
                f"the task replaced its workspace folder {self.path.name}; write into the folder that it was given"
            )

    def _check_marker(self, found: FileStat) -> None:
        if found != self._marker:
            raise PostGuardrailViolation(f"the task wrote {MARKER}, which is Perago's own: use another name")


def scan_folder(root: Path, *, leave_out: Path | None = None) -> Iterator[tuple[str, FileStat]]:
    """Yield every file below a folder, except those in `leave_out`.

    Raises `PostGuardrailViolation` for anything that cannot be published.
    """
    excluded = leave_out.stat() if leave_out is not None and leave_out.exists() else None
    pending = [""]
    while pending:
        folder = pending.pop()
        with os.scandir(root / folder) as found:
            for item in found:
                path = f"{folder}{item.name}"
                if item.is_symlink():
                    raise PostGuardrailViolation(f"workspace publication does not support symlinks: {path}")
                if item.is_dir():
                    if excluded is None or not os.path.samestat(item.stat(), excluded):
                        pending.append(f"{path}/")
                elif item.is_file():
                    yield path, _stat(item.stat())
                else:
                    kind = stat.filemode(item.stat().st_mode)[0]
                    raise PostGuardrailViolation(
                        f"workspace publication does not support sockets, pipes and devices ({kind}): {path}"
                    )


def hash_file(path: Path, algorithm: str) -> FileState:
    """Return a file's size and checksum."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, algorithm)
        return FileState(file.tell(), digest.hexdigest())


def _check_publishable(path: str, workspace: Workspace) -> None:
    if is_marker(path):
        raise PostGuardrailViolation(f"the task wrote {path}: {MARKER} is Perago's own name, use another")
    if in_actions(workspace.prefix + path):
        raise PostGuardrailViolation(f"the task wrote {path}: {ACTIONS} holds lakeFS's actions and the fence")
    if is_not_unicode(path):
        raise PostGuardrailViolation(f"the task wrote a file whose name is not valid UTF-8: {path!r}")


def _identity(folder: Path) -> tuple[int, int, int]:
    """Return the file type, device and inode number of the folder, or of the symlink that has replaced it."""
    found = folder.lstat()
    return stat.S_IFMT(found.st_mode), found.st_dev, found.st_ino


def _stat(found: os.stat_result) -> FileStat:
    return FileStat(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
