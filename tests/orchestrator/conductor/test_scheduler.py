"""The adapter of Conductor's scheduler, with answers that Conductor 3.32.3 gave."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from perago.errors import OrchestratorNotFound, OrchestratorRefused, OrchestratorUnavailable
from perago.orchestrator.base import Cron, Schedule
from perago.orchestrator.conductor.http import Address, ConductorApi
from perago.orchestrator.conductor.scheduler import ConductorScheduler
from tests.support.servers.scripted_server import Answer, Request, scripted

NIGHTLY = Schedule(
    "nightly",
    "plays",
    (Cron("0 0 6 * * *", "Europe/Berlin"),),
    {"workspace": {"repository": "songs", "branch": "main"}},
)
STORED = {
    "name": "nightly",
    "cronExpression": "0 0 6 * * *",
    "runCatchupScheduleInstances": False,
    "paused": False,
    "startWorkflowRequest": {
        "name": "plays",
        "input": {"workspace": {"repository": "songs", "branch": "main"}},
        "taskToDomain": {},
        "priority": 0,
    },
    "zoneId": "Europe/Berlin",
    "createTime": 1795061859796,
    "cronSchedules": [],
}
NO_SCHEDULER = "No static resource api/scheduler/schedules."
BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = ZoneInfo("America/New_York")
FOUR_HUNDRED_YEARS = 146_097 * 86_400

Open = Callable[[str], ConductorScheduler]


@pytest.fixture
def opened() -> Iterator[Open]:
    """Makes adapters that do not wait between their tries, and closes them."""
    with ExitStack() as stack:

        def make(url: str) -> ConductorScheduler:
            api = ConductorApi(Address(url), connect_timeout=5, read_timeout=5, sleep=lambda _: None)
            scheduler = ConductorScheduler(api, url)
            stack.callback(scheduler.close)
            return scheduler

        yield make


def error(status: int, message: str) -> Answer:
    return status, {"status": status, "message": message, "instance": "vm", "retryable": False}


def test_a_schedule_is_sent_without_what_it_does_not_have(opened: Open) -> None:
    with scripted(lambda _: (200, STORED)) as server:
        opened(server.url).save_schedule(NIGHTLY)

    [request] = server.seen("POST", "/scheduler/schedules")
    assert json.loads(request.body) == {
        "name": "nightly",
        "cronExpression": "0 0 6 * * *",
        "zoneId": "Europe/Berlin",
        "startWorkflowRequest": {"name": "plays", "input": dict(NIGHTLY.input)},
    }


def test_schedules_are_read_sorted_also_those_of_other_clients(opened: Open) -> None:
    several = {
        "name": "a",
        "paused": True,
        "startWorkflowRequest": {"name": "plays", "version": 3},
        "cronSchedules": [
            {"cronExpression": "0 0 9 * * *", "zoneId": "Europe/London"},
            {"cronExpression": "@daily"},
        ],
        "scheduleStartTime": 1000,
        "scheduleEndTime": 2500,
    }
    with scripted(lambda _: (200, [STORED, several])) as server:
        found = opened(server.url).schedules()

    crons = (Cron("0 0 9 * * *", "Europe/London"), Cron("@daily", "UTC"))
    assert found == [Schedule("a", "plays", crons, {}, 3, True, 1.0, 2.5), NIGHTLY]


def test_a_name_is_one_segment_of_the_path(opened: Open) -> None:
    with scripted(lambda _: (200, "")) as server:
        scheduler = opened(server.url)
        scheduler.pause_schedule("a b")
        scheduler.resume_schedule("a b")
        scheduler.remove_schedule("a b")

    assert [(one.method, one.path) for one in server.requests] == [
        ("PUT", "/scheduler/schedules/a%20b/pause"),
        ("PUT", "/scheduler/schedules/a%20b/resume"),
        ("DELETE", "/scheduler/schedules/a%20b"),
    ]


def test_to_resume_is_tried_once_because_a_second_call_would_not_find_it_paused(opened: Open) -> None:
    with scripted(lambda _: (503, "")) as server, pytest.raises(OrchestratorUnavailable):
        opened(server.url).resume_schedule("nightly")

    assert len(server.requests) == 1


def test_a_schedule_that_is_not_there_cannot_be_paused(opened: Open) -> None:
    with (
        scripted(lambda _: error(404, "Schedule 'nightly' not found")) as server,
        pytest.raises(OrchestratorNotFound, match="cannot pause the schedule 'nightly': 404"),
    ):
        opened(server.url).pause_schedule("nightly")


def test_a_conductor_without_the_scheduler_is_named_with_its_setting(opened: Open) -> None:
    with scripted(lambda _: error(404, NO_SCHEDULER)) as server, pytest.raises(OrchestratorRefused) as raised:
        opened(server.url).schedules()

    assert str(raised.value) == (
        f"cannot list the schedules: the scheduler of Conductor at {server.url} is off: start Conductor with "
        "conductor.scheduler.enabled=true"
    )


@pytest.mark.parametrize("answer", [error(404, "No static resource scheduler/schedules."), (404, "<html>")])
def test_a_404_of_something_else_does_not_blame_the_scheduler(opened: Open, answer: Answer) -> None:
    with (
        scripted(lambda _: answer) as server,
        pytest.raises(OrchestratorUnavailable, match="it ends in /api"),
    ):
        opened(server.url).schedules()


# --- the next times ----------------------------------------------------------------------------------------------


def preview(*clock: datetime) -> Callable[[Request], Answer]:
    """A server that previews these times of a clock, as it does for dates in 400 years."""
    times = [int((one.replace(tzinfo=UTC).timestamp() + FOUR_HUNDRED_YEARS) * 1000) for one in clock]
    return lambda _: (200, times)


@pytest.mark.parametrize(
    ("zone", "asked", "hour"),
    [(UTC, 4, 6), (BERLIN, 5, 5), (NEW_YORK, -1, 11)],
    ids=["UTC", "ahead of UTC", "behind UTC"],
)
def test_times_are_those_of_the_zones_clock(opened: Open, zone: Any, asked: int, hour: int) -> None:
    now = datetime(2026, 11, 19, 4, 0, 0, 500_000, tzinfo=UTC).timestamp()
    with scripted(preview(datetime(2026, 11, 19, 6))) as server:
        times = opened(server.url).next_times("0 0 6 * * *", zone, now)

    assert times == [datetime(2026, 11, 19, hour, tzinfo=UTC).timestamp()]
    [request] = server.requests
    start = datetime(2026, 11, 19, tzinfo=UTC).timestamp() + asked * 3600 + 1 + FOUR_HUNDRED_YEARS
    assert request.query == {
        "cronExpression": "0 0 6 * * *",
        "scheduleStartTime": str(int(start * 1000)),
        "limit": "5",
    }


def test_a_time_that_the_clock_skips_is_left_out(opened: Open) -> None:
    # On 28 March 2027 clocks in Berlin jump from 2 to 3.  The server then waits for the next day.
    clock = (datetime(2027, 3, 28, 2, 30), datetime(2027, 3, 29, 2, 30))
    with scripted(preview(*clock)) as server:
        times = opened(server.url).next_times("0 30 2 * * *", BERLIN, 0)

    assert times == [datetime(2027, 3, 29, 2, 30, tzinfo=BERLIN).timestamp()]


def test_what_is_no_cron_expression_has_no_times(opened: Open) -> None:
    with scripted(lambda _: error(500, "Invalid cron expression")) as server:
        assert opened(server.url).next_times("nonsense", UTC, 0) is None


def test_another_error_of_a_preview_is_raised(opened: Open) -> None:
    with scripted(lambda _: error(500, "no database")) as server, pytest.raises(OrchestratorUnavailable):
        opened(server.url).next_times("0 0 6 * * *", UTC, 0)
