"""The sweep of a worker's own root: a chore that comes back, and that no full disk or foreign file can end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from perago.runtime.sweep.workdirs import sweep_workdirs
from perago.runtime.worker.executions import Executions
from perago.settings import Settings

log = logging.getLogger("perago.supervisor")


@dataclass(frozen=True, slots=True)
class Sweeping:
    """Removes workdirs that nobody works in; `swept` is told how many."""

    settings: Settings
    executions: Executions
    swept: Callable[[int], None]

    def sweep(self) -> float:
        """Sweep once; returns the seconds until the next time."""
        root, ttl = self.settings.workspace_root, self.settings.workspace_gc_ttl
        try:
            self.swept(len(sweep_workdirs(root, now=time.time(), ttl=ttl, runs_here=self.executions.has)))
        except OSError as error:
            log.warning("workdirs could not be swept: %s", error)
        return max(1.0, self.settings.workspace_gc_interval)
