"""The supervisor: polls, hands attempts to executors, extends their leases and sends their results.

All decisions are made on one thread, which handles the messages in its inbox one at a time.  Other threads (pollers,
executors' listeners, leases, the result sender) only post messages.  So no lock is needed, and the thread waits only
for the next message: a slot's backoff, a slow server or the removal of many files never blocks it.

    polled ─▶ waiting ─▶ busy slot ─▶ ended ─▶ outbox, result sender ─▶ accepted, lease let go
                            ├──▶ died ─▶ FAILED with the reason, the same way
                            └──▶ attempt over meanwhile ─▶ executor killed, nothing sent
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial

from perago.lake.base import StagingLake
from perago.orchestrator.base import Assignment, Orchestrator
from perago.protocol.backoff import Backoff
from perago.protocol.outcome import dispatch_failed
from perago.runtime.execution_result import Claim, DeliveryResult, pending_result_of
from perago.runtime.observe.events import Event, Listener, counting, telling
from perago.runtime.observe.health import HealthState
from perago.runtime.observe.logs import logging_to
from perago.runtime.observe.metrics import open_metrics
from perago.runtime.observe.sanitize import Masker, secrets_of
from perago.runtime.observe.traces import open_traces
from perago.runtime.process.process_setup import reaping_orphans
from perago.runtime.root.state_dir import locked_root, make_root
from perago.runtime.sweep.workdirs import WorkdirSweep
from perago.runtime.worker import executor_protocol, inbox
from perago.runtime.worker.executions import EventPublisher, Execution, Executions, fields_of, log_result
from perago.runtime.worker.executor_exit import DeadExecutorCleanup, ExecutorExitHandler
from perago.runtime.worker.in_flight import InFlightFiles, ReportJob, without_result
from perago.runtime.worker.job_scheduler import JobScheduler
from perago.runtime.worker.leases import LeaseKeeper
from perago.runtime.worker.lifecycle import Shutdown, posting_stop_signals, serve_status
from perago.runtime.worker.lineage import reporting_lineage
from perago.runtime.worker.pending_results import PendingResults
from perago.runtime.worker.plan import SlotPool, WorkerPlan
from perago.runtime.worker.poller import Pollers
from perago.runtime.worker.self_check import SelfCheck, probe_worker
from perago.runtime.worker.slots import BACKOFF, Slot, Slots
from perago.runtime.worker.task_logs import TaskLogs, log_forwarded

log = logging.getLogger("perago.supervisor")

DRAINED, UNFINISHED = 0, 1
BEAT_SECONDS = 1.0
UNTIL_SECONDS = 0.1
SECOND_SWEEP_SECONDS = 10.0
SENDERS = 4

Until = Callable[[], bool]
"""A function that returns whether the work is done.  It may also refresh the caller's display of the run."""


