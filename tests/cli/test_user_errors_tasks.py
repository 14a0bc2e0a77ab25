"""User errors in task modules, run as commands: one line with error, place and remedy."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from perago.cli import app
from tests.cli.conftest import HEAD
from tests.support.processes.command_errors import SOURCE, error_line
from tests.support.processes.commands import CommandResult, Shell

Module = Callable[[str, str], str]

LINE = HEAD.count("\n") + 1
"""The first line below the head that every module has."""


@dataclass(frozen=True, slots=True)
class CommandError:
    """A module below the usual head, the command that meets it, and what its one line must say."""

    source: str
    where: str
    what: str
    remedy: str
    command: tuple[str, ...] = ("check", "tasks.py")


def declared(fields: str, function: str = "def t(params: Params) -> Result: ...") -> str:
    return f"@task(name='t', owner_email='a@b.c'{fields})\n{function}\n"


HERE = f"tasks.py:{LINE}: task 't': "
WITH = "def t(workspace: Path, params: Params) -> Result: ..."
RUN = ("run", "flow.json", "--tasks", "tasks.py")

ERRORS = {
    "a syntax error": CommandError(
        "def t(:\n", f"tasks.py:{LINE}: ", "SyntaxError: invalid syntax", "correct this line: def t(:"
    ),
    "an import of a package that is not installed": CommandError(
        "import no_such_package\n",
        f"tasks.py:{LINE}: ",
        "No module named 'no_such_package'",
        "install it for the Python that runs perago, or correct the import",
    ),
    "a name that perago does not have": CommandError(
        "from perago import tsak\n",
        f"tasks.py:{LINE}: ",
        "cannot import name 'tsak'",
        "correct this line: from perago import tsak",
    ),
    "an exception at import, two calls deep": CommandError(
        "def settings():\n    return {}['key']\n\nsettings()\n",
        f"tasks.py:{LINE + 1}: ",
        "KeyError: 'key'",
        f"correct this line: return {{}}['key'] (reached from tasks.py:{LINE + 3})",
    ),
    "an exception of several lines": CommandError(
        "raise RuntimeError('one\\ntwo')\n",
        f"tasks.py:{LINE}: ",
        "RuntimeError: one two",
        "correct this line: raise",
    ),
    "a module that exits": CommandError(
        "import sys\nsys.exit(3)\n",
        f"tasks.py:{LINE + 1}: ",
        "it calls sys.exit(3)",
        'put this below `if __name__ == "__main__":`',
    ),
    "no task": CommandError("", "target 'tasks.py': ", "declares no task", "decorate a function"),
    "a workspace of another type": CommandError(
        declared(", workspace=WorkspaceSpec()", "def t(workspace: str, params: Params) -> Result: ..."),
        HERE,
        "parameter 'workspace' = str",
        "must be a pathlib.Path or a perago.SparkWorkspace",
    ),
    "params that are no model": CommandError(
        declared("", "def t(params: dict) -> Result: ..."),
        HERE,
        "parameter 'params' = dict",
        "must be a pydantic model",
    ),
    "a result that is no model": CommandError(
        declared("", "def t(params: Params) -> int: ..."),
        HERE,
        "return value = int",
        "must be a pydantic model",
    ),
    "a function that takes a workspace without declaring one": CommandError(
        declared("", WITH), HERE, "the function takes a workspace", "say workspace=WorkspaceSpec(…)"
    ),
    "a keyword that belongs elsewhere": CommandError(
        declared(", retry=3"),
        HERE,
        "retry = 3: is not a field of @task",
        "say controls=TaskControls(retry=…)",
    ),
    "a misspelt keyword": CommandError(
        declared(", verison='2'"), HERE, "verison = '2': is not a field of @task", "did you mean 'version'?"
    ),
    "a misspelt field": CommandError(
        declared(", workspace=WorkspaceSpec(prefx='/a')", WITH),
        HERE,
        "WorkspaceSpec.prefx = '/a'",
        "did you mean 'prefix'?",
    ),
    "a field without its value": CommandError(
        "@task(name='t')\ndef t(params: Params) -> Result: ...\n", HERE, "owner_email", "add owner_email="
    ),
    "arguments without keywords": CommandError(
        "@task('t')\ndef t(params: Params) -> Result: ...\n",
        f"tasks.py:{LINE}: ",
        "takes keyword arguments only",
        "@task(owner_email=…)",
    ),
    "a bad prefix": CommandError(
        declared(", workspace=WorkspaceSpec(prefix='a/../b')", WITH),
        HERE,
        "WorkspaceSpec.prefix = 'a/../b'",
        "must not hold '.' or '..'",
    ),
    "an unknown policy": CommandError(
        declared(", workspace=WorkspaceSpec(on_abandoned='superseed')", WITH),
        HERE,
        "WorkspaceSpec.on_abandoned = 'superseed'",
        "must be one of 'replace', 'supersede' or 'reuse'",
    ),
    "a check that is a pattern": CommandError(
        declared(", workspace=WorkspaceSpec(pre=['raw/*.csv'])", WITH),
        HERE,
        "WorkspaceSpec.pre[0] = 'raw/*.csv': is not a check",
        "use require_file, require_dir, require_glob, forbid_glob or a function",
    ),
    "a control out of range": CommandError(
        declared(", controls=TaskControls(retry=RetryPolicy(count=-1))"),
        HERE,
        "RetryPolicy.count = -1",
        "must be 0 or more",
    ),
    "an async body": CommandError(
        declared("", "async def t(params: Params) -> Result: ..."), HERE, "function = t", "must not be async"
    ),
    "two tasks of one name": CommandError(
        declared("") + declared("").replace("def t", "def u"),
        f"tasks.py:{LINE + 2}: task 't': ",
        f"name = 't': is taken by another task of this module, at line {LINE}",
        "give one of them another name",
    ),
    "a file that is not there": CommandError(
        declared(""),
        "target 'task.py': ",
        "there is no such file in",
        "did you mean 'tasks.py'?",
        ("check", "task.py"),
    ),
    "a module that is not there": CommandError(
        declared(""),
        "target 'task': ",
        "there is no module 'task'",
        "did you mean 'tasks.py'?",
        ("check", "task"),
    ),
    "a file without its ending": CommandError(
        declared(""),
        "target './tasks': ",
        "must be an import path (app.tasks) or a file",
        "did you mean 'tasks.py'?",
        ("check", "./tasks"),
    ),
    "a folder where a file must be": CommandError(
        "", "target 'jobs.py': ", "is a folder, not a file", "name a file in it", ("check", "jobs.py")
    ),
    "a folder of modules": CommandError(
        "", "target 'jobs': ", "is a folder", "name a file in it: jobs/clean.py", ("check", "jobs")
    ),
    "a wrong module for extract": CommandError(
        declared(", retry=3"), HERE, "retry = 3", "say controls=TaskControls", ("extract", "tasks.py")
    ),
    "a wrong module for register": CommandError(
        "import no_such_package\n",
        f"tasks.py:{LINE}: ",
        "No module named",
        "install it for the Python that runs perago",
        ("register", "--local", "tasks.py"),
    ),
    "a wrong module for start": CommandError(
        declared(", verison='2'"),
        HERE,
        "verison = '2'",
        "did you mean 'version'?",
        ("start", "--local", "tasks.py"),
    ),
    "a wrong module for run": CommandError(
        "raise RuntimeError('no settings')\n",
        f"tasks.py:{LINE}: ",
        "RuntimeError: no settings",
        "correct this line: raise RuntimeError('no settings')",
        RUN,
    ),
}
AS_PROCESSES = (
    "a syntax error",
    "an exception at import, two calls deep",
    "a module that exits",
    "a wrong module for run",
)


def a_folder(folder: Path) -> None:
    """Write the files around the module: a workflow of one step, and folders with the names of modules."""
    for name in ("jobs", "jobs.py"):
        (folder / name).mkdir()
    (folder / "jobs" / "clean.py").touch()
    write_workflow(folder)


def write_workflow(folder: Path) -> None:
    # The params come with the run, so that only the attempt itself can know what is wrong with them.
    given = {"params": "${workflow.input.params}"}
    step = {"name": "t", "taskReferenceName": "only", "type": "SIMPLE", "inputParameters": given}
    flow = {"name": "flow", "version": 1, "schemaVersion": 2, "tasks": [step]}
    (folder / "flow.json").write_text(json.dumps(flow))


def check_reported(case: CommandError, said: CommandResult) -> None:
    """Check that the one line has error, place and remedy."""
    line = error_line(said)
    assert line.startswith(f"error: {case.where}")
    assert case.what in line
    assert case.remedy in line


@pytest.mark.parametrize("case", ERRORS.values(), ids=ERRORS)
def test_an_error_in_a_task_module_is_one_line_with_cause_place_and_remedy(
    case: CommandError, module: Module, tmp_path: Path
) -> None:
    module("tasks.py", case.source)
    a_folder(tmp_path)

    done = CliRunner().invoke(app, list(case.command))

    assert done.exit_code == 1
    check_reported(case, CommandResult(done.exit_code, done.stdout, done.stderr))


@pytest.mark.slow
@pytest.mark.parametrize("name", AS_PROCESSES)
def test_the_same_line_comes_from_the_command_itself(name: str, module: Module, tmp_path: Path) -> None:
    module("tasks.py", ERRORS[name].source)
    a_folder(tmp_path)

    done = Shell(tmp_path).run(*ERRORS[name].command)

    assert done.code == 1
    check_reported(ERRORS[name], done)


def body(line: str, fields: str = "") -> str:
    return declared(
        f", controls=TaskControls(retry=RetryPolicy(count=0)){fields}",
        f"def t(params: Params) -> Result:\n    {line}",
    )


BODIES: dict[str, tuple[str, dict[str, object], str]] = {
    "a body that raises": (
        body("raise ValueError('row 7 is broken')"),
        {"stem": "x"},
        "ValueError: row 7 is broken",
    ),
    "a body that exits": (body("raise SystemExit(3)"), {"stem": "x"}, "the task called sys.exit(3)"),
    "a body that returns nothing": (
        body("pass"),
        {"stem": "x"},
        "result: the body returned nothing, return a Result",
    ),
    "a result of a wrong type": (
        body("return {'rows': 'many'}"),
        {"stem": "x"},
        "result does not fit Result: result.rows: got a string, return a valid integer",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("source", "params", "reason"), BODIES.values(), ids=BODIES)
def test_a_body_that_fails_is_told_by_its_step_and_its_reason_and_not_by_our_frames(
    source: str, params: dict[str, object], reason: str, module: Module, tmp_path: Path
) -> None:
    module("tasks.py", source)
    write_workflow(tmp_path)

    done = Shell(tmp_path).run(*RUN, "--input", json.dumps({"params": params}))

    assert done.code == 1
    assert [line for line in (done.out + done.err).splitlines() if "only" in line and "FAILED" in line]
    assert reason in done.out
    assert SOURCE not in done.out + done.err, "no frame of ours"
