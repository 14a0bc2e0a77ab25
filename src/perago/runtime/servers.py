"""Which lake and which orchestrator, as the runtime sees it: a value that each process of a worker opens for itself.

`connect` makes these values; they travel to the executors, so all that is in one can be pickled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from perago.declare.task import TaskDefinition
from perago.lake.base import Lake
from perago.orchestrator.base import Orchestrator
from perago.runtime.attempt.place import OpenPlace
from perago.settings import Settings


class Servers(Protocol):
    """One lake and one orchestrator."""

    @property
    def settings(self) -> Settings:
        """The settings that they are found by."""

    @property
    def embedded(self) -> bool:
        """Whether they are the embedded ones."""

    def working_in(self, folder: Path) -> Servers:
        """The same, for an executor whose workdirs are below that folder."""

    def open_ports(self) -> tuple[Lake, Orchestrator]:
        """Both, for this process."""

    def open_places(self, tasks: Sequence[TaskDefinition]) -> OpenPlace:
        """Where the bodies of these tasks work."""


@contextmanager
def opened(servers: Servers) -> Iterator[tuple[Lake, Orchestrator]]:
    """Both ports, closed afterwards."""
    with ExitStack() as closing:
        lake, orchestrator = servers.open_ports()
        closing.callback(orchestrator.close)
        closing.callback(lake.close)
        yield lake, orchestrator
