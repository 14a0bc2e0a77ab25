"""Uploads a folder: as a new repository's first commit, or as one commit with the changes to an existing branch.

As with every publication, the files are committed on a hidden branch and reach the target branch by one merge onto the
head that they were compared with.  If that head has moved, the put starts over from the new one, unless someone else
has changed the same files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from perago.errors import (
    BranchDirty,
    HeadMoved,
    LakeError,
    LakeNotFound,
    LakeRefused,
    LakeUnavailable,
    LandedElsewhere,
    NothingToCommit,
    PostGuardrailViolation,
    RuntimeConfigError,
)
from perago.lake.base import Lake, Merge, Progress, PublishingLake, ReadableLake, Upload
from perago.protocol.changes import FileState, is_unchanged, workdir_path
from perago.protocol.metadata import FENCE, KEY, STAGING_BRANCH, STAGING_COMMIT
from perago.protocol.paths import (
    ACTIONS,
    LONGEST_PATH,
    MARKER,
    first_broken,
    in_actions,
    is_marker,
    is_not_unicode,
)
from perago.protocol.publication import MAX_RANGE, StagedWorkspace
from perago.protocol.suggestions import did_you_mean, listed
from perago.runtime.attempt.workdir import hash_file, scan_folder
from perago.runtime.internal_branches import drop_quietly
from perago.settings import FenceMode

log = logging.getLogger("perago.put")

ShowProgress = Callable[[str, Sequence[Upload]], AbstractContextManager[Progress | None]]
"""Shows the progress of a transfer, given the transfer's title and files."""

PUT_KEY = "perago-put"
"""The logical task key of a put's commits.

No step has this key, so no retry mistakes such a commit for its own abandoned publication.
"""
TRIES = 5
MERGE_SECONDS = 60.0

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
        beside = (
            [path.name for path in folder.parent.iterdir() if path.is_dir()] if folder.parent.is_dir() else []
        )
        there = did_you_mean(folder.name, beside, otherwise=f"; folders there: {listed(sorted(beside))}")
        raise RuntimeConfigError(f"cannot {doing} {folder}: there is no such folder{there}")
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


def read_folder(lake: ReadableLake, target: Target, folder: Path, *, leave_out: Path) -> list[Upload]:
    """Return a folder's files as objects to upload.  Raises `RuntimeConfigError` for a file that cannot be put."""
    files = []
    for file in folder_uploads(folder, lake.checksum_algorithm, leave_out=leave_out, doing="put"):
        path = target.prefix + file.path
        if (violation := first_broken(path, _VIOLATIONS)) is not None:
            raise RuntimeConfigError(f"cannot put {folder}: {file.path!r} {violation}")
        files.append(Upload(file.source, path, file.size, file.checksum))
    if not files:
        raise RuntimeConfigError(
            f"cannot put {folder}: it holds no files, and a lake keeps no empty folders; give a folder "
            "with files"
        )
    return files


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
        self._new_branch = new_branch

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
        lake, target = self._lake, self._target
        with self._side_branch(plan.head) as side:
            with show_progress(f"put {target.repository}", plan.uploads) as progress:
                lake.upload(target.repository, side, plan.uploads, progress)
            lake.delete(target.repository, side, plan.delete)
            signed = {KEY: PUT_KEY, STAGING_BRANCH: side}
            try:
                staged = StagedWorkspace(
                    target.repository, side, lake.commit(target.repository, side, message, signed)
                )
            except NothingToCommit:
                # The lake listed no checksum to compare, but already had these bytes.
                return plan.head
            level = "soft" if target.fence == "soft" else lake.fence_level(target.repository, staged.commit)
            if target.fence == "hard" and level == "soft":
                why = lake.fence_gap(target.repository, staged.commit, target.branch)
                raise LakeRefused(f"PERAGO_FENCE=hard, but {staged.commit} of {target.repository!r} {why}")
            metadata = {**signed, STAGING_COMMIT: staged.commit, FENCE: level}
            merge = Merge(side, target.branch, plan.head, message, metadata, MERGE_SECONDS, level)
            return self._merge(merge, staged)

    def _merge(self, merge: Merge, staged: StagedWorkspace) -> str:
        target = self._target
        try:
            return self._lake.merge(target.repository, merge)
        except BranchDirty as dirty:
            raise LakeRefused(
                f"branch {target.branch!r} of {target.repository!r} has uncommitted objects, and nothing was put: "
                f"commit or reset them first ({dirty})"
            ) from dirty
        except LandedElsewhere as landed:
            # It landed on top of changes by others to other paths; otherwise, the merge would have conflicted.
            return landed.commit
        except LakeUnavailable as unknown:
            return self._settle(staged, merge.expected_head, unknown)

    def _settle(self, staged: StagedWorkspace, expected_head: str, unknown: LakeUnavailable) -> str:
        """Stop an unanswered merge, then read the branch and return the commit that the merge landed as.

        Raises `LakeUnavailable` if it did not land, or if that cannot be found out.
        """
        lake, target = self._lake, self._target
        try:
            lake.drop_branch(target.repository, staged.branch)
            lake.barrier(target.repository, target.branch, MERGE_SECONDS)
            for commit in lake.log(target.repository, target.branch, MAX_RANGE):
                # With a soft fence, it may have landed on a head other than the expected one.
                if commit.metadata.get(STAGING_COMMIT) == staged.commit:
                    return commit.id
                if commit.id == expected_head:
                    break
        except LakeError as unreadable:
            raise LakeUnavailable(
                f"the put had no answer ({unknown}), and it could not be found out whether it landed ({unreadable}): "
                f"look with `perago history {target.repository} {target.branch} --remote` before you run it again"
            ) from unknown
        raise LakeUnavailable(f"nothing was put, run the command again: {unknown}") from unknown

    @contextmanager
    def _side_branch(self, head: str) -> Iterator[str]:
        name = next(self._new_branch)
        self._lake.create_branch(self._target.repository, name, head)
        try:
            yield name
        finally:
            drop_quietly(self._lake, self._target.repository, name)


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
