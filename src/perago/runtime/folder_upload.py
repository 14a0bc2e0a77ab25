"""Uploads a folder or files: as a new repository's first commit, or as one commit with the changes to a branch.

As with every publication, the files are committed on a hidden branch and reach the target branch by one merge onto the
head that they were compared with.  If that head has moved, the put starts over from the new one, unless someone else
has changed the same files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from perago.errors import (
    HeadMoved,
    LakeNotFound,
    LakeRefused,
    NothingToCommit,
    PostGuardrailViolation,
    RuntimeConfigError,
)
from perago.lake.base import Lake, Progress, PublishingLake, ReadableLake, Upload
from perago.protocol.changes import FileState, is_unchanged, workdir_path
from perago.protocol.paths import (
    ACTIONS,
    LONGEST_PATH,
    MARKER,
    first_broken,
    in_actions,
    is_marker,
    is_not_unicode,
)
from perago.protocol.suggestions import did_you_mean, listed
from perago.runtime.attempt.workdir import hash_file, scan_folder
from perago.runtime.branch_commit import PUT, BranchCommit
from perago.settings import FenceMode

log = logging.getLogger("perago.put")

ShowProgress = Callable[[str, Sequence[Upload]], AbstractContextManager[Progress | None]]
"""Shows the progress of a transfer, given the transfer's title and files."""

TRIES = 5

_VIOLATIONS = (
    (is_not_unicode, "has a name that is not valid UTF-8: rename the file"),
    (lambda path: len(path.encode()) > LONGEST_PATH, f"has a path of more than {LONGEST_PATH} bytes"),
    (is_marker, f"cannot be kept: {MARKER} is Perago's own name; rename it"),
    (in_actions, f"is among lakeFS's actions ({ACTIONS}): use `perago fence` or lakectl for those"),
)


def import_folder(
    lake: Lake, name: str, folder: Path, *, leave_out: Path, show_progress: ShowProgress
) -> None:
    """Create a repository from a folder.  Raises `RuntimeConfigError` if it already exists."""
    if name in lake.repositories():
        raise RuntimeConfigError(
            f"repository {name!r} exists already: leave out --import to use it, or give another "
            "name or --root"
        )
    files = folder_uploads(folder, lake.checksum_algorithm, leave_out=leave_out)
    with show_progress(f"import {name}", files) as progress:
        lake.create_repository(name, files, f"import of {folder}", progress)


def folder_uploads(folder: Path, algorithm: str, *, leave_out: Path, doing: str = "import") -> list[Upload]:
    """Return every file in a folder.  Raises `RuntimeConfigError` for anything that a workspace cannot contain.

    `doing` is the verb for the error message.  `leave_out` is Perago's root, which may be inside the folder and may
    change while the folder is read.
    """
    if not folder.exists():
        files = doing == "put"
        beside = (
            [path.name for path in folder.parent.iterdir() if files or path.is_dir()]
            if folder.parent.is_dir()
            else []
        )
        kinds = "files and folders" if files else "folders"
        there = did_you_mean(folder.name, beside, otherwise=f"; {kinds} there: {listed(sorted(beside))}")
        what = "file or folder" if files else "folder"
        raise RuntimeConfigError(f"cannot {doing} {folder}: there is no such {what}{there}")
    if not folder.is_dir():
        raise RuntimeConfigError(
            f"cannot {doing} {folder}: it is not a folder; give the folder that holds it"
        )
    uploads = []
    try:
        for path, _ in scan_folder(folder, leave_out=leave_out):
            state = hash_file(folder / path, algorithm)
            uploads.append(Upload(folder / path, path, state.size, state.checksum or ""))
    except PostGuardrailViolation as error:
        raise RuntimeConfigError(
            f"cannot {doing} {folder}: {error}; take it out, or put a file in its place"
        ) from error
    except OSError as error:
        raise RuntimeConfigError(
            f"cannot {doing} {folder}: cannot read {error.filename} ({error.strerror}); let this user read it"
        ) from error
    return uploads


@dataclass(frozen=True, slots=True)
class Target:
    """The branch and prefix that a put writes to.

    `prefix` is empty or ends in a slash.  `delete` means that objects that are not in the folder are removed.
    """

    repository: str
    branch: str
    prefix: str = ""
    delete: bool = False
    fence: FenceMode = "auto"


@dataclass(frozen=True, slots=True)
class PutPlan:
    """The changes that a put makes to one head.  `before` has the affected paths' states at that head."""

    head: str
    uploads: tuple[Upload, ...]
    delete: tuple[str, ...]
    unchanged: int
    before: Mapping[str, FileState | None]

    def __bool__(self) -> bool:
        return bool(self.uploads or self.delete)


def read_paths(lake: ReadableLake, target: Target, paths: Sequence[Path], *, leave_out: Path) -> list[Upload]:
    """Return a folder's files, or these single files, as objects to upload.

    Raises `RuntimeConfigError` for a file that cannot be put.
    """
    if len(paths) == 1 and not paths[0].is_file():
        return read_folder(lake, target, paths[0], leave_out=leave_out)
    if target.delete:
        raise RuntimeConfigError(
            "--delete removes what a folder does not have: leave it out, or put a folder"
        )
    files: dict[str, Upload] = {}
    for file in paths:
        if not file.is_file():
            what = "there is no such file" if not file.exists() else "it is a folder or no ordinary file"
            raise RuntimeConfigError(f"cannot put {file}: {what}; give one folder, or only files")
        if (twice := files.get(target.prefix + file.name)) is not None:
            raise RuntimeConfigError(
                f"cannot put {file} beside {twice.source}: both would be {twice.path!r}; put them with two commands and "
                "another --prefix"
            )
        try:
            state = hash_file(file, lake.checksum_algorithm)
        except OSError as error:
            raise RuntimeConfigError(f"cannot put {file}: {error.strerror}; let this user read it") from error
        path = _checked_path(target, file.name, file)
        files[path] = Upload(file, path, state.size, state.checksum or "")
    return list(files.values())


