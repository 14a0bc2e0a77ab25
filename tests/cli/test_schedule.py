"""`perago schedule` as a user runs it: on a scripted Conductor for each line, on the real one for three runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from perago.cli import app
from perago.settings import LAKEFS_NAMES
from tests.support.servers.scripted_server import Answer, Request, ScriptedServer, scripted

SERVERS = (
    "CONDUCTOR_SERVER_URL",
    "CONDUCTOR_AUTH_KEY",
    "CONDUCTOR_AUTH_SECRET",
    "PERAGO_SERVERS",
    *LAKEFS_NAMES,
)
NIGHTLY = {
    "name": "nightly",
    "cronExpression": "0 0 6 * * *",
    "zoneId": "Europe/Berlin",
    "paused": False,
    "startWorkflowRequest": {
        "name": "plays",
        "input": {"workspace": {"repository": "songs", "branch": "main"}},
    },
}
PAUSED = {
    **NIGHTLY,
    "name": "weekly",
    "paused": True,
    "startWorkflowRequest": {"name": "plays", "version": 3},
}
LAKELESS = {
    "name": "plays",
    "version": 3,
    "schemaVersion": 2,
    "tasks": [
        {
            "name": "call",
            "taskReferenceName": "one",
            "type": "SIMPLE",
            "inputParameters": {"params": {"x": "${workflow.input.x}"}},
        }
    ],
}
ONE_DAY = 86_400_000
FOUR_HUNDRED_YEARS = 146_097 * ONE_DAY


def not_found(what: str) -> Answer:
    return 404, {"status": 404, "message": f"{what} not found", "instance": "vm", "retryable": False}


def answer(request: Request) -> Answer:
    """Answer like a Conductor with two schedules and one workflow."""
    match request.method, request.path:
        case "GET", "/scheduler/schedules":
            return 200, [NIGHTLY, PAUSED]
        case "GET", "/scheduler/nextFewSchedules":
            first = 1_900_000_000_000 + FOUR_HUNDRED_YEARS
            return 200, [first, first + ONE_DAY]
        case "GET", "/metadata/workflow/plays":
            return 200, LAKELESS
        case "GET", "/metadata/workflow/names-and-versions":
            return 200, {"plays": [{"version": 3}]}
        case "GET", _:
            return not_found(request.path)
    return 200, ""


@pytest.fixture
def conductor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    """A scripted Conductor, and no other server."""
    monkeypatch.chdir(tmp_path)
    for name in SERVERS:
        monkeypatch.delenv(name, raising=False)
    with scripted(answer) as server:
        monkeypatch.setenv("CONDUCTOR_SERVER_URL", server.url)
        yield server


def schedule(*arguments: str, **options: Any) -> Result:
    return CliRunner().invoke(app, ["schedule", *arguments], **options)


def writes(server: ScriptedServer) -> list[tuple[str, str]]:
    return [(one.method, one.path) for one in server.requests if one.method != "GET"]


ADD = ("add", "plays", "--cron", "0 0 6 * * *", "--name", "daily", "--input", '{"x": 1}')


def test_list_shows_when_what_starts_from_where(conductor: ScriptedServer) -> None:
    done = schedule("list")

    assert done.stderr == f"Conductor: {conductor.url}\n"
    assert done.stdout.splitlines() == [
        "nightly: workflow plays (newest version) at 0 0 6 * * * Europe/Berlin, from songs@main",
        "weekly: workflow plays (version 3) at 0 0 6 * * * Europe/Berlin, PAUSED",
    ]


def test_list_in_json_has_the_input(conductor: ScriptedServer) -> None:
    first, second = json.loads(schedule("list", "--json").stdout)

    assert first == {
        "name": "nightly",
        "workflow": "plays",
        "version": None,
        "times": [{"cron": "0 0 6 * * *", "zone": "Europe/Berlin"}],
        "input": {"workspace": {"repository": "songs", "branch": "main"}},
        "paused": False,
    }
    assert (second["version"], second["paused"]) == (3, True)


def test_add_saves_what_it_has_checked(conductor: ScriptedServer) -> None:
    done = schedule(*ADD, "--zone", "Asia/Tokyo", "--yes")

    assert done.exit_code == 0, done.output
    assert done.stdout == (
        "daily: workflow plays (newest version) at 0 0 6 * * * Asia/Tokyo, first at 2030-03-17 17:46:40+09:00\n"
    )
    [saved] = conductor.seen("POST", "/scheduler/schedules")
    assert json.loads(saved.body) == {
        "name": "daily",
        "cronExpression": "0 0 6 * * *",
        "zoneId": "Asia/Tokyo",
        "startWorkflowRequest": {"name": "plays", "input": {"x": 1}},
    }


def test_add_in_json_has_the_next_times(conductor: ScriptedServer) -> None:
    told = json.loads(schedule(*ADD, "--version", "3", "--yes", "--json").stdout)

    assert (told["name"], told["version"], told["input"]) == ("daily", 3, {"x": 1})
    assert told["next"] == ["2030-03-17 17:46:40+00:00", "2030-03-18 17:46:40+00:00"]


def test_next_shows_the_times_in_the_zone_of_the_schedule(conductor: ScriptedServer) -> None:
    done, paused = schedule("next", "nightly"), schedule("next", "weekly")

    assert done.stdout.splitlines() == ["2030-03-17 17:46:40+01:00", "2030-03-18 17:46:40+01:00"]
    assert "schedule weekly is paused; `perago schedule resume weekly` continues it" in paused.stderr
    assert json.loads(schedule("next", "nightly", "--json").stdout)["next"] == done.stdout.splitlines()


@pytest.mark.parametrize(
    ("arguments", "line", "call"),
    [
        (("pause", "nightly"), "schedule nightly is paused", [("PUT", "/scheduler/schedules/nightly/pause")]),
        (("pause", "weekly"), "schedule weekly is paused", []),
        (("resume", "weekly"), "schedule weekly is resumed", [("PUT", "/scheduler/schedules/weekly/resume")]),
        (("resume", "nightly"), "schedule nightly is resumed", []),
        (("remove", "weekly"), "schedule weekly is removed", [("DELETE", "/scheduler/schedules/weekly")]),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else "",
)
def test_a_change_is_made_only_where_it_changes_something(
    conductor: ScriptedServer, arguments: tuple[str, ...], line: str, call: list[tuple[str, str]]
) -> None:
    done = schedule(*arguments, "--yes")

    assert (done.exit_code, done.stdout) == (0, f"{line}\n")
    assert writes(conductor) == call


def test_a_change_in_json_names_the_schedule(conductor: ScriptedServer) -> None:
    told = json.loads(schedule("remove", "weekly", "--yes", "--json").stdout)

    assert told == {"action": "remove", "name": "weekly", "workflow": "plays"}


@pytest.mark.parametrize(("said", "changed"), [("y\n", True), ("n\n", False)])
def test_on_a_terminal_it_shows_what_it_would_do_and_asks(
    conductor: ScriptedServer, monkeypatch: pytest.MonkeyPatch, said: str, changed: bool
) -> None:
    monkeypatch.setattr("perago.cli.schedule.refuse_without_terminal", lambda *_, **__: None)

    added, removed = schedule(*ADD, input=said), schedule("remove", "weekly", input=said)

    assert added.stderr.splitlines()[2:4] == [
        'input: {"x": 1}',
        "starts: 2030-03-17 17:46:40+00:00, 2030-03-18 17:46:40+00:00, …",
    ]
    assert (
        "Add schedule daily: workflow plays (newest version) at 0 0 6 * * * UTC there? [y/N]" in added.stderr
    )
    assert (
        "Remove schedule weekly: workflow plays (version 3) at 0 0 6 * * * Europe/Berlin?" in removed.stderr
    )
    assert bool(writes(conductor)) is changed
    assert (added.exit_code, removed.exit_code) == ((0, 0) if changed else (1, 1))


ERRORS: dict[str, tuple[tuple[str, ...], str]] = {
    "an unknown workflow": (
        ("add", "plasy", "--cron", "0 0 6 * * *", "--yes"),
        "no workflow 'plasy' is registered on {url}; did you mean 'plays'? Or register it with "
        "`perago register WORKFLOW.json`",
    ),
    "an unknown zone": (
        (*ADD, "--zone", "Europe/Brelin", "--yes"),
        "there is no time zone 'Europe/Brelin'; did you mean 'Europe/Berlin'?",
    ),
    "a name that is taken": (
        (*ADD, "--name", "nightly", "--yes"),
        "there is a schedule 'nightly' already, which starts 'plays': choose another --name, or remove it first with "
        "`perago schedule remove nightly`",
    ),
    "a workspace without lakeFS": (
        (*ADD, "--workspace", "songs", "--yes"),
        "lakeFS is not configured: set LAKECTL_SERVER_ENDPOINT_URL, LAKECTL_CREDENTIALS_ACCESS_KEY_ID, "
        "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY",
    ),
    "an unknown schedule": (
        ("pause", "nigthly", "--yes"),
        "there is no schedule 'nigthly' on {url}; did you mean 'nightly'?",
    ),
    "the embedded servers": (
        ("list", "--local"),
        "schedules need Conductor, which starts the workflows: set CONDUCTOR_SERVER_URL; on a laptop, let cron call "
        "`perago run` instead",
    ),
}


@pytest.mark.parametrize(("arguments", "line"), ERRORS.values(), ids=ERRORS)
def test_an_error_is_one_line_and_changes_nothing(
    conductor: ScriptedServer, arguments: tuple[str, ...], line: str
) -> None:
    done = schedule(*arguments)

    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == f"error: {line.format(url=conductor.url)}"
    assert writes(conductor) == []


@pytest.mark.parametrize(
    "command", ["add plays --cron *", "pause nightly", "resume weekly", "remove nightly"]
)
def test_without_a_terminal_a_change_needs_yes(conductor: ScriptedServer, command: str) -> None:
    done = schedule(*command.split())

    assert done.exit_code == 2
    assert "add --yes to go ahead" in done.stderr
    assert conductor.requests == []


def test_a_workspace_given_twice_is_a_usage_error(conductor: ScriptedServer) -> None:
    done = schedule(*ADD[:-1], '{"workspace": {}}', "--workspace", "songs", "--yes")

    assert (done.exit_code, conductor.requests) == (2, [])
    assert "the workspace is given twice: by --workspace and in --input" in done.stderr


def test_without_conductor_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SERVERS:
        monkeypatch.delenv(name, raising=False)

    assert schedule("list").stderr == f"error: {ERRORS['the embedded servers'][1]}\n"


# --- on the real servers -----------------------------------------------------------------------------------------

TASKS = """
from pathlib import Path
from pydantic import BaseModel
from perago import WorkspaceSpec, task


