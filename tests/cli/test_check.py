"""`perago check`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from perago.cli import app

Module = Callable[[str, str], str]

GOOD = """
@task(
    name="clean_events",
    description="Cleans events.",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(
        prefix="events",
        pre=[require_glob("raw/*.csv")],
        post=[require_glob("clean/**/*.parquet", max_count=9)],
        on_abandoned="supersede",
    ),
    controls=TaskControls(
        retry=RetryPolicy(count=2, logic="LINEAR_BACKOFF", delay_seconds=5, max_delay_seconds=50, jitter_ms=10),
        timeout=TimeoutPolicy(response_seconds=100, seconds=1000, policy="RETRY"),
        limits=ExecutionLimits(
            concurrent_exec_limit=4, rate_limit_per_frequency=5, rate_limit_frequency_in_seconds=60
        ),
        publish_budget=PublishBudget(
            observed_merge_p99_seconds=20,
            safety_margin_seconds=10,
            lakefs_merge_timeout_seconds=60,
            conductor_completion_timeout_seconds=15,
            worker_shutdown_grace_seconds=30,
            heartbeat_interval_seconds=10,
        ),
    ),
)
def clean(workspace: Path, params: Params) -> Result: ...


@task(name="count", owner_email="data@example.com", strict_params=False)
def count(params: Params) -> Result: ...
"""

FIVE_INVALID_TASKS = """
@task(name="first", owner_email="a@b.c", controls=TaskControls(retry=RetryPolicy(count=-1)))
def first(params: Params) -> Result: ...


@task(name="second", owner_email="a@b.c", workspace=WorkspaceSpec(prefix="/a/../b"))
def second(workspace: Path, params: Params) -> Result: ...


@task(name="third", owner_email="a@b.c")
async def third(params: Params) -> Result: ...


@task(name="fourth/part", owner_email="a@b.c")
def fourth(params: Params) -> Result: ...


@task(name="fifth", owner_email="a@b.c", workspace=WorkspaceSpec(pre=[require_file("/etc/passwd")]))
def fifth(workspace: Path, params: Params) -> Result: ...


