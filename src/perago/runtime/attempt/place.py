"""The place where a body works: the workdir or staging branch where it reads its input and writes its result.

A transaction deals with the place only through the port `Place`.  A place provides the body's first argument, the tree
that checks inspect, and the result to publish.  There are two kinds:

    in the workdir   the view is downloaded; the body's changes are uploaded to a staging branch after the fence
    direct           the body reads and writes the staging branch itself; no data passes through this process

A place never creates a branch, makes a commit or moves anything.  It only says what the view should contain and where
the bytes are.  A place makes the attempt fail, before anything is staged, if a file outside the task's `writes` was
added, changed or deleted, or if a file stores absolute paths.  The reason names the files.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote

from perago.declare.checks import Check, FolderTree, ListingTree
from perago.declare.file_tree import Tree
from perago.declare.task import TaskDefinition
from perago.errors import PostGuardrailViolation, RuntimeConfigError
from perago.lake.base import ReadableLake, StagingLake, Verification
from perago.protocol.attempt import Attempt
from perago.protocol.changes import Changes, FileStates
from perago.protocol.publication import Workspace
from perago.protocol.view import View
from perago.runtime.attempt.input_changes import NOTHING_LEFT_OUT, LeftOut
from perago.runtime.attempt.listing import LazyStates, Listing, list_view
from perago.runtime.attempt.observer import Traffic
from perago.runtime.attempt.publish_decision import OnBranch, Result
from perago.runtime.attempt.workdir import Workdir

MAX_NAMED_PATHS = 5
"""Maximum number of paths that an error names.  If there are more, the error says so."""

Read = Callable[[str], bytes]

_SINK = re.compile(r"(?:.*/)?_spark_metadata/[^/]+")
_CHECKPOINT = re.compile(r"(.*/)?offsets/\d+")
_ICEBERG = re.compile(r"(?:.*/)?metadata/[^/]+?(\.gz)?\.metadata\.json")
_HUDI = re.compile(r"((?:.*/)?\.hoodie/).+")
_MANIFEST = re.compile(r"(?:.*/)?_symlink_format_manifest/.+")
_DELTA = re.compile(r"(?:.*/)?_delta_log/\d{20}\.json")
_STREAMS = "keep sinks and checkpoints elsewhere, and write each batch with workspace.write (foreachBatch)"
_ANOTHER_FORMAT = "write the table in another format, such as Parquet or Delta"
_REMEDIES = {
    "the log of a streaming sink": _STREAMS,
    "a streaming checkpoint": _STREAMS,
    "an Iceberg table": _ANOTHER_FORMAT,
    "a Hudi table": _ANOTHER_FORMAT,
    "a manifest of symbolic links": "generate it where the table is read",
    "a shallow clone": "write a copy of the rows instead",
}


def check_writes(changes: Changes, view: View) -> None:
    """Raise `PostGuardrailViolation` if the changes include paths below the prefix that the task may not change."""
    roots = view.write_roots
    outside = [path for path in (*changes.put, *changes.delete) if not roots.hold(view.prefix + path)]
    if outside:
        raise outside_writes(sorted(outside), view)


def outside_writes(paths: Sequence[str], view: View, more: str = "") -> PostGuardrailViolation:
    """Return the error for changed paths that the task may not change.

    The error names the first few and says how many others there are.  `more` replaces that number if it is unknown.
    """
    beyond = len(paths) - MAX_NAMED_PATHS
    rest = f" and {beyond} more" if beyond > 0 else ""
    return PostGuardrailViolation(
        f"the task changed {', '.join(paths[:MAX_NAMED_PATHS])}{more or rest}, outside what it may change "
        f"({view.describe_roots(view.write_roots)}). Nothing is published; leave such files as they were, or name them in "
        "WorkspaceSpec(writes=…)"
    )


@dataclass(frozen=True, slots=True)
class PlaceRequest:
    """Arguments for preparing the place where a body reads its input and writes its result.

    `branch` is the name of the execution's staging branch, which starts at the input commit.
    """

    task: TaskDefinition
    execution_id: str
    workspace: Workspace
    workdir: Workdir
    lake: StagingLake
    branch: str
    traffic: Traffic
    verification: Verification
    """Collects downloads that are verified while the body runs."""
    attempt: Attempt
    left_out: LeftOut = NOTHING_LEFT_OUT
    """The files that are not downloaded."""


class Publishable(Protocol):
    """Something to publish: a place where a body has worked, or a run."""

    def result(self, recorded: str | None) -> Result:
        """Return the view as it is to be published.  Raises `PostGuardrailViolation` for a change outside `writes`."""

    def tidy_up(self, result: Result) -> None:
        """Remove from the result's source everything that must not be staged.  Called after the attempt fence."""


