"""The backend: which lake and which orchestrator, embedded or real, as one value.

    Embedded     the embedded lake below a root, with the root's orchestrator or that of one run
    Real         lakeFS and Conductor

A backend can be pickled: a worker passes it to its executors, and each process opens its own connections to the lake
and the orchestrator.  Only this module, `assembly` and `testing` import adapters, and they do so inside functions, so
that `perago check` stays fast.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from perago.declare.task import TaskDefinition
from perago.errors import LakeError, LakeUnauthenticated, OrchestratorError, RuntimeConfigError
from perago.lake.base import Lake
from perago.orchestrator.base import NO_LIMITS, Orchestrator, RetryLimits, Scheduler
from perago.runtime.root.state_dir import made_root
from perago.settings import LAKEFS_NAMES, ConductorSettings, LakeFSSettings, Settings, shown_address

if TYPE_CHECKING:
    from perago.lake.lakefs.fence import Fence
    from perago.lake.lakefs.lake import LakeFSLake as LakeFSLake
    from perago.lake.local.lake import LocalLake
    from perago.orchestrator.local.orchestrator import LocalOrchestrator
    from perago.orchestrator.local.resume import Recording as Recording
    from perago.orchestrator.local.state import Task as Task
    from perago.runtime.attempt.place import OpenPlace

_ENDPOINT = "LAKECTL_SERVER_ENDPOINT_URL"
_KEYS = "LAKECTL_CREDENTIALS_ACCESS_KEY_ID and LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"


class Backend(ABC):
    """One lake and one orchestrator, as described by `settings`."""

    __slots__ = ()
    settings: Settings
    embedded: ClassVar[bool]

    @abstractmethod
    def open_lake(self) -> Lake:
        """Open the lake for this process."""

    @abstractmethod
    def open_orchestrator(self) -> Orchestrator:
        """Open the orchestrator for this process."""

    @abstractmethod
    def open_read_only(self) -> Orchestrator | None:
        """Open the orchestrator without changing or creating any file. Returns None if there is none."""

    @abstractmethod
    def import_adapters(self) -> None:
        """Preload the modules that are needed to open the lake and the orchestrator."""

    @abstractmethod
    def of_run(self, run_id: str) -> Self:
        """Return this backend, adapted to the worker of a single run."""

    @abstractmethod
    def for_tasks(self, tasks: Sequence[TaskDefinition]) -> Self:
        """Return this backend with the timeouts from these tasks' publish budgets."""

    @abstractmethod
    def take_over(self, workflow_id: str) -> None:
        """Release a workflow from a process that is known to be dead, unless the server does so by itself."""

    @abstractmethod
    def with_workspace_root(self, folder: Path) -> Self:
        """Return a copy of this backend for an executor whose workdirs are below `folder`."""

    def open_ports(self) -> tuple[Lake, Orchestrator]:
        """Open the lake and the orchestrator for this process."""
        return self.open_lake(), self.open_orchestrator()

    @contextmanager
    def opened(self) -> Iterator[tuple[Lake, Orchestrator]]:
        """Open the lake and the orchestrator, and close them afterwards."""
        with ExitStack() as stack:
            lake, orchestrator = self.open_ports()
            stack.callback(orchestrator.close)
            stack.callback(lake.close)
            yield lake, orchestrator

    def check_places(self, tasks: Sequence[TaskDefinition]) -> None:
        """Raise an error if one of the Spark tasks cannot run with its placement. Call this before polling."""
        if any(task.kind == "spark" for task in tasks):
            from perago.spark.placement import check_placement

            check_placement(tasks, self.settings, embedded=self.embedded)

    def open_places(self, tasks: Sequence[TaskDefinition]) -> OpenPlace:
        """Return a function that prepares the place where a task's body works: a workdir or a staging branch.

        Spark is imported only if a task needs it.
        """
        from perago.runtime.attempt.place import open_workdir_place

        self.check_places(tasks)
        if all(task.kind == "plain" for task in tasks):
            return open_workdir_place
        from perago.spark.places import spark_places

        return spark_places(self.settings, tasks, embedded=self.embedded)