@task(name="right", owner_email="a@b.c")
def right(params: Params) -> Result: ...
"""


def test_check_prints_what_was_found(module: Module) -> None:
    done = CliRunner().invoke(app, ["check", module("good.py", GOOD)])

    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "clean_events",
        "  declared   good.py:18",
        "  about      Cleans events.",
        "  owner      data@example.com",
        "  signature  clean(workspace: Path, params: Params) -> Result",
        "  version    1",
        "  workspace  prefix /events, on abandoned: supersede, placement auto",
        "  pre        require_glob('raw/*.csv', min_count=1)",
        "  post       require_glob('clean/**/*.parquet', min_count=1, max_count=9)",
        "  retry      2 times, LINEAR_BACKOFF, 5 s, at most 50 s, jitter 10 ms",
        "  time-outs  response 100 s, task 1000 s, then RETRY",
        "  limits     4 at once",
        "  limits     5 in 60 s",
        "  budget     merge 60 s + completion 15 s + grace 30 s + heartbeat 10 s = 115 s",
        "count",
        "  declared   good.py:47",
        "  owner      data@example.com",
        "  signature  count(params: Params) -> Result",
        "  version    1",
        "  params     unknown fields are ignored",
        "  workspace  none",
        "  retry      3 times, FIXED, 60 s",
        "  time-outs  response 600 s, then TIME_OUT_WF",
    ]
    assert done.stderr.splitlines() == [
        "warning: task 'clean_events': controls.timeout.response_seconds = 100 is shorter than the publish budget, "
        "which needs 115; Conductor may take the task away while it publishes",
        "warning: task 'count': controls.timeout has no total time-out: a body that hangs keeps its lease, and its slot, "
        "for ever; say TimeoutPolicy(seconds=…)",
    ]


def test_five_invalid_declarations_in_one_module_are_five_errors_and_no_traceback(module: Module) -> None:
    done = CliRunner().invoke(app, ["check", module("five.py", FIVE_INVALID_TASKS)])

    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.exit_code == 1
    assert [error.partition("': ")[2] for error in errors] == [
        "RetryPolicy.count = -1: must be 0 or more",
        "WorkspaceSpec.prefix = '/a/../b': must not hold '.' or '..'",
        "function = third: must not be async: Perago runs each attempt in a process of its own",
        "name = 'fourth/part': must not hold path parts ('/', '\\', '.' or '..')",
        "require_file pattern = '/etc/passwd': must be relative to the workspace's prefix, not absolute",
    ]
    assert errors[0].startswith("error: five.py:18: task 'first'")
    assert done.stdout.splitlines()[0] == "right", "what is right is still shown"
    assert "Traceback" not in done.output


def test_errors_of_all_modules_are_reported(module: Module) -> None:
    targets = [
        module("left.py", '@task(name="a/b", owner_email="a@b.c")\ndef a(params: Params) -> Result: ...\n'),
        module("right.py", "x = 1 / 0\n"),
        "nowhere.py",
    ]

    done = CliRunner().invoke(app, ["check", *targets])

    assert done.exit_code == 1
    assert ["left.py:" in done.stderr, "right.py:" in done.stderr, "'nowhere.py'" in done.stderr] == [
        True
    ] * 3
    assert len(done.stderr.splitlines()) == 3


def test_check_in_json_has_tasks_and_errors(module: Module) -> None:
    done = CliRunner().invoke(app, ["check", "--json", module("five.py", FIVE_INVALID_TASKS)])

    found = json.loads(done.stdout)
    assert done.exit_code == 1
    assert [task["name"] for task in found["tasks"]] == ["right"]
    assert len(found["errors"]) == 5
    assert found["errors"][0] == {
        "file": str(Path("five.py").resolve()),
        "line": 18,
        "task": "first",
        "message": "RetryPolicy.count = -1: must be 0 or more",
    }


def test_check_in_json_has_all_that_the_text_has(module: Module) -> None:
    done = CliRunner().invoke(app, ["check", "--json", module("good.py", GOOD)])

    clean, count = json.loads(done.stdout)["tasks"]
    assert clean["workspace"] == {
        "prefix": "/events",
        "reads": None,
        "writes": None,
        "read_only": False,
        "on_abandoned": "supersede",
        "unsigned": "refuse",
        "placement": "auto",
        "pre": ["require_glob('raw/*.csv', min_count=1)"],
        "post": ["require_glob('clean/**/*.parquet', min_count=1, max_count=9)"],
    }
    assert clean["controls"]["retry"]["count"] == 2
    assert (len(clean["warnings"]), len(count["warnings"])) == (1, 1)
    assert count["workspace"] is None


NARROW = """
@task(
    name="sessions",
    owner_email="a@b.c",
    workspace=WorkspaceSpec(prefix="/listening", reads=["plays", "songs"], writes=["sessions"]),
)
def sessions(workspace: Path, params: Params) -> Result: ...


@task(name="made", owner_email="a@b.c", workspace=WorkspaceSpec(reads=(), writes=["made"]))
def made(workspace: Path, params: Params) -> Result: ...
"""


def test_check_shows_what_a_task_reads_and_writes(module: Module) -> None:
    path = module("narrow.py", NARROW)
    text, as_json = (CliRunner().invoke(app, ["check", *flags, path]) for flags in ([], ["--json"]))

    assert "  reads      plays, songs\n  writes     sessions\n" in text.stdout
    assert "  reads      nothing\n  writes     made\n" in text.stdout
    [sessions, made] = [task["workspace"] for task in json.loads(as_json.stdout)["tasks"]]
    assert (sessions["reads"], sessions["writes"]) == (["plays", "songs"], ["sessions"])
    assert (made["reads"], made["writes"]) == ([], ["made"])


DAILY = """
from datetime import date


class Slice(BaseModel):
    day: date
    region: str


@task(
    name="clean_day",
    owner_email="a@b.c",
    workspace=WorkspaceSpec(reads=["raw/day={day}"], writes=["clean/{region}/day={day}"]),
)
def clean_day(workspace: Path, params: Slice) -> Result: ...
"""


def test_check_shows_the_params_that_paths_name(module: Module) -> None:
    path = module("daily.py", DAILY)
    text, as_json = (CliRunner().invoke(app, ["check", *flags, path]) for flags in ([], ["--json"]))

    assert "  reads      raw/day={day}\n  writes     clean/{region}/day={day}\n" in text.stdout
    assert "  partition  by day, region\n" in text.stdout
    [task] = json.loads(as_json.stdout)["tasks"]
    assert task["workspace"]["writes"] == ["clean/{region}/day={day}"]
    taskdef = CliRunner().invoke(app, ["extract", path])
    assert taskdef.exit_code == 0
    assert "{day}" not in taskdef.stdout


FLOW = """
CONTROLS = TaskControls(timeout=TimeoutPolicy(seconds=900))