def read_folder(lake: ReadableLake, target: Target, folder: Path, *, leave_out: Path) -> list[Upload]:
    """Return a folder's files as objects to upload.  Raises `RuntimeConfigError` for a file that cannot be put."""
    files = []
    for file in folder_uploads(folder, lake.checksum_algorithm, leave_out=leave_out, doing="put"):
        path = _checked_path(target, file.path, folder)
        files.append(Upload(file.source, path, file.size, file.checksum))
    if not files:
        raise RuntimeConfigError(
            f"cannot put {folder}: it holds no files, and a lake keeps no empty folders; give a folder "
            "with files"
        )
    return files


def _checked_path(target: Target, name: str, given: Path) -> str:
    path = target.prefix + name
    if (violation := first_broken(path, _VIOLATIONS)) is not None:
        raise RuntimeConfigError(f"cannot put {given}: {name!r} {violation}")
    return path


def plan_put(lake: ReadableLake, target: Target, files: Sequence[Upload]) -> PutPlan:
    """Compare the files with the branch's head, and return the changes."""
    head = lake.head(target.repository, target.branch).id
    base = {
        entry.path: FileState(entry.size, entry.checksum)
        for entry in lake.list(target.repository, head, target.prefix)
        if workdir_path(entry.path, entry.size, "") is not None
    }
    wanted = {file.path: FileState(file.size, file.checksum) for file in files}
    uploads = tuple(file for file in files if not is_unchanged(base.get(file.path), wanted[file.path]))
    delete = tuple(path for path in base if path not in wanted) if target.delete else ()
    _check_folders(lake, target, head, uploads, base.keys() - set(delete))
    touched = [*(file.path for file in uploads), *delete]
    return PutPlan(
        head, uploads, delete, len(files) - len(uploads), {path: base.get(path) for path in touched}
    )


class FolderPut:
    """Publishes a folder's files to a branch in one commit.  `new_branch` yields unique names for hidden branches."""

    def __init__(
        self, lake: PublishingLake, target: Target, files: Sequence[Upload], new_branch: Iterator[str]
    ) -> None:
        self._lake = lake
        self._target = target
        self._files = files
        self._commit = BranchCommit(lake, PUT, target.repository, target.branch, target.fence, new_branch)

    def publish(self, plan: PutPlan, message: str, show_progress: ShowProgress) -> tuple[str, PutPlan]:
        """Carry out a plan, and return the commit and the plan that was finally carried out.

        Raises `LakeRefused` if the branch keeps moving, or if others have changed the same files.
        """
        target, first = self._target, plan
        for _ in range(TRIES):
            try:
                return self._try(plan, message, show_progress), plan
            except HeadMoved as moved:
                log.info("the branch moved during the put, starting over: %s", moved)
            plan = plan_put(self._lake, target, self._files)
            if plan.before != first.before:
                raise LakeRefused(
                    f"branch {target.branch!r} of {target.repository!r} moved to {plan.head} meanwhile, which changed "
                    "files that this put is about; nothing was put: look at the changes, and run the command again"
                )
        raise LakeRefused(
            f"branch {target.branch!r} of {target.repository!r} moved {TRIES} times while files were put; nothing was "
            "put: run the command again when fewer others write to it"
        )

    def _try(self, plan: PutPlan, message: str, show_progress: ShowProgress) -> str:
        lake, target, commit = self._lake, self._target, self._commit
        with commit.staging(plan.head) as side:
            with show_progress(f"put {target.repository}", plan.uploads) as progress:
                lake.upload(target.repository, side, plan.uploads, progress)
            lake.delete(target.repository, side, plan.delete)
            try:
                staged = commit.stage(side, message)
            except NothingToCommit:
                # The lake listed no checksum to compare, but already had these bytes.
                return plan.head
            return commit.publish(staged, plan.head, message)


def _check_folders(
    lake: ReadableLake, target: Target, head: str, uploads: Sequence[Upload], remaining_paths: set[str]
) -> None:
    """Raise `RuntimeConfigError` if a file is where a folder must be, or the other way round."""
    folders = {parent: path for path in remaining_paths for parent in _parents(path)}
    above = [
        parent for parent in _parents(target.prefix) if _is_object(lake, target.repository, head, parent)
    ]
    for file in uploads:
        taken = next(
            (parent for parent in _parents(file.path) if parent in remaining_paths or parent in above), None
        )
        if taken is not None:
            raise RuntimeConfigError(
                f"cannot put {file.path!r}: {taken!r} is a file on {target.branch!r}, and would have to be a folder; rename "
                "one of them, or let --delete remove what the folder does not have"
            )
        if file.path in folders:
            raise RuntimeConfigError(
                f"cannot put {file.path!r}: it is a folder on {target.branch!r}, which holds {folders[file.path]!r}; rename "
                "one of them, or let --delete remove what the folder does not have"
            )


def _is_object(lake: ReadableLake, repository: str, ref: str, path: str) -> bool:
    try:
        next(iter(lake.read(repository, ref, path)), None)
    except LakeNotFound:
        return False
    return True


def _parents(path: str) -> Iterator[str]:
    at = path.find("/")
    while at > 0:
        yield path[:at]
        at = path.find("/", at + 1)
