"""A schedule is checked before Conductor stores it, because Conductor stores anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Any, cast
from zoneinfo import ZoneInfo

import pytest

from perago.declare.run_steps import OPEN, PUBLISH
from perago.declare.taskdef import build_taskdef
from perago.errors import PeragoError, RuntimeConfigError
from perago.orchestrator.base import Cron, Schedule, Scheduler
from perago.orchestrator.local.orchestrator import LocalOrchestrator
from perago.runtime import schedules
from perago.runtime.schedules import PreparedSchedule, find_schedule, next_times, prepare_schedule
from perago.runtime.submit import SubmitRequest
from tests.support.tasks.workflows import simple, workflow

INPUT = "${workflow.input.workspace}"
BRANCH = {"repository": "songs", "branch": "main"}
SIX = Cron("0 0 6 * * *", "UTC")


@dataclass
class Scripted:
    """A scheduler that knows the expressions in `times`, each with its next times."""

    times: Mapping[str, Sequence[float]] = field(default_factory=lambda: {SIX.expression: [100.0]})
    found: list[Schedule] = field(default_factory=list)
    asked: list[tuple[str, tzinfo, float]] = field(default_factory=list)
    address = "http://conductor/api"

    def schedules(self) -> Sequence[Schedule]:
        return self.found

    def next_times(self, expression: str, zone: tzinfo, after: float) -> Sequence[float] | None:
        self.asked.append((expression, zone, after))
        return self.times.get(expression)


def step(name: str, reference: str, workspace: str, **params: Any) -> dict[str, Any]:
    return simple(reference, name=name, inputParameters={"workspace": workspace, "params": params})


OPENED = workflow(
    step(OPEN.name, "open", INPUT),
    step("work", "one", "${open.output.workspace}", at="${workflow.input._scheduledTime}"),
    step(PUBLISH.name, "publish", "${one.output.workspace}", origin="${open.output.origin}"),
    name="opened",
)
PLAIN = workflow(step("work", "one", INPUT), name="plain")
LAKELESS = workflow(
    simple("one", name="call", inputParameters={"params": {"x": "${workflow.input.x}"}}), name="lakeless"
)


def taskdef(name: str, **schema: Any) -> dict[str, Any]:
    data = {"type": "object", **schema}
    return {
        "name": name,
        "ownerEmail": "a@example.com",
        "inputSchema": {"type": "JSON", "name": name, "version": 1, "data": data},
    }


PARAMS = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
CALL = taskdef("call", properties={"params": PARAMS}, required=["params"])


@pytest.fixture
def orchestrator(tmp_path: Path) -> Iterator[LocalOrchestrator]:
    with closing(LocalOrchestrator(tmp_path / "o.db")) as found:
        found.register_taskdefs([build_taskdef(OPEN), build_taskdef(PUBLISH), taskdef("work"), CALL])
        for definition in (OPENED, PLAIN, LAKELESS):
            found.register_workflow(definition)
        yield found


def prepared(
    orchestrator: LocalOrchestrator,
    request: SubmitRequest,
    scheduler: Scripted | None = None,
    *,
    name: str = "nightly",
    cron: Cron = SIX,
) -> PreparedSchedule:
    return prepare_schedule(
        cast(Scheduler, scheduler or Scripted()),
        orchestrator,
        None,
        request,
        name=name,
        cron=cron,
        now=7.0,
        remedy="perago register WORKFLOW.json",
    )


def test_a_workflow_that_begins_with_open_is_scheduled_with_its_branch(
    orchestrator: LocalOrchestrator,
) -> None:
    scheduler = Scripted()

    done = prepared(
        orchestrator,
        SubmitRequest("opened", {"workspace": BRANCH}),
        scheduler,
        cron=Cron(SIX.expression, "Europe/Berlin"),
    )

    assert done.schedule == Schedule(
        "nightly", "opened", (Cron(SIX.expression, "Europe/Berlin"),), {"workspace": BRANCH}, None
    )
    assert (done.next_times, done.warnings) == ([100.0], ())
    assert scheduler.asked == [(SIX.expression, ZoneInfo("Europe/Berlin"), 7.0)]


def test_a_version_is_kept_only_if_it_was_asked_for(orchestrator: LocalOrchestrator) -> None:
    newest = prepared(orchestrator, SubmitRequest("lakeless", {"x": 1}))
    first = prepared(orchestrator, SubmitRequest("lakeless", {"x": 1}, version=1))

    assert (newest.schedule.version, first.schedule.version) == (None, 1)


SAME_COMMIT = (
    "nothing was scheduled: every run of a schedule has the same input, and the workflow 'plain' takes its start commit "
    "from there, so every run would start from the same commit; let the workflow begin with `run = open_run()` and its "
    "other steps work on `run.workspace`"
)
REFUSED: dict[str, tuple[SubmitRequest, str]] = {
    "a workflow without open": (SubmitRequest("plain", {}), SAME_COMMIT),
    "a workflow without open, with a workspace": (SubmitRequest("plain", {}, "songs"), SAME_COMMIT),
    "a workflow without open, with a commit": (
        SubmitRequest("plain", {"workspace": {**BRANCH, "ref_type": "commit", "ref": "c"}}),
        SAME_COMMIT,
    ),
    "a commit for a workflow with open": (
        SubmitRequest("opened", {"workspace": {**BRANCH, "ref": "c"}}),
        "nothing was scheduled: the workspace in --input names a commit, and every run would start from it; name only its "
        "repository and branch, as --workspace REPO[@BRANCH] does",
    ),
    "no workspace": (
        SubmitRequest("opened", {}),
        "nothing was scheduled: step 'open': workspace is ${workflow.input.workspace}, but the input has no 'workspace': "
        "add --workspace REPO[@BRANCH]",
    ),
    "no input": (
        SubmitRequest("lakeless", {}),
        "nothing was scheduled: step 'one': params.x is ${workflow.input.x}, but the input has no 'x': add 'x' to --input",
    ),
}


@pytest.mark.parametrize(("request_", "text"), REFUSED.values(), ids=REFUSED)
def test_an_input_that_does_not_fit_every_run_is_refused(
    orchestrator: LocalOrchestrator, request_: SubmitRequest, text: str
) -> None:
    with pytest.raises(PeragoError) as raised:
        prepared(orchestrator, request_)

    assert str(raised.value) == text


FIELDS = "second, minute, hour, day of month, month, day of week"
KNOWN = {
    "0 0 6 * * *": [],
    "0 30 6 * * *": [1.0],
    "* * * * * *": [1.0],
    "0 * * * * *": [1.0],
    "* 0 * * * *": [1.0],
    "0 6 * * * *": [1.0],
}
CRONS = {
    "30 6 * * *": (
        "--cron '30 6 * * *' has five fields, and Conductor's cron has six, which begin with the seconds; "
        "did you mean '0 30 6 * * *'?"
    ),
    "daily": f"--cron 'daily' is not a cron expression: it needs six fields, {FIELDS}",
    "0 0 26 * * FOO": (
        "--cron '0 0 26 * * FOO' is not a cron expression: Conductor does not know '26' for the hour, 'FOO' for the day "
        f"of week; its fields are {FIELDS}"
    ),
    "0 0 * * * *": (
        "--cron '0 0 * * * *' is not a cron expression: Conductor does not know this combination of fields; "
        f"its fields are {FIELDS}"
    ),
    "0 0 6 * * *": "--cron '0 0 6 * * *' would never start anything: there is no such date",
}


@pytest.mark.parametrize(("cron", "text"), CRONS.items(), ids=CRONS)
def test_a_wrong_cron_expression_is_explained(orchestrator: LocalOrchestrator, cron: str, text: str) -> None:
    with pytest.raises(RuntimeConfigError) as raised:
        prepared(orchestrator, SubmitRequest("lakeless", {"x": 1}), Scripted(KNOWN), cron=Cron(cron, "UTC"))

    assert str(raised.value) == text


ZONES = {
    "Europe/Brelin": "there is no time zone 'Europe/Brelin'; did you mean 'Europe/Berlin'?",
    "../passwd": "there is no time zone '../passwd'; name it as in Europe/Berlin, or use UTC",
    "Nowhere": "there is no time zone 'Nowhere'; name it as in Europe/Berlin, or use UTC",
}


@pytest.mark.parametrize(("zone", "text"), ZONES.items(), ids=ZONES)
def test_an_unknown_zone_is_refused(orchestrator: LocalOrchestrator, zone: str, text: str) -> None:
    with pytest.raises(RuntimeConfigError) as raised:
        prepared(orchestrator, SubmitRequest("lakeless", {"x": 1}), cron=Cron(SIX.expression, zone))

    assert str(raised.value) == text


def test_a_python_without_time_zones_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "available_timezones", set)

    with pytest.raises(
        RuntimeConfigError, match="this Python knows no time zones; `pip install tzdata` adds them"
    ):
        schedules.read_zone("Europe/Brelin")


def test_a_name_that_is_taken_is_refused(orchestrator: LocalOrchestrator) -> None:
    taken = Schedule("nightly", "other", (SIX,), {})

    with pytest.raises(RuntimeConfigError) as raised:
        prepared(orchestrator, SubmitRequest("lakeless", {"x": 1}), Scripted(found=[taken]))

    assert str(raised.value) == (
        "there is a schedule 'nightly' already, which starts 'other': choose another --name, or remove it first with "
        "`perago schedule remove nightly`"
    )


@pytest.mark.parametrize("name", ["a/b", "a b", "abcd:e", ""])
def test_a_name_that_conductor_could_not_find_again_is_refused(
    orchestrator: LocalOrchestrator, name: str
) -> None:
    with pytest.raises(RuntimeConfigError, match="cannot name a schedule: use letters, digits"):
        prepared(orchestrator, SubmitRequest("lakeless", {"x": 1}), name=name)


def test_a_misspelt_schedule_gets_a_suggestion() -> None:
    scheduler = cast(Scheduler, Scripted(found=[Schedule("nightly", "plays", (SIX,), {})]))

    for name, text in (("nigthly", "; did you mean 'nightly'?"), ("other", "; there are: nightly")):
        with pytest.raises(RuntimeConfigError) as raised:
            find_schedule(scheduler, name)
        assert str(raised.value) == f"there is no schedule {name!r} on http://conductor/api{text}"


def test_the_next_times_of_several_expressions_are_merged_within_the_bounds() -> None:
    scripted = Scripted({"a": [10.0, 30.0, 50.0], "b": [20.0, 40.0, 60.0]})
    crons = (Cron("a", "UTC"), Cron("b", "UTC"), Cron("gone", "UTC"))
    schedule = Schedule("s", "plays", crons, {}, begins=9.0, ends=40.0)

    found = next_times(cast(Scheduler, scripted), schedule, 5.0)

    assert [(time, cron.expression) for time, cron in found] == [(10, "a"), (20, "b"), (30, "a"), (40, "b")]
    assert scripted.asked == [("a", UTC, 8.0), ("b", UTC, 8.0), ("gone", UTC, 8.0)]
