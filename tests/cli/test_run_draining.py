"""A run that finishes its steps after Ctrl-C: how they stand is still shown."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes.commands import WAIT_SECONDS, Shell
from tests.support.worlds.clock import eventually

TASKS = """
import time
from pathlib import Path
from pydantic import BaseModel
from perago import task


class Wait(BaseModel):
    name: str


class Nothing(BaseModel): ...


@task(name="wait", owner_email="a@example.com")
def wait(params: Wait) -> Nothing:
    Path(f"at-{params.name}").touch()
    while not Path(f"go-{params.name}").exists():
        time.sleep(0.02)
    return Nothing()
"""


@pytest.mark.slow
def test_a_step_that_ends_while_another_is_being_finished_is_shown_at_once(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "flow.json").write_text(json.dumps(side_by_side("one", "two")))
    shell = Shell(tmp_path)
    with shell.start("run", "flow.json", "--tasks", "tasks.py") as process:
        try:
            eventually(lambda: all((tmp_path / f"at-{name}").exists() for name in ("one", "two")), "both run")
            (log,) = (tmp_path / ".perago" / "runs").glob("*/run.log")
            process.send_signal(signal.SIGINT)
            eventually(lambda: "draining (SIGINT)" in log.read_text(), "it drains")

            (tmp_path / "go-one").touch()

            eventually(lambda: "one: COMPLETED" in log.read_text(), "the end of the first is shown")
            assert "two: COMPLETED" not in log.read_text()
            (tmp_path / "go-two").touch()
            _, said = process.communicate(timeout=WAIT_SECONDS)
        finally:
            process.kill()
    # Nothing was left to do.
    assert process.returncode == 0
    assert said.index("finishing steps one, two; Ctrl-C again") < said.index("one: COMPLETED")
    assert said.index("one: COMPLETED") < said.index("two: COMPLETED")


def side_by_side(*names: str) -> dict[str, Any]:
    steps = [
        {"name": "wait", "taskReferenceName": name, "type": "SIMPLE", "inputParameters": {"params": {"name": name}}}
        for name in names
    ]  # fmt: skip
    fork = {
        "name": "fork",
        "taskReferenceName": "fork",
        "type": "FORK_JOIN",
        "forkTasks": [[one] for one in steps],
    }
    join = {"name": "join", "taskReferenceName": "join", "type": "JOIN", "joinOn": list(names)}
    return {"name": "flow", "version": 1, "schemaVersion": 2, "tasks": [fork, join]}
