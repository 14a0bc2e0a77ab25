"""Reads the ledger from a branch: a task's last publication, what has changed since, and whether a step may be skipped.

`protocol/ledger` has the rules.  The history is read once, page by page and only as far as needed, and serves all keys:
a run's, a plan's or a backfill's.  lakeFS's own filter by path would compare the trees of every commit.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice, takewhile
from typing import Any, Literal

from perago.declare.code_digest import code_digest
from perago.declare.task import TaskDefinition
from perago.errors import LakeNotFound
from perago.lake.base import Change, ReadableLake
from perago.protocol.ledger import (
    BY_VERSION,
    MOST_COMMITS,
    NOTHING_FORCED,
    Entry,
    EntryKey,
    Recompute,
    Work,
    entries_of,
    newest_entries,
    params_digest,
    run_with_entries,
)
from perago.protocol.metadata import INPUT_REF, KEY, RESULT, RUN_COMMIT, STAGING_BASE
from perago.protocol.names import SHORT
from perago.protocol.paths import in_actions
from perago.protocol.publication import MAX_RANGE, Commit, ViewChange
from perago.protocol.run_steps import RUN_KEY
from perago.protocol.signing import author_of, base_of, is_in_place
from perago.protocol.view import View
from perago.runtime.lake_lookup import INTERNAL_NAME_PREFIX, all_changes

_MOST_NAMED = 3
_STATS_AT_ONCE = 8
_BATCH = 256
RunReason = Literal[
    "forced",
    "missing",
    "rewritten",
    "unknown",
    "no source",
    "version",
    "code",
    "params",
    "files",
    "no result",
]
"""The kind of reason why a body has to run: `missing`, `rewritten` and `unknown` are states of the ledger."""


@dataclass(frozen=True, slots=True)
class LedgerState:
    """The state of one key at a commit.

    `entry` is the publication that stands or, if none does, the newest one.  `change` is what somebody else has changed in
    its output.
    """

    kind: Literal["standing", "rewritten", "missing", "unknown"]
    entry: Entry | None = None
    change: ViewChange | None = None


@dataclass(frozen=True, slots=True)
class SkipDecision:
    """The decision whether a step may be skipped, and why not.  `entry` is the publication whose result it repeats."""

    entry: Entry | None
    result: str | None = None
    reason: str = ""
    kind: RunReason | None = None

    @property
    def skips(self) -> bool:
        """True if the body need not run."""
        return self.result is not None


def work_of(task: TaskDefinition, params: Mapping[str, Any], view: View) -> Work:
    """Return the work of an attempt, given its params as the model dumps them, and its view.

    The sources are read only for tasks that skip unchanged work: nobody else needs their digest.
    """
    spec = task.workspace
    named = {name: params.get(name) for name in (spec.ledger_key if spec is not None else ())}
    code = BY_VERSION if task.has_version else ""
    if task.skip_unchanged and not code:
        code = code_digest(task.fn)
    return Work(EntryKey.of(task.name, view, named), task.version, params_digest(params), code)


class Ledger:
    """The publications on the first-parent history of one commit.  Thread-safe."""

    def __init__(self, lake: ReadableLake, repository: str, ref: str) -> None:
        """Take the lake, the repository, and the commit A.  Nothing is read yet."""
        self.lake, self.repository, self.ref = lake, repository, ref
        self._lock = threading.RLock()
        self._log: Iterator[Commit] | None = None
        self._commits: list[Commit] = []
        self._numbers: dict[str, int] = {}
        self._entries: dict[EntryKey, list[Entry]] = {}
        """The entries of each family of keys, newest first."""
        self._found: dict[EntryKey, LedgerState] = {}

    def find(self, key: EntryKey) -> LedgerState:
        """Return the state of a key at the commit."""
        with self._lock:
            if key not in self._found:
                self._found[key] = self._find(key)
            return self._found[key]

    def keys_of(self, task: str) -> list[EntryKey]:
        """Return the keys of all publications of a task.  This reads the history as far as `MOST_COMMITS`."""
        with self._lock:
            while len(self._commits) <= MOST_COMMITS and self._read_commit():
                pass
            entries = (one for family, known in self._entries.items() if family.task == task for one in known)
            return list(dict.fromkeys(entry.work.key for entry in entries))

    @property
    def is_cut(self) -> bool:
        """True if the history has more commits than are searched, and all of those were read."""
        return len(self._commits) > MOST_COMMITS

    def result_of(self, entry: Entry) -> str | None:
        """Return the result that a publication has recorded, or None."""
        if not entry.is_of_run:
            return entry.result
        try:
            return self.lake.commit_at(self.repository, entry.made_by).metadata.get(RESULT)
        except LakeNotFound:
            return None  # the run's own commits are gone

    def differences(self, left: str, right: str, roots: Iterable[str]) -> Iterator[Change]:
        """Yield the files below these roots whose bytes differ between two commits, without lakeFS's actions."""
        return differences(self.lake, (self.repository, left, right), roots)

    def decide(self, work: Work, reference: str, recompute: Recompute = NOTHING_FORCED) -> SkipDecision:
        """Decide whether a step may be skipped whose task has `skip_unchanged`."""
        if recompute.forces(reference):
            return SkipDecision(None, reason="it is forced", kind="forced")
        state = self.find(work.key)
        entry = state.entry
        if state.kind != "standing":
            return SkipDecision(entry, reason=describe_state(state), kind=state.kind)
        assert entry is not None  # noqa: S101 - the publication that stands
        if difference := self._difference(entry, work):
            kind, reason = difference
            return SkipDecision(entry, reason=reason, kind=kind)
        result = self.result_of(entry)
        if result is None:
            reason = f"its last publication {entry.commit.id[:SHORT]} recorded no result"
            return SkipDecision(entry, reason=reason, kind="no result")
        return SkipDecision(entry, result)

    def _difference(self, entry: Entry, work: Work) -> tuple[RunReason, str] | None:
        """Return what differs from a publication, or None if nothing does."""
        if not work.code:
            return "no source", "its sources are unknown"
        if entry.work.version != work.version:
            return "version", f"version {work.version!r} in place of {entry.work.version!r}"
        if entry.work.code != work.code:
            return "code", "code changed"
        if entry.work.params != work.params:
            return "params", "params changed"
        changed = list(islice(self.changed_reads(entry), _MOST_NAMED + 1))
        if changed:
            return "files", describe_changes([change.path for change in changed], work.key.prefix)
        return None

    def changed_reads(self, entry: Entry) -> Iterator[Change]:
        """Yield what has changed since a publication that stands, in what its task sees but may not change.

        What it may change is as the task has left it, or else the publication would not stand.
        """
        key = entry.work.key
        found = self.differences(entry.commit.id, self.ref, key.reads)
        return (change for change in found if not key.writes.hold(change.path))

    def _find(self, key: EntryKey) -> LedgerState:
        """Search the history from A, or from the input of the publication with another key that stands there."""
        newest: Entry | None = None
        compared: Entry | None = None
        ref, at_run = self.ref, False
        for entry in self._entries_with(key.family):
            own = entry.work.key == key
            if at_run and not own:
                continue
            if not self._is_before(entry.commit, ref) or not self._is_valid(entry):
                continue
            newest, compared = newest or (entry if own else None), compared or entry
            if at_run or not self._is_same(entry.commit.id, ref, key.writes):
                continue
            if own:
                return LedgerState("standing", entry)
            # The steps of a run may have published for several keys, and only the last of them is listed.
            at_run = entry.is_of_run
            if not at_run:
                ref, compared, newest = entry.commit.metadata.get(INPUT_REF, ""), None, None
        if len(self._commits) > MOST_COMMITS:
            return LedgerState("unknown", newest)
        if newest is None:
            return LedgerState("missing")
        return LedgerState("rewritten", newest, self._rewritten_by(compared or newest, ref))

    def _is_before(self, commit: Commit, ref: str) -> bool:
        """Return whether a commit that has been read is at or before `ref`, which may not have been read yet."""
        return ref == self.ref or self._numbers[commit.id] >= self._numbers.get(ref, MOST_COMMITS)

    def _entries_with(self, family: EntryKey) -> Iterator[Entry]:
        """Yield the entries of a family, newest first, reading more of the history when needed."""
        number = 0
        while True:
            while number < len(known := self._entries.get(family, ())):
                yield known[number]
                number += 1
            if not self._read_commit():
                return

    def _read_commit(self) -> bool:
        if self._log is None:
            self._log = iter(self.lake.log(self.repository, self.ref, MOST_COMMITS + 1))
        commit = next(self._log, None)
        if commit is None:
            return False
        self._numbers[commit.id] = len(self._commits)
        self._commits.append(commit)
        if len(self._commits) <= MOST_COMMITS:
            for entry in self._all_entries(commit):
                self._entries.setdefault(entry.work.key.family, []).append(entry)
        return True

    def _all_entries(self, commit: Commit) -> Iterator[Entry]:
        yield from entries_of(commit)
        if (last := run_with_entries(commit)) is not None:
            log = self.lake.log(self.repository, last, MAX_RANGE)
            steps = takewhile(lambda one: one.metadata.get(KEY) != RUN_KEY, log)
            for entry in entries_in_run(self.lake, self.repository, list(steps)):
                yield Entry(commit, entry.work, entry.made_by)

    def _is_valid(self, entry: Entry) -> bool:
        """Return whether a publication landed on its expected head or, with rebase, on an equal view."""
        commit = entry.commit
        if is_in_place(commit):
            return True
        parent = commit.first_parent
        if parent is None or STAGING_BASE not in commit.metadata:
            return False
        return self._is_same(base_of(commit), parent, entry.work.key.reads)

    def _is_same(self, left: str, right: str, roots: Iterable[str]) -> bool:
        return left == right or next(self.differences(left, right, roots), None) is None

    def _rewritten_by(self, entry: Entry, ref: str) -> ViewChange | None:
        """Return the commit between a publication and `ref` that changed its output, and a path that it changed."""
        published = entry.commit.id
        change = next(self.differences(published, ref, entry.work.key.writes), None)
        if change is None:
            return None
        later = self._commits[self._numbers.get(ref, 0) : self._numbers[published]][::-1]
        changed = bisect_left(
            later, True, key=lambda commit: not self._is_same(published, commit.id, (change.path,))
        )
        return ViewChange(change.path, later[min(changed, len(later) - 1)])


