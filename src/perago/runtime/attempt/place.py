"""Where a body works: the port between a transaction and the workspace its body sees.

A place gives the body its first argument, the checks a tree to look at, and the publisher the result.  Two kinds:

    in the workdir   the view is downloaded; what the body changed is uploaded to a staging branch after the fence
    direct           the body reads and writes the staging branch itself; nothing passes through this process

The rule: a place makes no branch, commits nothing and moves nothing.  It says what the view should hold and where the
bytes are; staging, deciding and publishing are not its business, and it does not know who does them.  A change outside what
the task may change gets no further than here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from perago.declare.checks import Check, FolderTree, Tree
from perago.declare.task import TaskDefinition
from perago.errors import RuntimeConfigError
from perago.lake.base import Lake, Verification
from perago.protocol.publication import Workspace
from perago.protocol.states import FileStates
from perago.runtime.attempt.absolute_paths import check_absolute_paths
from perago.runtime.attempt.listing import Listing
from perago.runtime.attempt.result import Result
from perago.runtime.attempt.traffic import Traffic
from perago.runtime.attempt.workdir import Workdir
from perago.runtime.attempt.writes import check_writes


@dataclass(frozen=True, slots=True)
class Site:
    """What there is to make a place of; `branch` is the name of the execution's staging branch at the input commit."""

    task: TaskDefinition
    execution_id: str
    workspace: Workspace
    workdir: Workdir
    lake: Lake
    branch: str
    traffic: Traffic
    verification: Verification
    """What the download leaves to verify while the body runs."""


class Place(Protocol):
    """Where one execution's body works; the calls come in this order."""

    on_branch: bool
    """Whether the body works on the staging branch, which is then made before `fill`."""

    def fill(self) -> None:
        """Bring the input there; some of it may still have to be verified."""

    def at_work(self) -> AbstractContextManager[None]:
        """Around checks and body: whatever the body has started is over when it is left."""

    @property
    def argument(self) -> object:
        """The body's first argument."""

    def tree(self, checks: Sequence[Check]) -> Tree:
        """What these checks are to look at, as it is now."""

    def verify(self) -> None:
        """Return once all of the input that `fill` brought is known to be right; `LakeError` if it is not."""

    def result(self, recorded: str | None) -> Result:
        """What the view should hold, as the body left it; a change outside `writes` is refused by name."""

    def tidy_up(self, result: Result) -> None:
        """Leave at the result's source just what is to be staged; the attempt fence has held by now."""


OpenPlace = Callable[[Site], Place]


def in_workdir(site: Site) -> Place:
    """The place of a plain task."""
    if site.task.kind != "plain":
        raise RuntimeConfigError(
            f"task {site.task.name!r} needs Spark, and this worker has none: see connect"
        )
    return WorkdirPlace(site)


class WorkdirPlace:
    """The view as files in the workdir; `is_leftover` tells what an engine leaves behind and is not published."""

    on_branch = False

    def __init__(self, site: Site, is_leftover: Callable[[str], bool] | None = None) -> None:
        self._site = site
        self._is_leftover = is_leftover
        self._base = Listing(FileStates())

    def fill(self) -> None:
        """Download the view of the input commit."""
        site = self._site
        self._base = site.workdir.fill(site.lake, site.workspace, site.traffic.down, site.verification)
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

    def verify(self) -> None:
        """Wait for the verdict on the download; checksums that only the bytes tell are known from now on."""
        site = self._site
        for path, checksum in site.verification.wait().items():
            self._base.correct(path.removeprefix(site.workspace.prefix), checksum)

    def result(self, recorded: str | None) -> Result:
        """What the folder holds; only files that may have changed are read, and one outside `writes` is refused."""
        workspace = self._site.workspace
        states = self._site.workdir.result(self._site.lake, workspace, self._not_ours)
        changes = states.changes()
        check_writes(changes, workspace.view)
        folder = self._site.workdir.path
        check_absolute_paths(changes, states, lambda path: (folder / path).read_bytes(), gone=str(folder))
        return Result(states, changes, recorded, self._site.workdir.path, self._base)

    def tidy_up(self, result: Result) -> None:
        """Nothing to do: what is left over in the folder is not in the result."""

    def _not_ours(self, path: str) -> bool:
        # What was published under such a name before is data, whatever it is called.
        return self._is_leftover is not None and path not in self._base.files and self._is_leftover(path)
