"""The worker: polls, hands attempts to executors, keeps their leases and sends their results.

All decisions are made on one thread, in the order in which things happen: other threads (the broker, the executors'
listeners, leases, the courier) only post what they have seen.  So nothing here is locked, and nothing here waits
but for the next post: a slot's backoff, a slow server and a removal of many files are all somebody else's time.

    polled ─▶ waiting ─▶ busy slot ─▶ ended ─▶ outbox, courier ─▶ accepted, lease let go
                            ├──▶ died ─▶ FAILED with the reason, the same way
                            └──▶ over in the meantime ─▶ executor stopped, nothing sent
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial

from perago.lake.base import Lake
from perago.orchestrator.base import Assignment, Orchestrator
from perago.protocol.attempt import Attempt
from perago.protocol.outcome import not_handed_out
from perago.runtime.execution_result import Claim, pending_result_of
from perago.runtime.observe.events import Event, Listener, counting
from perago.runtime.observe.health import HealthState
from perago.runtime.observe.logs import logging_to
from perago.runtime.observe.metrics import open_metrics
from perago.runtime.observe.sanitize import Masker, secrets_of
from perago.runtime.process.process_setup import reaping_orphans
from perago.runtime.root.state_dir import locked_root, make_root
from perago.runtime.sweep.workdirs import WorkdirSweep
from perago.runtime.worker.event_publisher import EventPublisher
from perago.runtime.worker.executions import Executions, fields_of, log_result
from perago.runtime.worker.executor_exit import DeadExecutorCleanup, ExecutorExitHandler
from perago.runtime.worker.executor_protocol import (
    Answer,
    BodyProgress,
    Cleaned,
    CleanupFailed,
    Ended,
    Logged,
    Ready,
    Rerun,
    StartFailed,
    StepStarted,
)
from perago.runtime.worker.job_scheduler import EventQueue, JobScheduler
from perago.runtime.worker.leases import LeaseKeeper, NotExtended, Over
from perago.runtime.worker.lifecycle import Shutdown, _show_status, on_stop_signals
from perago.runtime.worker.pending_results import PendingResults
from perago.runtime.worker.plan import SlotPool, WorkerPlan
from perago.runtime.worker.poller import Polling
from perago.runtime.worker.self_check import SelfCheck, try_to_work
from perago.runtime.worker.slots import Execution, Slot, SlotCallbacks, Slots
from perago.runtime.worker.task_logs import TaskLogs, log_again

log = logging.getLogger("perago.supervisor")

DRAINED, UNFINISHED = 0, 1
BEAT_SECONDS = 1.0
UNTIL_SECONDS = 0.1
SECOND_SWEEP_SECONDS = 10.0
SENDERS = 4


class Supervisor:
    """One worker on one workspace root; `run` is its life."""

    def __init__(self, plan: WorkerPlan, orchestrator: Orchestrator, lake: Lake) -> None:
        self._plan = plan
        self._orchestrator = orchestrator
        self._lake = lake
        self._root = plan.settings.workspace_root
        self._mask = Masker(secrets_of(plan.settings))
        self._health_state = HealthState(list(plan.tasks), mask=self._mask)
        self._event_publisher = EventPublisher()
        self._queue = EventQueue()
        self._end = Shutdown(plan.kill_after_seconds, plan.sending_seconds)
        self._waiting: deque[Execution] = deque()
        self._cleanup = DeadExecutorCleanup(self._root, lake)
        self._chores = JobScheduler("chores", threads=SENDERS)
        self._task_logs = TaskLogs(orchestrator.log, added=self._printed)
        self._self_check = SelfCheck(
            lambda: try_to_work(lake, self._root),
            self._chores,
            post=self._queue.post,
            health_state=self._health_state,
        )
        self._leases = LeaseKeeper(
            orchestrator,
            plan.worker_id,
            tell=lambda event_publisher: self._queue.post(lambda: self._lease_said(event_publisher)),
            health_state=self._health_state,
            threads=max(2, min(plan.slots, 8)),
        )
        self._executions = Executions(
            plan.tasks, self._leases, self._task_logs, worker_id=plan.worker_id, mask=self._mask
        )
        self._deliveries = PendingResults(
            self._executions,
            self._cleanup,
            health_state=self._health_state,
            tell=self._event_publisher.tell,
            mask=self._mask,
        )
        self._executor_exits = ExecutorExitHandler(
            self._executions,
            self._waiting,
            self._deliveries,
            self._cleanup,
            self._chores,
            self._self_check,
            self._event_publisher,
        )
        self._sweeping = WorkdirSweep(
            plan.settings,
            self._executions.has,
            swept=lambda count: self._queue.post(
                lambda: self._event_publisher.tell(Event("swept", count=count))
            ),
        )
        self._slots = Slots(plan.crews, self._slot_callbacks())
        self._polling = Polling(
            orchestrator, plan, polled=self._polled, post=self._queue.post, health_state=self._health_state
        )

    @property
    def health_state(self) -> HealthState:
        """How the worker is.  Not well until an executor is ready, which is after a signal begins to drain it."""
        return self._health_state

    def run(self, until: Callable[[], bool] | None = None, on_event: Listener | None = None) -> int:
        """Work until a signal, `drain` or `until`, then finish what is in flight; returns the exit code.

        0: everything in flight has ended and its results are sent.  1: executors were killed, or results could
        not be sent in time; they stay in the outbox.
        """
        if on_event is not None:
            self._event_publisher.listen(on_event)
        with ExitStack() as opened:
            opened.enter_context(locked_root(self._root))
            self._deliveries.open(
                self._plan, (self._lake, self._orchestrator), chores=self._chores, post=self._queue.post
            )
            first_sweep = min(SECOND_SWEEP_SECONDS, self._sweeping.sweep())
            for service in (self._chores, self._task_logs, self._leases):
                opened.enter_context(service)
            opened.callback(self._slots.kill_all)
            opened.enter_context(
                on_stop_signals(lambda name: self._queue.post(lambda: self._signalled(name)))
            )
            self._deliveries.resume()
            # Soon again: executors of a supervisor that was just killed may still have been dying.
            self._chores.add("sweep", self._sweeping.sweep, after=first_sweep)
            log.info("worker %s", self._plan)
            self._polling.start()
            self._work(until)
        if self._deliveries:
            log.warning("%d results stay in the outbox: the next start sends them", len(self._deliveries))
        return UNFINISHED if self._end.forced or self._deliveries else DRAINED

    def drain(self) -> None:
        """Take no more attempts, finish those in flight, then let `run` return; from any thread."""
        self._queue.post(lambda: self._begin_to_drain("as asked"))

    # --- the loop --------------------------------------------------------------------------------------------

    def _work(self, until: Callable[[], bool] | None) -> None:
        next_look, done = 0.0, False
        while not self._may_leave(time.monotonic()):
            self._queue.read(self._wait_seconds(UNTIL_SECONDS if until is not None else BEAT_SECONDS))
            now = time.monotonic()
            if until is not None and not done and now >= next_look:
                next_look = now + UNTIL_SECONDS
                done = self._look(until)
            try:
                self._keep_going(now)
            except Exception:
                log.exception("the worker met an error of its own, and goes on")
            self._health_state.beat()
            self._health_state.in_flight(len(self._executions))

    def _look(self, until: Callable[[], bool]) -> bool:
        """Whether the work is done; also while it is being finished, since somebody looks on by it."""
        try:
            done = until()
        except Exception:
            if self._end.working:
                raise
            log.exception("the view of the run failed; the attempts in progress are finished first")
            return False
        if done:
            self._begin_to_drain("the work is done")
        return done

    def _wait_seconds(self, longest: float) -> float:
        """How long to wait for news: until a slot may start, at the most."""
        next_start = self._slots.next_start() if self._end.working else None
        return longest if next_start is None else min(longest, max(0.0, next_start - time.monotonic()))

    def _keep_going(self, now: float) -> None:
        """Whatever the news were: start, hand out, ask for more, leave."""
        if self._end.out_of_time(now):
            self._force("the drain took too long")
        if self._end.working or (self._end.draining and self._waiting):
            for slot, started in self._slots.start_due(now):
                self._executor_exits.started(slot, started)
        self._fill_slots()
        if not self._end.working and self._polling.over and not self._waiting:
            self._slots.dismiss_idle()

    def _fill_slots(self) -> None:
        """Hand out what waits, and ask for as much more as there is room for."""
        if not self._end.forced:
            for execution, error in self._slots.hand_out(self._waiting):
                self._executor_exits.say_for(execution, not_handed_out(error))
        if self._end.working:
            self._polling.offer(lambda slot_pool: self._room(slot_pool) if self._self_check.fit else 0)

    def _room(self, slot_pool: SlotPool) -> int:
        return self._slots.idle(slot_pool) - sum(
            one.attempt.task_name in slot_pool.tasks for one in self._waiting
        )

    def _may_leave(self, now: float) -> bool:
        busy = not self._polling.over or bool(self._waiting)
        # The sweep is the one chore that is never done; the others send results and clean up after the dead.
        chores = len(self._chores) > 1
        return self._end.over(
            now, busy=busy, executors=not self._slots.all_gone, unsent=chores or bool(self._deliveries)
        )

    # --- an attempt's way ------------------------------------------------------------------------------------

    def _polled(self, found: Sequence[Assignment]) -> None:
        for assignment in found:
            execution = self._executions.admit(assignment)
            self._waiting.append(execution)
            self._event_publisher.of("polled", execution)

    def _answered(self, slot: Slot, answer: Answer) -> None:
        match answer:
            case Ready():
                slot.ready()
                self._self_check.ready(slot.number)
            case StartFailed(reason):
                slot.broken = reason
                log.error("executor %d could not start: %s", slot.number, reason)
            case StepStarted(execution_id, step):
                if (execution := self._executions.get(execution_id)) is not None:
                    execution.begin(step, time.time())
                    self._event_publisher.of("step", execution)
            case BodyProgress(execution_id, text):
                if (execution := self._executions.get(execution_id)) is not None:
                    self._event_publisher.of("doing", execution, text=self._mask(text))
            case Logged():
                log_again(answer)
            case Ended():
                self._ended(slot, answer)
            case Cleaned(execution_id):
                slot.uncleaned.pop(execution_id, None)
            case CleanupFailed(execution_id):
                if (settled := slot.uncleaned.pop(execution_id, None)) is not None:
                    self._executor_exits.clean_later(settled)
            case Rerun(execution_id):
                if (execution := self._executions.get(execution_id)) is not None:
                    log.warning("the attempt is run anew by its engine", extra=fields_of(execution))
                    execution.unsure = True

    def _ended(self, slot: Slot, ended: Ended) -> None:
        execution = slot.ended(ended.execution_id, ended.settled)
        if execution is None:
            return
        settled = ended.settled
        most = self._plan.settings.executor_max_tasks
        if ended.spoiled:
            log.warning("executor %d is replaced: %s", slot.number, ended.spoiled, extra=fields_of(execution))
        if ended.is_last(slot.done, most) and slot.state == "idle":
            slot.dismiss()
        task = self._plan.tasks.get(execution.attempt.task_name)
        self._self_check.ended(settled, has_workspace=task is not None and task.workspace is not None)
        # First of all: the next attempt is polled for while this one is put away.
        self._fill_slots()
        log_result(execution)
        self._event_publisher.of("ended", execution)
        if settled.outcome.send:
            self._deliveries.send(execution, pending_result_of(execution.id, execution.assignment, settled))
        else:
            self._executions.let_go(execution.id)
            self._chores.add(("quiet", execution.id), lambda: self._end_quietly(execution, settled.claim))

    def _end_quietly(self, execution: Execution, claim: Claim | None) -> None:
        """On a chore's thread: what is left to do for an execution that says nothing."""
        self._cleanup.drop_claim(claim)
        self._executions.finish_log(execution)
        self._queue.post(partial(self._left, execution.id))

    def _left(self, execution_id: str) -> None:
        self._executions.end(execution_id)

    def _lease_said(self, event_publisher: Over | NotExtended) -> None:
        match event_publisher:
            case Over(execution_id, why):
                if (execution := self._executions.get(execution_id)) is not None:
                    self._executor_exits.over(execution, why, self._slots.running(execution_id))
            case NotExtended(attempt):
                self._event_publisher.tell(Event("lease-failed", attempt))

    # --- the end ---------------------------------------------------------------------------------------------

    def _signalled(self, name: str) -> None:
        if self._end.working:
            self._begin_to_drain(name)
            self._event_publisher.tell(Event("draining", step=name, text=", ".join(self._executions.steps())))
        else:
            self._force(f"{name} again")
            self._event_publisher.tell(Event("forced", step=name))

    def _begin_to_drain(self, why: str) -> None:
        if self._end.working:
            self._end.drain(time.monotonic())
            self._self_check.stop()
            self._polling.stop()
            log.info("draining (%s): %d attempts are in flight", why, len(self._executions))

    def _force(self, why: str) -> None:
        log.warning("executors are killed (%s): Conductor's leases end their attempts", why)
        self._end.force(time.monotonic())
        self._slots.kill_all()

    def _slot_callbacks(self) -> SlotCallbacks:
        return SlotCallbacks(
            answered=lambda slot, answer: self._queue.post(lambda: self._answered(slot, answer)),
            gone=lambda slot, executor_exit: self._queue.post(
                lambda: self._executor_exits.gone(slot, executor_exit, forced=self._end.forced)
            ),
            printed=self._executions.printed,
            output_ended=self._executions.output_ended,
            mask=self._mask,
        )

    def _printed(self, execution_id: str, attempt: Attempt, line: str) -> None:
        self._queue.post(
            lambda: self._event_publisher.tell(Event("printed", attempt, execution_id, text=line))
        )


def serve(plan: WorkerPlan, worker: Supervisor, *, http: str | None, environ: Mapping[str, str]) -> int:
    """Run until a signal; `http` is where /healthz and /metrics are served; returns the exit code."""
    make_root(plan.settings.root)
    with ExitStack() as opened:
        opened.enter_context(logging_to(plan.settings, name="supervisor"))
        opened.enter_context(reaping_orphans())
        metrics = opened.enter_context(
            open_metrics(environ, worker.health_state, worker_id=plan.worker_id, prometheus=http is not None)
        )
        if http is not None:
            _show_status(opened, http, worker.health_state, metrics)
        return worker.run(on_event=counting(metrics))