class Params(BaseModel):
    at: int


class Result(BaseModel):
    lines: int


@task(name="{name}", owner_email="a@example.com", workspace=WorkspaceSpec())
def note(workspace: Path, params: Params) -> Result:
    file = workspace / "starts.txt"
    lines = [*(file.read_text().splitlines() if file.exists() else []), str(params.at)]
    file.write_text("\\n".join(lines))
    return Result(lines=len(lines))
"""


class RealSchedule:
    """A schedule on the real Conductor with names of its own, and `perago` in processes that know them."""

    def __init__(self, conductor: Any, lakefs: Any, repository: str, folder: Path) -> None:
        self.name = f"test_schedule_{uuid.uuid4().hex[:12]}"
        self.conductor, self.repository, self.folder = conductor, repository, folder
        keys = (lakefs.url, lakefs.access_key_id, lakefs.secret_access_key)
        names = {"CONDUCTOR_SERVER_URL": conductor.url, "PERAGO_RUN_STEPS": self.name}
        self.environ = {**os.environ, **names, **dict(zip(LAKEFS_NAMES, keys, strict=True))}

    def perago(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "perago", *arguments],
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def worker(self) -> Iterator[None]:
        with (self.folder / "worker.log").open("w") as log:
            started = subprocess.Popen(
                [sys.executable, "-m", "perago", "start", "tasks.py"],
                cwd=self.folder,
                env=self.environ,
                stdout=log,
                stderr=log,
            )
        try:
            yield
        finally:
            started.send_signal(signal.SIGTERM)
            started.wait(timeout=120)

    def runs(self, status: str | None = None) -> list[dict[str, Any]]:
        """Return the inputs of the runs that the schedule has started, or of those with this status."""
        every = self.conductor.call("GET", "/scheduler/search/executions?size=1000")["results"]
        started = [one["workflowId"] for one in every if one["scheduleName"] == self.name]
        found = [self.conductor.call("GET", f"/workflow/{one}?includeTasks=false") for one in started]
        return [one["input"] for one in found if status in (None, one["status"])]

    def remove(self) -> None:
        self.conductor.call("DELETE", f"/scheduler/schedules/{self.name}")
        self.conductor.call("DELETE", f"/metadata/workflow/{self.name}/1")
        for task in (self.name, f"{self.name}_open", f"{self.name}_publish"):
            self.conductor.call("DELETE", f"/metadata/taskdefs/{task}")


def transaction(name: str) -> dict[str, Any]:
    def step(task: str, reference: str, workspace: str, **params: Any) -> dict[str, Any]:
        inputs = {"workspace": workspace, "params": params}
        return {"name": task, "taskReferenceName": reference, "type": "SIMPLE", "inputParameters": inputs}

    tasks = [
        step(f"{name}_open", "open", "${workflow.input.workspace}"),
        step(name, "note", "${open.output.workspace}", at="${workflow.input._scheduledTime}"),
        step(f"{name}_publish", "publish", "${note.output.workspace}", origin="${open.output.origin}"),
    ]
    return {"name": name, "version": 1, "schemaVersion": 2, "tasks": tasks}


@pytest.fixture
def real(
    conductor_server: Any, lakefs_server: Any, lakefs_repository: str, tmp_path: Path
) -> Iterator[RealSchedule]:
    """A registered workflow that is one transaction; gone after the test."""
    made = RealSchedule(conductor_server, lakefs_server, lakefs_repository, tmp_path)
    (tmp_path / "tasks.py").write_text(TASKS.replace("{name}", made.name))
    (tmp_path / "flow.json").write_text(json.dumps(transaction(made.name)))
    made.perago("register", "tasks.py", "flow.json", "--yes")
    try:
        yield made
    finally:
        made.remove()


def until(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.slow
def test_a_schedule_starts_three_runs_and_none_once_it_is_paused(real: RealSchedule) -> None:
    where = ("--workspace", real.repository, "--zone", "Europe/Berlin")
    with real.worker():
        added = json.loads(
            real.perago("schedule", "add", real.name, "--cron", "*/4 * * * * *", *where, "--yes", "--json")
        )
        until(lambda: len(real.runs("COMPLETED")) >= 3)
        real.perago("schedule", "pause", real.name, "--yes")
        # A start that was under way when the schedule was paused may still come.
        time.sleep(2)
        until(lambda: not real.runs("RUNNING"))
        started = len(real.runs())
        time.sleep(9)
        after_pause = len(real.runs())

    branch = {"repository": real.repository, "branch": "main"}
    assert added["input"] == {"workspace": branch}
    completed = real.runs("COMPLETED")
    assert [one["workspace"] for one in completed] == [branch] * len(completed)
    assert {one["_startedByScheduler"] for one in completed} == {real.name}
    # Each run began at the head that the one before had published, and published one commit.
    noted = real.perago("cat", real.repository, "starts.txt", "--remote").split()
    assert noted == sorted(str(one["_scheduledTime"]) for one in completed)
    assert after_pause == started
    [listed] = [
        one for one in json.loads(real.perago("schedule", "list", "--json")) if one["name"] == real.name
    ]
    assert listed["paused"] is True

    real.perago("schedule", "remove", real.name, "--yes")

    assert real.name not in real.perago("schedule", "list")


def test_the_next_times_on_a_real_conductor_are_those_of_the_zone(real: RealSchedule) -> None:
    cron = ("--cron", "0 0 6 * * *", "--workspace", real.repository, "--yes", "--json")
    for zone, offset in (("Asia/Tokyo", "+09:00"), ("America/Phoenix", "-07:00"), ("UTC", "+00:00")):
        real.perago("schedule", "add", real.name, *cron, "--zone", zone)
        times = json.loads(real.perago("schedule", "next", real.name, "--json"))["next"]
        real.perago("schedule", "remove", real.name, "--yes")

        assert [one[10:] for one in times] == [f" 06:00:00{offset}"] * 5
        assert len({one[:10] for one in times}) == 5
