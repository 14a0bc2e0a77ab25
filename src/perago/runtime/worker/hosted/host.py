"""In a process of an engine's executor: hosts an executor process of ours, and passes on what it says.

The executor is the one that a worker starts on its own machine, in a process group of its own: what a body does to its
process, printing from C with the GIL held included, never keeps the host from listening and from ending it.  It stays for
the jobs that follow, with its clients open, and ends when its host does.

    the worker is gone, or the engine     the executor sees the end of its pipe, and goes with all that it has started
    ends the host
    the line is cut                       the host calls again for a while, then ends the executor, unless its attempt is
                                          settled: the job brings the ending too
    the executor dies                     the host says how, and starts another one for the next job
"""

from __future__ import annotations

import os
import sys
from contextlib import closing
from dataclasses import replace
from functools import partial
from multiprocessing import Pipe

from perago.protocol.names import rerun_id
from perago.protocol.outcome import describe
from perago.runtime.jobs import Spot
from perago.runtime.root.own_folder import own_folder
from perago.runtime.worker.hosted.calls import Hello, HostPlan, Report
from perago.runtime.worker.hosted.hosting import HostedExecutor, Hosting
from perago.runtime.worker.hosted.line import Line, LineLost
from perago.runtime.worker.hosted.switchboard import call
from perago.runtime.worker.messages import Run
from perago.runtime.worker.process_link import death_of, start_process

RERUNS = 100
"""So many numbers are an engine's own, between one handing out of an execution and the next."""

_executors: dict[tuple[int, str], HostedExecutor] = {}
"""By process, since what a fork has inherited is another's, and by worker."""


def host(plan: HostPlan, job: str, run: Run | None, spot: Spot) -> Report:
    """Have an executor run an attempt, or only become ready; what goes wrong is reported, never raised."""
    with closing(Line(partial(call, plan.address, plan.key), Hello(job, spot.again))) as line:
        try:
            line.open()
        except LineLost as error:
            return Report((), f"no line to its worker at {plan.address[0]}:{plan.address[1]}: {error}")
        key = (os.getpid(), plan.session)
        try:
            executor = _alive(_executors.pop(key, None)) or start_executor(plan, spot)
        except Exception as error:
            return Report(line.kept, f"a start that failed: {describe(error)}")
        hosting = Hosting(executor, line, numbered(run, spot) if run is not None else None)
        how = hosting.until_over()
        if not how and hosting.is_last(plan.spec.settings.executor_max_tasks):
            executor.end()
        elif not how:
            _executors[key] = executor
        return Report(line.kept, how)


def numbered(run: Run, spot: Spot) -> Run:
    """The same, under an id that no other run of this execution has had."""
    number = (run.given - 1) * RERUNS + spot.again
    return replace(run, execution_id=rerun_id(run.execution_id, number))


def start_executor(plan: HostPlan, spot: Spot) -> HostedExecutor:
    """Start an executor process below this one."""
    if str(plan.folder) not in sys.path:
        sys.path.insert(0, str(plan.folder))
    workdirs = own_folder(spot.scratch / "perago-work", "host")
    spec = replace(plan.spec, servers=plan.spec.servers.working_in(workdirs))
    ours, theirs = Pipe()
    output, write = os.pipe()
    try:
        process = start_process(spec, os.getpid(), theirs, write)
    except BaseException:
        ours.close()
        os.close(output)
        raise
    finally:
        theirs.close()
        os.close(write)
    os.set_blocking(output, False)
    return HostedExecutor(process, ours, output, death_of(process), workdirs)


def _alive(executor: HostedExecutor | None) -> HostedExecutor | None:
    """The executor of the job before, unless it has died since."""
    if executor is not None and executor.dead:
        executor.end()
        return None
    return executor
