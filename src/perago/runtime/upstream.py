"""Finds where a file or a table comes from: the commits that wrote it, what they were made from, and so on.

    commit                    its inputs are                                       looked up at
    of an attempt             the files that it saw (`perago.reads`, or all)       its input commit
    of a whole run            the files that it wrote                              the run's last commit
    of a merge                the files that it brought                            the merged commit
    of `perago restore`       the files that it brought back                       the commit that they are from
    any other, and `put`      none: the files were imported

Each input is a file, and leads to the commit that last wrote it, on the first-parent history of the commit at which it is
looked up.  A publication that another one of the same step supersedes is never the writer: the later one is, which had made
the same file.  Each commit is a node once, however many ways lead to it.

The search is bounded by the depth, the number of nodes, of commits, and of files of one node, and says where it stopped.
What a task saw of its own earlier output comes last, so that the bounds cut that first.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import Literal

from perago.errors import LakeNotFound
from perago.lake.base import Commit, ReadableLake
from perago.protocol.metadata import (
    INPUT_REF,
    KEY,
    MERGED_COMMIT,
    PREFIX,
    READS,
    RESTORED_COMMIT,
    RUN_COMMIT,
    SUPERSEDES,
    TASK,
    WRITES,
)
from perago.protocol.paths import in_actions
from perago.protocol.signing import maker_of
from perago.protocol.view import Roots, overlap
from perago.runtime.blame import MOST_FILES, find_last_writer, kind_of_path, walk

MOST_NODES = 200
DEPTH = 20
COMMITS = 1000
_MOST_NAMED = 10
_MOST_ROOTS = 50
_PAGE = 1000
"""The number of changes of a commit that are read and kept, whatever the files are: one call of lakeFS."""
NodeKind = Literal["attempt", "run", "merge", "restore", "import"]


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of a search: steps from the result, nodes, and commits searched for the writers of one node's files."""

    depth: int = DEPTH
    nodes: int = MOST_NODES
    commits: int = COMMITS


@dataclass(frozen=True, slots=True)
class Input:
    """Files, and the commit that last wrote them.  `paths` has the first of them."""

    commit: str
    count: int
    paths: Sequence[str]
    own: bool = False
    """True if they are earlier output of the same task."""