class Place(Publishable, Protocol):
    """The workdir or staging branch where one execution's body reads its input and writes its result.

    The methods are called in the order in which they are defined below.
    """

    on_branch: bool
    """True if the body works directly on the staging branch.  The branch is then created before `fill` is called."""

    def fill(self) -> None:
        """Provide the input.  Parts of it may still be unverified on return."""

    def at_work(self) -> AbstractContextManager[None]:
        """Return a context manager for running the checks and the body.

        On exit, everything that the body started has ended.
        """

    @property
    def argument(self) -> object:
        """The first argument that is passed to the body."""

    @property
    def location(self) -> str:
        """The folder or the URI of the workspace that the body gets."""

    def tree(self, checks: Sequence[Check]) -> Tree:
        """Return the current files as a tree that these checks can inspect."""

    def verify(self) -> None:
        """Wait until all input provided by `fill` is verified.  Raises `LakeError` if it is damaged."""


OpenPlace = Callable[[PlaceRequest], Place]


def open_workdir_place(request: PlaceRequest) -> Place:
    """Return the workdir as the place where a plain task's body works.

    Raises `RuntimeConfigError` for a Spark task.
    """
    if request.task.kind != "plain":
        raise RuntimeConfigError(
            f"task {request.task.name!r} needs Spark, and this worker has none: see perago.backend"
        )
    return WorkdirPlace(request)


class WorkdirPlace:
    """A place where the body works on files in the workdir, to which the view is downloaded.

    Files for which `is_leftover` returns True, such as Spark's temporary files, are not published.
    """

    on_branch = False

    def __init__(self, request: PlaceRequest, is_leftover: Callable[[str], bool] | None = None) -> None:
        self._request = request
        self._is_leftover = is_leftover
        self._base = Listing(FileStates())

    def fill(self) -> None:
        """Download the view of the input commit."""
        request = self._request
        self._base = request.workdir.fill(
            request.lake,
            request.workspace,
            request.traffic.down,
            request.verification,
            request.left_out.holds,
        )
        left_out = request.workdir.left_out.values()
        whole = sum(state.size for state in (*self._base.files.values(), *left_out))
        # max(): a repeated download is counted twice.
        request.traffic.save(max(0, whole - request.traffic.moved.downloaded))

    def at_work(self) -> AbstractContextManager[None]:
        """Return a no-op context manager."""
        return nullcontext()

    @property
    def argument(self) -> object:
        """The workdir's path, which is passed to the body."""
        return self._request.workdir.path

    @property
    def location(self) -> str:
        """The workdir's path as text."""
        return os.path.abspath(self._request.workdir.path)

    def tree(self, checks: Sequence[Check]) -> Tree:
        """Return the workdir as a tree that checks can inspect.  It also has the names of files that are not downloaded."""
        left_out = self._request.workdir.left_out
        folder = self._request.workdir.path
        return FolderTree(folder, ListingTree(left_out)) if left_out else FolderTree(folder)

    def verify(self) -> None:
        """Wait until the download is verified, and correct checksums that could only be computed from the bytes."""
        request = self._request
        for path, checksum in request.verification.wait().items():
            self._base.correct(path.removeprefix(request.workspace.prefix), checksum)

    def result(self, recorded: str | None) -> Result:
        """Return the folder's content, reading only files that may have changed."""
        workspace = self._request.workspace
        states = self._request.workdir.result(self._request.lake, workspace, self._is_debris)
        changes = states.changes()
        check_writes(changes, workspace.view)
        folder = self._request.workdir.path
        check_absolute_paths(changes, states, lambda path: (folder / path).read_bytes(), gone=str(folder))
        return Result(states, changes, recorded, self._request.workdir.path, self._base)

    def tidy_up(self, result: Result) -> None:
        """Do nothing: leftover files in the folder are not part of the result."""

    def _is_debris(self, path: str) -> bool:
        # A file that was already in the input is data, whatever its name.
        return self._is_leftover is not None and path not in self._base.files and self._is_leftover(path)


