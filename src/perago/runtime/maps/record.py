"""The record of a map: what has become of each row, kept in the lake itself (docs/decisions/0020).

    repository perago-maps, branch <run>, uncommitted:
      map.json                      what is mapped over what
      rows/<row>/<slot>             one object for each thing that happened to the row, numbered from 1

A slot says that an execution has *taken* the row, or how it *ended*.  Its object is made only where there is none
(`create_object`), so of an execution that ends and another that takes the row over, one gets the next slot.  From that
follow the rules:

- An execution is current as long as the slot that it took is the row's last.
- A result counts only if it gets the slot behind its own; then it is in the lake before anybody is told.
- A row that is COMPLETED is never taken again.

Whoever can reach the lake can read and write it: a driver, and an executor on another machine.
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
    """An execution that has taken a row."""

    row: int
    slot: int
    execution: str
    session: str
    """The command that it works for: its retries are counted by that."""
    ref: str = ""
    """The commit to work on, the same for all that take the row after it."""
    attempts: int = 1
    """How often the row was taken so far, this time included."""
    tries: int = 1
    """The same, of this session only and without those that died."""
    deaths: int = 0
    """How many executions before it, one after the other, have left no ending."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of an execution; its row may be claimed again unless it is COMPLETED."""

    taken: RowClaim
    outcome: RowOutcome
    refused: bool = False
    """Whether the publish fence ended it, so that it has published nothing."""

    @property
    def slot(self) -> int:
        """The slot that says so."""
        return self.taken.slot + 1


Slot = RowClaim | Ended


class MapRecord:
    """The record of one run."""

    def __init__(self, lake: Lake, run: str) -> None:
        self._lake = lake
        self.run = run

    def begin(self, header: Mapping[str, Any]) -> None:
        """Make the record, or go on with the one that is there."""
        branch = partial(self._lake.create_branch, REPOSITORY, self.run, "main")
        try:
            _unless_there(branch)
        except LakeNotFound:
            # The first map of this lake.
            _unless_there(partial(self._lake.create_repository, REPOSITORY))
            _unless_there(branch)
        text = json.dumps(header).encode()
        _unless_there(partial(self._lake.create_object, REPOSITORY, self.run, HEADER, text))

    def last(self, row: int) -> Slot | None:
        """The last thing that happened to a row."""
        slots = [slot for _, slot in self._slots(_row_prefix(row))]
        return self._read(row, max(slots)) if slots else None

    def is_last(self, taken: RowClaim) -> bool:
        """Return whether this execution still owns the row and the row has not ended."""
        slots = [slot for _, slot in self._slots(_row_prefix(taken.row))]
        return bool(slots) and max(slots) == taken.slot

    def add(self, slot: Slot) -> bool:
        """Put a slot behind the row's last; False where another one is there."""
        row = slot.row if isinstance(slot, RowClaim) else slot.taken.row
        text = json.dumps(_packed(slot), separators=(",", ":")).encode()
        try:
            self._lake.create_object(REPOSITORY, self.run, _path(row, slot.slot), text)
        except LakeConflict:
            # Perhaps our own: a request is sent again where the server put it off.
            return self._read(row, slot.slot) == slot
        except LakeUnavailable as unknown:
            # Nobody else writes these very words, so what is there tells.
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
            return _unpacked(json.loads(text))
        except (ValueError, KeyError, TypeError) as error:
            raise LakeError(
                f"{path} on branch {self.run} of {REPOSITORY} is none of Perago's records"
            ) from error


def _row_prefix(row: int) -> str:
    return f"{_ROWS}{row:09d}/"


def _path(row: int, slot: int) -> str:
    return f"{_row_prefix(row)}{slot:06d}"


def _packed(slot: Slot) -> dict[str, Any]:
    if isinstance(slot, RowClaim):
        return {"taken": asdict(slot)}
    return {"ended": asdict(slot.taken), "outcome": slot.outcome.to_json(), "refused": slot.refused}


def _unpacked(read: Mapping[str, Any]) -> Slot:
    if "taken" in read:
        return RowClaim(**read["taken"])
    return Ended(RowClaim(**read["ended"]), RowOutcome(**read["outcome"]), read["refused"])


def _unless_there(make: Callable[[], None]) -> None:
    with contextlib.suppress(LakeConflict):
        make()
