"""Attempts in flight, recorded in the root, so that the next worker there can report those of a dead one as FAILED.

A worker writes one file per execution when it has polled an attempt, and removes it when the execution has ended.  Only
one worker at a time holds the root's lock, so files that are there when a worker starts belong to a dead one.  Their
attempts are reported only if that is safe (decision 0042):

    no result of the attempt is in the outbox          else that result is sent, by the outbox's own rule
    the task is IN_PROGRESS, with the same retry       else the attempt is over
      count and scheduled time
    the orchestrator names the dead worker as the      else another worker may be running the attempt
      task's last poller
    no other execution holds the attempt's claim       else a twin may be alive and about to publish

The reporter takes the claim itself, so that no twin can publish from then on.  If the dead execution held the claim, its
publish may be in flight: the claim stays, and the retry revokes it.  In every other case nothing is sent, and the lease
ends the attempt if it is still open.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from perago.errors import LakeConflict, LakeError, OrchestratorError, OrchestratorNotFound, StaleAttemptError
from perago.lake.base import StagingLake
from perago.orchestrator.base import Assignment, AttemptReader
from perago.protocol.attempt import Attempt, assert_current_attempt_snapshot
from perago.protocol.backoff import Backoff
from perago.protocol.names import claim_branch_name
from perago.protocol.outcome import worker_died
from perago.runtime.execution_result import Claim, PendingResult
from perago.runtime.observe.logs import attempt_fields

log = logging.getLogger("perago.dead_worker")

IN_FLIGHT = "in-flight"
BACKOFF = Backoff(0.5, longest=10.0, jitter=(0.5, 1.0))


@dataclass(frozen=True, slots=True)
class InFlight:
    """One execution in flight: its attempt, its worker, and where it publishes if it may."""

    execution_id: str
    attempt: Attempt
    worker_id: str
    server: str = ""
    """The address of the attempt's orchestrator."""
    repository: str = ""
    branch: str = ""
    ref: str = ""
    """`repository`, `branch` and `ref`: the workspace in the attempt's input; empty if there is none."""
    claimed: bool = False
    """True if the execution holds the attempt's claim for certain."""

    @property
    def claim(self) -> Claim | None:
        """The claim that an execution of the attempt takes; None without a workspace."""
        if not (self.repository and self.branch and self.ref):
            return None
        return Claim(self.repository, claim_branch_name(self.attempt, self.branch))


def in_flight_of(execution_id: str, assignment: Assignment, worker_id: str, *, may_publish: bool) -> InFlight:
    """Return the record of an execution that begins now.  One that cannot publish stages and claims nothing."""
    found = assignment.input.get("workspace") if may_publish else None
    # Joined workspaces share one repository and branch.
    workspace = found[0] if isinstance(found, list) and found else found
    names = ("repository", "branch", "ref")
    given = {name: workspace.get(name) for name in names} if isinstance(workspace, Mapping) else {}
    # An input that does not fit the contract fails before it reaches the lake.
    repository, branch, ref = (value if isinstance(value := given.get(name), str) else "" for name in names)
    return InFlight(
        execution_id, assignment.attempt, worker_id, repository=repository, branch=branch, ref=ref
    )


class InFlightFiles:
    """The folder of executions in flight below a workspace root.  `server` is the address of their orchestrator."""

    def __init__(self, root: Path, server: str) -> None:
        self._folder = root / IN_FLIGHT
        self._server = server

    def put(self, record: InFlight) -> None:
        """Write a record.  A failure is logged: without the record, the lease ends the attempt of a dead worker."""
        temporary = self._folder / f".{record.execution_id}.tmp"
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            temporary.write_text(json.dumps(asdict(replace(record, server=self._server))), encoding="ascii")
            temporary.rename(self._file(record.execution_id))
        except (OSError, ValueError) as error:
            log.warning("could not record the attempt in flight, task %s: %s", record.attempt.task_id, error)

    def drop(self, execution_id: str) -> None:
        """Remove the record of an execution that has ended."""
        try:
            self._file(execution_id).unlink(missing_ok=True)
        except OSError as error:
            log.warning("could not remove the record of execution %s: %s", execution_id, error)

    def read(self) -> Iterator[InFlight]:
        """Yield the records for this orchestrator.  Unreadable ones are skipped."""
        try:
            names = sorted(name for name in os.listdir(self._folder) if name.endswith(".json"))
        except OSError:
            return
        for name in names:
            try:
                record = _parse(json.loads((self._folder / name).read_text(encoding="utf-8")))
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                log.warning("cannot read %s, leaving it there: %s", self._folder / name, error)
                continue
            if record.server == self._server:
                yield record

    def _file(self, execution_id: str) -> Path:
        return self._folder / f"{execution_id}.json"


