"""Servers for a worker whose executors are never started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perago.declare.task import TaskDefinition
from perago.lake.base import Lake
from perago.orchestrator.base import Orchestrator
from perago.runtime.attempt.place import OpenPlace
from perago.settings import Settings


@dataclass(frozen=True, slots=True)
class NoServers:
    """Servers that nobody may open."""

    settings: Settings
    embedded: bool = True

    def working_in(self, folder: Path) -> NoServers:
        return self

    def open_ports(self) -> tuple[Lake, Orchestrator]:
        raise AssertionError("nothing is started here")

    def open_places(self, tasks: Sequence[TaskDefinition]) -> OpenPlace:
        raise AssertionError("nothing is started here")
