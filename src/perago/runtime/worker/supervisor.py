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
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from perago.lake.base import Lake
from perago.orchestrator.base import Assignment, Orchestrator
from perago.protocol.outcome import Outcome, describe, executor_died, not_handed_out
from perago.runtime.ending import Parcel, parcel_of
from perago.runtime.observe.events import Event, Kind, Listener
from perago.runtime.observe.health import Pulse
from perago.runtime.observe.masking import Masker, secrets_of
from perago.runtime.root.lock import locked_root
from perago.runtime.sweep.workdirs import sweep_workdirs
from perago.runtime.worker.broker import Broker
from perago.runtime.worker.dead_executor import DeadExecutorCleanup, claim_of
from perago.runtime.worker.deliveries import Deliveries
from perago.runtime.worker.executions import Executions, fields_of
from perago.runtime.worker.fitness import Fitness, try_to_work
from perago.runtime.worker.leases import LeaseKeeper
from perago.runtime.worker.mailbox import Mailbox
from perago.runtime.worker.messages import Answer, Began, Broken, Cleaned, Ended, Noted, Ready
from perago.runtime.worker.plan import WorkerPlan
from perago.runtime.worker.shutdown import Shutdown
from perago.runtime.worker.signals import on_stop_signals
from perago.runtime.worker.slot import Execution, Slot, Wiring, describe_exit
from perago.runtime.worker.slots import Slots
from perago.runtime.worker.tasklog import TaskLogs
from perago.runtime.worker.timetable import Timetable

log = logging.getLogger("perago.supervisor")

DRAINED, UNFINISHED = 0, 1
BEAT_SECONDS = 1.0
UNTIL_SECONDS = 0.1
SECOND_SWEEP_SECONDS = 10.0
SENDERS = 4
MOST_TRIES_TO_BEGIN = 3


