"""Five bodies, looked for wherever people look: on the terminal, in `logs`, in `show`, in run.log and in Conductor."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perago.settings import LAKEFS_NAMES
from tests.conftest import ConductorServer, LakefsServer, fresh_repository
from tests.support.docs.sources import OUR_FILES
from tests.support.processes.commands import CommandResult, Shell

pytestmark = pytest.mark.slow

TASKS = """
import logging, os, signal, sys
from pathlib import Path
from pydantic import BaseModel
from pyspark.sql import functions as F
from pyspark.sql.types import LongType
from perago import RetryPolicy, SparkWorkspace, TaskControls, WorkspaceSpec, task


class Nothing(BaseModel):
    pass


READ = WorkspaceSpec(prefix="/data", read_only=True)
ONCE = TaskControls(retry=RetryPolicy(count=0))
A = {"owner_email": "a@example.com", "controls": ONCE}


def parse(text: str) -> int:
    return int(text)  # the line that raises


@task(name="failing_NAME", workspace=READ, **A)
def failing(workspace: Path, params: Nothing) -> Nothing:
    print("printed before the failure")
    parse("twelve\\nthirteen")
    return Nothing()


@task(name="printing_NAME", workspace=READ, **A)
def printing(workspace: Path, params: Nothing) -> Nothing:
    print("printed [bold]by Python[/bold], ünïcode")
    sys.stderr.write("printed to stderr\\n")
    sys.stdout.write("printed without an end")
    sys.stdout.flush()
    os.write(1, b"\\nprinted past Python\\n")
    return Nothing()


@task(name="logging_NAME", workspace=READ, **A)
def logs(workspace: Path, params: Nothing) -> Nothing:
    logging.getLogger("pipeline").warning("logged %d rows", 7)
    try:
        parse("seven")
    except ValueError:
        logging.getLogger("pipeline").exception("logged with its traceback")
    logging.getLogger("pipeline").debug("too fine")
    return Nothing()


@task(name="spark_NAME", workspace=WorkspaceSpec(prefix="/data", placement="local"), **A)
def spark(workspace: SparkWorkspace, params: Nothing) -> Nothing:
    def halve(number):
        raise ValueError(f"cannot halve {number}")  # the line of the UDF

    print("printed beside Spark")
    workspace.write(workspace.spark.range(1).select(F.udf(halve, LongType())("id")), "halves")
    return Nothing()


@task(name="killed_NAME", workspace=READ, **A)
def killed(workspace: Path, params: Nothing) -> Nothing:
    print("printed before the kill")
    os.kill(os.getpid(), signal.SIGKILL)
    return Nothing()
