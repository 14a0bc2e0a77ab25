"""User errors in workflows and in starting them, run as commands: one line each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import HEAD
from tests.support.processes.command_errors import USAGE, CommandError, check_reported
from tests.support.processes.commands import Shell
from tests.support.tasks.workflows import fork, join, simple, workflow

TASKS = """
TIMES = TaskControls(timeout=TimeoutPolicy(seconds=3600))


@task(name="clean", owner_email="a@b.c", workspace=WorkspaceSpec(), controls=TIMES)
def clean(workspace: Path, params: Params) -> Result: ...
"""
INPUT = "${workflow.input.workspace}"
CHECK = ("check", "tasks.py", "flow.json")
RUN = ("run", "flow.json", "--tasks", "tasks.py")
REGISTER = ("register", "--local", "tasks.py", "flow.json")


def clean(reference: str, workspace: str = INPUT, **params: Any) -> dict[str, Any]:
    given = {"workspace": workspace, "params": params or {"stem": "x"}}
    return simple(reference, name="clean", inputParameters=given)


ONE = clean("one")
AFTER_ONE = "${one.output.workspace}"
SIDE_BY_SIDE = fork("both", [clean("left")], [clean("right")])
HTTP = {"name": "call", "taskReferenceName": "call", "type": "HTTP", "inputParameters": {}}


@dataclass(frozen=True, slots=True)
class Wrong:
    """The content of a workflow's file, and its error."""

    file: Any
    case: CommandError


def wrong(
    file: Any,
    what: str,
    remedy: str,
    command: tuple[str, ...] = CHECK,
    *,
    where: str = "(flow.json)",
    code: int = 1,
) -> Wrong:
    return Wrong(file, CommandError(command, where, what, remedy, code=code))


