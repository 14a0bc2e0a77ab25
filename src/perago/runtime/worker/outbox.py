"""The outbox: results that the orchestrator has not accepted yet, stored in the root so that they outlive their worker.

There is one file per execution, written under a temporary name and then renamed.  It is not synced to disk: it must survive
the death of the worker, but a machine that loses power loses the lease as well.

An entry names its orchestrator and is never sent to another: a worker whose settings point elsewhere leaves it in place.
Reading the outbox never fails as a whole: unreadable entries are left in place and named in the log.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from perago.protocol.attempt import Attempt
from perago.protocol.outcome import Outcome
from perago.runtime.execution_result import Claim, PendingResult, Publication

log = logging.getLogger("perago.outbox")

OUTBOX = "outbox"


class Outbox:
    """The folder of unsent results under a workspace root.  `server` is the address of their orchestrator."""

    def __init__(self, root: Path, server: str = "") -> None:
        self._folder = root / OUTBOX
        self._server = server
        try:
            self._make_folder()
        except OSError as error:
            log.warning("could not create the outbox %s: %s", self._folder, error)

    def put(self, pending: PendingResult) -> None:
        """Store a result until `drop` is called.  Raises `OSError` if it cannot be written."""
        # ASCII, because a reason may contain a lone surrogate from a broken file name.
        text = json.dumps({**asdict(pending), "server": self._server})
        temporary = self._folder / f".{pending.execution_id}.tmp"
        self._make_folder()
        temporary.write_text(text, encoding="ascii")
        temporary.rename(self._file(pending.execution_id))

    def drop(self, execution_id: str) -> None:
        """Delete the entry of a result that no longer needs to be sent."""
        self._file(execution_id).unlink(missing_ok=True)

    def has(self, execution_id: str) -> bool:
        """Return whether there is an entry of the execution, even one that cannot be read."""
        return self._file(execution_id).exists()

    def unsent(self) -> Iterator[PendingResult]:
        """Yield the results for this orchestrator that an earlier worker left unsent.  Deletes partly written files."""
        for file in self._files():
            try:
                if file.name.startswith("."):
                    file.unlink(missing_ok=True)
                    continue
                data = json.loads(file.read_text(encoding="utf-8"))
                pending, server = _pending_result(data), data.get("server") or self._server
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                log.warning("cannot read the result in %s, leaving it there: %s", file, error)
                continue
            if server == self._server:
                yield pending
            else:
                log.warning(
                    "the result of task %s in %s is for %s, not for %s, and stays there: a worker for that server on "
                    "this root sends it",
                    *(pending.attempt.task_id, file, server, self._server),
                )

    def _files(self) -> list[Path]:
        """Return the result files and temporary files, sorted by name."""
        try:
            names = sorted(os.listdir(self._folder))
        except OSError as error:
            log.warning("cannot read the outbox %s: %s", self._folder, error)
            return []
        return [self._folder / name for name in names if name.endswith((".json", ".tmp"))]

    def _make_folder(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def _file(self, execution_id: str) -> Path:
        return self._folder / f"{execution_id}.json"


def _pending_result(data: Mapping[str, Any]) -> PendingResult:
    publication, claim = data["publication"], data["claim"]
    return PendingResult(
        execution_id=data["execution_id"],
        attempt=_attempt(data["attempt"]),
        outcome=Outcome(**data["outcome"]),
        publication=_publication(publication) if publication else None,
        claim=Claim(**claim) if claim else None,
    )


def _publication(data: Mapping[str, Any]) -> Publication:
    view = data.get("view")
    return Publication(
        data["repository"], data["branch"], data["ref"], tuple(view) if view is not None else None
    )


def _attempt(data: Mapping[str, Any]) -> Attempt:
    """Build the attempt from an entry.  Ignores unknown fields, which another version of Perago may have written."""
    return Attempt(**{field.name: data[field.name] for field in fields(Attempt) if field.name in data})
