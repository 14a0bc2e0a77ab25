"""Decides which partitions a backfill runs: those that are missing, those that failed, or all.

    --only     runs
    missing    partitions without a publication that stands at the input commit (`protocol/ledger`)
    failed     rows that failed in the newest backfill that ran them, and have no new publication since
    all        everything

All is decided at one commit, from one pass over its history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perago.declare.task import TaskDefinition
from perago.errors import LakeNotFound
from perago.lake.base import Lake
from perago.protocol.ledger import EntryKey
from perago.protocol.names import SHORT
from perago.runtime.backfill.partitions import Partition, check_task, refuse_overlaps
from perago.runtime.backfill.record import Backfill, Flags, Only, earlier_backfills, paths_of, rows_of
from perago.runtime.lake_lookup import check_no_internal_name, suggesting_existing_names
from perago.runtime.ledger import Ledger, LedgerState, describe_state
from perago.runtime.maps.rows import RowOutcome


@dataclass(frozen=True, slots=True)
class Choice:
    """The decision about one partition.  An ordinary reason to run is left empty."""

    partition: Partition
    runs: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """A row that failed, in the newest backfill that ran its partition."""

    partition: Partition
    outcome: RowOutcome
    run: str


def begin(
    lake: Lake, task: TaskDefinition, at: tuple[str, str], partitions: Sequence[Partition], flags: Flags
) -> tuple[list[Choice], Backfill]:
    """Resolve the branch once, and decide which of the partitions a new backfill runs.

    `at` is the repository and the branch.  Raises `RuntimeConfigError` if the rows cannot run beside each other.
    """
    spec = check_task(task, "perago backfill")
    refuse_overlaps(spec, partitions)
    repository, branch = at
    check_no_internal_name(branch)
    with suggesting_existing_names(lake, repository, branch):
        ref = lake.head(repository, branch).id
    ordered = partitions if flags.order == "asc" else partitions[::-1]
    choices = choose(lake, task, Ledger(lake, repository, ref), branch, ordered, flags.only)
    rows = rows_of([one.partition for one in choices if one.runs])
    return choices, Backfill(repository, branch, ref, paths_of(task), rows, flags)


def choose(
    lake: Lake, task: TaskDefinition, ledger: Ledger, branch: str, partitions: Sequence[Partition], only: Only
) -> list[Choice]:
    """Return for each partition whether it runs.  The ledger is that of the input commit."""
    if only == "all":
        return [Choice(one, True) for one in partitions]
    if only == "missing":
        return [_if_missing(one, ledger.find(one.work.key)) for one in partitions]
    failed = failures(lake, task, ledger, branch)
    return [_if_failed(one, failed.get(one.work.key)) for one in partitions]


def failures(lake: Lake, task: TaskDefinition, ledger: Ledger, branch: str) -> Mapping[EntryKey, Failure]:
    """Return the partitions whose newest backfill failed, and that have not been published since.

    No clock says what "since" is: the publication that stands must not be the one that stood when that backfill began.
    """
    ended: dict[EntryKey, Failure | None] = {}
    for earlier in earlier_backfills(lake, task.name, ledger.repository, branch):
        before = Ledger(lake, ledger.repository, earlier.backfill.ref)
        # Of a partition that a newer backfill has run, older outcomes are not read.
        rows = {number: one for number, one in earlier.partitions(task) if one.work.key not in ended}
        for outcome in earlier.outcomes(rows) if rows else ():
            partition = rows[outcome.row]
            key = partition.work.key
            over = outcome.done or _published_since(ledger, before, key)
            ended[key] = None if over else Failure(partition, outcome, earlier.run)
    return {key: one for key, one in ended.items() if one is not None}


def _published_since(ledger: Ledger, before: Ledger, key: EntryKey) -> bool:
    now = ledger.find(key)
    if now.kind != "standing" or now.entry is None:
        return False
    try:
        then = before.find(key)
    except LakeNotFound:
        return True  # the branch was moved, and that commit is gone
    return then.kind != "standing" or then.entry is None or then.entry.commit.id != now.entry.commit.id


def _if_missing(partition: Partition, state: LedgerState) -> Choice:
    match state.kind:
        case "missing":
            return Choice(partition, True)
        case "standing" if state.entry is not None:
            return Choice(partition, False, f"published by {state.entry.commit.id[:SHORT]}")
        case _:
            return Choice(partition, True, describe_state(state))


def _if_failed(partition: Partition, failure: Failure | None) -> Choice:
    if failure is None:
        return Choice(partition, False, "it has not failed, or was published since")
    return Choice(partition, True, f"failed in {failure.run}: {failure.outcome.reason}")
