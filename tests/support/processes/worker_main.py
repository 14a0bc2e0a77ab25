"""What a worker process of the tests runs: `perago start` with an observer that the test chose."""

from __future__ import annotations

import os
import pickle
from dataclasses import replace
from pathlib import Path

from perago.assembly import assemble_worker, on_spark, prepare_executors
from perago.backend import Embedded, Real
from perago.declare.discovery import load_tasks
from perago.runtime.observe.logs import logging_to
from perago.runtime.worker.hosted.link import Hosted
from perago.runtime.worker.plan import WorkerPlan, check_lake, mend_taskdefs
from perago.runtime.worker.supervisor import Supervisor
from perago.settings import load_settings
from tests.support.processes.fork_server import Nursery
from tests.support.processes.process_jobs import ProcessJobs

TASKS = Path(__file__).parents[1] / "tasks"
RERUNS = ("rerun", "reruns")


def main(root: str, slots: str, local: str, observer: str) -> int:
    target = str(TASKS / os.environ.get("TEST_TASKS", "steps.py"))
    settings = load_settings(os.environ, root=Path(root))
    servers = Embedded(settings) if local == "local" else Real(settings)
    engine = os.environ.get("TEST_ENGINE", "")
    # Before anything begins a thread, as the template of executors is.
    nursery = Nursery.of_this_process() if engine.endswith(RERUNS) else None
    prepare_executors(servers)
    tasks = load_tasks([target])
    observe = pickle.loads(bytes.fromhex(observer)) if observer else None
    plan = assemble_worker(servers, [target], tasks, slots=int(slots), observe=observe)
    with plan.spec.servers.opened() as (lake, orchestrator), logging_to(settings, name="supervisor"):
        check_lake(lake)
        mend_taskdefs(orchestrator, tasks)
        plan = with_engine(plan, engine, nursery)
        return Supervisor(plan, orchestrator, lake).run()


def with_engine(plan: WorkerPlan, engine: str, nursery: Nursery | None) -> WorkerPlan:
    """The worker on Spark, or on jobs that are processes; "2 reruns" means that these are run again twice."""
    if engine == "spark":
        return on_spark(plan, [])
    if nursery is None:
        return plan
    scratch = plan.settings.root / "scratch"
    hosted = Hosted(ProcessJobs(nursery, scratch, reruns=int(engine.split()[0])), plan.spec, name="processes")
    hosted.check()
    return replace(plan, engine=hosted)
