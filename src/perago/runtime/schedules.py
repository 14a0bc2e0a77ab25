"""Schedules: workflows that Conductor starts by the clock.

Conductor has the scheduler.  This module checks what Conductor does not: that the cron expression means something, that
the zone exists, that the name is free, and that the workflow and its constant input fit, as for `submit`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from perago.errors import RuntimeConfigError
from perago.lake.base import ReadableLake
from perago.orchestrator.base import Cron, Orchestrator, Schedule, Scheduler
from perago.protocol.suggestions import did_you_mean, listed
from perago.runtime.submit import SubmitRequest, prepare

MOST_TIMES = 5
_FIELDS = ("second", "minute", "hour", "day of month", "month", "day of week")
_NAME = re.compile(r"[A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True)
class PreparedSchedule:
    """A checked schedule, and the times of its first starts."""

    schedule: Schedule
    next_times: Sequence[float]
    warnings: Sequence[str]


def prepare_schedule(
    scheduler: Scheduler,
    orchestrator: Orchestrator,
    lake: ReadableLake | None,
    wanted: SubmitRequest,
    *,
    name: str,
    cron: Cron,
    now: float,
    remedy: str,
) -> PreparedSchedule:
    """Check everything about a new schedule.

    A workspace requires `lake`.  `remedy` is the command that registers a workflow.  Raises `RuntimeConfigError` or
    `TaskInputError` if something is wrong.
    """
    if not _NAME.fullmatch(name):
        raise RuntimeConfigError(
            f"{name!r} cannot name a schedule: use letters, digits, '_', '.' and '-', as in --name nightly"
        )
    zone = read_zone(cron.zone)
    prepared = prepare(orchestrator, lake, replace(wanted, scheduled=True), remedy=remedy)
    times = scheduler.next_times(cron.expression, zone, now)
    if times is None:
        raise RuntimeConfigError(_describe_cron(scheduler, cron.expression, now))
    if not times:
        raise RuntimeConfigError(
            f"--cron {cron.expression!r} would never start anything: there is no such date"
        )
    for taken in scheduler.schedules():
        if taken.name == name:
            raise RuntimeConfigError(
                f"there is a schedule {name!r} already, which starts {taken.workflow!r}: choose another --name, or "
                f"remove it first with `perago schedule remove {name}`"
            )
    schedule = Schedule(name, wanted.name, (cron,), prepared.input, wanted.version)
    return PreparedSchedule(schedule, times, prepared.warnings)


def find_schedule(scheduler: Scheduler, name: str) -> Schedule:
    """Return the schedule with this name.  Raises `RuntimeConfigError` if there is none."""
    found = {schedule.name: schedule for schedule in scheduler.schedules()}
    if name not in found:
        there = f"; there are: {listed(found)}" if found else "; there is none yet"
        raise RuntimeConfigError(
            f"there is no schedule {name!r} on {scheduler.address}{did_you_mean(name, found, otherwise=there)}"
        )
    return found[name]


def next_times(scheduler: Scheduler, schedule: Schedule, now: float) -> Sequence[tuple[float, Cron]]:
    """Return the next few times at which a schedule starts its workflow, unless it is paused."""
    after = now if schedule.begins is None else max(now, schedule.begins - 1)
    found = [
        (time, cron)
        for cron in schedule.crons
        for time in scheduler.next_times(cron.expression, read_zone(cron.zone), after) or ()
        if schedule.ends is None or time <= schedule.ends
    ]
    return sorted(found, key=lambda one: one[0])[:MOST_TIMES]


def read_zone(name: str) -> tzinfo:
    """Return a time zone.  Raises `RuntimeConfigError` if it is unknown."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        known = available_timezones()
        hint = did_you_mean(name, known, otherwise="; name it as in Europe/Berlin, or use UTC")
        if not known:
            hint = ": this Python knows no time zones; `pip install tzdata` adds them"
        raise RuntimeConfigError(f"there is no time zone {name!r}{hint}") from None


def _describe_cron(scheduler: Scheduler, expression: str, now: float) -> str:
    """Say what is wrong with a cron expression, by asking about its parts."""
    fields = expression.split()
    if len(fields) == len(_FIELDS) - 1 and scheduler.next_times(f"0 {expression}", UTC, now) is not None:
        return (
            f"--cron {expression!r} has five fields, and Conductor's cron has six, which begin with the seconds; "
            f"did you mean '0 {expression}'?"
        )
    if len(fields) != len(_FIELDS):
        return f"--cron {expression!r} is not a cron expression: it needs six fields, {', '.join(_FIELDS)}"
    wrong = [
        f"{field!r} for the {name}"
        for position, (field, name) in enumerate(zip(fields, _FIELDS, strict=True))
        if scheduler.next_times(_with_field(position, field), UTC, now) is None
    ]
    what = ", ".join(wrong) or "this combination of fields"
    return (
        f"--cron {expression!r} is not a cron expression: Conductor does not know {what}; "
        f"its fields are {', '.join(_FIELDS)}"
    )


def _with_field(position: int, field: str) -> str:
    every = ["*"] * len(_FIELDS)
    every[position] = field
    return " ".join(every)
