"""A courier of a test's own, and a lake with the claim of the result that it carries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from perago.lake.local.lake import LocalLake
from perago.runtime.execution_result import DeliveryResult
from perago.runtime.worker.job_scheduler import JobScheduler
from perago.runtime.worker.outbox import Outbox
from perago.runtime.worker.result_sender import SECOND_LOOK_SECONDS, ResultSender

CLAIM = "perago-claim-x"


@contextmanager
def claimed_lake(folder: Path) -> Iterator[LocalLake]:
    """A lake with a repository `songs` and a claim in it."""
    with closing(LocalLake(folder)) as made:
        made.create_repository("songs")
        made.create_branch("songs", CLAIM, "main")
        yield made


@contextmanager
def carrying(
    orchestrator: Any,
    lake: Any,
    root: Path,
    *,
    mask: Callable[[str], str] = str,
    reason_limit: int = 500,
    second_look_seconds: float = SECOND_LOOK_SECONDS,
) -> Iterator[tuple[ResultSender, SimpleQueue[DeliveryResult]]]:
    """A courier with one thread, and what it has delivered."""
    delivered: SimpleQueue[DeliveryResult] = SimpleQueue()
    with JobScheduler("test", threads=1) as table:
        sender = ResultSender(
            *(orchestrator, lake, Outbox(root), table, "worker", reason_limit, delivered.put, mask),
            second_look_seconds=second_look_seconds,
        )
        yield sender, delivered
