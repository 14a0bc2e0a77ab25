"""Results that the orchestrator has not taken yet, kept in the root so that they outlive their worker.

One file per execution, written under a temporary name and renamed.  It is not forced to the disk: it must survive
the death of the worker, and a machine that loses its power loses the lease as well.

An entry names the orchestrator that it is for, and is never sent to another: a worker whose settings point elsewhere
leaves it where it is.  Reading never fails as a whole; what cannot be read stays and is named in the log.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from perago.orchestrator.base import Assignment
from perago.protocol.attempt import Attempt
from perago.protocol.outcome import Outcome
from perago.runtime.attempt.transaction import Claim, Settled

log = logging.getLogger("perago.outbox")

OUTBOX = "outbox"


@dataclass(frozen=True, slots=True)
class Publication:
    """What an execution made visible: the commit that was the branch's head when it was settled."""

    repository: str
    branch: str
    ref: str


@dataclass(frozen=True, slots=True)
class Parcel:
    """One result to send, and what must hold or be done around that."""

    execution_id: str
    attempt: Attempt
    outcome: Outcome
    publication: Publication | None = None
    claim: Claim | None = None


def parcel_of(execution_id: str, assignment: Assignment, settled: Settled) -> Parcel:
    """The result of an execution as it is sent."""
    publication = _publication(assignment.input, settled.outcome)
    return Parcel(execution_id, assignment.attempt, settled.outcome, publication, settled.claim)


class Outbox:
    """The folder of unsent results below a workspace root; `server` is the orchestrator that they are for."""

    def __init__(self, root: Path, server: str = "") -> None:
        self._folder = root / OUTBOX
        self._server = server
        try:
            self._make_folder()
        except OSError as error:
            log.warning("the outbox %s cannot be made: %s", self._folder, error)

    def put(self, parcel: Parcel) -> None:
        """Keep a result until it is dropped; `OSError` if it cannot be written."""
        # As ASCII: a reason may hold half a character of a broken file name.
        text = json.dumps({**asdict(parcel), "server": self._server})
        temporary = self._folder / f".{parcel.execution_id}.tmp"
        self._make_folder()
        temporary.write_text(text, encoding="ascii")
        temporary.rename(self._file(parcel.execution_id))

    def drop(self, execution_id: str) -> None:
        """The result is settled."""
        self._file(execution_id).unlink(missing_ok=True)

    def parcels(self) -> Iterator[Parcel]:
        """What an earlier worker did not get sent; what it did not get written goes, nobody was told of it."""
        for file in self._files():
            try:
                if file.name.startswith("."):
                    file.unlink(missing_ok=True)
                    continue
                data = json.loads(file.read_text(encoding="utf-8"))
                found, server = _parcel(data), data.get("server") or self._server
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                log.warning("the result in %s cannot be read, and stays there: %s", file, error)
                continue
            if server == self._server:
                yield found
            else:
                log.warning(
                    "the result of task %s in %s is for %s, not for %s, and stays there: a worker for that server on "
                    "this root sends it",
                    *(found.attempt.task_id, file, server, self._server),
                )

    def _files(self) -> list[Path]:
        """Results and what was being written, in a fixed order."""
        try:
            names = sorted(os.listdir(self._folder))
        except OSError as error:
            log.warning("the outbox %s cannot be read: %s", self._folder, error)
            return []
        return [self._folder / name for name in names if name.endswith((".json", ".tmp"))]

    def _make_folder(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def _file(self, execution_id: str) -> Path:
        return self._folder / f"{execution_id}.json"


def _publication(given: Mapping[str, Any], outcome: Outcome) -> Publication | None:
    """The head that a COMPLETED result speaks of; none where it kept its input."""
    workspace = (outcome.output or {}).get("workspace")
    if outcome.status != "COMPLETED" or workspace is None:
        return None
    if workspace["ref"].startswith(given["workspace"]["ref"]):
        return None
    return Publication(workspace["repository"], workspace["branch"], workspace["ref"])


def _parcel(data: Mapping[str, Any]) -> Parcel:
    publication, claim = data["publication"], data["claim"]
    return Parcel(
        execution_id=data["execution_id"],
        attempt=Attempt(**data["attempt"]),
        outcome=Outcome(**data["outcome"]),
        publication=Publication(**publication) if publication else None,
        claim=Claim(**claim) if claim else None,
    )