@dataclass(frozen=True, slots=True)
class Embedded(Backend):
    """The embedded lake below a root, with the orchestrator of the root or of one run.

    Each run's orchestrator has its own file.
    """

    settings: Settings
    run: str | None = None
    limits: RetryLimits = NO_LIMITS
    embedded: ClassVar[bool] = True

    def open_lake(self) -> LocalLake:
        """Open the embedded lake for this process."""
        return open_local_lake(self.settings)

    def open_orchestrator(self) -> LocalOrchestrator:
        """Open the run's orchestrator or, if there is no run, the root's."""
        from perago.orchestrator.local.orchestrator import LocalOrchestrator

        with made_root(self.settings.root):
            return LocalOrchestrator(self._orchestrator_file(), limits=self.limits, file_of=self._file_of)

    def open_read_only(self) -> Orchestrator | None:
        """Open the orchestrator without changing or creating any file. Returns None if there is none."""
        return open_read_only_orchestrator(self._orchestrator_file())

    def import_adapters(self) -> None:
        """Preload the modules that are needed to open the lake and the orchestrator."""
        import perago.lake.local.lake
        import perago.orchestrator.local.orchestrator  # noqa: F401

    def of_run(self, run_id: str) -> Embedded:
        """Return the same lake with the run's orchestrator."""
        return replace(self, run=run_id, settings=run_settings(self.settings))

    def for_tasks(self, tasks: Sequence[TaskDefinition]) -> Embedded:
        """Return self, because publish budgets do not apply to the embedded servers."""
        return self

    def take_over(self, workflow_id: str) -> None:
        """Release a workflow from a process that is known to be dead, instead of waiting for its leases to expire."""
        with closing(self.open_orchestrator()) as orchestrator:
            orchestrator.take_over(workflow_id, "the process that ran it is gone")

    def with_workspace_root(self, folder: Path) -> Embedded:
        """Return a copy of this backend for an executor whose workdirs are below `folder`."""
        return replace(self, settings=replace(self.settings, workspace_root=folder))

    def recording(self, workflow_id: str, step: str) -> Recording:
        """Return the recorded tasks of a workflow, divided into those before a step and the rest."""
        with closing(self.open_orchestrator()) as orchestrator:
            return orchestrator.recording(workflow_id, step)

    def start_from(self, recorded: Recording, branches: Mapping[str, Mapping[str, str]]) -> str:
        """Start a new workflow at the step where a recording was divided, on other branches. Returns its id."""
        with closing(self.open_orchestrator()) as orchestrator:
            return orchestrator.start_from(recorded, branches)

    def _file_of(self, workflow_id: str) -> Path:
        """Return the file with a workflow's state: that of the run that started it, or else the root's."""
        from perago.runtime.runs.record import orchestrator_file, read_runs

        root = self.settings.root
        run = next((one for one in read_runs(root) if one.workflow_id == workflow_id), None)
        return root / "orchestrator.db" if run is None else orchestrator_file(root, run.id)

    def _orchestrator_file(self) -> Path:
        if self.run is None:
            return self.settings.root / "orchestrator.db"
        from perago.runtime.runs.record import orchestrator_file

        return orchestrator_file(self.settings.root, self.run)


@dataclass(frozen=True, slots=True)
class Real(Backend):
    """lakeFS and Conductor.

    `completion_seconds` is the maximum time that a publish budget reserves for sending a result.
    """

    settings: Settings
    completion_seconds: float | None = None
    embedded: ClassVar[bool] = False

    def open_lake(self) -> Lake:
        """Open lakeFS for this process."""
        return open_lakefs(self.settings)

    def open_orchestrator(self) -> Orchestrator:
        """Open Conductor for this process."""
        return open_conductor(self.settings, completion_seconds=self.completion_seconds)

    def open_read_only(self) -> Orchestrator | None:
        """Open Conductor. There is no separate read-only mode, because opening Conductor changes nothing."""
        return open_conductor(self.settings)

    def import_adapters(self) -> None:
        """Preload the modules that are needed to open the lake and the orchestrator."""
        import perago.lake.lakefs.lake
        import perago.orchestrator.conductor.orchestrator  # noqa: F401

    def of_run(self, run_id: str) -> Real:
        """Return this backend with a run's settings. All runs share the same servers."""
        return replace(self, settings=run_settings(self.settings))

    def for_tasks(self, tasks: Sequence[TaskDefinition]) -> Real:
        """Return this backend with the timeouts from these tasks' publish budgets."""
        budgets = (task.controls.publish_budget for task in tasks)
        seconds = [budget.conductor_completion_timeout_seconds for budget in budgets if budget]
        return replace(self, completion_seconds=max(seconds, default=None))

    def take_over(self, workflow_id: str) -> None:
        """Do nothing, because Conductor times out the attempts of dead workers when their leases expire."""

    def with_workspace_root(self, folder: Path) -> Real:
        """Return a copy of this backend for an executor whose workdirs are below `folder`."""
        return replace(self, settings=replace(self.settings, workspace_root=folder))


