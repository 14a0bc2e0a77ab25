"""Reads what has changed in an attempt's input since its task's last publication, for `changes()` and the download.

Everything is decided by the ledger at the input commit, so every retry of the attempt sees the same changes.  Since the
publication that stands and its output are one commit, no crash, retry or replaced publication can skip or repeat a file
in what is published.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from perago.declare.input_changes import InputChanges
from perago.declare.workspace import WorkspaceSpec
from perago.errors import OutputRewritten, TaskDefinitionError, TaskFailed
from perago.lake.base import Entry
from perago.protocol.changes import workdir_path
from perago.protocol.ledger import Recompute, Work
from perago.protocol.paths import has_backslash, has_dot_part, has_empty_part, is_empty, leads_out
from perago.protocol.publication import Workspace
from perago.protocol.refusal import RETRY_IS_USELESS
from perago.protocol.view import Roots, overlap
from perago.runtime.attempt.listing import objects_in
from perago.runtime.ledger import Ledger, LedgerState, describe_state


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The files of the input that are not downloaded, because they are unchanged since the task's last publication."""

    roots: Roots = field(default_factory=lambda: Roots(()))
    present: frozenset[str] = frozenset()

    def holds(self, path: str) -> bool:
        """Return whether a file is left out, given its path below the prefix."""
        return self.roots.hold(path) and path not in self.present


NOTHING_LEFT_OUT = LeftOut()


class AttemptChanges:
    """Reads what has changed in one attempt's input.  Thread-safe."""

    def __init__(
        self, ledger: Ledger, work: Work, workspace: Workspace, spec: WorkspaceSpec, recompute: Recompute
    ) -> None:
        """Take the ledger at the input commit, the attempt's work, and what is to be treated as new.

        Nothing is read before it is needed.
        """
        self._ledger, self._work = ledger, work
        self._workspace, self._spec = workspace, spec
        self._full = recompute.full

    def __call__(self, path: str, *, full: bool = False) -> InputChanges:
        """Return the changes below a path.  Raises `OutputRewritten` if somebody else has changed the task's output."""
        root = self._object_path(path)
        since = None if full or self._full else self._since
        if since is None:
            return InputChanges(added=self._files(root))
        found: dict[str, list[str]] = {"added": [], "changed": [], "removed": []}
        for change in self._ledger.differences(since, self._workspace.ref, (root,)):
            shown = workdir_path(change.path, change.size or 0, self._workspace.prefix)
            if shown is not None:
                found[change.kind].append(shown)
        return InputChanges(**{kind: tuple(sorted(paths)) for kind, paths in found.items()}, since=since)

    def left_out(self) -> LeftOut:
        """Return which files need not be downloaded."""
        paths = self._spec.changes_only
        if not paths:
            return NOTHING_LEFT_OUT
        present = [name for path in paths for name in self(path).present]
        return LeftOut(Roots(paths), frozenset(present))

    @cached_property
    def _since(self) -> str | None:
        """The commit to compare with, or None if all files count as added."""
        state = self._ledger.find(self._work.key)
        if state.kind == "standing" and state.entry is not None:
            return state.entry.commit.id
        if state.kind == "missing":
            return None
        match self._spec.on_rewritten:
            case "full":
                return None
            case "keep" if state.entry is not None:
                return state.entry.commit.id
            case _:
                raise OutputRewritten(_refusal(self._work.key.task, state))

    def _object_path(self, path: str) -> str:
        name = path.strip("/") if isinstance(path, str) else ""
        wrong = any(
            broken(name) for broken in (is_empty, has_backslash, has_dot_part, has_empty_part, leads_out)
        )
        view = self._workspace.view
        if wrong or not view.sees(name):
            raise TaskFailed(
                f"changes(workspace, {path!r}): the task does not see that path "
                f"({view.describe_roots(view.roots)}); name it in WorkspaceSpec(reads=…)"
            )
        root = self._workspace.prefix + name
        if overlap([root], view.write_roots):
            raise TaskDefinitionError(
                f"changes(workspace, {path!r}): the task may change that path itself, so nothing says what it has not seen; "
                "declare WorkspaceSpec(writes=…) without it"
            )
        return root

    def _files(self, root: str) -> tuple[str, ...]:
        found = (
            workdir_path(entry.path, entry.size, self._workspace.prefix) for entry in self._objects((root,))
        )
        return tuple(sorted(path for path in found if path is not None))

    def _objects(self, roots: Iterable[str]) -> Iterable[Entry]:
        workspace = self._workspace
        return objects_in(self._ledger.lake, workspace.repository, workspace.ref, Roots(roots))


def _refusal(task: str, state: LedgerState) -> str:
    return (
        f"what has changed since the last publication of task {task!r} is not known: {describe_state(state)}. Bring its "
        'output back (perago restore), run it with --full, or declare WorkspaceSpec(on_rewritten="full"), which treats all '
        f'files as new, or "keep", which keeps what others have changed. Without that, {RETRY_IS_USELESS}'
    )