ERRORS = {
    # what is wrong in the file
    "a misspelt field of an output": wrong(
        workflow(ONE, clean("two", "${one.output.workspce}")),
        "step 'two' takes ${one.output.workspce}, but the output of 'one' has no 'workspce'",
        "did you mean 'workspace'?",
    ),
    "a misspelt step": wrong(
        workflow(ONE, clean("two", "${onne.output.workspace}")),
        "step 'two' takes ${onne.output.workspace}, but no step is called 'onne'",
        "did you mean 'one'?",
    ),
    "an output that can only be null": wrong(
        workflow(ONE, outputParameters={"n": "${one.output.result.row}"}),
        "output 'n' takes ${one.output.result.row}, but ${one.output.result} has no 'row'",
        "did you mean 'rows'?",
    ),
    "an output of no step": wrong(
        workflow(ONE, outputParameters={"n": "${last.output.result.rows}"}),
        "output 'n' takes ${last.output.result.rows}, but no step is called 'last'",
        "the steps are one",
    ),
    "an unknown task": wrong(
        workflow(simple("one", name="claen", inputParameters=ONE["inputParameters"])),
        "step 'one' runs the task 'claen', which no given module declares",
        "did you mean 'clean'?",
    ),
    "a forgotten module": wrong(
        workflow(ONE),
        "step 'one' runs the task 'clean', but no module was given",
        "add the one that declares it",
        ("check", "flow.json"),
    ),
    "a missing param": wrong(
        workflow(simple("one", name="clean", inputParameters={"workspace": INPUT, "params": {}})),
        "step 'one': params.stem is missing, and 'clean' requires it",
        "add it",
    ),
    "a param too many": wrong(
        workflow(clean("one", stem="x", steem="y")),
        "step 'one': 'clean' has no params.steem",
        "did you mean 'stem'?",
    ),
    "a literal of a wrong type": wrong(
        workflow(clean("one", stem=3)), "step 'one': params.stem: ", "should be a valid string, got int"
    ),
    "no workspace for a step that works on one": wrong(
        workflow(simple("one", name="clean", inputParameters={"params": {"stem": "x"}})),
        "step 'one' has no workspace",
        'give it "workspace": "${workflow.input.workspace}"',
    ),
    "two steps of one name": wrong(
        workflow(ONE, clean("one", AFTER_ONE)), "two steps are called 'one'", "rename one of them"
    ),
    "a join on no step": wrong(
        workflow(fork("both", [ONE]), join("joined", "nobody")),
        "step 'joined' joins on 'nobody', but no step is called that",
        "the steps are both, one",
    ),
    "two writers side by side": wrong(
        workflow(SIDE_BY_SIDE, join("joined", "left", "right")),
        "steps 'left' and 'right' run side by side in 'both' and both write the branch of ${workflow.input.workspace}",
        'declare reads, writes and on_advanced="rebase" for both',
    ),
    "a workspace that an earlier step has moved on from": wrong(
        workflow(ONE, clean("two")),
        "step 'two' starts from ${workflow.input.workspace}, but step 'one' has moved that branch on by then",
        "start it from ${one.output.workspace}",
    ),
    "no steps": wrong({"name": "flow"}, "the workflow has no steps", '"tasks" must be a list of them'),
    # what is wrong with the file
    "no JSON": wrong(
        '{"name": "flow",\n "tasks": [}',
        "is not JSON: Expecting value, line 2 column 12",
        'correct this line: "tasks": [}',
        where="flow.json",
    ),
    "no UTF-8": wrong(b"\xff\xfe{}", "is not UTF-8 text", "save it as UTF-8", where="flow.json"),
    "a list": wrong([], "holds a list", "must hold one JSON object, {…}", where="flow.json"),
    "no name": wrong({"tasks": []}, "it has no name", 'add "name"', where="flow.json"),
    "no file": wrong(
        workflow(ONE),
        "there is no file flw.json",
        "did you mean 'flow.json'?",
        ("check", "flw.json"),
        where="flw.json",
    ),
    "a folder": wrong(
        workflow(ONE),
        "is a folder",
        "name a JSON file in it",
        ("run", "data", "--tasks", "tasks.py"),
        where="data",
    ),
    # what is wrong in the command
    "a forgotten --workspace": wrong(
        workflow(ONE),
        "step 'one' takes ${workflow.input.workspace}, but the workflow's input has no 'workspace'",
        "give --workspace REPO",
        RUN,
    ),
    "a misspelt input": wrong(
        workflow(clean("one", stem="${workflow.input.stem}")),
        "step 'one' takes ${workflow.input.stem}, but the workflow's input has no 'stem', but 'steem'",
        "rename one of them",
        (*RUN, "--workspace", "events", "--input", '{"steem": "x"}'),
    ),
    "an input of a wrong type": wrong(
        workflow(clean("one", stem="${workflow.input.stem}")),
        "step 'one': params.stem takes ${workflow.input.stem}, which does not fit",
        "should be a valid string, got int",
        (*RUN, "--workspace", "events", "--input", '{"stem": 3}'),
    ),
    "params that come with the run and are not declared": wrong(
        workflow(
            simple(
                "one",
                name="clean",
                inputParameters={"workspace": INPUT, "params": "${workflow.input.params}"},
            )
        ),
        "step 'one': 'clean' has no params.steem",
        "did you mean 'stem'?",
        (*RUN, "--workspace", "events", "--input", '{"params": {"stem": "x", "steem": "y"}}'),
    ),
    "an input that is no JSON": wrong(
        workflow(ONE),
        "is not JSON: Expecting property name",
        "correct this line: {stem: x}",
        (*RUN, "--input", "{stem: x}"),
        where="--input",
    ),
    "an input that is not there": wrong(
        workflow(ONE),
        "is neither a file",
        'write --input \'{"key": "value"}\'',
        (*RUN, "--input", "input"),
        where="--input 'input'",
    ),
    "half a workspace": wrong(
        workflow(ONE),
        "'events@' is not REPO[@REF]",
        "such as events@main",
        (*RUN, "--workspace", "events@"),
        where="`perago run --help`",
        code=USAGE,
    ),
    "a workspace without its commit": wrong(
        workflow(ONE),
        "step 'one': workspace.ref is missing",
        "--workspace REPO[@BRANCH] gives a whole one",
        (*RUN, "--input", '{"workspace": {"repository": "events", "branch": "main"}}'),
    ),
    "a run without its tasks": wrong(
        workflow(ONE),
        "give a workflow (flow.py:NAME or a JSON file) and its tasks (--tasks TARGET)",
        "`perago run --help` explains the usage",
        ("run", "flow.json"),
        where="perago run",
        code=USAGE,
    ),
    "a step of a type that the embedded orchestrator does not have": wrong(
        workflow(ONE, HTTP),
        "'call' has the type HTTP",
        "it runs SIMPLE, SWITCH, FORK_JOIN, JOIN, DO_WHILE, NOOP; a Conductor server runs the rest",
        (*RUN, "--import", "events=data", "--workspace", "events"),
        where="workflow flow",
    ),
    "the same, registered": wrong(
        workflow(ONE, HTTP),
        "'call' has the type HTTP",
        "a Conductor server runs the rest",
        REGISTER,
        where="workflow flow",
    ),
    "a version that is no number": wrong(
        workflow(ONE, version="new"),
        "version is 'new'",
        "must be a whole number of at least 1",
        REGISTER,
        where="flow.json",
    ),
    "submitted before anything is registered": wrong(
        workflow(ONE),
        "nothing is registered below {folder}/.perago",
        "`perago register TARGET WORKFLOW --local`",
        ("submit", "--local", "flow"),
        where="{folder}/.perago",
    ),
}
SUBMITTED = {
    "a name that is not registered": CommandError(
        ("submit", "--local", "flw"),
        "{folder}/.perago/orchestrator.db",
        "no workflow 'flw' is registered",
        "did you mean 'flow'? Or register it with `perago register WORKFLOW --local`",
    ),
    "a version that is not registered": CommandError(
        ("submit", "--local", "flow", "--version", "7"),
        "'flow'",
        "has no version 7: it has 1",
        "register it with `perago register WORKFLOW --local`",
    ),
    "a file instead of a name": CommandError(
        ("submit", "--local", "flow.json"),
        "flow.json",
        "is a file, and submit takes the name of a registered workflow",
        "`perago register flow.json --local`, then `perago submit flow --local`",
    ),
    "no workspace": CommandError(
        ("submit", "--local", "flow"),
        "step 'one'",
        "the input has no 'workspace'",
        "add --workspace REPO[@BRANCH]",
    ),
    "a repository that is not there": CommandError(
        ("submit", "--local", "flow", "--workspace", "events"),
        "'events'",
        "there is no repository 'events'; the lake holds none",
        "`perago put REPO FOLDER --create` makes one",
    ),
}
AS_PROCESSES = (
    "a misspelt field of an output",
    "no UTF-8",
    "a forgotten --workspace",
    "a step of a type that the embedded orchestrator does not have",
)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    (tmp_path / "tasks.py").write_text(HEAD + TASKS)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("x\n")
    return Shell(tmp_path)


def write(folder: Path, file: Any) -> None:
    """The workflow's file: bytes and text as they are, the rest as JSON."""
    text = file if isinstance(file, str | bytes) else json.dumps(file)
    (folder / "flow.json").write_bytes(text if isinstance(text, bytes) else text.encode())


@pytest.mark.parametrize("one", ERRORS.values(), ids=ERRORS)
def test_an_error_in_a_workflow_is_one_line_with_cause_place_and_remedy(one: Wrong, shell: Shell) -> None:
    write(shell.folder, one.file)

    check_reported(one.case, shell.run_here(*one.case.command), shell.folder)


@pytest.mark.parametrize("case", SUBMITTED.values(), ids=SUBMITTED)
def test_an_error_in_starting_a_registered_workflow_is_one_line(case: CommandError, shell: Shell) -> None:
    write(shell.folder, workflow(ONE))
    assert shell.run_here(*REGISTER).code == 0

    check_reported(case, shell.run_here(*case.command), shell.folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", AS_PROCESSES)
def test_the_same_line_comes_from_the_command_itself(name: str, shell: Shell) -> None:
    write(shell.folder, ERRORS[name].file)

    check_reported(ERRORS[name].case, shell.run(*ERRORS[name].case.command), shell.folder)