@task(name="clean", owner_email="a@b.c", workspace=WorkspaceSpec(), controls=CONTROLS)
def clean(workspace: Path, params: Params) -> Result: ...
"""


def flow(*references: str, **params: object) -> dict[str, object]:
    """A workflow in which each step starts from the workspace of the step before, or from one that it is said to."""
    steps = []
    sources = ["workflow.input", *(f"{reference}.output" for reference in references)]
    for reference, source in zip(references, sources, strict=False):
        inputs = {"workspace": f"${{{source}.workspace}}", "params": {"stem": "x"} | params}
        steps.append({"name": "clean", "taskReferenceName": reference, "inputParameters": inputs})
    return {"name": "flow", "version": 1, "tasks": steps}


def test_a_workflow_that_is_right_is_shown(module: Module) -> None:
    Path("flow.json").write_text(json.dumps(flow("one", "two")))

    done = CliRunner().invoke(app, ["check", module("tasks.py", FLOW), "flow.json"])

    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-3:] == ["flow", "  workflow   flow.json", "  steps      2"]


def test_errors_in_workflows_are_lines_and_the_exit_code_is_1(module: Module) -> None:
    Path("flow.json").write_text(json.dumps(flow("one", "two", stm="y")))
    Path("broken.json").write_text("{")

    done = CliRunner().invoke(
        app, ["check", "flow.json", module("tasks.py", FLOW), "broken.json", "nowhere.json"]
    )

    assert done.exit_code == 1
    assert done.stderr.splitlines() == [
        "error: step 'one': 'clean' has no params.stm; did you mean 'stem'? (flow.json)",
        "error: step 'two': 'clean' has no params.stm; did you mean 'stem'? (flow.json)",
        "error: broken.json is not JSON: Expecting property name enclosed in double quotes, line 1 column 2; correct this "
        "line: {",
        "error: there is no file nowhere.json (there are broken.json, flow.json): name the file that holds the workflow",
    ]


def test_a_warning_about_a_workflow_does_not_fail(module: Module) -> None:
    Path("flow.json").write_text(json.dumps({**flow("one"), "outputParameters": {"rows": None}}))

    done = CliRunner().invoke(app, ["check", module("tasks.py", FLOW), "flow.json"])

    assert done.exit_code == 0
    assert done.stderr == (
        "warning: output 'rows' is always null: it is written so in outputParameters (flow.json)\n"
    )


def test_a_module_that_is_wrong_is_not_told_again_by_its_workflows(module: Module) -> None:
    Path("flow.json").write_text(json.dumps(flow("one")))

    done = CliRunner().invoke(
        app, ["check", module("tasks.py", FLOW.replace("controls=CONTROLS", "version=9")), "flow.json"]
    )

    assert done.exit_code == 1
    [line] = done.stderr.splitlines()
    assert "version = 9: must be text" in line


def test_check_in_json_has_the_errors_of_workflows(module: Module) -> None:
    Path("flow.json").write_text(json.dumps(flow("one", stm="y")))

    done = CliRunner().invoke(app, ["check", "--json", module("tasks.py", FLOW), "flow.json"])

    assert done.exit_code == 1
    message = "step 'one': 'clean' has no params.stm; did you mean 'stem'?"
    assert json.loads(done.stdout)["workflows"] == [
        {
            "file": "flow.json",
            "name": "flow",
            "steps": 1,
            "mistakes": [{"level": "error", "step": "one", "message": message}],
        }
    ]


@pytest.mark.slow
def test_the_script_itself_prints_the_errors_and_ends_with_1(module: Module) -> None:
    target = module("five.py", FIVE_INVALID_TASKS)

    done = subprocess.run(
        [sys.executable, "-c", "from perago.cli import main; main()", "check", target],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert len([line for line in done.stderr.splitlines() if line.startswith("error: ")]) == 5
    assert "Traceback" not in done.stderr
