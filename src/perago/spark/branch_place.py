"""The direct place: a Spark task reads and writes its staging branch over s3a, and nothing passes through this process.

The branch is made at the input commit before the body, the one exception to "fence before stage" (decision 0008):
it is this execution's own, hidden, and merged by nobody else.  It is committed only after the jobs of the attempt have
ended and the attempt fence has held, and dropped if nothing changed.  A read-only task needs no branch: it reads the input
commit itself, and can write nothing.  The workdir holds the marker alone.

What Spark leaves behind (unfinished tasks, marks of success, folder markers that were not in the input) is deleted
from the branch before the commit; folder markers of the input that Spark took away are put back.

The keys reach the whole repository, so a body can write anywhere on the branch: whatever it changed outside what its task
may change, or in `_lakefs_actions/`, fails the attempt by name (`outside`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from perago.declare.checks import Check, ListingTree, Tree
from perago.errors import PostGuardrailViolation
from perago.protocol.changes import FileState, changes_between, projected
from perago.protocol.paths import in_actions, is_marker
from perago.protocol.states import FileStates
from perago.runtime.attempt.absolute_paths import check_absolute_paths
from perago.runtime.attempt.listing import objects_in
from perago.runtime.attempt.place import Site
from perago.runtime.attempt.result import OnBranch, Result
from perago.settings import LakeFSSettings
from perago.spark.audit import AuditedTree, Auditor
from perago.spark.job_group import at_work
from perago.spark.kept_files import check_kept_files
from perago.spark.outside import check_outside, reset
from perago.spark.paths import is_leftover
from perago.spark.s3a import open_bucket
from perago.spark.session import AttemptSession, Sessions
from perago.spark.workspace import SparkWorkspace


class DirectPlace:
    """The view on the execution's own staging branch, or on the input commit of a read-only task."""

    def __init__(self, site: Site, sessions: Sessions, lakefs: LakeFSSettings) -> None:
        self._site = site
        self._sessions = sessions
        self._session = AttemptSession(sessions)
        self._lakefs = lakefs
        spec = site.task.workspace
        self._read_only = spec is not None and spec.read_only
        self.on_branch = not self._read_only
        self._branch = site.workspace.ref if self._read_only else site.branch
        self._workspace: SparkWorkspace | None = None
        self._base = FileStates()
        self._parents: list[str] = []

    def fill(self) -> None:
        """Nothing to bring: the branch was made at the input, or is the input."""
        repository, prefix = self._site.workspace.repository, self._site.workspace.prefix
        self._base = self._listing(self._site.workspace.ref)
        base = f"s3a://{repository}/{self._branch}/{prefix}"
        view = self._site.workspace.view
        if self._read_only:
            view = replace(view, writes=())
        self._workspace = SparkWorkspace(base, self._session, view=view)

    @property
    def argument(self) -> SparkWorkspace:
        """The workspace over the branch."""
        assert self._workspace is not None  # noqa: S101 - `fill` comes first
        return self._workspace

    def at_work(self) -> AbstractContextManager[None]:
        """A job group of the attempt's own, with the keys to the repository."""
        open_bucket(self._sessions.get(), self._site.workspace.repository, self._lakefs)
        return at_work(self._session, self._site, self.argument)

    def tree(self, checks: Sequence[Check]) -> Tree:
        """The branch's listing, whose tables can be looked into."""
        auditor = Auditor(self.argument, self._session.for_checks, checks)
        return AuditedTree(ListingTree(self._states(self._listing(self._branch))), auditor)

    def verify(self) -> None:
        """Nothing to do: Spark reads the lake itself."""

    def result(self, recorded: str | None) -> Result:
        """What the branch holds of the view, Spark's leftovers aside; a change outside `writes` is refused by name."""
        self._parents = check_outside(self._site.lake, self._site.workspace, self._branch)
        states = self._states(self._listing(self._branch))
        changes = changes_between(self._states(self._base), states)
        gone = f"{self._site.workspace.repository}/{self._branch}/"
        check_absolute_paths(changes, states, self._content, gone=gone)
        check_kept_files(self._session(), self.argument.base, changes, states)
        return Result(states, changes, recorded, OnBranch(self._branch))

    def _content(self, path: str) -> bytes:
        workspace = self._site.workspace
        return b"".join(self._site.lake.read(workspace.repository, self._branch, workspace.prefix + path))

    def tidy_up(self, result: Result) -> None:
        """Take away what Spark left behind and put back what it took; a branch without a change is left to be dropped."""
        if not result.changes:
            return
        lake, repository = self._site.lake, self._site.workspace.repository
        reset(lake, self._site.workspace, self._branch, self._parents)
        now = self._listing(self._branch)
        left = [path for path, state in now.items() if self._is_left(path, state, now)]
        if left:
            lake.delete(repository, self._branch, left)
        taken = [path for path, state in self._base.items() if _is_folder(path, state) and path not in now]
        if taken:
            lake.copy(repository, self._branch, self._site.workspace.ref, taken)

    def _listing(self, ref: str) -> FileStates:
        """Every object of the view, by its whole path."""
        workspace = self._site.workspace
        found = FileStates()
        for entry in objects_in(self._site.lake, workspace.repository, ref, workspace.view):
            found.put(entry.path, FileState(entry.size, entry.checksum))
        return found

    def _states(self, listing: FileStates) -> FileStates:
        """What a task may see of a listing, by path below the prefix."""
        states = FileStates()
        for path, state in listing.items():
            self._check_name(path)
            shown = projected(path, state.size, self._site.workspace.prefix)
            if shown is not None and not self._is_left(path, state, listing):
                states.put(shown, state)
        return states

    def _is_left(self, path: str, state: FileState, listing: FileStates) -> bool:
        # What was published under such a name before is data, whatever it is called.
        if path in self._base:
            return False
        prefix = self._site.workspace.prefix

        def size_of(other: str) -> int | None:
            found = listing.get(prefix + other)
            return None if found is None else found.size

        return _is_folder(path, state) or is_leftover(path.removeprefix(prefix), state.size, size_of)

    def _check_name(self, path: str) -> None:
        if path not in self._base and (in_actions(path) or is_marker(path)):
            raise PostGuardrailViolation(f"the task wrote {path}: that name is Perago's or lakeFS's own")


def _is_folder(path: str, state: FileState) -> bool:
    return state.size == 0 and path.endswith("/")