def _parse(data: Mapping[str, Any]) -> InFlight:
    """Build a record.  Ignores unknown fields, which another version of Perago may have written."""
    values = {field.name: data[field.name] for field in fields(InFlight) if field.name in data}
    given = data["attempt"]
    attempt = Attempt(**{field.name: given[field.name] for field in fields(Attempt) if field.name in given})
    return InFlight(**{**values, "attempt": attempt})


@dataclass(slots=True)
class ReportJob:
    """The scheduler job that reports one attempt of a dead worker, or finds that it must not be reported.

    `clean` drops the staging branches of the dead execution, and `report` sends the result.
    """

    record: InFlight
    orchestrator: AttemptReader
    lake: StagingLake
    clean: Callable[[InFlight], None]
    report: Callable[[PendingResult], None]
    drop: Callable[[str], None]
    own_claim: Claim | None = None
    failures: int = 0

    def __call__(self) -> float | None:
        try:
            why = self._why_not() or self._take_claim() or self._why_not()
        except (LakeError, OrchestratorError) as error:
            self.failures += 1
            if self.failures == 1:
                log.warning(
                    "could not report an attempt of a dead worker, will retry: %s",
                    error,
                    extra=self._fields(),
                )
            return BACKOFF.delay(self.failures)
        record = self.record
        if why is not None:
            self._give_up(why)
            return None
        log.warning("reporting the attempt of dead worker %s", record.worker_id, extra=self._fields())
        outcome = worker_died(record.worker_id)
        self.report(PendingResult(record.execution_id, record.attempt, outcome, claim=self.own_claim))
        return None

    def _why_not(self) -> str | None:
        """Return why nothing may be reported, according to the orchestrator."""
        try:
            fresh = self.orchestrator.current(self.record.attempt)
            assert_current_attempt_snapshot(self.record.attempt, fresh)
        except (StaleAttemptError, OrchestratorNotFound) as over:
            return str(over)
        if fresh.worker_id != self.record.worker_id:
            return f"worker {fresh.worker_id} has polled the task since"
        return None

    def _take_claim(self) -> str | None:
        """Drop the staging branches, then make sure that no other execution can publish.  Returns why that failed."""
        self.clean(self.record)
        claim = self.record.claim
        if claim is None or self.record.claimed or self.own_claim is not None:
            return None
        try:
            self.lake.create_branch(claim.repository, claim.branch, self.record.ref)
        except LakeConflict:
            return f"another execution may hold the claim {claim.branch}"
        self.own_claim = claim
        return None

    def _give_up(self, why: str) -> None:
        log.info("not reporting an attempt of a dead worker: %s", why, extra=self._fields())
        if self.own_claim is not None:
            # Nothing was published under this claim, and a twin may need it.
            try:
                self.lake.drop_branch(self.own_claim.repository, self.own_claim.branch)
            except LakeError as error:
                log.warning("could not drop the claim %s: %s", self.own_claim.branch, error)
        self.drop(self.record.execution_id)

    def _fields(self) -> dict[str, object]:
        return {"attempt": attempt_fields(self.record.attempt, self.record.execution_id)}


def without_result(
    records: Iterable[InFlight], answered: Container[str], in_outbox: Callable[[str], bool]
) -> list[InFlight]:
    """Return one record for each attempt without a result in the outbox.

    `answered` are the tasks whose results are being sent, and `in_outbox` finds unreadable results by execution.  If an
    attempt had two executions, the one that holds the claim is returned.
    """
    found: dict[str, InFlight] = {}
    for record in sorted(records, key=lambda record: not record.claimed):
        if record.attempt.task_id not in answered and not in_outbox(record.execution_id):
            found.setdefault(record.attempt.task_id, record)
    return list(found.values())
