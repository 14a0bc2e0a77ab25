"""A prefix or view that held nothing: a likely reason for a failure that looks for files, so that failure's text says so.

The rule: an empty one is no mistake by itself, since a task may be the first to write there.  And the failure is told in
any case: a lake that has no answer, or takes long, only leaves its text as it is.  What is outside a view is not listed, not
even for a hint.

What a body changed outside its task's `writes`: nothing, or the attempt fails before anything is staged.

The rule: new, changed and deleted files count alike, wherever in the workdir they are, and the reason names them.

Where a body works: the port between a transaction and the workspace its body sees.

A place gives the body its first argument, the checks a tree to look at, and the publisher the result.  Two kinds:

    in the workdir   the view is downloaded; what the body changed is uploaded to a staging branch after the fence
    direct           the body reads and writes the staging branch itself; nothing passes through this process

The rule: a place makes no branch, commits nothing and moves nothing.  It says what the view should hold and where the
bytes are; staging, deciding and publishing are not its business, and it does not know who does them.  A change outside what
the task may change gets no further than here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote

from perago.declare.checks import Check, FolderTree
from perago.declare.file_tree import Tree
from perago.declare.task import TaskDefinition
from perago.errors import PostGuardrailViolation, RuntimeConfigError
from perago.lake.base import Lake, Verification
from perago.protocol.changes import Changes, FileStates
from perago.protocol.publication import Workspace
from perago.protocol.view import View
from perago.runtime.attempt.listing import Listing
from perago.runtime.attempt.observer import Traffic
from perago.runtime.attempt.publish_decision import Result
from perago.runtime.attempt.workdir import Workdir

NAMED = 5
"""So many paths are named; of the rest people learn that there are more."""


def check_writes(changes: Changes, view: View) -> None:
    """Refuse, by name, changes to paths below the prefix that the task may not change."""
    roots = view.write_roots
    outside = [path for path in (*changes.put, *changes.delete) if not roots.hold(view.prefix + path)]
    if outside:
        raise outside_writes(sorted(outside), view)


def outside_writes(paths: Sequence[str], view: View, more: str = "") -> PostGuardrailViolation:
    """The refusal for these paths; `more` is what to say of those beyond, where they are not counted."""
    beyond = len(paths) - NAMED
    rest = f" and {beyond} more" if beyond > 0 else ""
    return PostGuardrailViolation(
        f"the task changed {', '.join(paths[:NAMED])}{more or rest}, outside what it may change "
        f"({view.told(view.write_roots)}). Nothing is published; leave such files as they were, or name them in "
        "WorkspaceSpec(writes=…)"
    )


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


Read = Callable[[str], bytes]


_SINK = re.compile(r"(?:.*/)?_spark_metadata/[^/]+")


_CHECKPOINT = re.compile(r"(.*/)?offsets/\d+")


_ICEBERG = re.compile(r"(?:.*/)?metadata/[^/]+\.metadata\.json")


_MANIFEST = re.compile(r"(?:.*/)?_symlink_format_manifest/.+")


_DELTA = re.compile(r"(?:.*/)?_delta_log/\d{20}\.json")


_STREAMS = "keep sinks and checkpoints elsewhere, and write each batch with workspace.write (foreachBatch)"


_REMEDIES = {
    "the log of a streaming sink": _STREAMS,
    "a streaming checkpoint": _STREAMS,
    "an Iceberg table": "write the table in another format, such as Parquet or Delta",
    "a manifest of symbolic links": "generate it where the table is read",
    "a shallow clone": "write a copy of the rows instead",
}


def check_absolute_paths(changes: Changes, files: Container[str], read: Read, *, gone: str) -> None:
    """Refuse, by name, changed files that store absolute paths.

    Args:
        changes: What the body changed, by paths below the prefix.
        files: All files that are to be published.
        read: Returns the content of one of them.
        gone: A part of every absolute path that leads into this attempt's own place.
    """
    found: dict[str, list[str]] = {}
    for path in changes.put:
        if (kind := _kind(path, files, read, gone)) is not None:
            found.setdefault(kind, []).append(path)
    for kind, paths in found.items():
        named = f"{', '.join(paths[:NAMED])}{' and more' if len(paths) > NAMED else ''}"
        raise PostGuardrailViolation(
            f"the task wrote {named}: {kind}, which names files by absolute paths, and these lead nowhere once the attempt "
            f"has ended. Nothing is published; {_REMEDIES[kind]}"
        )


def _kind(path: str, files: Container[str], read: Read, gone: str) -> str | None:
    if _SINK.fullmatch(path):
        return "the log of a streaming sink"
    if (match := _CHECKPOINT.fullmatch(path)) and (beside := f"{match[1] or ''}metadata") in files:
        return "a streaming checkpoint" if read(beside).startswith(b'{"id":') else None
    if _ICEBERG.fullmatch(path):
        return "an Iceberg table" if b'"format-version"' in read(path) else None
    if _MANIFEST.fullmatch(path):
        return "a manifest of symbolic links"
    if _DELTA.fullmatch(path) and any(gone in named for named in _files_of_delta(read(path))):
        return "a shallow clone"
    return None


def _files_of_delta(log: bytes) -> Iterator[str]:
    """The paths of the data files that one version of a Delta table adds."""
    for line in log.splitlines():
        try:
            added = json.loads(line).get("add") or {}
        except (ValueError, AttributeError):
            continue  # no entry of Delta's
        yield unquote(str(added.get("path", "")))
        yield str((added.get("deletionVector") or {}).get("pathOrInlineDv", ""))