def differences(lake: ReadableLake, between: tuple[str, str, str], roots: Iterable[str]) -> Iterator[Change]:
    """Yield the files below these roots whose bytes differ between two commits, without lakeFS's actions.

    A lake also reports an object whose bytes are equal, but whose content type, say, is another.
    """
    reported = (
        change for root in roots for change in all_changes(lake, between, root) if not in_actions(change.path)
    )
    # Many callers want only the first one, and usually there is none.
    first = next(reported, None)
    if first is None:
        return
    if _bytes_differ(lake, between, first):
        yield first
    with ThreadPoolExecutor(_STATS_AT_ONCE, "perago-ledger") as pool:
        while changes := list(islice(reported, _BATCH)):
            differ = pool.map(partial(_bytes_differ, lake, between), changes)
            yield from (change for change, differs in zip(changes, differ, strict=True) if differs)


def _bytes_differ(lake: ReadableLake, between: tuple[str, str, str], change: Change) -> bool:
    if change.kind != "changed":
        return True
    repository, *refs = between
    before, after = (lake.stat(repository, ref, change.path) for ref in refs)
    return before.checksum is None or before != after


def entries_in_run(lake: ReadableLake, repository: str, commits: Sequence[Commit]) -> list[Entry]:
    """Return the entries of a run's steps whose view is still what the step left, at the run's last commit.

    `commits` are the run's publications, newest first.
    """
    if not commits:
        return []
    last = commits[0].id
    return [
        entry
        for entry in newest_entries(commits).values()
        if entry.commit.id == last
        or next(differences(lake, (repository, entry.commit.id, last), entry.work.key.reads), None) is None
    ]


