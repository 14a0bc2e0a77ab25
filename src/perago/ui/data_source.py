"""The data behind the pages: the runs and the lake of one backend, embedded or real.

Connections to servers stay open while the page is served.  Access is read-only.  Immutable data, such as commits and
the records of finished executions, is cached.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import lru_cache
from typing import Any, cast

from perago.errors import (
    LakeError,
    LakeNotFound,
    OrchestratorError,
    OrchestratorNotFound,
    RuntimeConfigError,
)
from perago.lake.base import Changes, Commit, Lake
from perago.orchestrator.base import Orchestrator
from perago.protocol.attempt_record import AttemptRecord
from perago.protocol.metadata import EXECUTION_ID, KEY, TASK_ID
from perago.runtime.blame import Blame, find_last_writer
from perago.runtime.observe.sanitize import Masker, secrets_of
from perago.runtime.runs.inspect import ReadOnlyBackend, RunHandle, find
from perago.runtime.runs.map_runs import find_map
from perago.runtime.runs.record import MAP_PREFIXES
from perago.settings import Settings

_CACHE_SIZE = 4096
MOST_SEARCHED = 100
"""The maximum number of commits that are searched for the last writer of a path."""
MOST_CHANGES = 100
"""The maximum number of changes that are counted for a commit in a list."""


class DataSource:
    """Read-only access to the runs and the lake of one backend. Thread-safe."""

    def __init__(
        self,
        servers: ReadOnlyBackend,
        open_lake: Callable[[], Lake | None],
        *,
        where: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.servers: ReadOnlyBackend = servers if servers.embedded else _SharedBackend(servers)
        self.where = where
        """A human-readable description of the servers."""
        self.clock = clock
        self.mask = Masker(secrets_of(servers.settings))
        self.closing = threading.Event()
        """An event that is set when the web server stops."""
        self._open_lake = open_lake
        self._lake: Lake | None = None
        self._lock = threading.Lock()
        self._linked: set[str] = set()
        self._records: dict[tuple[str, str], AttemptRecord] = {}
        self.commit = lru_cache(maxsize=_CACHE_SIZE)(self._commit)
        """Return the commit with this full id in a repository. Results are cached."""
        self.count_changes = lru_cache(maxsize=_CACHE_SIZE)(self._count_changes)
        """Return the changes between two commits, counting at most `MOST_CHANGES`."""
        self.last_writer = lru_cache(maxsize=_CACHE_SIZE)(self._last_writer)
        """Return the last writer of a path at a commit, searching at most `MOST_SEARCHED` commits."""
        self.run_of = lru_cache(maxsize=_CACHE_SIZE)(self._run_of)
        """Return the run that a workflow belongs to. Raises `RuntimeConfigError` if that run no longer exists."""

    @property
    def has_lake(self) -> bool:
        """True if a lake has been created."""
        with self._lock:
            if self._lake is None:
                self._lake = self._open_lake()
            return self._lake is not None

    @property
    def lake(self) -> Lake:
        """The lake. Raises `LakeNotFound` if none has been created yet."""
        if not self.has_lake or self._lake is None:
            raise LakeNotFound("there is no lake yet: `perago put REPO FOLDER --create` makes one")
        return self._lake

    @contextmanager
    def orchestrator_of(self, found: RunHandle) -> Iterator[Orchestrator]:
        """Open a run's orchestrator, and close it at the end of the `with` block."""
        with closing(found.open()) as orchestrator:
            yield orchestrator

    def record_of(self, commit: Commit) -> AttemptRecord | None:
        """Return the record of the execution that made a commit.

        Returns None if the commit names no execution, or if the task log has no record of it.  Raises
        `RuntimeConfigError` if the run no longer exists.
        """
        from perago.runtime.runs.inspect import read_log

        metadata = commit.metadata
        task_id, execution = metadata.get(TASK_ID, ""), metadata.get(EXECUTION_ID, "")
        workflow_id = metadata.get(KEY, "").partition("/")[0]
        # The rows of a map have no task log: their figures are in the table of outcomes.
        if not task_id or not workflow_id or workflow_id.startswith(MAP_PREFIXES):
            return None
        record = self._records.get((task_id, execution))
        if record is None:
            with self.orchestrator_of(self.run_of(workflow_id)) as orchestrator:
                records = read_log(orchestrator.task_log(task_id))[1]
            record = next((one for one in records if one.execution == execution), None)
            if record is not None and len(self._records) < _CACHE_SIZE:
                self._records[task_id, execution] = record
        return record

    def has_commit(self, repository: str, ref: str) -> bool:
        """Return whether the commit exists, so that a page can link to it."""
        try:
            return bool(self.commit(repository, ref))
        except LakeNotFound:
            return False
        except LakeError:
            return True  # unknown, so the page behind the link reports the problem

    def has_run(self, run_id: str) -> bool:
        """Return whether the run, workflow or map exists, so that a page can link to it."""
        if run_id in self._linked:
            return True
        try:
            if find_map(self.servers, run_id) is None:
                with self.orchestrator_of(self.run_of(run_id)) as orchestrator:
                    orchestrator.workflow(self.run_of(run_id).workflow_id)
        except (OrchestratorNotFound, RuntimeConfigError):
            return False
        except OrchestratorError:
            return True  # unknown, as above
        if len(self._linked) < _CACHE_SIZE:
            self._linked.add(run_id)
        return True

    def close(self) -> None:
        """Close the connections to the servers."""
        self.closing.set()
        with self._lock:
            if self._lake is not None:
                self._lake.close()
            self._lake = None
        if isinstance(self.servers, _SharedBackend):
            self.servers.close()

    def _commit(self, repository: str, commit: str) -> Commit:
        return self.lake.commit_at(repository, commit)

    def _count_changes(self, repository: str, left: str, right: str) -> Changes:
        return self.lake.changes(repository, left, right, limit=MOST_CHANGES)

    def _last_writer(self, repository: str, commit: str, path: str) -> Blame:
        return find_last_writer(self.lake, repository, commit, path, limit=MOST_SEARCHED)

    def _run_of(self, workflow_id: str) -> RunHandle:
        return find(self.servers, workflow_id)


class _SharedBackend:
    """A backend whose orchestrator is shared by all runs. The orchestrator is opened once, and closed at the end."""

    def __init__(self, servers: ReadOnlyBackend) -> None:
        self._servers = servers
        self._lock = threading.Lock()
        self._opened: Orchestrator | None = None

    @property
    def settings(self) -> Settings:
        """The settings that contain the servers' addresses."""
        return self._servers.settings

    @property
    def embedded(self) -> bool:
        """Always False: embedded servers are never shared, because each embedded run has its own orchestrator."""
        return self._servers.embedded

    def of_run(self, run_id: str) -> ReadOnlyBackend:
        """Return self, because all runs share these servers."""
        del run_id
        return self

    def open_read_only(self) -> Orchestrator | None:
        """Return the shared orchestrator. Its `close` is a no-op."""
        with self._lock:
            if self._opened is None:
                self._opened = self._servers.open_read_only()
            return None if self._opened is None else cast(Orchestrator, _WithoutClose(self._opened))

    def close(self) -> None:
        """Close the shared orchestrator."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()
            self._opened = None


class _WithoutClose:
    def __init__(self, orchestrator: Orchestrator) -> None:
        self._orchestrator = orchestrator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._orchestrator, name)

    def close(self) -> None:
        """Do nothing, because the orchestrator is shared."""