@dataclass(frozen=True, slots=True)
class UnchangedInput:
    """The input itself as the result of an attempt whose body is skipped.  Nothing was downloaded."""

    lake: ReadableLake
    workspace: Workspace
    branch_at: Callable[[str], str]
    """Returns the name of the execution's staging branch at a commit."""

    def result(self, recorded: str | None) -> Result:
        """Return the view of the input commit, without changes.  It is listed only if it has to be staged again."""
        workspace = self.workspace
        states = LazyStates(
            lambda: list_view(self.lake, workspace.repository, workspace.ref, workspace.view).files
        )
        return Result(states, Changes((), ()), recorded, OnBranch(self.branch_at(workspace.ref)))

    def tidy_up(self, result: Result) -> None:
        """Do nothing: no body has left anything."""


def check_absolute_paths(changes: Changes, files: Container[str], read: Read, *, gone: str) -> None:
    """Raise `PostGuardrailViolation` if changed files store absolute paths.

    Args:
        changes: The body's changes.  Paths are relative to the prefix.
        files: All files to be published.
        read: Returns the content of one of these files.
        gone: A substring of every absolute path to a file in this attempt's workdir or staging branch.
    """
    found: dict[str, list[str]] = {}
    for path in changes.put:
        if (kind := _absolute_path_file_kind(path, files, read, gone)) is not None:
            found.setdefault(kind, []).append(path)
    for kind, paths in found.items():
        named = f"{', '.join(paths[:MAX_NAMED_PATHS])}{' and more' if len(paths) > MAX_NAMED_PATHS else ''}"
        raise PostGuardrailViolation(
            f"the task wrote {named}: {kind}, which names files by absolute paths that are invalid once the attempt "
            f"has ended. Nothing is published; {_REMEDIES[kind]}"
        )


def _absolute_path_file_kind(path: str, files: Container[str], read: Read, gone: str) -> str | None:
    if _SINK.fullmatch(path):
        return "the log of a streaming sink"
    if (match := _CHECKPOINT.fullmatch(path)) and (beside := f"{match[1] or ''}metadata") in files:
        return "a streaming checkpoint" if read(beside).startswith(b'{"id":') else None
    if match := _ICEBERG.fullmatch(path):
        return "an Iceberg table" if match[1] or b'"format-version"' in read(path) else None
    if (match := _HUDI.fullmatch(path)) and (beside := f"{match[1]}hoodie.properties") in files:
        return "a Hudi table" if b"hoodie.table.name" in read(beside) else None
    if _MANIFEST.fullmatch(path):
        return "a manifest of symbolic links"
    if _DELTA.fullmatch(path) and any(gone in added for added in _delta_files(read(path))):
        return "a shallow clone"
    return None


def _delta_files(log: bytes) -> Iterator[str]:
    """Yield the paths of the data files that one version of a Delta table adds, and of their deletion vectors."""
    for line in log.splitlines():
        try:
            added = json.loads(line).get("add") or {}
        except (ValueError, AttributeError):
            continue  # not a Delta entry
        yield unquote(str(added.get("path", "")))
        yield str((added.get("deletionVector") or {}).get("pathOrInlineDv", ""))