@dataclass(frozen=True, slots=True)
class Node:
    """A commit that made something, and what it was made from."""

    commit: Commit
    kind: NodeKind
    inputs: Sequence[Input] = ()
    cut: Sequence[str] = ()
    """Why not all of its inputs are here, in words."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """The commits that a path comes from.  `nodes` are the commits in the order in which they were found."""

    path: str
    kind: Literal["file", "folder", "deleted"]
    ref: str
    """The commit at which the path was looked up."""
    inputs: Sequence[Input]
    nodes: Mapping[str, Node]
    cut: Sequence[str] = ()

    @property
    def is_cut(self) -> bool:
        """True if the search stopped somewhere before all imports."""
        return bool(self.cut) or any(node.cut for node in self.nodes.values())


def find_upstream(
    lake: ReadableLake, repository: str, ref: str, path: str, limits: Limits | None = None
) -> Upstream:
    """Return where a file, or all files of a folder, come from.

    Raises `LakeNotFound` if the path is not at `ref`, and was not deleted by one of the newest commits.
    """
    return _Search(lake, repository, limits or Limits()).run(ref, path)


@dataclass(frozen=True, slots=True)
class _Task:
    """Files to look up for a node, at a commit."""

    node: str
    depth: int
    at: str
    roots: Roots | None
    """None for the files in `files`."""
    files: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Found:
    """A node while the search goes on."""

    commit: Commit
    kind: NodeKind
    depth: int
    paths: dict[str, list[str]] = field(default_factory=dict)
    """The files that it was made from, by the commit that last wrote them."""
    asked: set[str] = field(default_factory=set)
    """The files for which it has been followed.  The inputs of an attempt do not depend on them."""
    cut: list[str] = field(default_factory=list)


class _Search:
    def __init__(self, lake: ReadableLake, repository: str, limits: Limits) -> None:
        self._lake, self._repository, self._limits = lake, repository, limits
        self._commits: dict[str, Commit] = {}
        self._changed: dict[str, frozenset[str] | None] = {}
        self._nodes: dict[str, _Found] = {}
        self._waiting: deque[_Task] = deque()
        self._own: deque[_Task] = deque()

    def run(self, ref: str, path: str) -> Upstream:
        head = self._lake.commit_at(self._repository, ref)
        kind, path = kind_of_path(self._lake, self._repository, head.id, path)
        start = _Found(head, "import", 0)
        if kind == "deleted":
            blamed = find_last_writer(self._lake, self._repository, head.id, path, limit=self._limits.commits)
            if blamed.commit is not None:
                self._add(start, blamed.commit, [path])
        else:
            roots = Roots([path])
            self._look_up(start, _Task("", 0, head.id, roots))
        while self._waiting or self._own:
            task = (self._waiting or self._own).popleft()
            self._look_up(self._nodes[task.node], task)
        nodes = {id: self._node(found) for id, found in self._nodes.items()}
        made = self._node(start)
        return Upstream(path, kind, head.id, made.inputs, nodes, made.cut)

    def _look_up(self, node: _Found, task: _Task) -> None:
        """Find the writers of a node's files, and go on from there."""
        if not task.at:
            _add_once(node.cut, "it does not say what it was made from")
            return
        try:
            writers = self._writers(task, self._files(task, node), node)
        except LakeNotFound:
            _add_once(node.cut, f"commit {task.at[:12]}, which it was made from, is gone")
            return
        for commit, paths in writers:
            self._add(node, commit, paths)

    def _add(self, node: _Found, commit: Commit, paths: Sequence[str]) -> None:
        """Add an edge from a node to the writer of some of its files, and follow the writer."""
        found = self._nodes.get(commit.id)
        if found is None:
            if len(self._nodes) >= self._limits.nodes:
                _add_once(node.cut, f"there are more than {self._limits.nodes} commits")
                return
            found = self._nodes[commit.id] = _Found(commit, kind_of(commit), node.depth + 1)
        known = node.paths.setdefault(commit.id, [])
        known += sorted(set(paths).difference(known))
        self._follow(node, found, frozenset(paths))

    def _follow(self, reader: _Found, found: _Found, files: frozenset[str]) -> None:
        new = files - found.asked
        if found.kind == "import" or not new or (found.kind == "attempt" and found.asked):
            return
        found.asked |= new
        if found.depth >= self._limits.depth:
            _add_once(found.cut, f"it is {found.depth} steps away, and its inputs are not followed")
            return
        task = _task_of(found, new)
        waiting = self._own if _is_own_output(reader.commit, found.commit, files) else self._waiting
        waiting.append(task)

    def _files(self, task: _Task, node: _Found) -> set[str]:
        """Return the files to look up, as they are at the task's commit."""
        if task.roots is None:
            return {path for path in task.files if not in_actions(path)}
        listed = (path for path in self._list(task.at, task.roots) if not in_actions(path))
        files = set(islice(listed, MOST_FILES + 1))
        if len(files) > MOST_FILES:
            files.remove(max(files))
            _add_once(node.cut, f"it saw more than {MOST_FILES:,} files")
        return files

    def _list(self, at: str, roots: Roots) -> Iterator[str]:
        if len(roots) > _MOST_ROOTS:
            below = self._lake.list(self._repository, at, _folder_above(roots))
            yield from (entry.path for entry in below if roots.hold(entry.path))
            return
        for root in roots:
            prefix = root
            if root and not root.endswith("/"):
                prefix += "/"
                with suppress(LakeNotFound):
                    yield self._lake.stat(self._repository, at, root).path
            yield from (entry.path for entry in self._lake.list(self._repository, at, prefix))

    def _writers(self, task: _Task, files: set[str], node: _Found) -> Iterable[tuple[Commit, Sequence[str]]]:
        """Return the last writers of files, newest first, each with its files."""
        left, later = set(files), dict[str, Commit]()
        by: dict[str, tuple[Commit, list[str]]] = {}
        roots, searched = task.roots or Roots(files), 0
        if not left:
            return ()
        log = self._log(self._commit(task.at).id)
        for commit, touched in walk(log, lambda one: self._touched(one, roots)):
            searched += 1
            writer = self._in_place_of(commit, later)
            wrote = left if touched is None else left & touched
            if wrote:
                by.setdefault(writer.id, (writer, []))[1].extend(wrote)
                left = left - wrote
            if not left:
                break
        if left:
            named = f"{len(left)} of its files were" if len(left) > 1 else f"{min(left)} was"
            _add_once(node.cut, f"{named} not written by the newest {searched} commits (--limit)")
        return by.values()

    @staticmethod
    def _in_place_of(commit: Commit, later: dict[str, Commit]) -> Commit:
        """Return the commit that supersedes this one, or the commit itself.  `later` are those by what they supersede."""
        writer = later.get(commit.id, commit)
        if writer.metadata.get(KEY) != commit.metadata.get(KEY):
            writer = commit
        if superseded := commit.metadata.get(SUPERSEDES):
            later[superseded] = writer
        return writer

    def _touched(self, commit: Commit, roots: Roots) -> frozenset[str] | None:
        """Return the files that a commit has changed, as far as they are below the roots; None means all of them."""
        if commit.first_parent is None:
            return None
        if maker_of(commit) is not None and not _may_have_written(commit, roots):
            return frozenset()
        if commit.id not in self._changed:
            paths = self._lake.diff_paths(self._repository, commit.first_parent, commit.id, [""])
            found = frozenset(islice(paths, _PAGE + 1))
            self._changed[commit.id] = found if len(found) <= _PAGE else None
        known = self._changed[commit.id]
        if known is not None:
            return known
        # Each root is a call of its own.
        below = list(roots) if len(roots) <= _MOST_ROOTS else [""]
        return frozenset(self._lake.diff_paths(self._repository, commit.first_parent, commit.id, below))

    def _commit(self, ref: str) -> Commit:
        if ref not in self._commits:
            commit = self._lake.commit_at(self._repository, ref)
            self._commits[ref] = self._commits[commit.id] = commit
        return self._commits[ref]

    def _log(self, at: str | None) -> Iterator[Commit]:
        """Yield the newest commits from `at`.  Those that were read before are not read again."""
        reading: Iterator[Commit] | None = None
        for number in range(self._limits.commits):
            if at is None:
                return
            if (commit := self._commits.get(at)) is not None:
                reading = None
            else:
                left = self._limits.commits - number
                reading = reading or iter(self._lake.log(self._repository, at, left))
                commit = self._commits[at] = next(reading)
            yield commit
            at = commit.first_parent

    def _node(self, found: _Found) -> Node:
        inputs = [
            Input(
                id,
                len(paths),
                tuple(paths[:_MOST_NAMED]),
                own=id in self._nodes and _is_own_output(found.commit, self._nodes[id].commit, paths),
            )
            for id, paths in found.paths.items()
        ]
        inputs.sort(key=lambda one: one.own)
        return Node(found.commit, found.kind, tuple(inputs), tuple(found.cut))


