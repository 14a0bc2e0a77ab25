"""Where a body works: the port between a transaction and the workspace its body sees.

A place gives the body its first argument, the checks a tree to look at, and the publisher the result.  Two kinds:

    in the workdir   the prefix is downloaded; what the body changed is uploaded to a staging branch after the fence
    direct           the body reads and writes the staging branch itself; nothing passes through this process

The rule: a place never moves a target branch.  It says what the prefix should hold and puts that onto a staging
branch; deciding and publishing are the publisher's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from perago.declare.checks import Check, FolderTree, Tree
from perago.declare.task import TaskDefinition
from perago.errors import RuntimeConfigError
from perago.lake.base import Lake, Upload
from perago.protocol.changes import FileState
from perago.protocol.publication import StagedWorkspace, Workspace
from perago.protocol.states import FileStates
from perago.runtime.attempt.publisher import Publisher, Result
from perago.runtime.attempt.traffic import Traffic
from perago.runtime.attempt.workdir import Listing, Workdir

Note = Callable[[str], None]
"""Takes a few words about what a body is doing, for people; from any thread."""


def say_nothing(_text: str) -> None:
    """The note-taker of a transaction that nobody watches."""


@dataclass(frozen=True, slots=True)
class Site:
    """What there is to make a place of; `new_branch` makes the execution's staging branch at the input commit."""

    task: TaskDefinition
    execution_id: str
    workspace: Workspace
    workdir: Workdir
    lake: Lake
    new_branch: Callable[[], str]
    traffic: Traffic = field(default_factory=Traffic)
    note: Note = say_nothing


class Place(Protocol):
    """Where one execution's body works; the calls come in this order."""

    def fill(self) -> None:
        """Bring the input there."""

    def at_work(self) -> AbstractContextManager[None]:
        """Around checks and body: whatever the body has started is over when it is left."""

    @property
    def argument(self) -> object:
        """The body's first argument."""

    def tree(self, checks: Sequence[Check]) -> Tree:
        """What these checks are to look at, as it is now."""

    def result(self, recorded: str | None) -> Result:
        """What the prefix should hold, as the body left it."""

    def stage(self, publisher: Publisher, result: Result) -> StagedWorkspace | None:
        """Commit the result on a staging branch; None where it is the input, and no branch is left then."""


OpenPlace = Callable[[Site], Place]


def in_workdir(site: Site) -> Place:
    """The place of a plain task."""
    if site.task.kind != "plain":
        raise RuntimeConfigError(
            f"task {site.task.name!r} needs Spark, and this worker has none: see connect"
        )
    return WorkdirPlace(site)


class WorkdirPlace:
    """The prefix as files in the workdir; `is_leftover` tells what an engine leaves behind and is not published."""

    def __init__(self, site: Site, is_leftover: Callable[[str], bool] | None = None) -> None:
        self._site = site
        self._is_leftover = is_leftover
        self._base = Listing(FileStates())

    def fill(self) -> None:
        """Download the prefix of the input commit."""
        site = self._site
        self._base = site.workdir.fill(site.lake, site.workspace, site.traffic.down)
        whole = sum(state.size for state in self._base.files.values())
        # What had to come twice was moved twice.
        site.traffic.save(max(0, whole - site.traffic.moved.downloaded))

    def at_work(self) -> AbstractContextManager[None]:
        """Nothing to begin and nothing to end."""
        return nullcontext()

    @property
    def argument(self) -> object:
        """The folder."""
        return self._site.workdir.path

    def tree(self, checks: Sequence[Check]) -> Tree:
        """The folder."""
        return FolderTree(self._site.workdir.path)

    def result(self, recorded: str | None) -> Result:
        """What the folder holds; only files that may have changed are read."""
        states = self._site.workdir.result(self._site.lake, self._site.workspace, self._not_ours)
        put = partial(self._put, states)
        return Result(states, states.changes(), recorded, put, self._base)

    def stage(self, publisher: Publisher, result: Result) -> StagedWorkspace | None:
        """Put what changed onto a new branch at the input commit."""
        changed = set(result.changes.put)
        self._site.traffic.save(
            sum(state.size for path, state in result.states.items() if path not in changed)
        )
        return publisher.stage(self._site.workspace.ref, result.changes, result) if result.changes else None

    def _not_ours(self, path: str) -> bool:
        # What was published under such a name before is data, whatever it is called.
        return self._is_leftover is not None and path not in self._base.files and self._is_leftover(path)

    def _put(self, states: Mapping[str, FileState], branch: str, paths: Sequence[str], _held_by: str) -> None:
        workdir, workspace = self._site.workdir, self._site.workspace
        files = []
        for path in paths:
            state = states[path]
            source = workdir.path / path
            files.append(Upload(source, workspace.prefix + path, state.size, state.checksum or ""))
        self._site.lake.upload(workspace.repository, branch, files, self._site.traffic.up)
