"""Opens single servers: a lake, an orchestrator, or the fence of a branch, as the settings say.

Only this module and `connect` import adapters.  SDKs are imported only when they are needed, so that `perago check` stays
quick.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perago.errors import RuntimeConfigError
from perago.lake.base import Lake
from perago.orchestrator.base import Orchestrator
from perago.runtime.root.state_dir import made_root
from perago.settings import LAKEFS_NAMES, ConductorSettings, LakeFSSettings, Settings

if TYPE_CHECKING:
    from perago.lake.lakefs.fence import Fence
    from perago.lake.lakefs.lake import LakeFSLake
    from perago.lake.local.lake import LocalLake
    from perago.orchestrator.local.orchestrator import LocalOrchestrator


def open_lakefs(settings: Settings) -> Lake:
    """The real lakeFS; says what is missing where it is not configured."""
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
    """The fence of an open lakeFS's branches; the embedded lake compares heads by itself and needs none."""
    from perago.lake.lakefs.fence import Fence

    return Fence(lake)


def open_local_lake(settings: Settings) -> LocalLake:
    """The embedded lake below the root."""
    from perago.lake.local.lake import LocalLake

    with made_root(settings.root):
        return LocalLake(settings.root / "lake")


def has_local_lake(settings: Settings) -> bool:
    """Whether there is an embedded lake below the root; opening one that is not there would make it."""
    return (settings.root / "lake" / "lake.db").is_file()


def open_conductor(settings: Settings, *, completion_seconds: float | None = None) -> Orchestrator:
    """The real Conductor; says what is missing where it is not configured."""
    from perago.orchestrator.conductor.orchestrator import ConductorOrchestrator, Timeouts

    conductor = configured_conductor(settings)
    return ConductorOrchestrator(
        conductor.url,
        auth_key=conductor.auth_key,
        auth_secret=conductor.auth_secret,
        timeouts=None if completion_seconds is None else Timeouts(completion=completion_seconds),
    )


def open_local_orchestrator(settings: Settings, path: Path | None = None) -> LocalOrchestrator:
    """The embedded orchestrator below the root, or the one of a run, which has a file of its own."""
    from perago.orchestrator.local.orchestrator import LocalOrchestrator

    with made_root(settings.root):
        return LocalOrchestrator(path or settings.root / "orchestrator.db")


def open_read_only_orchestrator(path: Path) -> LocalOrchestrator | None:
    """The embedded orchestrator in a file, to be looked at; None where there is none."""
    from perago.orchestrator.local.orchestrator import LocalOrchestrator

    # Its clock stands still at the beginning of time: looking at a run whose worker is dead times nothing out.
    return LocalOrchestrator(path, clock=lambda: 0.0, looking=True) if path.is_file() else None


def open_local_orchestrators(settings: Settings) -> list[Orchestrator]:
    """Every embedded orchestrator that there is below the root: the worker's, and one for each run."""
    files = [settings.root / "orchestrator.db", *sorted(settings.root.glob("runs/*/orchestrator.db"))]
    return [open_local_orchestrator(settings, file) for file in files if file.is_file()]


def configured_lakefs(settings: Settings) -> LakeFSSettings:
    """The settings of lakeFS; says what is missing where there are none."""
    if settings.lakefs is None:
        raise RuntimeConfigError(f"lakeFS is not configured: set {', '.join(LAKEFS_NAMES)}")
    return settings.lakefs


def configured_conductor(settings: Settings) -> ConductorSettings:
    """The settings of Conductor; says what is missing where there are none."""
    if settings.conductor is None:
        raise RuntimeConfigError("Conductor is not configured: set CONDUCTOR_SERVER_URL")
    return settings.conductor


@dataclass(frozen=True, slots=True)
class Examined:
    """The servers for `perago doctor`, which wants to know soon whether they work: little patience, and no cache."""

    settings: Settings

    def open_lakefs(self) -> LakeFSLake:
        """The real lakeFS."""
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
        """The embedded lake, if there is one."""
        return open_local_lake(self.settings) if has_local_lake(self.settings) else None

    def open_conductor(self) -> Orchestrator:
        """The real Conductor."""
        from perago.orchestrator.conductor.orchestrator import ConductorOrchestrator, Timeouts

        settings = configured_conductor(self.settings)
        return ConductorOrchestrator(
            settings.url,
            auth_key=settings.auth_key,
            auth_secret=settings.auth_secret,
            timeouts=Timeouts(connect=3, read=5, completion=5),
        )

    def fence_files(self) -> Mapping[str, bytes]:
        """What a commit on lakeFS must carry for the server to fence merges from it, by path."""
        from perago.lake.lakefs.fence import FENCE_PATH, FENCE_TEXT

        return {FENCE_PATH: FENCE_TEXT.encode()}