"""
LINES = TASKS.splitlines()


def line_of(code: str) -> int:
    """Return the line number of a piece of the tasks."""
    return next(number for number, line in enumerate(LINES, 1) if code in line)


def frame(code: str, function: str) -> tuple[str, str]:
    """The two lines of a traceback for a line of the tasks."""
    return f'tasks.py", line {line_of(code)}, in {function}', f"    {LINES[line_of(code) - 1].strip()}"


TWELVE = "ValueError: invalid literal for int() with base 10: 'twelve\\nthirteen'"


@dataclass(frozen=True)
class Body:
    """A step, parts of the lines that it leaves, in their order, and parts of the reason that it failed for, if it did."""

    step: str
    lines: tuple[str, ...]
    reason: tuple[str, ...] = ()
    not_said: tuple[str, ...] = ()
    repeats: bool = False
    """Whether somebody else, Spark, says the same before."""


BODIES = [
    Body(
        "failing",
        (
            "printed before the failure",
            "Traceback (most recent call last):",
            *frame('parse("twelve', "failing"),
            *frame("the line that raises", "parse"),
            TWELVE,
        ),
        reason=(TWELVE, f"(tasks.py:{line_of('the line that raises')} in parse)"),
    ),
    Body(
        "printing",
        (
            "printed [bold]by Python[/bold], ünïcode",
            "printed to stderr",
            "printed without an end",
            "printed past Python",
        ),
        not_said=("Traceback",),
    ),
    Body(
        "logging",
        (
            "WARNING pipeline: logged 7 rows",
            "ERROR pipeline: logged with its traceback",
            "Traceback (most recent call last):",
            *frame('parse("seven', "logs"),
            *frame("the line that raises", "parse"),
            "ValueError: invalid literal for int() with base 10: 'seven'",
        ),
        not_said=("too fine",),
    ),
    Body(
        "spark",
        (
            "printed beside Spark",
            "Traceback (most recent call last):",
            *frame("the line of the UDF", "halve"),
            "ValueError: cannot halve 0",
            *frame("workspace.spark.range", "spark"),
            "writing table 'halves' failed: ValueError: cannot halve 0",
        ),
        reason=(
            "writing table 'halves' failed: ValueError: cannot halve 0",
            f"(tasks.py:{line_of('the line of the UDF')} in halve)",
        ),
        repeats=True,
    ),
    Body(
        "killed",
        ("printed before the kill",),
        reason=("the executor died with signal SIGKILL at step 'body'",),
        not_said=("Traceback",),
    ),
]


RUN = ("run", "flow.json", "--tasks", "tasks.py")


@dataclass(frozen=True)
class Ran:
    """A run that is over: what it said, and ways to look at it."""

    shell: Shell
    said: CommandResult
    name: tuple[str, ...]
    """What a command is given to look at it."""

    def run_here(self, command: str, *more: str) -> CommandResult:
        said = self.shell.run_here(command, *self.name, *more)
        assert said.code == 0, said.err
        return said

    def task(self, step: str) -> Any:
        """The step's only attempt, as `show --json` has it."""
        (found,) = (
            one
            for one in json.loads(self.run_here("show", "--json").out)["tasks"]
            if one["reference"] == step
        )
        return found


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    shell = project(tmp_path_factory.mktemp("embedded"), "bodies")
    return Ran(shell, shell.run(*RUN, "--import", "songs=in", "--workspace", "songs"), ())


@pytest.fixture(scope="module")
def real(
    tmp_path_factory: pytest.TempPathFactory, lakefs_server: LakefsServer, conductor_server: ConductorServer
) -> Iterator[Ran]:
    name = f"bodies_{uuid.uuid4().hex[:10]}"
    shell = project(tmp_path_factory.mktemp("real"), name)
    keys = (lakefs_server.url, lakefs_server.access_key_id, lakefs_server.secret_access_key)
    shell.environ |= dict(zip(LAKEFS_NAMES, keys, strict=True))
    shell.environ["CONDUCTOR_SERVER_URL"] = conductor_server.url
    with fresh_repository(lakefs_server) as repository:
        said = shell.run(*RUN, "--workspace", repository, "--remote", "--yes")
        (row,) = shell.data("runs")
        yield Ran(shell, said, ("--remote", row["workflow_id"]))
    conductor_server.call("DELETE", f"/metadata/workflow/{name}/1")
    for body in BODIES:
        conductor_server.call("DELETE", f"/metadata/taskdefs/{body.step}_{name}")


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.servers)])
def ran(request: pytest.FixtureRequest) -> Ran:
    """A run of all bodies, of which the last ends the workflow."""
    found: Ran = request.getfixturevalue(request.param)
    return found


def project(folder: Path, name: str) -> Shell:
    """A step for each body, one after the other."""
    (folder / "in" / "data").mkdir(parents=True)
    (folder / "in" / "data" / "raw.txt").write_text("raw")
    (folder / "tasks.py").write_text(TASKS.replace("NAME", name))
    steps = [
        {
            "name": f"{body.step}_{name}",
            "taskReferenceName": body.step,
            "type": "SIMPLE",
            "optional": body is not BODIES[-1],
            "inputParameters": {"workspace": "${workflow.input.workspace}", "params": {}},
        }
        for body in BODIES
    ]
    flow = {"name": name, "version": 1, "schemaVersion": 2, "ownerEmail": "a@example.com", "tasks": steps}
    (folder / "flow.json").write_text(json.dumps(flow))
    shell = Shell(folder)
    shell.environ["PERAGO_SPARK_MASTER"] = "local[1]"
    return shell