def for_short_run(settings: Settings) -> Settings:
    """Return settings for a short run: Spark sessions start quickly, unless the settings specify otherwise."""
    return replace(settings, spark_session="quick") if settings.spark_session == "auto" else settings


def run_settings(settings: Settings) -> Settings:
    """Return settings for the worker of one run.

    In such a run, invalid input is a terminal failure, because every retry would run the same code.
    """
    return replace(for_short_run(settings), wrong_input="terminal")


# --- single servers --------------------------------------------------------------------------------------------------


def open_lakefs(settings: Settings) -> Lake:
    """Open the real lakeFS. Raises `RuntimeConfigError` if it is not configured."""
    from perago.lake.lakefs.lake import LakeFSLake

    lakefs = configured_lakefs(settings)
    return LakeFSLake(
        lakefs.endpoint,
        access_key_id=lakefs.access_key_id,
        secret_access_key=lakefs.secret_access_key,
        cache_dir=settings.cache_dir,
        cache_bytes=settings.cache_bytes,
        transfer=settings.transfer,
    )


def open_fence(lake: Lake) -> Fence:
    """Return the fence for an open lakeFS. The embedded lake checks heads by itself and needs no fence."""
    from perago.lake.lakefs.fence import Fence

    return Fence(lake)


def open_local_lake(settings: Settings) -> LocalLake:
    """Open the embedded lake below the root."""
    from perago.lake.local.lake import LocalLake

    with made_root(settings.root):
        return LocalLake(settings.root / "lake")


def has_local_lake(settings: Settings) -> bool:
    """Return whether there is an embedded lake below the root. Opening a missing one would create it."""
    return (settings.root / "lake" / "lake.db").is_file()


def open_conductor(settings: Settings, *, completion_seconds: float | None = None) -> Orchestrator:
    """Open the real Conductor. Raises `RuntimeConfigError` if it is not configured."""
    from perago.orchestrator.conductor.orchestrator import ConductorOrchestrator, Timeouts

    conductor = configured_conductor(settings)
    return ConductorOrchestrator(
        conductor.url,
        auth_key=conductor.auth_key,
        auth_secret=conductor.auth_secret,
        timeouts=None if completion_seconds is None else Timeouts(completion=completion_seconds),
    )


def open_conductor_scheduler(settings: Settings) -> Scheduler:
    """Open the real Conductor's scheduler. Raises `RuntimeConfigError` if Conductor is not configured."""
    from perago.orchestrator.conductor import wire
    from perago.orchestrator.conductor.http import Address, ConductorApi
    from perago.orchestrator.conductor.orchestrator import Timeouts
    from perago.orchestrator.conductor.scheduler import ConductorScheduler

    conductor, timeouts = configured_conductor(settings), Timeouts()
    api = ConductorApi(
        Address(conductor.url, conductor.auth_key, conductor.auth_secret),
        connect_timeout=timeouts.connect,
        read_timeout=timeouts.read,
    )
    return ConductorScheduler(api, wire.address(conductor.url))


def open_local_orchestrator(settings: Settings, path: Path | None = None) -> LocalOrchestrator:
    """Open the embedded orchestrator below the root, or the one stored in the file `path`."""
    from perago.orchestrator.local.orchestrator import LocalOrchestrator

    with made_root(settings.root):
        return LocalOrchestrator(path or settings.root / "orchestrator.db")


def open_scratch_orchestrator(
    folder: Path, clock: Callable[[], float], sleep: Callable[[float], None]
) -> LocalOrchestrator:
    """Open an empty embedded orchestrator in an existing folder, with a clock of its own."""
    from perago.orchestrator.local.orchestrator import LocalOrchestrator

    return LocalOrchestrator(folder / "orchestrator.db", clock=clock, sleep=sleep)


def open_read_only_orchestrator(path: Path) -> LocalOrchestrator | None:
    """Open the embedded orchestrator stored in this file, read-only. Returns None if the file does not exist."""
    from perago.orchestrator.local.orchestrator import LocalOrchestrator

    # Its clock stands at zero, so that nothing times out while we read a run whose worker is dead.
    return LocalOrchestrator(path, clock=lambda: 0.0, read_only=True) if path.is_file() else None


