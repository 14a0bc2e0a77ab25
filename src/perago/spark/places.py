"""Prepares the place where the body of a Spark task reads its input and writes its result.

The place is the attempt's workdir (local), or the execution's staging branch over s3a (direct).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

from perago.declare.checks import Check, ListingTree
from perago.declare.file_tree import Tree
from perago.declare.task import TaskDefinition
from perago.errors import PostGuardrailViolation, TaskFailed
from perago.protocol.changes import FileState, FileStates, changes_between, workdir_path
from perago.protocol.paths import in_actions, is_marker
from perago.runtime.attempt.listing import objects_in
from perago.runtime.attempt.place import (
    MAX_NAMED_PATHS,
    Place,
    PlaceRequest,
    WorkdirPlace,
    check_absolute_paths,
    open_workdir_place,
)
from perago.runtime.attempt.publish_decision import OnBranch, Result
from perago.settings import LakeFSSettings, Settings
from perago.spark.direct_commits import DirectCommits
from perago.spark.job_group import at_work
from perago.spark.paths import is_leftover
from perago.spark.placement import placement_of
from perago.spark.s3a import open_bucket, s3a_packages
from perago.spark.session import AttemptSession, Sessions
from perago.spark.session_spec import session_spec
from perago.spark.table_audit import Audits
from perago.spark.tables import check_new_files
from perago.spark.workspace import SparkWorkspace
from perago.spark.write_scope import check_write_scope, restore_objects

log = logging.getLogger("perago.spark")

_NAME_CHARS = 100


def spark_places(settings: Settings, tasks: Iterable[TaskDefinition], *, embedded: bool) -> SparkPlaces:
    """Return a factory for the places where these tasks read their input and write their results.

    The Spark session supports s3a only if at least one task has direct placement.
    """
    spark_tasks = [task for task in tasks if task.kind == "spark"]
    direct = any(placement_of(task, settings, embedded=embedded) == "direct" for task in spark_tasks)
    names = ", ".join(task.name for task in spark_tasks)
    app = f"perago {names if len(names) <= _NAME_CHARS else names[:_NAME_CHARS] + '…'}"
    sessions = Sessions(settings, s3a_packages(os.environ, settings.spark_conf) if direct else None, app=app)
    return SparkPlaces(settings, sessions, embedded)


@dataclass(frozen=True, slots=True)
class SparkPlaces:
    """Opens the place where an execution reads its input and writes its result.

    For a plain task, this is the workdir.  For a Spark task, it depends on the task's placement.
    """

    settings: Settings
    sessions: Sessions
    embedded: bool
    sized: bool = True
    """False to ignore the memory and cores that tasks declare."""

    def __call__(self, request: PlaceRequest) -> Place:
        """Return the place where one execution reads its input and writes its result."""
        if request.task.kind != "spark":
            return open_workdir_place(request)
        spec = session_spec(request.task)
        if not self.sized:
            spec = spec.without_sizes()
        self.sessions.warm_up(spec)
        session = AttemptSession(self.sessions, spec)
        if placement_of(request.task, self.settings, embedded=self.embedded) == "local":
            return LocalPlace(request, session)
        return DirectPlace(request, session, self._lakefs)

    @property
    def _lakefs(self) -> LakeFSSettings:
        assert self.settings.lakefs is not None  # noqa: S101 - `check_placement` has checked it
        return self.settings.lakefs


class LocalPlace(WorkdirPlace):
    """Lets a Spark task read and write tables in its workdir. Perago transfers the files, except Spark's leftovers."""

    def __init__(self, request: PlaceRequest, session: AttemptSession) -> None:
        super().__init__(request, self._is_leftover)
        self._session = session
        self._workspace = SparkWorkspace(request.workdir.path, self._session, view=request.workspace.view)
        self._audits = Audits(self._workspace, self._session.for_checks, request.task.workspace)

    def _is_leftover(self, path: str) -> bool:
        return is_leftover(path, self._size_of(path) or 0, self._size_of)

    def _size_of(self, path: str) -> int | None:
        try:
            return (self._request.workdir.path / path).stat().st_size
        except OSError:
            return None

    @property
    def argument(self) -> object:
        """The workspace object passed to the body. Its tables are in the workdir."""
        return self._workspace

    def result(self, recorded: str | None) -> Result:
        """Return the content of the workdir as the result.

        Raises `PostGuardrailViolation` if new files would make a table unreadable.
        """
        result = super().result(recorded)
        check_new_files(self._session(), self._workspace.base, result.changes, result.states)
        return result

    def at_work(self) -> AbstractContextManager[None]:
        """Run the `with` block in the attempt's own Spark job group."""
        return at_work(self._session, self._request, self._workspace)

    def tree(self, checks: Sequence[Check]) -> Tree:
        """Return the workdir's file tree, which can also evaluate checks on its tables."""
        return self._audits.tree(checks, super().tree(checks))


