"""Conductor's own scheduler, over its REST API (behaviour measured on server 3.32.3).

The server is trusting, so callers must check first what it does not:

- Saving a schedule replaces the one of the same name.  A cron expression that cannot be parsed, or an unknown workflow,
  is stored all the same, and then starts nothing.  Only an unknown zone is refused.
- A name with a slash can be saved, but never addressed again, not even to remove it.
- Removing an unknown schedule succeeds.  Resuming one that is not paused fails as if it did not exist.
- On PostgreSQL, all starts of a schedule but the first come one to two minutes late, because the queue holds it back.
- Schedules are returned without the time of their next start, and the preview of a cron expression knows only UTC.

A Conductor on which the scheduler is off does not serve these paths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from perago.errors import OrchestratorRefused, OrchestratorUnavailable
from perago.orchestrator.base import Cron, Schedule
from perago.orchestrator.conductor import wire
from perago.orchestrator.conductor.errors import StatusError, is_missing_path
from perago.orchestrator.conductor.http import ConductorApi

MOST_TIMES = 5
"""The server previews no more times than this."""
_SCHEDULES = "/scheduler/schedules"
_INVALID_CRON = "Invalid cron expression"
_400_YEARS = timedelta(days=146_097)


class ConductorScheduler:
    """The schedules of a Conductor server; thread-safe."""

    def __init__(self, api: ConductorApi, address: str) -> None:
        self._api = api
        self._address = address

    @property
    def address(self) -> str:
        """The server's URL without secrets."""
        return self._address

    def schedules(self) -> Sequence[Schedule]:
        """Return all schedules, sorted by name."""
        step = "list the schedules"
        answer = self._call(step, wire.Request("GET", _SCHEDULES), repeat=True)
        found = wire.read(step, answer, lambda every: [_schedule(one) for one in every])
        return sorted(found, key=lambda schedule: schedule.name)

    def save_schedule(self, schedule: Schedule) -> None:
        """Create the schedule, or replace the one with its name."""
        [cron] = schedule.crons
        version = {} if schedule.version is None else {"version": schedule.version}
        body = {
            "name": schedule.name,
            "cronExpression": cron.expression,
            "zoneId": cron.zone,
            "startWorkflowRequest": {"name": schedule.workflow, **version, "input": dict(schedule.input)},
        }
        step = f"save the schedule {schedule.name!r}"
        self._call(step, wire.Request("POST", _SCHEDULES, body=body), repeat=True)

    def pause_schedule(self, name: str) -> None:
        """Start nothing more until the schedule is resumed."""
        self._call(f"pause the schedule {name!r}", wire.Request("PUT", f"{_path(name)}/pause"), repeat=True)

    def resume_schedule(self, name: str) -> None:
        """Continue a paused schedule.

        The call is never retried, because a second call would find the schedule resumed.
        """
        self._call(f"resume the schedule {name!r}", wire.Request("PUT", f"{_path(name)}/resume"))

    def remove_schedule(self, name: str) -> None:
        """Remove the schedule, if there is one."""
        self._call(f"remove the schedule {name!r}", wire.Request("DELETE", _path(name)), repeat=True)

    def next_times(self, expression: str, zone: tzinfo, after: float) -> Sequence[float] | None:
        """Return the next few times (at most 5) of a cron expression, or None if it is not one.

        Of an hour that the clock shows twice, times in the second one are missing.
        """
        step = f"preview the cron expression {expression!r}"
        # The preview reads the expression in UTC.  So ask with the zone's wall clock time as if it were UTC.  In a zone
        # behind UTC that time is in the past, where the server does not begin, so ask about the same day in 400 years:
        # the calendar repeats then, weekdays included.
        begin = datetime.fromtimestamp(int(after) + 1, zone).replace(tzinfo=UTC) + _400_YEARS
        query = {
            "cronExpression": expression,
            "scheduleStartTime": int(begin.timestamp() * 1000),
            "limit": MOST_TIMES,
        }
        try:
            answer = self._call(step, wire.Request("GET", "/scheduler/nextFewSchedules", query))
        except OrchestratorUnavailable as error:
            cause = error.__cause__
            if isinstance(cause, StatusError) and cause.field("message") == _INVALID_CRON:
                return None
            raise
        clock = wire.read(step, answer, lambda found: [_wall_clock(one) for one in found])
        times = [_exact_time(one, zone) for one in clock]
        return [time for time in times if time is not None and time > after]

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def _call(self, step: str, request: wire.Request, *, repeat: bool = False) -> Any:
        try:
            return self._api.call(step, request, repeat=repeat)
        except OrchestratorUnavailable as error:
            if not is_missing_path(error):
                raise
            raise OrchestratorRefused(
                f"cannot {step}: the scheduler of Conductor at {self._address} is off: start Conductor with "
                "conductor.scheduler.enabled=true"
            ) from error


def _path(name: str) -> str:
    return f"{_SCHEDULES}/{wire.segment(name)}"


def _schedule(found: Mapping[str, Any]) -> Schedule:
    """Parse a schedule.  Other clients may give it several cron expressions."""
    request = found["startWorkflowRequest"]
    several = found.get("cronSchedules") or [found]
    return Schedule(
        name=found["name"],
        workflow=request["name"],
        crons=tuple(Cron(one["cronExpression"], one.get("zoneId") or "UTC") for one in several),
        input=request.get("input") or {},
        version=request.get("version"),
        paused=bool(found.get("paused")),
        begins=_seconds(found.get("scheduleStartTime")),
        ends=_seconds(found.get("scheduleEndTime")),
    )


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _wall_clock(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).replace(tzinfo=None) - _400_YEARS


def _exact_time(clock: datetime, zone: tzinfo) -> float | None:
    """Return when a zone's clock shows this time, or None if it skips it; the server then starts nothing, either."""
    time = clock.replace(tzinfo=zone).timestamp()
    shown = datetime.fromtimestamp(time, zone).replace(tzinfo=None)
    return time if shown == clock else None
