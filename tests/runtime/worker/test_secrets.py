"""A body that prints a secret: it is masked everywhere outside the worker."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from perago.protocol.steps import HAND_OVER
from tests.support.faults.observers import PauseAt
from tests.support.tasks.steps import forms_of_the_secret
from tests.support.worlds.clock import eventually
from tests.support.worlds.worker_world import WorkerWorld

KNOWN = {
    "CONDUCTOR_SERVER_URL": "http://conductor.example/api",
    "CONDUCTOR_AUTH_KEY": "worker-key",
    "CONDUCTOR_AUTH_SECRET": "hush/hush+1",
}
MASKED = "the key is *** or *** or ***"


@contextmanager
def nothing_written(database: Path) -> Iterator[None]:
    """The embedded orchestrator takes no results for as long as the block runs."""
    with closing(sqlite3.connect(database, isolation_level=None)) as held:
        held.execute("BEGIN EXCLUSIVE")
        yield
        held.execute("ROLLBACK")


@pytest.mark.slow
@pytest.mark.parametrize("world", ["local"], indirect=True)
def test_a_secret_in_an_exception_and_in_what_a_body_prints_is_seen_nowhere(world: WorkerWorld) -> None:
    world.response_seconds = 60
    logs, go_on = world.folder / "logs", world.folder / "go-on"
    pause = PauseAt(HAND_OVER.name, world.folder / "failed", go_on)
    worker = world.start_worker(observe=pause, slots=1, PERAGO_LOG_ROOT=str(logs), **KNOWN)
    workflow_id = world.start_workflow({"do": "give the secret away"})
    eventually((world.folder / "failed").exists, "the body has failed")
    with nothing_written(world.root / "orchestrator.db"):
        go_on.touch()
        eventually(world.stored_results, "it is in the outbox")
        kept = [file.read_text() for file in (world.folder / "root/workspaces/outbox").glob("*.json")]
    ended = world.finished(workflow_id)
    worker.drain()

    task = ended.tasks[0]
    assert (task.reason or "").startswith(f"ValueError: {MASKED} (steps.py:")
    assert f"ValueError: {MASKED}" in world.task_log(task.task_id), "the traceback is masked too"
    assert MASKED in world.task_log(task.task_id)
    assert MASKED in worker.said()
    assert [MASKED in text for text in kept] == [True]
    database = b"".join(file.read_bytes() for file in world.root.glob("orchestrator.db*"))
    said = [worker.said(), *kept, *(file.read_text() for file in logs.iterdir())]
    for form in forms_of_the_secret(KNOWN):
        assert form.encode() not in database
        assert not [text for text in said if form in text]