class DirectPlace:
    """Lets a Spark task read and write its staging branch over s3a. No data passes through this process.

    The branch is created at the input commit before the body runs.  This is the only exception to "fence before stage"
    (decision 0008): the branch is hidden, private to this execution, and merged only by this execution.  It is
    committed only after the attempt's jobs have ended and the attempt fence has passed, and it is dropped if nothing
    changed.  A read-only task needs no branch: it reads the input commit itself, and cannot write.  The workdir
    contains only the marker.

    Spark writes files under their final names (`direct_commits`).  Its leftovers (unfinished tasks, success markers,
    folder markers that the input does not have) are deleted from the branch before the commit.  Folder markers from the
    input that Spark removed are restored.

    The keys give access to the whole repository, so a body can write anywhere on the branch.  A change outside what the
    task may change, or in `_lakefs_actions/`, fails the attempt with an error that names it (`write_scope`).
    """

    def __init__(self, request: PlaceRequest, session: AttemptSession, lakefs: LakeFSSettings) -> None:
        self._request = request
        self._session = session
        self._lakefs = lakefs
        spec = request.task.workspace
        self._read_only = spec is not None and spec.read_only
        self.on_branch = not self._read_only
        self._branch = request.workspace.ref if self._read_only else request.branch
        self._workspace: SparkWorkspace | None = None
        self._audits: Audits | None = None
        self._base = FileStates()
        self._parents: list[str] = []
        self._commits = DirectCommits(request.workspace.repository, self._branch)

    def fill(self) -> None:
        """List the input, without downloading anything.

        Spark reads the branch created at the input commit or, for a read-only task, the commit itself.
        """
        repository, prefix = self._request.workspace.repository, self._request.workspace.prefix
        self._base = self._listing(self._request.workspace.ref)
        base = f"s3a://{repository}/{self._branch}/{prefix}"
        view = self._request.workspace.view
        if self._read_only:
            view = replace(view, writes=())
        self._workspace = SparkWorkspace(base, self._session, view=view)

    @property
    def argument(self) -> SparkWorkspace:
        """The workspace object passed to the body.

        Its tables are on the staging branch or, for a read-only task, in the input commit.
        """
        assert self._workspace is not None  # noqa: S101 - `fill` comes first
        return self._workspace

    @property
    def location(self) -> str:
        """The URI of the task's prefix on the staging branch or, for a read-only task, in the input commit."""
        return self.argument.base

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Give Spark the keys to the repository, and run the `with` block in the attempt's own job group."""
        open_bucket(self._session(), self._request.workspace.repository, self._lakefs)
        with at_work(self._session, self._request, self.argument), self._commits.recording(self._session()):
            yield

    def tree(self, checks: Sequence[Check]) -> Tree:
        """Return the branch's file tree, which can also evaluate checks on its tables."""
        if self._audits is None:
            self._audits = Audits(self.argument, self._session.for_checks, self._request.task.workspace)
        listing = self._listing(self._branch)
        self._delete_strays(listing)
        return self._audits.tree(checks, ListingTree(self._states(listing)))

    def verify(self) -> None:
        """Do nothing: Spark reads directly from the lake, so there are no downloaded files to verify."""

    def result(self, recorded: str | None) -> Result:
        """Return the view's files on the branch, without Spark's leftovers.

        Raises `PostGuardrailViolation` if the task changed anything that it may not write.
        """
        self._parents = check_write_scope(self._request.lake, self._request.workspace, self._branch)
        states = self._states(self._listing(self._branch))
        changes = changes_between(self._states(self._base), states)
        gone = f"{self._request.workspace.repository}/{self._branch}/"
        check_absolute_paths(changes, states, self._content, gone=gone)
        session = self._session()
        # A session that started after a long listing, because the attempt's stopped as idle, lacks the keys.
        open_bucket(session, self._request.workspace.repository, self._lakefs)
        check_new_files(session, self.argument.base, changes, states)
        return Result(states, changes, recorded, OnBranch(self._branch, self._check_commit))

    def _delete_strays(self, listing: FileStates) -> None:
        """Delete what a Spark task wrote after Spark had given it up, so that no check and no later read sees it."""
        if self.on_branch and (strays := self._commits.strays(listing)):
            log.warning(
                "Spark had given up the tasks that wrote %d files, deleting them: %s",
                *(len(strays), ", ".join(strays[:MAX_NAMED_PATHS])),
            )
            self._request.lake.delete(self._request.workspace.repository, self._branch, strays)

    def _check_commit(self, commit: str) -> None:
        """Raise `TaskFailed` if a stray arrived while the branch was being committed."""
        if not self._commits:
            return
        workspace = self._request.workspace
        changed = self._request.lake.diff_paths(
            workspace.repository, workspace.ref, commit, workspace.view.write_roots
        )
        if strays := self._commits.strays(changed):
            raise TaskFailed(
                f"a Spark task that Spark had given up wrote {strays[0]} while the result was being committed; nothing is "
                "published, and a retry writes it again"
            )

    def _content(self, path: str) -> bytes:
        workspace = self._request.workspace
        return b"".join(self._request.lake.read(workspace.repository, self._branch, workspace.prefix + path))

    def tidy_up(self, result: Result) -> None:
        """Delete Spark's leftovers and restore folder markers that it removed.

        An unchanged branch is left alone, because it will be dropped.
        """
        if not result.changes:
            return
        lake, repository = self._request.lake, self._request.workspace.repository
        restore_objects(lake, self._request.workspace, self._branch, self._parents)
        now = self._listing(self._branch)
        left = [path for path, state in now.items() if self._is_leftover(path, state, now)]
        if left:
            lake.delete(repository, self._branch, left)
        lost = [path for path, state in self._base.items() if _is_folder(path, state) and path not in now]
        if lost:
            lake.copy(repository, self._branch, self._request.workspace.ref, lost)

    def _listing(self, ref: str) -> FileStates:
        """Return every object in the task's view at `ref`, keyed by full path."""
        workspace = self._request.workspace
        found = FileStates()
        for entry in objects_in(self._request.lake, workspace.repository, ref, workspace.view.roots):
            found.put(entry.path, FileState(entry.size, entry.checksum))
        return found

    def _states(self, listing: FileStates) -> FileStates:
        """Return the files in a listing that the task may see, keyed by path relative to the prefix.

        Spark's leftovers are left out.  Raises `PostGuardrailViolation` if the task wrote a file with a reserved name.
        """
        states = FileStates()
        for path, state in listing.items():
            self._check_name(path)
            shown = workdir_path(path, state.size, self._request.workspace.prefix)
            if shown is not None and not self._is_leftover(path, state, listing):
                states.put(shown, state)
        return states

    def _is_leftover(self, path: str, state: FileState, listing: FileStates) -> bool:
        # Objects in the input are data, even if they are named like a leftover.
        if path in self._base:
            return False
        prefix = self._request.workspace.prefix

        def size_of(other: str) -> int | None:
            found = listing.get(prefix + other)
            return None if found is None else found.size

        if _is_folder(path, state) or self._commits.is_stray(path):
            return True
        return is_leftover(path.removeprefix(prefix), state.size, size_of)

    def _check_name(self, path: str) -> None:
        if path not in self._base and (in_actions(path) or is_marker(path)):
            raise PostGuardrailViolation(f"the task wrote {path}: that name is Perago's or lakeFS's own")


def _is_folder(path: str, state: FileState) -> bool:
    return state.size == 0 and path.endswith("/")