def runs_with_results(lake: ReadableLake, repository: str) -> Iterator[str]:
    """Yield the last commits of the published runs whose own commits have something that a ledger still needs.

    That is the recorded result of a task's newest publication on a branch that people read, or the entries themselves, if
    the run has too many of them for one commit.
    """
    for branch in lake.branches(repository, ""):
        if branch.name.startswith(INTERNAL_NAME_PREFIX):
            continue
        known: set[EntryKey] = set()
        for commit in lake.log(repository, branch.commit, MOST_COMMITS):
            if (last := run_with_entries(commit)) is not None:
                yield last
            for entry in entries_of(commit):
                if entry.work.key not in known and entry.is_of_run and _has_result(lake, repository, entry):
                    yield commit.metadata.get(RUN_COMMIT, "")
                known.add(entry.work.key)


def _has_result(lake: ReadableLake, repository: str, entry: Entry) -> bool:
    try:
        return RESULT in lake.commit_at(repository, entry.made_by).metadata
    except LakeNotFound:
        return False


def describe_state(state: LedgerState) -> str:
    """Return why no publication of a task stands."""
    if state.kind == "unknown":
        return f"no publication that stands is among the last {MOST_COMMITS:,} commits"
    if state.kind == "missing" or state.entry is None:
        return "it has published nothing here yet"
    changed = state.change
    if changed is None:
        return f"the output of its last publication {state.entry.commit.id[:SHORT]} was changed since"
    return f"{changed.commit.id[:SHORT]} ({author_of(changed.commit)}) has changed its output, {changed.path}"


def describe_changes(paths: Sequence[str], prefix: str) -> str:
    """Return the first few of some changed paths, the way the task's author would write them."""
    shown = [path.removeprefix(prefix) for path in paths[:_MOST_NAMED]]
    return f"changed: {', '.join(shown)}{', …' if len(paths) > _MOST_NAMED else ''}"
