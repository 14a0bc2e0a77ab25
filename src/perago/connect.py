"""The one place that turns settings into adapters.

The command line, the executors' entry point and `perago.testing` call it; nothing else imports an adapter.
SDKs are imported here only when they are needed, so that `perago check` stays quick.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from perago.declare.task import TaskDefinition
from perago.errors import RuntimeConfigError
from perago.lake.base import Lake
from perago.orchestrator.base import Orchestrator
from perago.runtime.attempt.place import OpenPlace, in_workdir
from perago.settings import LAKEFS_NAMES, Settings

ROOM_FOR_THE_WORKSPACE = 4096
"""Bytes of an output that are not the body's result."""

if TYPE_CHECKING:
    from perago.lake.lakefs.fence import Fence
    from perago.lake.local.lake import LocalLake
    from perago.orchestrator.local.orchestrator import LocalOrchestrator


def open_lake(settings: Settings) -> Lake:
    """The real lakeFS where it is configured, else the embedded lake below the root."""
    if settings.lakefs is not None:
        return open_lakefs(settings)
    return open_local_lake(settings)


def open_lakefs(settings: Settings) -> Lake:
    """The real lakeFS; says what is missing where it is not configured."""
    if settings.lakefs is None:
        raise RuntimeConfigError(f"lakeFS is not configured: set {', '.join(LAKEFS_NAMES)}")
    from perago.lake.lakefs.lake import LakeFSLake

    return LakeFSLake(
        settings.lakefs.endpoint,
        access_key_id=settings.lakefs.access_key_id,
        secret_access_key=settings.lakefs.secret_access_key,
        cache_dir=settings.cache_dir,
        cache_bytes=settings.cache_bytes,
    )


@contextmanager
def open_fence(settings: Settings) -> Iterator[Fence]:
    """The fence of the real lakeFS's branches; the embedded lake compares heads by itself and needs none."""
    from perago.lake.lakefs.fence import Fence

    lake = open_lakefs(settings)
    try:
        yield Fence(lake)
    finally:
        lake.close()


def open_local_lake(settings: Settings) -> LocalLake:
    """The embedded lake below the root."""
    from perago.lake.local.lake import LocalLake

    return LocalLake(settings.root / "lake")


def open_conductor(settings: Settings, *, completion_seconds: float | None = None) -> Orchestrator:
    """The real Conductor; says what is missing where it is not configured."""
    if settings.conductor is None:
        raise RuntimeConfigError("Conductor is not configured: set CONDUCTOR_SERVER_URL")
    from perago.orchestrator.conductor.orchestrator import ConductorOrchestrator, Timeouts

    return ConductorOrchestrator(
        settings.conductor.url,
        auth_key=settings.conductor.auth_key,
        auth_secret=settings.conductor.auth_secret,
        timeouts=None if completion_seconds is None else Timeouts(completion=completion_seconds),
    )


def open_local_orchestrator(settings: Settings, path: Path | None = None) -> LocalOrchestrator:
    """The embedded orchestrator below the root, or the one of a run, which has a file of its own."""
    from perago.orchestrator.local.orchestrator import LocalOrchestrator

    return LocalOrchestrator(path or settings.root / "orchestrator.db")


def open_local_orchestrators(settings: Settings) -> list[Orchestrator]:
    """Every embedded orchestrator that there is below the root: the worker's, and one for each run."""
    files = [settings.root / "orchestrator.db", *sorted(settings.root.glob("runs/*/orchestrator.db"))]
    return [open_local_orchestrator(settings, file) for file in files if file.is_file()]


def open_ports(
    settings: Settings,
    *,
    local: bool,
    orchestrator_file: Path | None = None,
    completion_seconds: float | None = None,
) -> tuple[Lake, Orchestrator]:
    """Both ports of a worker; each of its processes opens its own."""
    if local:
        return open_local_lake(settings), open_local_orchestrator(settings, orchestrator_file)
    return open_lakefs(settings), open_conductor(settings, completion_seconds=completion_seconds)


def check_places(settings: Settings, tasks: Sequence[TaskDefinition], *, local: bool) -> None:
    """Refuse tasks that cannot work where their placement puts them; to be called before anything is polled."""
    if any(task.kind == "spark" for task in tasks):
        from perago.spark.placement import check_placement

        check_placement(tasks, settings, embedded=local)


def open_places(settings: Settings, tasks: Sequence[TaskDefinition], *, local: bool) -> OpenPlace:
    """Where the bodies of these tasks work; Spark is brought in only where one of them needs it."""
    check_places(settings, tasks, local=local)
    if all(task.kind == "plain" for task in tasks):
        return in_workdir
    from perago.spark.workdir_place import spark_places

    return spark_places(settings, tasks, embedded=local)


def max_result_bytes() -> int:
    """The largest result that Conductor takes; the embedded orchestrator keeps to it too, so both end the same."""
    from perago.orchestrator.conductor.orchestrator import MAX_OUTPUT_BYTES

    return MAX_OUTPUT_BYTES - ROOM_FOR_THE_WORKSPACE
