"""Every row of the failure table, as a whole attempt: what is reported, and that nothing is published."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel, field_validator

from perago import TaskFailed, TaskInputError, TaskTerminalError, WorkspaceSpec, require_file, task
from perago.errors import LakeError, LakeForbidden, LakeNotFound, LakeUnauthenticated, LakeUnavailable
from tests.support.faults.ports import refusing
from tests.support.worlds.world import Made, Params, World, fails, make_task, write_result

# --- input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"extra": 1}, "not expected: extra"),
        ({"params": None}, "params"),
        ({"params": {"text": 3}}, "params.text"),
        ({"params": {"text": "x", "typo": 1}}, "params.typo"),
        ({"workspace": "song"}, "workspace must be an object"),
    ],
)
def test_a_wrong_input_fails_before_a_byte_moves(world: World, change: dict, text: str) -> None:
    definition = make_task()
    world.start(definition, **change)
    lake = refusing(world.lake, "head", "commit_at", "list", "download", "branches", "create_branch")
    fails(world, definition, "FAILED", text, lake=lake)


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("ref_type", "branch", "must be 'commit'"),
        ("ref", "  ", "workspace.ref"),
        ("branch", 7, "workspace.branch"),
        ("shard", "x", "not expected: shard"),
    ],
)
def test_a_wrong_workspace_fails_before_a_byte_moves(
    world: World, field: str, value: object, text: str
) -> None:
    definition = make_task()
    workspace = {
        "repository": world.repository,
        "branch": "main",
        "ref_type": "commit",
        "ref": world.head().id,
    }
    world.start_with(definition, {"workspace": {**workspace, field: value}, "params": {}})
    lake = refusing(world.lake, "head", "commit_at", "list", "download")
    fails(world, definition, "FAILED", text, lake=lake)


WRONG = "params.text: got an integer, send a valid string"


def test_a_wrong_input_is_tried_again_since_a_newer_worker_may_take_it(world: World) -> None:
    definition = make_task(retries=3)
    workflow = world.start(definition, params={"text": 3})
    fails(world, definition, "FAILED", WRONG)
    state = world.workflow(workflow)
    assert (state.status, [task.status for task in state.tasks]) == ("RUNNING", ["FAILED", "SCHEDULED"])


def test_an_old_worker_in_a_rolling_deployment_does_not_end_the_workflow(world: World) -> None:
    class NewParams(BaseModel):
        text: str
        loud: bool

    @task(name="make", owner_email="tests@example.com", workspace=WorkspaceSpec(prefix="/data"))
    def newer(workspace: Path, params: NewParams) -> Made:
        return Made(said=params.text.upper() if params.loud else params.text)

    old, new = make_task(retries=1), newer.__perago_task__
    world.start(old, params={"text": "x", "loud": True})

    fails(world, old, "FAILED", "params.loud: is not declared")
    settled = world.execute(new, world.poll(new))

    assert (settled.outcome.status, settled.outcome.output["result"]) == ("COMPLETED", {"said": "X"})


def test_a_wrong_input_is_not_tried_again_where_the_operator_says_so(world: World) -> None:
    definition = make_task(retries=3)
    workflow = world.start(definition, params={"text": 3})
    fails(world, definition, "FAILED_WITH_TERMINAL_ERROR", WRONG, wrong_input="terminal")
    state = world.workflow(workflow)
    assert (state.status, [task.status for task in state.tasks]) == ("FAILED", ["FAILED_WITH_TERMINAL_ERROR"])


@pytest.mark.parametrize(
    ("field", "value"),
    [("repository", "no-such-repository"), ("ref", "0" * 64), ("branch", "no-such-branch")],
)
def test_a_ref_that_the_lake_does_not_know_may_exist_on_the_next_try(
    world: World, field: str, value: str
) -> None:
    definition = make_task(retries=1)
    workspace = {"repository": world.repository, "branch": "main", "ref": world.head().id, field: value}
    workflow = world.start_with(definition, {"workspace": workspace, "params": {"text": "x"}})
    fails(world, definition, "FAILED", value)
    assert [task.status for task in world.workflow(workflow).tasks] == ["FAILED", "SCHEDULED"]


def test_a_branch_name_as_ref_is_refused(world: World) -> None:
    definition = make_task()
    world.start(definition, ref="main")
    fails(
        world,
        definition,
        "FAILED",
        "'main' is a branch",
        lake=refusing(world.lake, "download"),
    )


def test_a_tag_as_ref_is_refused(world: World) -> None:
    definition = make_task()
    world.lake.create_tag(world.repository, "v1", world.head().id)
    world.start(definition, ref="v1")
    lake = refusing(world.lake, "download")
    fails(world, definition, "FAILED", "'v1' is a branch, a tag", lake=lake)


def test_an_input_ref_that_does_not_exist_is_named(world: World) -> None:
    definition = make_task()
    world.start(definition, ref="0123456789ab" * 5 + "0123")
    fails(world, definition, "FAILED", "does not exist", "0123456789ab")


# --- download and checks -------------------------------------------------------------------------------------


def test_a_failing_download_fails_the_attempt(world: World) -> None:
    definition = make_task()
    world.start(definition)
    fails(
        world,
        definition,
        "FAILED",
        "disk on fire",
        lake=refusing(world.lake, "download", error=LakeError("disk on fire")),
    )


def test_an_object_that_no_folder_can_hold_is_refused_by_name_before_a_byte_is_written(world: World) -> None:
    world.commit({"data/input.txt/below.txt": "x"})
    definition = make_task()
    world.start(definition)
    fails(
        world,
        definition,
        "FAILED",
        "input.txt",
        "cannot both be files",
        lake=refusing(world.lake, "download"),
    )


def test_a_failing_pre_check_is_terminal_and_the_body_does_not_run(world: World) -> None:
    def body(workspace, params):
        raise AssertionError("the body must not run")

    definition = make_task(body, pre=[require_file("raw/manifest.json")])
    workflow = world.start(definition)
    fails(world, definition, "FAILED_WITH_TERMINAL_ERROR", "raw/manifest.json", "pre")
    assert world.workflow(workflow).status == "FAILED"


def test_any_exception_in_a_pre_check_is_terminal(world: World) -> None:
    def check(workdir, params):
        raise ZeroDivisionError("oops")

    definition = make_task(pre=[check])
    world.start(definition)
    fails(world, definition, "FAILED_WITH_TERMINAL_ERROR", "oops")


def test_a_task_failed_in_a_pre_check_is_an_ordinary_failure(world: World) -> None:
    def check(workdir, params):
        raise TaskFailed("upstream is late")

    definition = make_task(pre=[check])
    world.start(definition)
    fails(world, definition, "FAILED", "upstream is late")


class Unshowable(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt("from __str__")

    __repr__ = __str__


class UnshowableTerminal(Unshowable, TaskTerminalError):
    pass


@pytest.fixture
def supervised() -> Iterator[None]:
    """As in an executor, where Ctrl-C does nothing."""
    before = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("supervised")
@pytest.mark.parametrize("phase", ["pre", "post"])
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (KeyboardInterrupt("enough"), "KeyboardInterrupt: enough"),
        (SystemExit(3), "SystemExit: 3"),
        (GeneratorExit(), "GeneratorExit"),
        (Unshowable(), "Unshowable (its text cannot be shown)"),
    ],
)
def test_a_check_that_raises_anything_ends_the_attempt_as_its_phase_says(
    world: World, phase: str, error: BaseException, text: str
) -> None:
    def look(workdir, params):
        raise error

    definition = make_task(**{phase: [look]})
    world.start(definition)
    status = "FAILED_WITH_TERMINAL_ERROR" if phase == "pre" else "FAILED"
    fails(world, definition, status, f"{phase} check ", f"look failed: {text}")


class Fussy(BaseModel):
    text: str = "made"

    @field_validator("text")
    @classmethod
    def _look(cls, text: str) -> str:
        if text == "interrupt":
            raise KeyboardInterrupt("by the model")
        return text


@pytest.mark.usefixtures("supervised")
@pytest.mark.parametrize(("given", "who"), [("interrupt", "params"), ("made", "result")])
def test_a_model_that_raises_anything_ends_the_attempt(world: World, given: str, who: str) -> None:
    @task(name="fuss", owner_email="tests@example.com", workspace=WorkspaceSpec(prefix="/data"))
    def run(workspace: Path, params: Fussy) -> Fussy:
        return {"text": "interrupt"}  # type: ignore[return-value]

    definition = run.__perago_task__
    world.start(definition, text=given)
    fails(world, definition, "FAILED", f"the {who} model raised KeyboardInterrupt: by the model")


def test_ctrl_c_in_a_process_that_nobody_supervises_is_not_a_result(world: World) -> None:
    def body(workspace, params):
        signal.raise_signal(signal.SIGINT)

    definition = make_task(body)
    world.start(definition)
    with pytest.raises(KeyboardInterrupt):
        world.execute(definition, world.poll(definition))
    assert world.workdirs() == []


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (ValueError("bad row 7"), "FAILED", "ValueError: bad row 7"),
        (TaskFailed("try later"), "FAILED", "try later"),
        (TaskTerminalError("never"), "FAILED_WITH_TERMINAL_ERROR", "never"),
        (TaskInputError("days end before they begin"), "FAILED", "days end before"),
        (SystemExit(3), "FAILED", "the task called sys.exit(3)"),
        (SystemExit(Unshowable()), "FAILED", "the task called sys.exit(a Unshowable)"),
        (KeyboardInterrupt("enough"), "FAILED", "the task raised KeyboardInterrupt: enough"),
        (KeyboardInterrupt(), "FAILED", "the task raised KeyboardInterrupt"),
        (asyncio.CancelledError("by the loop"), "FAILED", "the task raised CancelledError: by the loop"),
        (GeneratorExit(), "FAILED", "the task raised GeneratorExit"),
        (StopIteration("all"), "FAILED", "StopIteration: all"),
        (
            BaseExceptionGroup("two", [KeyboardInterrupt(), ValueError()]),
            "FAILED",
            "raised BaseExceptionGroup: two",
        ),
        (Unshowable("x"), "FAILED", "Unshowable (its text cannot be shown)"),
        (
            UnshowableTerminal("x"),
            "FAILED_WITH_TERMINAL_ERROR",
            "UnshowableTerminal (its text cannot be shown)",
        ),
    ],
)
@pytest.mark.usefixtures("supervised")
def test_a_body_that_raises(world: World, error: BaseException, status: str, text: str) -> None:
    def body(workspace, params):
        write_result(workspace, params)
        raise error

    definition = make_task(body)
    world.start(definition)
    fails(world, definition, status, text)


def test_a_result_that_does_not_fit_its_model_fails(world: World) -> None:
    definition = make_task(lambda workspace, params: {"said": 5})  # type: ignore[arg-type,return-value]
    world.start(definition)
    fails(world, definition, "FAILED", "result.said")


def test_a_failing_post_check_is_an_ordinary_failure(world: World) -> None:
    definition = make_task(post=[require_file("missing.txt")])
    world.start(definition)
    fails(world, definition, "FAILED", "missing.txt", "post")


def test_a_failed_attempts_workdir_is_never_the_next_ones_input(world: World) -> None:
    seen = []

    def body(workspace, params):
        seen.append(sorted(path.name for path in workspace.iterdir() if not path.name.startswith(".")))
        (workspace / "half.txt").write_text("half")
        raise TaskFailed("half way")

    definition = make_task(body)
    world.start(definition)
    for _ in range(2):
        world.execute(definition, world.poll(definition))
    assert seen == [["deep", "input.txt"]] * 2


# --- whose reason it is --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "own"),
    [
        (LakeUnauthenticated("the keys are unknown"), "keys"),
        (LakeUnavailable("no answer"), "lake"),
        (LakeForbidden("not this repository"), None),
        (LakeNotFound("no such repository"), None),
    ],
)
def test_an_attempt_that_failed_for_the_workers_own_reason_says_so(
    world: World, error: Exception, own: str | None
) -> None:
    definition = make_task()
    world.start(definition)
    lake = refusing(world.lake, "head", "commit_at", error=error)

    settled = world.execute(definition, world.poll(definition), lake=lake)

    assert (settled.outcome.status, settled.worker_fault) == ("FAILED", own)


def test_a_full_disk_under_a_body_is_the_workers_own_reason(world: World) -> None:
    def fill_the_disk(workspace: Path, params: object) -> Made:
        with open("/dev/full", "wb", buffering=0) as device:
            device.write(b"one byte too many")
        raise AssertionError("the device is always full")

    settled = world.run(make_task(fill_the_disk))

    assert (settled.outcome.status, settled.worker_fault) == ("FAILED", "disk")


def test_a_path_in_an_error_is_one_of_the_workspace_because_the_workdir_is_gone(world: World) -> None:
    def body(workspace: Path, params: Params) -> Made:
        (workspace / "raw" / "plays.csv").read_text()
        raise AssertionError

    settled = world.run(make_task(body))

    assert "No such file or directory: 'raw/plays.csv'" in (settled.outcome.reason or "")
    assert settled.seen.trace[-1].endswith("No such file or directory: 'raw/plays.csv'")