def check_lines(body: Body, lines: list[str]) -> None:
    """Check that the lines are the body's: in order, each once, and without Perago's own code."""
    at = 0
    for part in body.lines:
        found = [number for number, line in enumerate(lines) if number >= at and part in line]
        assert found, (part, lines[at:])
        assert body.repeats or len(found) == 1, (part, lines)
        at = found[0] + 1
    shown = [
        line for line in lines if any(part in line for part in (*body.not_said, OUR_FILES, "perago.attempt"))
    ]
    assert shown == []


def check_reason(body: Body, reason: str | None) -> None:
    assert bool(reason) == bool(body.reason)
    assert [part for part in body.reason if part not in (reason or "")] == []


def of_step(body: Body, text: str) -> list[str]:
    """Return the lines printed after the step's name."""
    mark = f"{body.step} | "
    return [line.removeprefix(mark) for line in text.splitlines() if line.startswith(mark)]


every_body = pytest.mark.parametrize("body", BODIES, ids=lambda body: body.step)


@every_body
def test_the_terminal_has_its_lines_and_its_reason_once(ran: Ran, body: Body) -> None:
    assert ran.said.code == 1
    check_lines(body, of_step(body, ran.said.err))
    for part in body.reason:
        # The reason is in the summary; what has the traceback's last line in it is there too.
        assert ran.said.out.count(part) == 1
    assert f"workflow {ran.task(body.step)['task'].removeprefix(body.step + '_')}: FAILED in " in ran.said.out


def test_the_terminal_says_once_which_executor_died(ran: Ran) -> None:
    assert "the executor of killed at step 'body' died: signal SIGKILL\n" in ran.said.err
    assert ran.said.err.count("died") == 1


@every_body
def test_logs_have_its_lines_and_beside_them_its_reason(ran: Ran, body: Body) -> None:
    said = ran.run_here("logs", *(() if ran.name else (body.step,)))
    check_lines(body, of_step(body, said.out))
    reasons = [line for line in said.err.splitlines() if line.startswith(f"{body.step}: ")]
    check_reason(body, reasons[0] if reasons else None)
    data = json.loads(ran.run_here("logs", "--json").out)
    check_lines(body, [one["text"] for one in data if one["step"] == body.step])


@every_body
def test_show_has_its_reason_and_its_record(ran: Ran, body: Body) -> None:
    shown = ran.run_here("show").out
    assert [part for part in body.reason if shown.count(part) != 1] == []
    task = ran.task(body.step)
    check_reason(body, task["reason"])
    (record,) = task["records"]
    status = {"killed": "DIED"}.get(body.step, "FAILED" if body.reason else "COMPLETED")
    assert (record["status"], record["step"]) == (status, "body" if body.reason else record["step"])
    assert record["seconds"]["body"] >= 0


@every_body
def test_the_log_of_the_run_has_its_lines_and_its_reason(ran: Ran, body: Body) -> None:
    (log,) = (ran.shell.folder / ".perago" / "runs").glob("*/run.log")
    lines = [line.partition("  ")[2] for line in log.read_text().splitlines()]
    check_lines(body, of_step(body, "\n".join(lines)))
    ended = [line for line in lines if line.startswith(f"{body.step}: ") and " after " in line]
    check_reason(body, ended[-1].partition(" s: ")[2])


@every_body
def test_conductor_has_its_lines_in_the_task_log_and_its_reason_in_the_task(
    real: Ran, conductor_server: ConductorServer, body: Body
) -> None:
    task_id = real.task(body.step)["task_id"]
    entries = conductor_server.call("GET", f"/tasks/{task_id}/log")
    # One entry holds the lines of one call.
    *lines, record = "\n".join(entry["log"] for entry in entries).split("\n")
    check_lines(body, lines)
    assert record.startswith("perago.attempt ")
    check_reason(body, conductor_server.call("GET", f"/tasks/{task_id}").get("reasonForIncompletion"))
