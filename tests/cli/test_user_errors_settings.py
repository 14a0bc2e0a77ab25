"""User errors in settings and about servers, run as commands: one line each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.processes.command_errors import (
    CONDUCTOR,
    LAKEFS,
    NOBODY,
    USAGE,
    CommandError,
    check_reported,
    shell_with_a_workflow,
)
from tests.support.processes.commands import Shell

RUN = ("run", "flow.json", "--tasks", "tasks.py")
PUT = ("put", "events", "data")
YES = ("--remote", "--yes")
ALL_LAKEFS = (
    "LAKECTL_SERVER_ENDPOINT_URL, LAKECTL_CREDENTIALS_ACCESS_KEY_ID, LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"
)
ANOTHER_ROOT = "give a folder that can be written, by --root or PERAGO_ROOT"


def setting(name: str, value: str, rule: str) -> CommandError:
    """A wrong value of a setting."""
    return CommandError(("runs",), name, f"{name}={value!r}", rule, environ={name: value})


ERRORS = {
    # settings
    "a misspelt setting": CommandError(
        ("runs",),
        "PERAGO_ROOTS",
        "is not a setting of Perago, and is not read",
        "did you mean PERAGO_ROOT?",
        environ={"PERAGO_ROOTS": "x"},
        code=0,
        level="warning",
    ),
    "an unknown choice": setting("PERAGO_FENCE", "harder", "is not one of auto, hard, soft"),
    "a size that is none": setting("PERAGO_CACHE_BYTES", "10 gigs", "is not a size such as 500MB or 10GB"),
    "a duration that is none": setting(
        "PERAGO_WORKSPACE_GC_TTL", "1 week", "is not a duration such as 30s, 5m, 1h or 2d"
    ),
    "a number that is none": setting(
        "PERAGO_EXECUTOR_MAX_TASKS", "many", "is not a whole number of at least 0"
    ),
    "a log format that is none": setting("PERAGO_LOG_FORMAT", "xml", "is not one of text, json"),
    "a number that is too small": CommandError(
        ("runs",),
        "PERAGO_FAILURE_REASON_MAX_LENGTH",
        "=3 is not",
        "a whole number of at least 40",
        environ={"PERAGO_FAILURE_REASON_MAX_LENGTH": "3"},
    ),
    "Conductor's address without http": CommandError(
        ("runs",),
        "CONDUCTOR_SERVER_URL",
        "='conductor:8080' is not an address",
        "such as http://localhost:8080/api",
        environ={"CONDUCTOR_SERVER_URL": "conductor:8080"},
    ),
    "lakeFS's address without http": CommandError(
        ("ls", "events"),
        "LAKECTL_SERVER_ENDPOINT_URL",
        "='lakefs:8000' is not an address",
        "such as http://localhost:8000",
        environ={**LAKEFS, "LAKECTL_SERVER_ENDPOINT_URL": "lakefs:8000"},
    ),
    "half of lakeFS's settings": CommandError(
        ("ls", "events"),
        "lakeFS settings",
        "are incomplete",
        "set LAKECTL_CREDENTIALS_ACCESS_KEY_ID, LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY (or unset all of",
        environ={"LAKECTL_SERVER_ENDPOINT_URL": NOBODY},
    ),
    "half of Conductor's keys": CommandError(
        ("runs",),
        "Conductor's keys",
        "are incomplete",
        "set CONDUCTOR_AUTH_SECRET (or unset CONDUCTOR_AUTH_KEY)",
        environ={**CONDUCTOR, "CONDUCTOR_AUTH_KEY": "key"},
    ),
    "a lakectl file that is not YAML": CommandError(
        (*PUT, *YES),
        "{folder}/broken.yaml",
        "is not YAML, line 3",
        "fix it, or run `lakectl config`",
        environ={"LAKECTL_CONFIG_FILE": "broken.yaml"},
    ),
    "a lakectl file that is a folder": CommandError(
        (*PUT, *YES),
        "{folder}/data",
        "cannot read lakectl's configuration",
        "name the file with LAKECTL_CONFIG_FILE",
        environ={"LAKECTL_CONFIG_FILE": "data"},
    ),
    # roots
    "a root that is a file": CommandError(
        (*PUT, "--create", "--root", "flow.json"), "{folder}/flow.json", "it is a file", ANOTHER_ROOT
    ),
    "a worker's root that is a file": CommandError(
        ("start", "--local", "tasks.py"),
        "{folder}/flow.json",
        "it is a file",
        ANOTHER_ROOT,
        environ={"PERAGO_ROOT": "flow.json"},
    ),
    "a root that cannot be made": CommandError(
        ("register", "--local", "tasks.py", "--root", "/proc/nowhere"),
        "/proc/nowhere",
        "cannot keep anything in the root",
        ANOTHER_ROOT,
    ),
    "a run's root that cannot be made": CommandError(
        (*RUN, "--root", "/proc/nowhere"),
        "/proc/nowhere/workspaces",
        "is not writable",
        "give one that is, by --root",
    ),
    "a root without a lake": CommandError(
        ("history", "events"),
        "{folder}/.perago",
        "there is no lake below",
        "name its root with --root, or create one with `perago put REPO FOLDER --create`",
    ),
    # servers that are not configured
    "--remote without a terminal": CommandError(
        (*RUN, "--remote"),
        "on the real servers",
        "there is no terminal to ask on",
        "add --yes to go ahead",
        code=USAGE,
    ),
    "--remote with lakeFS alone": CommandError(
        (*RUN, *YES),
        "Conductor",
        "is not configured",
        "set CONDUCTOR_SERVER_URL, or add --local",
        environ=LAKEFS,
    ),
    "--remote with Conductor alone": CommandError(
        (*RUN, *YES),
        "lakeFS",
        "is not configured",
        f"set {ALL_LAKEFS} (or run `lakectl config`), or add --local",
        environ=CONDUCTOR,
    ),
    "put --remote without lakeFS": CommandError(
        (*PUT, *YES), "lakeFS", "is not configured", f"set {ALL_LAKEFS} (or run `lakectl config`)"
    ),
    "a worker without servers": CommandError(
        ("start", "tasks.py"),
        "lakeFS and Conductor",
        "are not configured",
        f"set {ALL_LAKEFS} (or run `lakectl config`) and CONDUCTOR_SERVER_URL, or add --local",
    ),
    "submit without Conductor": CommandError(
        ("submit", "flow"), "Conductor", "is not configured", "set CONDUCTOR_SERVER_URL, or add --local"
    ),
    "register without Conductor": CommandError(
        ("register", "tasks.py"), "Conductor", "is not configured", "set CONDUCTOR_SERVER_URL, or add --local"
    ),
    "runs --remote without Conductor": CommandError(
        ("runs", "--remote"), "Conductor", "is not configured", "set CONDUCTOR_SERVER_URL"
    ),
    "servers that are neither": setting("PERAGO_SERVERS", "real", "is not one of embedded, remote"),
    "PERAGO_SERVERS=remote without lakeFS": CommandError(
        ("ls", "events"),
        "lakeFS",
        "is not configured",
        "or add --local to work on the embedded servers",
        environ={"PERAGO_SERVERS": "remote"},
    ),
    **{
        f"{command[0]} {command[1]} on servers without a terminal": CommandError(
            command,
            "on the real servers",
            "there is no terminal to ask on",
            "add --yes to go ahead",
            environ={**LAKEFS, **CONDUCTOR},
            code=USAGE,
        )
        for command in (
            ("register", "tasks.py"),
            ("submit", "flow"),
            ("fence", "install", "events"),
            ("fence", "remove", "events"),
        )
    },
    **{
        f"{command[0]} without a terminal": CommandError(
            command,
            "removes anything",
            "there is no terminal to ask on",
            "add --yes to go ahead",
            code=USAGE,
        )
        for command in (("sweep",), ("sweep", "--remote"), ("runs", "prune", "--older-than", "1d"))
    },
    # servers that are not there
    "Conductor's port is wrong": CommandError(
        ("register", "tasks.py", "--yes"),
        f"Conductor at {NOBODY}/api",
        "Connection refused",
        "check CONDUCTOR_SERVER_URL, and that Conductor is up",
        environ=CONDUCTOR,
    ),
    # runs
    "a run that is not there": CommandError(
        ("show", "nope"), "{folder}/.perago", "no run 'nope'", "`perago runs` lists them"
    ),
    "logs of a run that is not there": CommandError(
        ("logs", "nope"), "{folder}/.perago", "no run 'nope'", "`perago runs` lists them"
    ),
    "nothing to resume": CommandError(
        ("run", "--resume"),
        "{folder}/.perago",
        "there is no run",
        "start one with `perago run WORKFLOW --tasks TARGET`",
    ),
    "nothing to start from": CommandError(
        ("run", "--from", "one"),
        "{folder}/.perago",
        "there is no run",
        "name the root that has it with --root",
    ),
    # command lines
    "a misspelt command": CommandError(
        ("strat", "tasks.py"), "'strat'", "No such command", "Did you mean 'start'", code=USAGE
    ),
    "a misspelt option": CommandError(
        ("register", "--lcoal", "tasks.py"),
        "--lcoal",
        "No such option",
        "Possible options: --local",
        code=USAGE,
    ),
    "an age that is none": CommandError(
        ("runs", "prune", "--older-than", "soon"),
        "--older-than",
        "'soon' is not a duration",
        "such as 30s, 5m",
        code=USAGE,
    ),
    "a forgotten argument": CommandError(
        ("ls",),
        "perago ls",
        "Missing argument 'REPO[@REF]'",
        "`perago ls --help` explains the usage",
        code=USAGE,
    ),
}
AS_PROCESSES = (
    "an unknown choice",
    "a root that is a file",
    "--remote without a terminal",
    "a misspelt option",
)
WITH_RUNS = {
    "a run that is not there": CommandError(
        ("run", "--resume", "nope"), "{folder}/.perago", "no run 'nope'", "there are: "
    ),
    "a run to look at that is not there": CommandError(
        ("show", "nope"), "{folder}/.perago", "no run 'nope'", "`perago runs` lists them"
    ),
    "a step that is not there": CommandError(("run", "--from", "onne"), "'onne'", "no step", "one"),
    "logs of a step that is not there": CommandError(
        ("logs", "onne"), "'onne'", "neither a run nor a step of the newest one", "did you mean 'one'?"
    ),
}


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return shell_with_a_workflow(tmp_path)


def environ_of(case: CommandError, folder: Path) -> dict[str, str]:
    """Return the command's variables; a file is named by its full path."""
    names = ("LAKECTL_CONFIG_FILE",)
    return {name: str(folder / value) if name in names else value for name, value in case.environ.items()}


@pytest.mark.parametrize("case", ERRORS.values(), ids=ERRORS)
def test_an_error_in_the_settings_is_one_line_with_cause_place_and_remedy(
    case: CommandError, shell: Shell
) -> None:
    shell.environ |= environ_of(case, shell.folder)

    check_reported(case, shell.run_here(*case.command), shell.folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", AS_PROCESSES)
def test_the_same_line_comes_from_the_command_itself(name: str, shell: Shell) -> None:
    shell.environ |= environ_of(ERRORS[name], shell.folder)

    check_reported(ERRORS[name], shell.run(*ERRORS[name].command), shell.folder)


@pytest.mark.slow
def test_a_run_or_a_step_that_is_not_there_is_told_with_those_that_are(shell: Shell) -> None:
    done = shell.run(*RUN)
    assert done.code == 0, done.err

    for case in WITH_RUNS.values():
        check_reported(case, shell.run_here(*case.command), shell.folder)