def kind_of(commit: Commit) -> NodeKind:
    """Return what kind of commit this is, according to its metadata and its parents."""
    metadata = commit.metadata
    if RUN_COMMIT in metadata:
        return "run"
    if maker_of(commit) is not None:
        return "attempt"
    if MERGED_COMMIT in metadata:
        return "merge"
    if RESTORED_COMMIT in metadata:
        return "restore"
    return "merge" if len(commit.parents) > 1 else "import"


def _task_of(found: _Found, files: frozenset[str]) -> _Task:
    """Return where, and for which files, the search goes on from a node."""
    metadata, id, depth = found.commit.metadata, found.commit.id, found.depth
    if found.kind == "attempt":
        return _Task(id, depth, metadata.get(INPUT_REF, ""), roots_of(metadata.get(READS)))
    keys = {"run": RUN_COMMIT, "merge": MERGED_COMMIT, "restore": RESTORED_COMMIT}
    at = metadata.get(keys[found.kind]) or found.commit.parents[-1]
    return _Task(id, depth, at, None, files)


def roots_of(text: str | None) -> Roots:
    """Return the paths in a commit's metadata.  All paths, if it does not name any that can be read."""
    try:
        return Roots(str(path) for path in json.loads(text or ""))
    except (ValueError, TypeError):
        return Roots([""])


def _may_have_written(commit: Commit, roots: Roots) -> bool:
    return overlap(roots_of(commit.metadata.get(WRITES)), roots)


def _folder_above(roots: Roots) -> str:
    """Return the innermost folder that contains all roots, as the prefix of their paths."""
    first, last = min(roots), max(roots)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False)))
    return first[: first[:same].rfind("/") + 1]


def _is_own_output(reader: Commit, writer: Commit, paths: Iterable[str]) -> bool:
    """Return whether an attempt has seen these files only because they are its own task's earlier output."""
    same = all(reader.metadata.get(key) == writer.metadata.get(key) for key in (TASK, PREFIX, WRITES))
    writes = roots_of(reader.metadata.get(WRITES))
    return same and TASK in reader.metadata and all(map(writes.hold, paths))


def _add_once(notes: list[str], note: str) -> None:
    if note not in notes:
        notes.append(note)


def shown_paths(found: Input, most: int = 3) -> str:
    """Return the files of an input in a few words."""
    shown = list(found.paths[:most])
    more = found.count - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")