class Supervisor:
    """One worker on one workspace root; `run` is its life."""

    def __init__(self, plan: WorkerPlan, orchestrator: Orchestrator, lake: Lake) -> None:
        self._plan = plan
        self._orchestrator = orchestrator
        self._lake = lake
        self._root = plan.settings.workspace_root
        self._mask = Masker(secrets_of(plan.settings))
        self._pulse = Pulse(list(plan.tasks), mask=self._mask)
        self._listener: Listener = lambda _event: None
        self._mail = Mailbox()
        self._end = Shutdown(plan.kill_after_seconds, plan.sending_seconds)
        self._waiting: deque[Execution] = deque()
        self._taken = 0
        self._polled_out = threading.Event()
        self._cleanup = DeadExecutorCleanup(self._root, lake)
        self._chores = Timetable("chores", threads=SENDERS)
        self._task_logs = TaskLogs(orchestrator.log)
        self._fitness = Fitness(
            lambda: try_to_work(lake, self._root), self._chores, post=self._mail.post, pulse=self._pulse
        )
        self._leases = LeaseKeeper(
            orchestrator,
            plan.worker_id,
            stale=lambda execution_id, why: self._mail.post(lambda: self._over(execution_id, why)),
            failed=lambda attempt: self._mail.post(lambda: self._tell(Event("lease-failed", attempt))),
            pulse=self._pulse,
            threads=max(2, min(plan.slots, 8)),
        )
        self._executions = Executions(plan.tasks, self._leases, self._task_logs)
        self._deliveries = Deliveries(
            self._executions, self._cleanup, pulse=self._pulse, tell=self._tell, mask=self._mask
        )
        self._broker = Broker(
            orchestrator,
            list(plan.tasks),
            plan.worker_id,
            polled=lambda found: self._mail.post(lambda: self._polled(found)),
            ended=lambda: self._mail.post(self._polled_out.set),
            pulse=self._pulse,
        )
        self._slots = Slots(plan.spec, plan.slots, self._wiring())

    @property
    def pulse(self) -> Pulse:
        """How the worker is.  Not well until an executor is ready, which is after a signal begins to drain it."""
        return self._pulse

    def run(self, until: Callable[[], bool] | None = None, on_event: Listener | None = None) -> int:
        """Work until a signal, `drain` or `until`, then finish what is in flight; returns the exit code.

        0: everything in flight has ended and its results are sent.  1: executors were killed, or results could
        not be sent in time; they stay in the outbox.
        """
        self._listener = on_event or self._listener
        with ExitStack() as opened:
            opened.enter_context(locked_root(self._root))
            self._deliveries.open(
                self._plan, (self._lake, self._orchestrator), chores=self._chores, post=self._mail.post
            )
            first_sweep = min(SECOND_SWEEP_SECONDS, self._sweep())
            for service in (self._chores, self._task_logs, self._leases):
                opened.enter_context(service)
            opened.callback(self._slots.kill_all)
            opened.enter_context(on_stop_signals(lambda name: self._mail.post(lambda: self._signalled(name))))
            self._deliveries.resume()
            # Soon again: executors of a supervisor that was just killed may still have been dying.
            self._chores.add("sweep", self._sweep, after=first_sweep)
            log.info("worker %s", self._plan)
            self._broker.start()
            self._work(until)
        if self._deliveries:
            log.warning("%d results stay in the outbox: the next start sends them", len(self._deliveries))
        return UNFINISHED if self._end.forced or self._deliveries else DRAINED

    def drain(self) -> None:
        """Take no more attempts, finish those in flight, then let `run` return; from any thread."""
        self._mail.post(lambda: self._begin_to_drain("as asked"))

    # --- the loop --------------------------------------------------------------------------------------------

    def _work(self, until: Callable[[], bool] | None) -> None:
        next_look = 0.0
        while not self._may_leave(time.monotonic()):
            self._mail.read(self._wait_seconds(UNTIL_SECONDS if until is not None else BEAT_SECONDS))
            now = time.monotonic()
            if until is not None and self._end.working and now >= next_look:
                next_look = now + UNTIL_SECONDS
                if until():
                    self._begin_to_drain("the work is done")
            try:
                self._keep_going(now)
            except Exception:
                log.exception("the worker met an error of its own, and goes on")
            self._pulse.beat()
            self._pulse.in_flight(len(self._executions))

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
                self._started(slot, started)
        self._fill_slots()
        if not self._end.working and self._polled_out.is_set() and not self._waiting:
            self._slots.dismiss_idle()

    def _fill_slots(self) -> None:
        """Hand out what waits, and ask for as much more as there is room for."""
        if not self._end.forced:
            for execution, error in self._slots.hand_out(self._waiting):
                self._say_for(execution, not_handed_out(error))
        if self._end.working:
            room = self._slots.idle - len(self._waiting) if self._fitness.fit else 0
            self._broker.offer(room, taken=self._taken)
            self._taken = 0

    def _may_leave(self, now: float) -> bool:
        busy = not self._polled_out.is_set() or bool(self._waiting)
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
            self._event("polled", execution)
        self._taken += len(found)

    def _answered(self, slot: Slot, answer: Answer) -> None:
        match answer:
            case Ready():
                slot.ready()
                self._fitness.ready(slot.number)
            case Broken(reason):
                slot.broken = reason
                log.error("executor %d could not start: %s", slot.number, reason)
            case Began(execution_id, step):
                if (execution := self._executions.get(execution_id)) is not None:
                    execution.step = step
                    self._event("step", execution)
            case Noted(execution_id, text):
                if (execution := self._executions.get(execution_id)) is not None:
                    self._event("doing", execution, text=self._mask(text))
            case Ended():
                self._ended(slot, answer)
            case Cleaned(execution_id):
                slot.uncleaned.pop(execution_id, None)

    def _ended(self, slot: Slot, ended: Ended) -> None:
        execution = slot.ended(ended.execution_id, ended.settled)
        if execution is None:
            return
        settled = ended.settled
        most = self._plan.settings.executor_max_tasks
        if ended.spoiled:
            log.warning("executor %d is replaced: %s", slot.number, ended.spoiled, extra=fields_of(execution))
        # One that has no descriptors left gets none by waiting.
        spent = ended.spoiled or (most and slot.done >= most) or settled.own_reason == "descriptors"
        if spent and slot.state == "idle":
            slot.dismiss()
        task = self._plan.tasks.get(execution.attempt.task_name)
        self._fitness.ended(settled, has_workspace=task is not None and task.workspace is not None)
        # First of all: the next attempt is polled for while this one is put away.
        self._fill_slots()
        log.info("%s", settled.outcome.reason or settled.outcome.status, extra=fields_of(execution))
        self._event("ended", execution)
        if settled.outcome.send:
            self._deliveries.send(execution, parcel_of(execution.id, execution.assignment, settled))
        else:
            self._executions.end(execution.id)
            self._chores.add(("quiet", execution.id), lambda: self._cleanup.drop_claim(settled.claim))

    def _over(self, execution_id: str, why: str) -> None:
        """The orchestrator has moved on from an attempt that is still running here: stop it, say nothing."""
        execution = self._executions.get(execution_id)
        if execution is None or execution.settled is not None or execution.died:
            return
        log.warning("the attempt is over (%s) and is stopped", why, extra=fields_of(execution))
        slot = self._slots.running(execution_id)
        if slot is not None:
            slot.stopped_stale = True
            slot.kill()
        elif execution in self._waiting:
            self._waiting.remove(execution)
            self._executions.end(execution.id)
            self._event("stopped", execution, text=why)

    # --- executors -------------------------------------------------------------------------------------------

    def _gone(self, slot: Slot, exit_code: int) -> None:
        by_itself, stale, running = slot.state != "leaving", slot.stopped_stale, slot.execution
        how = describe_exit(exit_code)
        if slot.state == "starting":
            self._fitness.not_ready(slot.number, slot.broken or f"it ended with {how}")
        left = slot.bury(time.monotonic(), by_itself=by_itself)
        if by_itself:
            log.error("executor %d died: %s", slot.number, how)
            attempt, step = (running.attempt, running.step) if running else (None, "")
            self._tell(Event("died", attempt, running.id if running else "", step, text=how))
        for execution in left:
            if self._end.forced:
                self._cleanup.remove_workdir(execution)
            elif execution.settled is not None:
                self._clean_later(execution)
            elif stale:
                self._executions.end(execution.id)
                self._event("stopped", execution)
                self._clean_later(execution)
            else:
                self._died(execution, how)

    def _died(self, execution: Execution, how: str) -> None:
        if not execution.step and execution.given < MOST_TRIES_TO_BEGIN:
            self._waiting.appendleft(execution)
            return
        execution.died = True
        if not execution.step:
            self._fitness.failed(f"executors died with {how} before they began")
        self._say_for(execution, executor_died(how, execution.step))

    def _say_for(self, execution: Execution, outcome: Outcome) -> None:
        """Say for an attempt what it cannot say itself any more."""
        parcel = Parcel(execution.id, execution.attempt, outcome, claim=claim_of(execution))
        self._deliveries.send(execution, parcel)

    def _clean_later(self, execution: Execution) -> None:
        # The claim of a settled execution is the courier's.
        claim = None if execution.settled is not None else claim_of(execution)
        self._chores.add(("clean", execution.id), lambda: self._cleanup.clean(execution, claim))

    # --- the end ---------------------------------------------------------------------------------------------

    def _signalled(self, name: str) -> None:
        if self._end.working:
            self._begin_to_drain(name)
            self._tell(Event("draining", step=name, text=", ".join(self._executions.steps())))
        else:
            self._force(f"{name} again")
            self._tell(Event("forced", step=name))

    def _begin_to_drain(self, why: str) -> None:
        if self._end.working:
            self._end.drain(time.monotonic())
            self._fitness.stop()
            self._broker.stop()
            log.info("draining (%s): %d attempts are in flight", why, len(self._executions))

    def _force(self, why: str) -> None:
        log.warning("executors are killed (%s): Conductor's leases end their attempts", why)
        self._end.force(time.monotonic())
        self._slots.kill_all()

    def _started(self, slot: Slot, started: int | Exception) -> None:
        """A slot has had so many executors with this one, or there is no room for one."""
        if isinstance(started, Exception):
            reason = describe(started)
            log.error("executor %d could not be started, and is tried again: %s", slot.number, reason)
            self._fitness.not_ready(slot.number, reason)
        elif started > 1:
            self._tell(Event("restarted", text=f"executor {slot.number}"))

    # --- small parts -----------------------------------------------------------------------------------------

    def _sweep(self) -> float:
        ttl = self._plan.settings.workspace_gc_ttl
        try:
            swept = len(sweep_workdirs(self._root, now=time.time(), ttl=ttl, runs_here=self._executions.has))
            self._mail.post(lambda: self._tell(Event("swept", count=swept)))
        except OSError as error:
            log.warning("workdirs could not be swept: %s", error)
        return max(1.0, self._plan.settings.workspace_gc_interval)

    def _wiring(self) -> Wiring:
        return Wiring(
            answered=lambda slot, answer: self._mail.post(lambda: self._answered(slot, answer)),
            gone=lambda slot, exit_code: self._mail.post(lambda: self._gone(slot, exit_code)),
            printed=self._executions.printed,
            output_ended=self._executions.output_ended,
            mask=self._mask,
        )

    def _tell(self, event: Event) -> None:
        try:
            self._listener(event)
        except Exception:
            # Who looks on must not end what is looked at.
            log.exception("nobody was told that %s", event.kind)

    def _event(self, kind: Kind, execution: Execution, *, text: str = "") -> None:
        done = (execution.attempt, execution.id, execution.step, execution.settled)
        self._tell(Event(kind, *done, text=text))