class Supervisor:
    """Runs one worker on one workspace root, from its start to its exit."""

    def __init__(
        self,
        plan: WorkerPlan,
        orchestrator: Orchestrator,
        lake: StagingLake,
        *,
        executor_backoff: Backoff = BACKOFF,
    ) -> None:
        self._plan = plan
        self._orchestrator = orchestrator
        self._lake = lake
        self._root = plan.settings.workspace_root
        self._mask = Masker(secrets_of(plan.settings))
        self._health_state = HealthState(list(plan.tasks), mask=self._mask)
        self._event_publisher = EventPublisher()
        self._inbox = inbox.Inbox()
        self._shutdown = Shutdown(plan.kill_after_seconds, plan.sending_seconds)
        self._waiting: deque[Execution] = deque()
        self._cleanup = DeadExecutorCleanup(self._root, lake)
        self._chores = JobScheduler("chores", threads=SENDERS)
        self._task_logs = TaskLogs(orchestrator.log, inbox=self._inbox)
        probe = partial(probe_worker, lake, self._root)
        self._self_check = SelfCheck(probe, self._chores, self._inbox, health_state=self._health_state)
        self._leases = LeaseKeeper(
            orchestrator,
            plan.worker_id,
            self._inbox,
            health_state=self._health_state,
            threads=max(2, min(plan.slots, 8)),
        )
        self._in_flight = InFlightFiles(self._root, orchestrator.address)
        self._executions = Executions(
            plan.tasks,
            self._leases,
            self._task_logs,
            worker_id=plan.worker_id,
            mask=self._mask,
            in_flight=self._in_flight,
        )
        self._pending_results = PendingResults(
            self._executions, self._cleanup, self._event_publisher, health_state=self._health_state
        )
        self._executor_exits = ExecutorExitHandler(
            self._executions,
            self._waiting,
            self._pending_results,
            self._cleanup,
            self._chores,
            self._self_check,
            self._event_publisher,
        )
        self._workdirs = WorkdirSweep(plan.settings, self._executions.has)
        self._slot_pools = plan.slot_pools
        self._slots = Slots(self._slot_pools, self._inbox, self._executions, executor_backoff)
        self._pollers = Pollers(
            orchestrator, self._slot_pools, plan.worker_id, self._inbox, health_state=self._health_state
        )

    @property
    def health_state(self) -> HealthState:
        """The worker's health.

        A worker is unhealthy until its first executor is ready.  A signal drains the worker even before that.
        """
        return self._health_state

    def run(self, until: Until | None = None, on_event: Listener | None = None) -> int:
        """Work until a signal arrives, `drain` is called or `until` returns True, then finish the attempts in flight.

        Returns the exit code.  0: every attempt in flight has ended and its result has been sent.  1: executors were killed,
        or results could not be sent in time and stay in the outbox.
        """
        if on_event is not None:
            self._event_publisher.listen(on_event)
        with ExitStack() as opened:
            opened.enter_context(locked_root(self._root))
            self._pending_results.open(
                self._plan, (self._lake, self._orchestrator), chores=self._chores, inbox=self._inbox
            )
            second_sweep = min(SECOND_SWEEP_SECONDS, self._sweep())
            for service in (self._chores, self._task_logs, self._leases):
                opened.enter_context(service)
            opened.callback(self._slots.kill_all)
            opened.enter_context(posting_stop_signals(self._inbox))
            self._report_left_behind(answered=self._pending_results.resume())
            # Sweep again soon: if a supervisor was just killed, its executors may not have been dead yet.
            self._chores.add("sweep", self._sweep, after=second_sweep)
            log.info("worker %s", self._plan)
            self._pollers.start()
            self._work(until)
        if self._pending_results:
            log.warning(
                "%d results stay in the outbox; the next start sends them", len(self._pending_results)
            )
        return UNFINISHED if self._shutdown.forced or self._pending_results else DRAINED

    def drain(self) -> None:
        """Take no more attempts, finish those in flight, then let `run` return.  Thread-safe."""
        self._inbox.post(inbox.StopRequested())

    # --- the loop --------------------------------------------------------------------------------------------

    def _work(self, until: Until | None) -> None:
        next_check, done = 0.0, False
        while not self._may_leave(time.monotonic()):
            longest = UNTIL_SECONDS if until is not None else BEAT_SECONDS
            self._inbox.handle_all(self._handle, timeout=self._wait_seconds(longest))
            now = time.monotonic()
            if until is not None and not done and now >= next_check:
                next_check = now + UNTIL_SECONDS
                done = self._check_done(until)
            try:
                self._step(now)
            except Exception:
                log.exception("internal error; the worker continues")
            self._health_state.beat()
            self._health_state.set_in_flight(len(self._executions))

    def _check_done(self, until: Until) -> bool:
        """Call `until`, and drain if the work is done.  Runs while draining too: `until` refreshes the caller's display."""
        try:
            done = until()
        except Exception:
            if self._shutdown.working:
                raise
            log.exception("the view of the run failed; finishing the attempts in flight first")
            return False
        if done:
            self._drain("the work is done")
        return done

    def _wait_seconds(self, longest: float) -> float:
        """Return how long to wait for a message: at most until a slot may start its next executor."""
        next_start = self._slots.next_start() if self._shutdown.working else None
        return longest if next_start is None else min(longest, max(0.0, next_start - time.monotonic()))

    def _step(self, now: float) -> None:
        """Start executors, hand out attempts, poll for more, and dismiss idle executors.

        Runs after each round of messages.
        """
        if self._shutdown.out_of_time(now):
            self._force("the drain took too long")
        if self._shutdown.working or (self._shutdown.draining and self._waiting):
            for slot, started in self._slots.start_due(now):
                self._executor_exits.on_start(slot, started)
        self._fill_slots()
        if not self._shutdown.working and self._pollers.over and not self._waiting:
            self._slots.dismiss_idle()

    def _fill_slots(self) -> None:
        """Hand out waiting executions, and ask for as many attempts as there are free slots."""
        if not self._shutdown.forced:
            for execution, error in self._slots.hand_out(self._waiting):
                self._executor_exits.report_failure(execution, dispatch_failed(error))
        if self._shutdown.working:
            self._pollers.offer([self._room(slot_pool) for slot_pool in self._slot_pools])

    def _room(self, slot_pool: SlotPool) -> int:
        """Return how many attempts to poll for: as many as the pool's idle slots can take."""
        if not self._self_check.fit:
            return 0
        return self._slots.idle(slot_pool) - sum(
            execution.attempt.task_name in slot_pool.tasks for execution in self._waiting
        )

    def _may_leave(self, now: float) -> bool:
        busy = not self._pollers.over or bool(self._waiting)
        # The sweep is the only chore that never ends; the others send results and clean up after dead executors.
        chores = len(self._chores) > 1
        return self._shutdown.over(
            now, busy=busy, executors=not self._slots.all_gone, unsent=chores or bool(self._pending_results)
        )

    # --- messages --------------------------------------------------------------------------------------------

    def _handle(self, message: inbox.Message) -> None:
        match message:
            case inbox.Polled(pool, found):
                self._admit(found)
                self._pollers.note_received(pool, len(found))
            case inbox.PollerEnded(pool):
                self._pollers.note_ended(pool)
            case inbox.ExecutorAnswered(slot, answer):
                self._on_answer(self._slots[slot], answer)
            case inbox.ExecutorGone(slot, executor_exit):
                self._executor_exits.on_exit(self._slots[slot], executor_exit, forced=self._shutdown.forced)
            case inbox.AttemptOver(execution_id, why):
                if (execution := self._executions.get(execution_id)) is not None:
                    self._executor_exits.on_attempt_over(execution, why, self._slots.running(execution_id))
            case DeliveryResult():
                self._pending_results.on_delivered(message)
            case inbox.ResultDelayed():
                self._pending_results.on_delayed(message)
            case inbox.ResultStored(pending, error):
                self._pending_results.on_stored(pending, error)
            case inbox.WorkerDied(pending):
                self._pending_results.report(pending)
            case inbox.ExecutionFinished(execution_id):
                self._executions.end(execution_id)
            case inbox.WorkerProbed(problem):
                self._self_check.on_probed(problem)
            case inbox.StopRequested(signal):
                self._stop(signal)
            case Event():
                self._event_publisher.publish(message)

    def _admit(self, found: Sequence[Assignment]) -> None:
        for assignment in found:
            execution = self._executions.admit(assignment)
            self._waiting.append(execution)
            self._event_publisher.publish_for("polled", execution)

    def _on_answer(self, slot: Slot, answer: executor_protocol.Answer) -> None:
        match answer:
            case executor_protocol.Ready():
                slot.ready()
                self._self_check.ready(slot.number)
            case executor_protocol.StartFailed(reason):
                slot.broken = reason
                log.error("executor %d could not start: %s", slot.number, reason)
            case executor_protocol.StepStarted(execution_id, step):
                if (execution := self._executions.get(execution_id)) is not None:
                    execution.begin(step, time.time())
                    self._executions.note_step(execution)
                    self._event_publisher.publish_for("step", execution)
            case executor_protocol.StepTraced(execution_id, times):
                if (execution := self._executions.get(execution_id)) is not None:
                    event = Event("traced", execution.attempt, execution_id, times.step, times=times)
                    self._event_publisher.publish(event)
            case executor_protocol.BodyProgress(execution_id, text):
                if (execution := self._executions.get(execution_id)) is not None:
                    self._event_publisher.publish_for("doing", execution, text=self._mask(text))
            case executor_protocol.Logged():
                log_forwarded(answer)
            case executor_protocol.Ended():
                self._on_ended(slot, answer)
            case executor_protocol.Cleaned(execution_id):
                slot.uncleaned.pop(execution_id, None)
            case executor_protocol.CleanupFailed(execution_id):
                if (execution := slot.uncleaned.pop(execution_id, None)) is not None:
                    self._executor_exits.clean_later(execution)
            case executor_protocol.Rerun(execution_id):
                if (execution := self._executions.get(execution_id)) is not None:
                    log.warning("the engine runs the attempt again", extra=fields_of(execution))
                    execution.unsure = True

    def _on_ended(self, slot: Slot, ended: executor_protocol.Ended) -> None:
        execution = slot.end_execution(ended.execution_id, ended.result)
        if execution is None:
            return
        result = ended.result
        most = self._plan.settings.executor_max_tasks
        if ended.unusable_reason:
            log.warning(
                "executor %d is replaced: %s", slot.number, ended.unusable_reason, extra=fields_of(execution)
            )
        if ended.is_last(slot.done, most) and slot.state == "idle":
            slot.dismiss()
        task = self._plan.tasks.get(execution.attempt.task_name)
        self._self_check.count_result(result, has_workspace=task is not None and task.workspace is not None)
        # Fill slots first, so that the next attempt is polled while this one is reported.
        self._fill_slots()
        log_result(execution)
        self._event_publisher.publish_for("ended", execution)
        if result.outcome.send:
            self._pending_results.send(
                execution, pending_result_of(execution.id, execution.assignment, result)
            )
        else:
            self._executions.let_go(execution.id)
            self._chores.add(("quiet", execution.id), partial(self._finish, execution, result.claim))

    def _report_left_behind(self, *, answered: frozenset[str]) -> None:
        """Report the attempts that a dead worker on this root left in flight without a result, if that is safe."""
        left = without_result(self._in_flight.read(), answered, self._pending_results.in_outbox)
        for record in left:
            job = ReportJob(
                record,
                self._orchestrator,
                self._lake,
                clean=self._cleanup.clean_left_behind,
                report=lambda pending: self._inbox.post(inbox.WorkerDied(pending)),
                drop=self._in_flight.drop,
            )
            self._chores.add(("report", record.execution_id), job)

    # --- chores, on other threads ----------------------------------------------------------------------------

    def _finish(self, execution: Execution, claim: Claim | None) -> None:
        """Finish an execution whose result must not be sent: drop its claim and complete its task log."""
        self._cleanup.drop_claim(claim)
        self._executions.finish_log(execution)
        self._inbox.post(inbox.ExecutionFinished(execution.id))

    def _sweep(self) -> float:
        """Remove leftover workdirs, and return the seconds until the next sweep."""
        self._inbox.post(Event("swept", count=self._workdirs.sweep()))
        return self._workdirs.interval

    # --- the end ---------------------------------------------------------------------------------------------

    def _stop(self, signal: str) -> None:
        """Drain the worker.  If it is already draining, a signal kills its executors."""
        if not signal:
            self._drain("requested")
        elif self._shutdown.working:
            self._drain(signal)
            steps = ", ".join(self._executions.steps())
            self._event_publisher.publish(Event("draining", step=signal, text=steps))
        else:
            self._force(f"{signal} again")
            self._event_publisher.publish(Event("forced", step=signal))

    def _drain(self, why: str) -> None:
        if self._shutdown.working:
            self._shutdown.drain(time.monotonic())
            self._self_check.stop()
            self._pollers.stop()
            log.info("draining (%s): %d attempts in flight", why, len(self._executions))

    def _force(self, why: str) -> None:
        log.warning("executors are killed (%s): Conductor's leases end their attempts", why)
        self._shutdown.force(time.monotonic())
        self._slots.kill_all()


def serve(plan: WorkerPlan, worker: Supervisor, *, http: str | None, environ: Mapping[str, str]) -> int:
    """Run a worker as a service, with logs and metrics, until a signal arrives.  Returns the exit code.

    `http` is the address for /healthz and /metrics, or None.
    """
    make_root(plan.settings.root)
    with ExitStack() as opened:
        opened.enter_context(logging_to(plan.settings, name="supervisor"))
        opened.enter_context(reaping_orphans())
        metrics = opened.enter_context(
            open_metrics(environ, worker.health_state, worker_id=plan.worker_id, prometheus=http is not None)
        )
        if http is not None:
            serve_status(opened, http, worker.health_state, metrics)
        tracer = opened.enter_context(open_traces(environ, plan.settings, worker_id=plan.worker_id))
        counted = counting(metrics)
        listener = telling(counted, tracer.on_event) if tracer.on else counted
        on_event = opened.enter_context(reporting_lineage(environ, plan, listener))
        return worker.run(on_event=on_event)
