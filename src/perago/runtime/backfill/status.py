"""The state of each partition of a task on a branch, from the ledger at its head and the newest backfills.

published    a publication stands, and nothing that it read has changed since
stale        a publication stands, but what it read has changed since
failed       the newest backfill that ran it failed, and it was not published since
rewritten    it was published, but somebody else has changed its output since
unknown      none of the last 10,000 commits has a publication of it that stands
missing      it was never published here
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from typing import Literal

from perago.declare.task import TaskDefinition
from perago.declare.workspace import WorkspaceSpec
from perago.lake.base import Lake
from perago.protocol.ledger import EntryKey
from perago.protocol.metadata import INPUT_REF
from perago.protocol.partitions import fill, template_names, template_pattern, unescaped
from perago.protocol.publication import Commit
from perago.protocol.view import View
from perago.runtime.backfill.partitions import Partition
from perago.runtime.backfill.selection import Failure, failures
from perago.runtime.ledger import Ledger, describe_changes, describe_state

Status = Literal["published", "stale", "failed", "rewritten", "unknown", "missing"]
_MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition: its names, its state, and the publication that stands or, if none does, the newest one."""

    names: Mapping[str, str]
    status: Status
    commit: Commit | None = None
    reason: str = ""
    params: str = "{}"
    """The params that the task names in `ledger_key`, as JSON."""
    failed_in: str = ""
    """The backfill in which the partition failed."""

    @property
    def input(self) -> str:
        """The commit that the publication started from."""
        return self.commit.metadata.get(INPUT_REF, "") if self.commit is not None else ""


@dataclass(slots=True)
class Partitions:
    """All that is known about the partitions of one task on one branch."""

    lake: Lake
    task: TaskDefinition
    ledger: Ledger
    branch: str
    _failed: Mapping[EntryKey, Failure] = field(init=False)

    def __post_init__(self) -> None:
        """Read which partitions have failed."""
        self._failed = failures(self.lake, self.task, self.ledger, self.branch)

    def of(self, partitions: Sequence[Partition]) -> list[PartitionStatus]:
        """Return the states of these partitions."""
        return [self._status(one.names, one.work.key) for one in partitions]

    def known(self) -> list[PartitionStatus]:
        """Return the states of the partitions that were ever published or have failed, in the order of their values."""
        spec = self.task.workspace
        assert spec is not None  # noqa: S101 - checked by `check_task`
        named = {key: one.partition.names for key, one in self._failed.items()}
        for key in self.ledger.keys_of(self.task.name):
            if key not in named and (names := names_in(spec, key)) is not None:
                named[key] = names
        found = [self._status(names, key) for key, names in named.items()]
        return sorted(found, key=lambda one: (*map(_natural, one.names.values()), one.params))

    def _status(self, names: Mapping[str, str], key: EntryKey) -> PartitionStatus:
        state, failure = self.ledger.find(key), self._failed.get(key)
        commit = state.entry.commit if state.entry is not None else None
        if failure is not None:
            reason = failure.outcome.reason
            return PartitionStatus(names, "failed", commit, reason, key.params, failure.run)
        if state.kind != "standing" or commit is None:
            status: Status = "missing" if state.kind == "standing" else state.kind
            return PartitionStatus(names, status, commit, describe_state(state), key.params)
        assert state.entry is not None  # noqa: S101 - the publication that stands
        paths = [change.path for change in islice(self.ledger.changed_reads(state.entry), _MOST_NAMED)]
        if paths:
            return PartitionStatus(names, "stale", commit, describe_changes(paths, key.prefix), key.params)
        return PartitionStatus(names, "published", commit, "", key.params)


def names_in(spec: WorkspaceSpec, key: EntryKey) -> Mapping[str, str] | None:
    """Return the values with which an entry has filled the templates of a spec, as text.

    Returns None if its paths are no filling of them: the task has declared others in the meantime.
    """
    prefix = spec.object_prefix
    templates = [path for path in (*(spec.reads or ()), *(spec.writes or ())) if template_names([path])]
    fillings = [list(_fillings(prefix, path, (*key.reads, *key.writes))) for path in dict.fromkeys(templates)]
    for chosen in product(*fillings):
        texts = {name: text for filling in chosen for name, text in filling.items()}
        reads, writes = (
            None if paths is None else tuple(fill(path, texts) for path in paths)
            for paths in (spec.reads, spec.writes)
        )
        view = View(prefix, reads, writes)
        if (prefix, view.roots, view.write_roots) == (key.prefix, key.reads, key.writes):
            return {name: unescaped(texts[name]) for name in spec.names}
    return None


def _fillings(prefix: str, template: str, roots: Sequence[str]) -> Iterator[Mapping[str, str]]:
    pattern = template_pattern(template)
    for root in dict.fromkeys(roots):
        if root.startswith(prefix) and (found := pattern.fullmatch(root.removeprefix(prefix))):
            yield found.groupdict()


def _natural(text: str) -> tuple[int, str]:
    """Return a key by which whole numbers come in their own order, and before other texts."""
    return (int(text), "") if re.fullmatch(r"[0-9]{1,18}", text) else (10**18, text)
