"""The record of a map run: the claims and outcomes of each row, in the lake itself (docs/decisions/0020).

    repository perago-maps, branch <run>, uncommitted:
      map.json                      the task, the lake and the table
      rows/<row>/<slot>             one object for each event of the row, numbered from 1

A slot is a claim of an execution (`RowClaim`), or its outcome (`Ended`).  Its object is only created if absent
(`create_object`), so if an execution ends while another claims the row, only one gets the next slot.  Therefore:

- An execution is current as long as its claim is the row's last slot.
- A result counts only if it gets the slot after its claim; so it is in the lake before it is reported.
- A COMPLETED row is never claimed again.

Every process that can reach the lake can read and write the record: the driver, and executors on other machines.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
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
    """The claim of an execution on a row."""

    row: int
    slot: int
    execution: str
    session: str
    """The command it works for; retries are counted per session."""
    ref: str = ""
    """The input commit; later claims of the row keep it."""
    attempts: int = 1
    """The number of claims so far, including this one."""
    tries: int = 1
    """The number of claims in this session, without those whose execution died."""
    deaths: int = 0
    """The number of consecutive executions before it that left no outcome."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of an execution; its row may be claimed again unless it is COMPLETED."""

    claim: RowClaim
    outcome: RowOutcome
    refused: bool = False
    """True if the publish fence refused it, so that nothing was published."""

    @property
    def slot(self) -> int:
        """The slot after the claim."""
        return self.claim.slot + 1


Slot = RowClaim | Ended


class MapRecord:
    """Reads and writes the record of one map run."""

    def __init__(self, lake: Lake, run: str) -> None:
        self._lake = lake
        self.run = run

    def begin(self, header: Mapping[str, Any]) -> None:
        """Create the record unless it exists."""
        branch = partial(self._lake.create_branch, REPOSITORY, self.run, "main")
        try:
            _ignore_existing(branch)
        except LakeNotFound:
            # The first map run on this lake.
            _ignore_existing(partial(self._lake.create_repository, REPOSITORY))
            _ignore_existing(branch)
        text = json.dumps(header).encode()
        _ignore_existing(partial(self._lake.create_object, REPOSITORY, self.run, HEADER, text))

    def last(self, row: int) -> Slot | None:
        """Return the last slot of a row, or None."""
        slots = [slot for _, slot in self._slots(_row_prefix(row))]
        return self._read(row, max(slots)) if slots else None

    def is_last(self, claim: RowClaim) -> bool:
        """Return whether this execution still owns the row and the row has not ended."""
        slots = [slot for _, slot in self._slots(_row_prefix(claim.row))]
        return bool(slots) and max(slots) == claim.slot

    def add(self, slot: Slot) -> bool:
        """Add a slot.  Returns False if another execution has that slot."""
        row = slot.row if isinstance(slot, RowClaim) else slot.claim.row
        text = json.dumps(_to_json(slot), separators=(",", ":")).encode()
        try:
            self._lake.create_object(REPOSITORY, self.run, _path(row, slot.slot), text)
        except LakeConflict:
            # The existing slot may be our own: a postponed request is sent twice.
            return self._read(row, slot.slot) == slot
        except LakeUnavailable as unknown:
            # Our slot is unique, so reading it back shows whether the write landed.
            return self._landed(slot, row, unknown)
        return True

    def outcomes(self) -> Iterator[RowOutcome]:
        """Return the outcome of every finished row, in order.  Rows claimed again since have none."""
        last: dict[int, int] = {}
        for row, slot in self._slots(_ROWS):
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
