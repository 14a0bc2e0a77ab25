"""The record of a map run: the claims and outcomes of each row, stored in the lake itself (docs/decisions/0020).

    repository perago-maps, branch <run>, uncommitted:
      map.json                      the task, the lake and the table
      rows/<row>/<slot>             one object for each event of the row, numbered from 1

A slot is an execution's claim (`RowClaim`) or its outcome (`Ended`).  Its object is created only if it does not exist
(`create_object`), so if one execution ends while another claims the row, only one of them gets the next slot.
Therefore:

- An execution is current as long as its claim is the row's last slot.
- A result is accepted only if it gets the slot after its claim, so it is in the lake before it is reported.
- A COMPLETED row is never claimed again.

Every process that can reach the lake can read and write the record: the driver, and executors on other machines.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Container, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from perago.errors import LakeConflict, LakeError, LakeNotFound, LakeUnavailable
from perago.lake.base import Lake
from perago.runtime.maps.rows import RowOutcome

REPOSITORY = "perago-maps"
HEADER = "map.json"
_ROWS = "rows/"
_READS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class RowClaim:
    """An execution's claim on a row."""

    row: int
    slot: int
    execution: str
    session: str
    """The session that the execution belongs to.  Retries are counted per session."""
    ref: str = ""
    """The input commit.  Later claims on the row normally keep it."""
    attempts: int = 1
    """The number of claims on the row so far, including this one."""
    tries: int = 1
    """The number of claims in this session, not counting those whose execution died."""
    deaths: int = 0
    """The number of consecutive executions before this one that left no outcome."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of an execution, with its outcome.  The row may be claimed again afterwards, unless it is COMPLETED."""

    claim: RowClaim
    outcome: RowOutcome
    refused: bool = False
    """True if the publish fence refused the result, so nothing was published."""

    @property
    def slot(self) -> int:
        """The number of the slot that this outcome takes: the one right after the claim's slot."""
        return self.claim.slot + 1


Slot = RowClaim | Ended


class MapRecord:
    """Reads and writes the record of one map run."""

    def __init__(self, lake: Lake, run: str) -> None:
        self._lake = lake
        self.run = run

    def begin(self, header: Mapping[str, Any]) -> None:
        """Create the record if it does not exist."""
        branch = partial(self._lake.create_branch, REPOSITORY, self.run, "main")
        try:
            _ignore_existing(branch)
        except LakeNotFound:
            # This is the first map run on this lake.
            _ignore_existing(partial(self._lake.create_repository, REPOSITORY))
            _ignore_existing(branch)
        text = json.dumps(header).encode()
        _ignore_existing(partial(self._lake.create_object, REPOSITORY, self.run, HEADER, text))

    def last(self, row: int) -> Slot | None:
        """Return the last slot of a row, or None if the row has no slot yet."""
        slots = [slot for _, slot in self._slots(_row_prefix(row))]
        return self._read(row, max(slots)) if slots else None

    def is_last(self, claim: RowClaim) -> bool:
        """Return whether this claim is the row's last slot: the row has neither ended nor been claimed again."""
        slots = [slot for _, slot in self._slots(_row_prefix(claim.row))]
        return bool(slots) and max(slots) == claim.slot

    def add(self, slot: Slot) -> bool:
        """Add a slot to its row.  Returns False if another execution has already taken that slot."""
        row = slot.row if isinstance(slot, RowClaim) else slot.claim.row
        text = json.dumps(_to_json(slot), separators=(",", ":")).encode()
        try:
            self._lake.create_object(REPOSITORY, self.run, _path(row, slot.slot), text)
        except LakeConflict:
            # The existing slot may be our own: a request that the server postpones is sent again.
            return self._read(row, slot.slot) == slot
        except LakeUnavailable as unknown:
            # Our slot is unique, so reading it back shows whether the write landed.
            return self._landed(slot, row, unknown)
        return True

    def outcomes(self, rows: Container[int] | None = None) -> Iterator[RowOutcome]:
        """Yield the outcome of every finished row, or of those among `rows`, in order.

        Rows that have been claimed again since have none.
        """
        last: dict[int, int] = {}
        for row, slot in self._slots(_ROWS):
            if rows is None or row in rows:
                last[row] = max(slot, last.get(row, 0))
        with ThreadPoolExecutor(_READS_AT_ONCE, "perago-record") as pool:
            for found in pool.map(lambda item: self._read(*item), sorted(last.items())):
                if isinstance(found, Ended):
                    yield found.outcome

    def _landed(self, slot: Slot, row: int, unknown: LakeUnavailable) -> bool:
        try:
            return self._read(row, slot.slot) == slot
        except LakeNotFound:
            raise unknown from None

    def _slots(self, prefix: str) -> Iterator[tuple[int, int]]:
        for entry in self._lake.list(REPOSITORY, self.run, prefix):
            row, _, slot = entry.path.removeprefix(_ROWS).partition("/")
            if row.isdigit() and slot.isdigit():
                yield int(row), int(slot)

    def _read(self, row: int, slot: int) -> Slot:
        path = _path(row, slot)
        text = b"".join(self._lake.read(REPOSITORY, self.run, path))
        try:
            return _from_json(json.loads(text))
        except (ValueError, KeyError, TypeError) as error:
            raise LakeError(
                f"{path} on branch {self.run} of {REPOSITORY} is not a record of Perago"
            ) from error


def _row_prefix(row: int) -> str:
    return f"{_ROWS}{row:09d}/"


def _path(row: int, slot: int) -> str:
    return f"{_row_prefix(row)}{slot:06d}"


def _to_json(slot: Slot) -> dict[str, Any]:
    if isinstance(slot, RowClaim):
        return {"taken": asdict(slot)}
    return {"ended": asdict(slot.claim), "outcome": slot.outcome.to_json(), "refused": slot.refused}


def _from_json(read: Mapping[str, Any]) -> Slot:
    if "taken" in read:
        return RowClaim(**read["taken"])
    return Ended(RowClaim(**read["ended"]), RowOutcome(**read["outcome"]), read["refused"])


def _ignore_existing(make: Callable[[], None]) -> None:
    with contextlib.suppress(LakeConflict):
        make()
