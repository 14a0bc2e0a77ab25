"""What the pages look at: the runs of some servers, and their lake, kept open for as long as the page is served.

The rule: looking changes nothing.  What never changes, commits and the records of executions that are over, is kept.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import lru_cache
from typing import Any, cast

from perago.errors import LakeNotFound
from perago.lake.base import Changes, Commit, Lake
from perago.orchestrator.base import Orchestrator
from perago.protocol.attempt_record import AttemptRecord
from perago.protocol.metadata import EXECUTION_ID, KEY, TASK_ID
from perago.runtime.observe.sanitize import Masker, secrets_of
from perago.runtime.runs.inspect import ReadOnlyBackend, RunHandle, find
from perago.settings import Settings

_KEPT = 4096
MOST_CHANGES = 100
"""How many changes of a commit are counted for a list."""


class Site:
    """One pair of servers, looked at by any number of threads."""

    def __init__(
        self,
        servers: ReadOnlyBackend,
        open_lake: Callable[[], Lake | None],
        *,
        where: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.servers: ReadOnlyBackend = servers if servers.embedded else _KeptOpen(servers)
        self.where = where
        """Which servers these are, for people."""
        self.clock = clock
        self.mask = Masker(secrets_of(servers.settings))
        self.closing = threading.Event()
        """Set when the page is served no longer."""
        self._open_lake = open_lake
        self._lake: Lake | None = None
        self._lock = threading.Lock()
        self._records: dict[tuple[str, str], AttemptRecord] = {}
        self.commit = lru_cache(maxsize=_KEPT)(self._commit)
        """A commit by its full id."""
        self.counted = lru_cache(maxsize=_KEPT)(self._counted)
        """What a commit changed, against its parent, as far as a list tells it."""
        self.run_of = lru_cache(maxsize=_KEPT)(self._run_of)
        """The run that a workflow belongs to; `RuntimeConfigError` where it is not there any more."""

    @property
    def has_lake(self) -> bool:
        """Whether there is a lake by now."""
        with self._lock:
            if self._lake is None:
                self._lake = self._open_lake()
            return self._lake is not None

    @property
    def lake(self) -> Lake:
        """The lake; `LakeNotFound` where nobody has made one yet."""
        if not self.has_lake or self._lake is None:
            raise LakeNotFound("there is no lake yet: `perago put REPO FOLDER --create` makes one")
        return self._lake

    @contextmanager
    def orchestrator_of(self, found: RunHandle) -> Iterator[Orchestrator]:
        """The orchestrator of a run."""
        with closing(found.open()) as orchestrator:
            yield orchestrator

    def record_of(self, commit: Commit) -> AttemptRecord | None:
        """What is kept of the execution that made a commit; None where its run is gone, or it says nothing."""
        from perago.runtime.runs.inspect import read_log

        said = commit.metadata
        task_id, execution = said.get(TASK_ID, ""), said.get(EXECUTION_ID, "")
        workflow_id = said.get(KEY, "").partition("/")[0]
        if not task_id or not workflow_id:
            return None
        kept = self._records.get((task_id, execution))
        if kept is None:
            with self.orchestrator_of(self.run_of(workflow_id)) as orchestrator:
                records = read_log(orchestrator.task_log(task_id))[1]
            kept = next((one for one in records if one.execution == execution), None)
            if kept is not None and len(self._records) < _KEPT:
                self._records[task_id, execution] = kept
        return kept

    def close(self) -> None:
        """Let go of the servers."""
        self.closing.set()
        with self._lock:
            if self._lake is not None:
                self._lake.close()
            self._lake = None
        if isinstance(self.servers, _KeptOpen):
            self.servers.close()

    def _commit(self, repository: str, commit: str) -> Commit:
        return self.lake.commit_at(repository, commit)

    def _counted(self, repository: str, left: str, right: str) -> Changes:
        return self.lake.changes(repository, left, right, limit=MOST_CHANGES)

    def _run_of(self, workflow_id: str) -> RunHandle:
        return find(self.servers, workflow_id)


class _KeptOpen:
    """Servers that all runs share: their orchestrator is opened once, and closed at the end."""

    def __init__(self, servers: ReadOnlyBackend) -> None:
        self._servers = servers
        self._lock = threading.Lock()
        self._opened: Orchestrator | None = None

    @property
    def settings(self) -> Settings:
        """The settings that they are found by."""
        return self._servers.settings

    @property
    def embedded(self) -> bool:
        """They are not: each embedded run has an orchestrator of its own."""
        return self._servers.embedded

    def of_run(self, run_id: str) -> ReadOnlyBackend:
        """The same."""
        del run_id
        return self

    def open_read_only(self) -> Orchestrator | None:
        """The one orchestrator; closing it does nothing."""
        with self._lock:
            if self._opened is None:
                self._opened = self._servers.open_read_only()
            return None if self._opened is None else cast(Orchestrator, _StaysOpen(self._opened))

    def close(self) -> None:
        """Give its connections back."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()
            self._opened = None


class _StaysOpen:
    def __init__(self, orchestrator: Orchestrator) -> None:
        self._orchestrator = orchestrator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._orchestrator, name)

    def close(self) -> None:
        """Nothing: others use it too."""
