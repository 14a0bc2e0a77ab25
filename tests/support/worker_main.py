"""The worker process of the tests: `perago start` with an observer that the test chose."""

from __future__ import annotations

import functools
import os
import pickle
import sys
from pathlib import Path

from perago.connect import max_result_bytes, open_ports
from perago.declare.discovery import load_tasks
from perago.runtime.observe.logs import logging_to
from perago.runtime.registration import apply_changes, plan_changes
from perago.runtime.worker.executor import ExecutorSpec, see_nothing
from perago.runtime.worker.plan import WorkerPlan
from perago.runtime.worker.supervisor import Supervisor
from perago.settings import load_settings

TARGET = str(Path(__file__).with_name("steps.py"))


def main(root: str, slots: str, local: str, observer: str) -> int:
    settings = load_settings(os.environ, root=Path(root))
    tasks = load_tasks([TARGET])
    ports = functools.partial(open_ports, settings, local=local == "local")
    observe = pickle.loads(bytes.fromhex(observer)) if observer else see_nothing
    lake, orchestrator = ports()
    apply_changes(orchestrator, plan_changes(orchestrator, tasks))
    spec = ExecutorSpec(settings, (TARGET,), ports, max_result_bytes(), observe)
    with logging_to(settings, name="supervisor"):
        return Supervisor(
            WorkerPlan({task.name: task for task in tasks}, int(slots), spec), orchestrator, lake
        ).run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
