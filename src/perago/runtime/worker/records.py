"""The last lines of an execution's task log: the author's traceback, and the record that `perago show` reads.

    status                        how the execution ended
    COMPLETED, FAILED,            as its outcome says
      FAILED_WITH_TERMINAL_ERROR,
      LOST_TO_TWIN
    DIED                          its executor did, at `step`; seconds are those that the supervisor saw
    STOPPED                       the orchestrator had moved on, or the worker was made to leave at once

The rule: secrets are masked in each text, not in the line.  A short one in the line could break its JSON, and the mask could
make it longer than a line may be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from perago.protocol.attempt_record import AttemptRecord, record_line
from perago.runtime.ending import Settled
from perago.runtime.worker.slot import Execution

DIED = "DIED"
STOPPED = "STOPPED"

Mask = Callable[[str], str]


def last_lines(execution: Execution, mask: Mask) -> list[str]:
    """What follows the lines that the body printed; the record is not among them."""
    return [mask(line) for line in execution.settled.seen.trace] if execution.settled is not None else []


def record_of(execution: Execution, worker_id: str, mask: Mask) -> str:
    """The execution's record as a line."""
    record = AttemptRecord(
        execution=execution.id,
        status=execution.ending,
        step=execution.step,
        started=round(execution.started, 3),
        seconds=execution.seconds,
        worker=worker_id,
    )
    if execution.settled is not None:
        record = _with_all_that_is_known(record, execution.settled)
    checks = tuple(replace(one, label=mask(one.label), found=mask(one.found)) for one in record.checks)
    return record_line(replace(record, checks=checks))


def _with_all_that_is_known(record: AttemptRecord, settled: Settled) -> AttemptRecord:
    seen, moved = settled.seen, settled.moved
    return replace(
        record,
        status=settled.outcome.status,
        step=settled.step,
        seconds=settled.seconds,
        checks=seen.checks,
        downloaded=moved.downloaded,
        uploaded=moved.uploaded,
        saved=moved.saved,
        changed=seen.changed,
        deleted=seen.deleted,
        fence=settled.fence_level or "",
    )