def open_local_orchestrators(settings: Settings) -> list[Orchestrator]:
    """Open every embedded orchestrator below the root: the worker's, and one for each run."""
    files = [settings.root / "orchestrator.db", *sorted(settings.root.glob("runs/*/orchestrator.db"))]
    return [open_local_orchestrator(settings, file) for file in files if file.is_file()]


def configured_lakefs(settings: Settings) -> LakeFSSettings:
    """Return the settings for lakeFS. Raises `RuntimeConfigError` if it is not configured."""
    if settings.lakefs is None:
        raise RuntimeConfigError(f"lakeFS is not configured: set {', '.join(LAKEFS_NAMES)}")
    return settings.lakefs


def configured_conductor(settings: Settings) -> ConductorSettings:
    """Return the settings for Conductor. Raises `RuntimeConfigError` if it is not configured."""
    if settings.conductor is None:
        raise RuntimeConfigError("Conductor is not configured: set CONDUCTOR_SERVER_URL")
    return settings.conductor


@dataclass(frozen=True, slots=True)
class ProbedServers:
    """The servers that `perago doctor` examines, opened with short timeouts and without a cache."""

    settings: Settings

    def open_lakefs(self) -> LakeFSLake:
        """Open the real lakeFS with short timeouts and without a cache."""
        from perago.lake.lakefs.client import Options
        from perago.lake.lakefs.lake import LakeFSLake

        settings = configured_lakefs(self.settings)
        return LakeFSLake(
            settings.endpoint,
            access_key_id=settings.access_key_id,
            secret_access_key=settings.secret_access_key,
            cache_dir=self.settings.cache_dir,
            cache_bytes=0,
            options=Options(
                connect_timeout=3, read_timeout=15, commit_timeout=20, object_timeout=20, tries=2
            ),
        )

    def open_embedded(self) -> Lake | None:
        """Open the embedded lake. Returns None if there is none."""
        return open_local_lake(self.settings) if has_local_lake(self.settings) else None

    def open_conductor(self) -> Orchestrator:
        """Open the real Conductor with short timeouts."""
        from perago.orchestrator.conductor.orchestrator import ConductorOrchestrator, Timeouts

        settings = configured_conductor(self.settings)
        return ConductorOrchestrator(
            settings.url,
            auth_key=settings.auth_key,
            auth_secret=settings.auth_secret,
            timeouts=Timeouts(connect=3, read=5, completion=5),
        )

    def fence_files(self) -> Mapping[str, bytes]:
        """Return the files that a commit on lakeFS must contain to be fenced, keyed by path."""
        from perago.lake.lakefs.fence import FENCE_PATH, FENCE_TEXT

        return {FENCE_PATH: FENCE_TEXT.encode()}


# --- names of servers ------------------------------------------------------------------------------------------------


def server_names(
    settings: Settings, lake: Lake, orchestrator: Orchestrator, *, embedded: bool
) -> tuple[str, str]:
    """Return the name and version of each server, as the server reports them, with its address.

    Raises `RuntimeConfigError` if a server does not identify itself as lakeFS or Conductor.  The error names the
    address and the setting that contains it.
    """
    if embedded:
        return lake.server(), orchestrator.server()
    return name_lake(lake, settings), name_orchestrator(orchestrator, settings)


def name_lake(lake: Lake, settings: Settings) -> str:
    """Return lakeFS's name and version, as the server reports them, and its address."""
    where = shown_address(settings.lakefs.endpoint) if settings.lakefs else "no address"
    try:
        return f"{lake.server()} at {where}"
    except LakeUnauthenticated as error:
        raise RuntimeConfigError(
            f"lakeFS at {where} does not know the keys: check {_KEYS} ({_cause(error)})"
        ) from error
    except LakeError as error:
        raise RuntimeConfigError(f"no lakeFS at {where}: check {_ENDPOINT} ({_cause(error)})") from error


def name_orchestrator(orchestrator: Orchestrator, settings: Settings) -> str:
    """Return Conductor's name and version, as the server reports them, and its address."""
    where = shown_address(settings.conductor.url) if settings.conductor else "no address"
    try:
        return f"{orchestrator.server()} at {where}"
    except OrchestratorError as error:
        raise RuntimeConfigError(
            f"no Conductor at {where}: check CONDUCTOR_SERVER_URL, which ends in /api ({_cause(error)})"
        ) from error


def _cause(error: Exception) -> str:
    """Return the error's text without its remedy, because the caller adds one."""
    return str(error).partition("; check ")[0]
