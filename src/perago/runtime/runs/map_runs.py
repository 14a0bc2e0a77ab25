"""Map runs on the machine of their command: recording one, finding it, and reading what its bodies printed.

The record in the lake decides what is done (decision 0020).  What is kept here only lets people look at a run without
the lake: its progress is written now and then while the command runs, and again at its end.

<root>/runs/<map id>/rows.json     the rows so far by outcome, and the failures, grouped by reason
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path

from perago.runtime.observe.sanitize import overwritten
from perago.runtime.runs.inspect import STOPPED, ReadOnlyBackend
from perago.runtime.runs.record import (
    MapRun,
    RunEnd,
    forget_end,
    holding,
    is_running,
    map_log,
    map_named,
    read_record,
    read_records,
    runs_folder,
    save_end,
    save_map,
    write_json,
)

log = logging.getLogger("perago.runs")
PROGRESS = "rows.json"
SAVE_SECONDS = 2.0
PAUSE_SECONDS = 0.5
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class MapFailure:
    """Rows that failed for the same reason: how many, and the numbers of the first ones."""

    status: str
    reason: str
    count: int
    rows: Sequence[int]

    def __str__(self) -> str:
        """Return the failure as text, with the numbers of its rows."""
        numbers = ", ".join(map(str, self.rows)) + (", …" if self.count > len(self.rows) else "")
        of = f"row {numbers}" if self.count == 1 else f"{self.count} rows ({numbers})"
        return f"{of}: {self.status}: {self.reason}"


@dataclass(frozen=True, slots=True)
class MapProgress:
    """The number of rows by outcome, and the failures, the most frequent first."""

    done: int = 0
    failed: int = 0
    failures: Sequence[MapFailure] = ()
    kinds: int = 0
    """The number of different failures, of which `failures` has only the first."""

    def left(self, run: MapRun) -> int:
        """Return the number of rows that have no outcome yet."""
        return max(0, run.rows - self.done - self.failed)

    def text(self, run: MapRun) -> str:
        """Return the counts as text, such as `11 of 13 rows are done, 2 failed`."""
        parts = [f"{self.done} of {run.rows} rows are done"]
        parts += [f"{self.failed} failed"] if self.failed else []
        return ", ".join([*parts, f"{left} left"] if (left := self.left(run)) else parts)


class MapRecorder:
    """Keeps the record of a map run up to date while its command runs."""

    def __init__(self, root: Path, run: MapRun, clock: Callable[[], float]) -> None:
        self.run = run
        self._root = root
        self._clock = clock
        self._saved = clock()
        self._progress = MapProgress()

    def update(self, read: Callable[[], MapProgress]) -> None:
        """Save the current progress, unless it was saved a moment ago."""
        if self._clock() - self._saved >= SAVE_SECONDS:
            self.save(read())

    def save(self, progress: MapProgress) -> None:
        """Save this progress.  A full disk does not stop the map."""
        self._saved, self._progress = self._clock(), progress
        try:
            write_json(runs_folder(self._root) / self.run.id / PROGRESS, asdict(progress))
        except OSError as error:
            log.warning("could not record the progress of %s: %s", self.run.id, error)

    def end(self, error: str = "") -> None:
        """Save how this session ended.  `error` is the error that ended it early."""
        progress, run = self._progress, self.run
        status = STOPPED if error or progress.left(run) else "FAILED" if progress.failed else "COMPLETED"
        first = f": {progress.failures[0].reason}" if progress.failures else ""
        reason = f"{progress.failed} of {run.rows} rows failed{first}" if progress.failed else ""
        with suppress(OSError):
            save_end(self._root, run.id, RunEnd(status, run.started, self._clock(), error or reason))


@contextmanager
def recorded(root: Path, run: MapRun, clock: Callable[[], float] = time.time) -> Iterator[MapRecorder]:
    """Record a session of a map run, and hold the run's lock.  A resumed run keeps its start."""
    with holding(runs_folder(root) / run.id):
        if isinstance(before := read_record(root, run.id), MapRun):
            run = replace(run, started=before.started, resumed=(*before.resumed, clock()))
        map_log(root, run.id).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        save_map(root, run)
        forget_end(root, run.id)
        recorder = MapRecorder(root, run, clock)
        try:
            yield recorder
        except BaseException as error:
            recorder.end(str(error).partition("\n")[0] or type(error).__name__)
            raise
        recorder.end()


def progress_of(root: Path, run_id: str) -> MapProgress:
    """Return the saved progress of a map run.  A run without one has no outcomes that this machine knows."""
    with suppress(OSError, ValueError, TypeError):
        values = json.loads((runs_folder(root) / run_id / PROGRESS).read_text(encoding="utf-8"))
        return MapProgress(**{**values, "failures": [MapFailure(**one) for one in values["failures"]]})
    return MapProgress()


def find_map(servers: ReadOnlyBackend, name: str | None) -> MapRun | None:
    """Return the map run with that id, of which a unique beginning is enough.

    Without a name, returns the newest run on these servers if it is a map.  Returns None if there is no such map.
    Raises `RuntimeConfigError` if several ids begin with the name.
    """
    if name is None:
        here = (one for one in read_records(servers.settings.root) if servers.embedded or not one.embedded)
        newest = next(islice(here, 1), None)
        return newest if isinstance(newest, MapRun) else None
    return map_named(servers.settings.root, name)


def printed_by_map(
    root: Path, run: MapRun, *, follow: bool, pause: Callable[[float], None] = time.sleep
) -> Iterator[str]:
    """Yield the lines in the log of a map run.  With `follow`, ends only when no process runs the map any more."""
    rest, position = b"", 0
    while True:
        over = not follow or not is_running(runs_folder(root) / run.id)
        with suppress(FileNotFoundError), map_log(root, run.id).open("rb") as file:
            file.seek(position)
            while piece := file.read(_PIECE):
                position += len(piece)
                *lines, rest = (rest + piece).split(b"\n")
                yield from map(_text, lines)
        if over:
            if rest:
                yield _text(rest)
            return
        pause(PAUSE_SECONDS)


def _text(line: bytes) -> str:
    return overwritten(line.decode("utf-8", "replace").rstrip("\r"))
