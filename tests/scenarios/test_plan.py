"""`perago plan` says what `perago run` then does: each input of the rule changed alone, and workflows of several steps."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, create_model

from perago import TaskFailed, WorkspaceSpec, task
from perago.declare.discovery import load_module_task
from perago.declare.task import TaskDefinition
from perago.errors import RuntimeConfigError
from perago.protocol.ledger import Recompute
from tests.support.worlds.plan_world import PlanWorld, step
from tests.support.worlds.world import Made, Params, World, change_nothing, make_task

READS = {"prefix": "/", "reads": ("raw",), "writes": ("out",)}
BASE = {"raw/a": "1", "raw/b": "1", "other/x": "1"}


def copy(workspace: Path, params: Any) -> Made:
    """Write what is in `raw`, and the text."""
    if (workspace / "raw" / "bad").exists():
        raise TaskFailed("bad data")
    files = sorted((workspace / "raw").iterdir())
    (workspace / "out").mkdir(exist_ok=True)
    (workspace / "out/made").write_text(" ".join(file.read_text() for file in files) + params.text)
    return Made(said=params.text)


def copying(body: Callable[..., Made] = copy, **fields: Any) -> TaskDefinition:
    return make_task(body, **{"skip_unchanged": True, **READS, **fields})


def with_params(model: type[BaseModel], **spec: Any) -> TaskDefinition:
    """Return the same task with another params model."""

    def body(workspace: Path, params: Any) -> Made:
        return copy(workspace, params)

    body.__annotations__["params"], body.__annotations__["return"] = model, Made
    body.__annotations__["workspace"] = Path
    declare = task(
        name="make",
        version="1",
        skip_unchanged=True,
        owner_email="a@example.com",
        workspace=WorkspaceSpec(**READS, **spec),
    )
    return declare(body).__perago_task__  # type: ignore[attr-defined, no-any-return]


OTHER_DEFAULT = create_model("OtherDefault", text=(str, "another"))
SOURCE = create_model("Source", text=(str, "made"), source=(str, "a"))


def say_much(workspace: Path, params: Params) -> Made:
    return Made(said=copy(workspace, params).said + "x" * 70_000)


def undeclared() -> TaskDefinition:
    """Return a task that has no source."""
    names: dict[str, Any] = {
        "Path": Path,
        "Params": Params,
        "Made": Made,
        "copy": copy,
        "__name__": "nowhere",
    }
    exec("def body(workspace: Path, params: Params) -> Made:\n    return copy(workspace, params)", names)
    declare = task(
        name="make", skip_unchanged=True, owner_email="a@example.com", workspace=WorkspaceSpec(**READS)
    )
    return declare(names["body"]).__perago_task__  # type: ignore[no-any-return]


@dataclass(slots=True)
class Desk:
    """One step of one task, which may change between runs."""

    world: World
    task: TaskDefinition
    params: dict[str, Any] = field(default_factory=dict)
    branch: str = "main"
    forced: Recompute = field(default_factory=Recompute)

    def flow(self) -> PlanWorld:
        return PlanWorld(self.world, [self.task], [step("one", self.task, **self.params)], self.branch)

    def run(self, **changed: Any) -> None:
        for name, value in changed.items():
            setattr(self, name, value)
        self.flow().run()

    def agrees(self, **changed: Any) -> str:
        for name, value in changed.items():
            setattr(self, name, value)
        return self.flow().agrees(self.forced)["one"]


Change = Callable[[Desk], None]


def commit(files: Mapping[str, str | None]) -> Change:
    return lambda desk: desk.world.commit(files) and None


def use(**changed: Any) -> Change:
    def change(desk: Desk) -> None:
        for name, value in changed.items():
            setattr(desk, name, value)

    return change


def rewrite_equal_bytes(desk: Desk) -> None:
    made = desk.world.files()["out/made"]
    desk.world.commit({"out/made": None})
    desk.world.commit({"out/made": made})


def edit_and_restore(desk: Desk) -> None:
    made = desk.world.files()["out/made"]
    desk.world.commit({"out/made": "edited"})
    desk.world.commit({"out/made": made})


def publish_and_revert(desk: Desk) -> None:
    made = desk.world.files()["out/made"]
    desk.world.commit({"raw/b": "2"})
    desk.run()
    desk.world.commit({"out/made": made})


def revert_all(desk: Desk) -> None:
    made = desk.world.files()["out/made"]
    desk.world.commit({"raw/b": "2"})
    desk.run()
    desk.world.commit({"out/made": made, "raw/b": "1"})


def fork_the_branch(desk: Desk) -> None:
    desk.world.lake.create_branch(desk.world.repository, "fork", desk.world.head().id, hidden=False)
    desk.branch = "fork"


def fail_once(desk: Desk) -> None:
    desk.world.commit({"raw/bad": "1"})
    desk.flow().run(status="FAILED")
    desk.world.commit({"raw/bad": None})


def fail_on_new_data(desk: Desk) -> None:
    desk.world.commit({"raw/bad": "1"})
    desk.flow().run(status="FAILED")
    desk.world.commit({"raw/bad": None, "raw/c": "1"})


def shout(workspace: Path, params: Params) -> Made:
    return copy(workspace, Params(text=params.text.upper()))


def other_version(desk: Desk) -> None:
    desk.run(task=copying(shout, version="2"))
    desk.task = copying(version="1")


def other_version_with_equal_output(desk: Desk) -> None:
    desk.run(task=copying(version="2"))
    desk.task = copying(version="1")


# Each is a task, what changes after its first publication, and the plan.
CASES: dict[str, tuple[TaskDefinition, Change, str]] = {
    "nothing": (copying(), lambda desk: None, r"skip: unchanged since [0-9a-f]{12}"),
    "a file added in reads": (copying(), commit({"raw/c": "1"}), r"run: 1 file changed: raw/c"),
    "a file changed in reads": (copying(), commit({"raw/a": "2"}), r"run: 1 file changed: raw/a"),
    "a file removed from reads": (copying(), commit({"raw/b": None}), r"run: 1 file changed: raw/b"),
    "many files": (
        copying(),
        commit({f"raw/n{number}": "1" for number in range(5)}),
        r"run: 5 files changed: raw/n0, raw/n1, raw/n2, …",
    ),
    "equal bytes in reads": (copying(), commit({"raw/a": "1", "other/y": "1"}), r"skip: .*"),
    "a file outside reads": (copying(), commit({"other/x": "2"}), r"skip: .*"),
    "the output, by hand": (
        copying(),
        commit({"out/made": "edited"}),
        r"run: output changed by [0-9a-f]{12} \((not signed|dev)\): out/made",
    ),
    "a file beside the output": (
        copying(),
        commit({"out/more": "1"}),
        r"run: output changed by .*: out/more",
    ),
    "params": (copying(), use(params={"text": "other"}), r"run: params changed"),
    "params spelled out": (copying(), use(params={"text": "made"}), r"skip: .*"),
    "the default of a param": (copying(), use(task=with_params(OTHER_DEFAULT)), r"run: params changed"),
    "a param of the key": (
        with_params(SOURCE, ledger_key=("source",)),
        use(params={"source": "b"}),
        r"run: nothing published yet",
    ),
    "a param beside the key": (
        with_params(SOURCE, ledger_key=("source",)),
        use(params={"text": "other"}),
        r"run: params changed",
    ),
    "the version": (copying(), use(task=copying(version="2")), r"run: version '2' in place of '1'"),
    "the reads": (copying(), use(task=copying(reads=("raw", "more"))), r"run: nothing published yet"),
    "a result that is too large": (
        copying(say_much),
        lambda desk: None,
        r"run: its last publication [0-9a-f]{12} recorded no result",
    ),
    "the output is reverted": (copying(), publish_and_revert, r"run: 1 file changed: raw/b"),
    "all of it is reverted": (copying(), revert_all, r"skip: .*"),
    "the output is restored": (copying(), edit_and_restore, r"skip: .*"),
    "equal bytes in the output": (copying(), rewrite_equal_bytes, r"skip: .*"),
    "a fork of the branch": (copying(), fork_the_branch, r"skip: .*"),
    "the step is forced": (copying(), use(forced=Recompute(steps=frozenset({"one"}))), r"run: forced"),
    "another step is forced": (copying(), use(forced=Recompute(steps=frozenset({"two"}))), r"skip: .*"),
    "everything is forced": (copying(), use(forced=Recompute(full=True)), r"run: forced"),
    "no source": (undeclared(), lambda desk: None, r"run: its sources are unknown"),
    "a failed run": (copying(), fail_once, r"skip: .*"),
    "a failed run on new data": (copying(), fail_on_new_data, r"run: 1 file changed: raw/c"),
    "another version in between": (copying(), other_version, r"run: version '1' in place of '2'"),
    "another version that publishes nothing": (copying(), other_version_with_equal_output, r"skip: .*"),
    "a run that changes nothing": (
        copying(change_nothing),
        lambda desk: None,
        r"run: nothing published yet",
    ),
    "a task that never skips": (
        copying(skip_unchanged=False),
        lambda desk: None,
        r"run: does not skip unchanged work",
    ),
    "a task that only reads": (
        make_task(change_nothing, prefix="/", read_only=True),
        lambda desk: None,
        r"run: only reads, so it always runs",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_plan_says_what_the_run_then_does(world: World, name: str) -> None:
    definition, change, expected = CASES[name]
    world.commit(BASE)
    desk = Desk(world, definition)
    desk.run()
    change(desk)

    assert re.fullmatch(expected, desk.agrees())


def test_a_step_runs_until_it_has_published(world: World) -> None:
    world.commit(BASE)
    desk = Desk(world, copying())

    assert desk.agrees() == "run: nothing published yet"
    assert desk.agrees().startswith("skip: ")


# --- code ------------------------------------------------------------------------------------------------------------

TASKS = """
from pathlib import Path
import {neighbour}
from perago import WorkspaceSpec, task
from tests.support.worlds.world import Made, Params

@task(name="make", owner_email="a@example.com", skip_unchanged=True,
      workspace=WorkspaceSpec(prefix="/", reads=("raw",), writes=("out",)))
def make(workspace: Path, params: Params) -> Made:
    from {late} import SAID
    (workspace / "out").mkdir(exist_ok=True)
    (workspace / "out/made").write_text({neighbour}.TEXT + SAID + {text!r})
    return Made(said=SAID)
"""
_numbers = itertools.count()


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., TaskDefinition]]:
    """Load a version of a task from files, as a new process would."""
    path, known, mark = list(sys.path), set(sys.modules), next(_numbers)
    names = {"neighbour": f"neighbour{mark}", "late": f"late{mark}", "unused": f"unused{mark}"}

    def forget() -> None:
        sys.path[:] = path
        for name in [name for name in sys.modules if name not in known]:
            if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]

    def write(*, text: str = "a", neighbour: str = "b", late: str = "c", unused: str = "d") -> TaskDefinition:
        forget()
        folder = tmp_path / f"code{next(_numbers)}"
        folder.mkdir()
        (folder / "pyproject.toml").write_text("")
        (folder / f"{names['neighbour']}.py").write_text(f"TEXT = {neighbour!r}\n")
        (folder / f"{names['late']}.py").write_text(f"SAID = {late!r}\n")
        (folder / f"{names['unused']}.py").write_text(f"SAID = {unused!r}\n")
        (folder / "tasks.py").write_text(TASKS.format(text=text, **names))
        monkeypatch.chdir(folder)
        return load_module_task("tasks.py")

    yield write
    forget()


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, "skip"),
        ({"text": "x"}, "run: code changed"),
        ({"neighbour": "x"}, "run: code changed"),
        ({"late": "x"}, "run: code changed"),
        ({"unused": "x"}, "skip"),
    ],
    ids=["nothing", "the task's file", "a neighbour", "an import in the function", "a file nobody imports"],
)
def test_code_counts_as_far_as_the_task_imports_it(
    world: World, load: Callable[..., TaskDefinition], changed: dict[str, str], expected: str
) -> None:
    world.commit(BASE)
    desk = Desk(world, load())
    desk.run()

    assert desk.agrees(task=load(**changed)).startswith(expected)


def test_in_a_rolling_deployment_each_version_repeats_only_its_own_work(
    world: World, load: Callable[..., TaskDefinition]
) -> None:
    world.commit(BASE)
    desk = Desk(world, load())
    desk.run()

    for text in ("x", "a", "x"):
        assert desk.agrees(task=load(text=text)) == "run: code changed"
        assert desk.agrees(task=load(text=text)).startswith("skip: ")


# --- several steps ---------------------------------------------------------------------------------------------------


def writing(name: str, reads: tuple[str, ...], **fields: Any) -> TaskDefinition:
    """Return a task that copies what it reads into its own folder, and says how much that is."""

    def body(workspace: Path, params: Params) -> Made:
        found = [file.read_text() for root in reads for file in sorted((workspace / root).glob("*"))]
        (workspace / name).mkdir(exist_ok=True)
        (workspace / name / "made").write_text(" ".join(found) + params.text)
        return Made(said=str(len(found)))

    return make_task(
        body,
        name=name,
        **{"skip_unchanged": True, "prefix": "/", "reads": reads, "writes": (name,), **fields},
    )


BESIDE = {"on_abandoned": "supersede", "on_advanced": "rebase"}
CLEAN, COUNT, REPORT = writing("clean", ("raw",)), writing("count", ("clean",)), writing("report", ("other",))
THREE = (CLEAN, COUNT, REPORT)


def three(world: World, **changed: Any) -> PlanWorld:
    world.commit(BASE)
    steps = [step("clean", CLEAN), step("count", COUNT, "clean"), step("report", REPORT, "count")]
    return PlanWorld(world, THREE, steps, **changed)


RUNS, SKIPS = "run: step clean runs", "skip: "


def kinds(plan: Mapping[str, str]) -> list[str]:
    """Return the decisions, without the commits that are repeated."""
    return [text if text.startswith("run") else SKIPS for text in plan.values()]


def test_steps_that_see_what_another_would_write_run_and_the_others_are_skipped(world: World) -> None:
    flow = three(world)

    assert kinds(flow.agrees()) == ["run: nothing published yet", RUNS, "run: nothing published yet"]
    assert kinds(flow.agrees()) == [SKIPS] * 3
    world.commit({"raw/a": "2"})
    assert kinds(flow.agrees()) == ["run: 1 file changed: raw/a", RUNS, SKIPS]
    world.commit({"other/x": "2"})
    assert kinds(flow.agrees()) == [SKIPS, SKIPS, "run: 1 file changed: other/x"]
    assert kinds(flow.agrees(Recompute(steps=frozenset({"report"})))) == [SKIPS, SKIPS, "run: forced"]
    assert kinds(flow.agrees(Recompute(full=True))) == ["run: forced"] * 3


def test_one_pass_over_the_log_serves_all_steps(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = three(world)
    flow.run()
    calls, log = [], world.lake.log
    monkeypatch.setattr(type(world.lake), "log", lambda _, *given: calls.append(given) or log(*given))

    assert kinds(flow.plan()) == [SKIPS] * 3
    assert len(calls) == 1


def test_params_that_depend_on_a_result_are_unknown_until_its_step_is_skipped(world: World) -> None:
    world.commit(BASE)
    steps = [
        step("clean", CLEAN),
        step("report", REPORT, "clean", text="${clean.output.result.said} files"),
        step("other", writing("other_step", ("other",)), "report", text="${report.input.params.text}"),
        step("commit", writing("commit_step", ("other",)), "other", text="${report.output.workspace.ref}"),
    ]
    tasks = (CLEAN, REPORT, writing("other_step", ("other",)), writing("commit_step", ("other",)))
    flow = PlanWorld(world, tasks, steps)
    flow.run()

    first = flow.agrees()
    # The commits of the first run are no longer those that the second gives on.
    assert kinds(first) == [SKIPS, SKIPS, SKIPS, "run: params changed"]
    world.commit({"raw/c": "1"})
    assert kinds(flow.agrees()) == ["run: 1 file changed: raw/c", RUNS, RUNS, "run: step report runs"]


def choosing(given: str, chosen: list[Any], default: list[Any]) -> dict[str, Any]:
    return {
        "name": "choose",
        "taskReferenceName": "choose",
        "type": "SWITCH",
        "evaluatorType": "value-param",
        "expression": "case",
        "inputParameters": {"case": given},
        "decisionCases": {"2": chosen},
        "defaultCase": default,
    }


def test_a_switch_on_an_unknown_result_makes_its_cases_and_all_later_steps_unknown(world: World) -> None:
    world.commit(BASE)
    two, more = writing("two", ("other",)), writing("more", ("other",))
    last = writing("last", ("other",))
    switch = choosing(
        "${clean.output.result.said}", [step("two", two, "clean")], [step("more", more, "clean")]
    )
    flow = PlanWorld(world, (CLEAN, two, more, last), [step("clean", CLEAN), switch])
    flow.run()

    assert list(flow.agrees()) == ["clean", "two"]
    world.commit({"raw/c": "1"})
    assert flow.plan() == {
        "clean": "run: 1 file changed: raw/c",
        "two": RUNS,
        "more": RUNS,
    }
    flow.run()
    assert kinds(flow.agrees()) == [SKIPS, SKIPS]


def test_a_script_that_fails_on_an_unknown_result_hides_no_step(world: World) -> None:
    world.commit(BASE)
    left, right, end = (writing(name, ("other",), **BESIDE) for name in ("left", "right", "end"))
    clean = writing("clean", ("raw",), **BESIDE)
    switch = choosing("${clean.output.result}", [step("left", left, "clean")], [])
    switch |= {"evaluatorType": "javascript", "expression": "$.case.said.nothing.there"}
    steps = [
        {
            "name": "fork",
            "taskReferenceName": "fork",
            "type": "FORK_JOIN",
            "forkTasks": [
                [step("clean", clean), switch],
                [step("right", right), step("end", end, "right")],
            ],
        },
        {"name": "join", "taskReferenceName": "join", "type": "JOIN", "joinOn": ["choose", "end"]},
    ]
    flow = PlanWorld(world, (clean, left, right, end), steps)

    found = flow.planned()
    assert {one.reference: one.after for one in found.steps}["left"] == "clean"
    assert {one.reference for one in found.steps} == {"clean", "left", "right", "end"}
    assert not any(one.skips for one in found.steps)


def test_a_run_that_would_fail_for_another_reason_is_said_to(world: World) -> None:
    world.commit(BASE)
    switch = choosing("${workflow.input.case}", [], [])
    switch |= {"evaluatorType": "javascript", "expression": "$.case.nothing.there"}

    planned = PlanWorld(world, (CLEAN,), [step("clean", CLEAN), switch]).planned()

    assert [one.reference for one in planned.steps] == ["clean"]
    assert "choose" in (planned.failure or "") or "nothing" in (planned.failure or "")


def looping(condition: str, *body: Any) -> dict[str, Any]:
    return {
        "name": "loop",
        "taskReferenceName": "loop",
        "type": "DO_WHILE",
        "loopCondition": condition,
        "loopOver": list(body),
    }


def test_each_iteration_of_a_loop_is_decided_by_itself(world: World) -> None:
    world.commit(BASE)
    loop = looping(
        "$.loop['iteration'] < 2", step("report", REPORT, "clean", text="${loop.output.iteration}")
    )
    flow = PlanWorld(world, (CLEAN, REPORT), [step("clean", CLEAN), loop])

    assert list(flow.plan()) == ["clean", "report__1", "report__2"]


def test_a_loop_that_depends_on_an_unknown_result_makes_later_iterations_and_steps_unknown(
    world: World,
) -> None:
    world.commit(BASE)
    last = writing("last", ("other",), prefix="/", read_only=False)
    loop = looping("$.clean.result.said == '7'", step("clean", CLEAN))
    flow = PlanWorld(world, (CLEAN, last), [loop, step("last", last, "clean")])
    flow.run()

    assert kinds(flow.agrees()) == [SKIPS, SKIPS]
    world.commit({"raw/c": "1"})
    assert flow.plan()["last"] == "run: step clean__1 runs"


def test_arms_of_a_fork_are_planned_by_themselves_and_joined(world: World) -> None:
    world.commit(BASE)
    left, right = writing("left", ("raw",), **BESIDE), writing("right", ("other",), **BESIDE)
    sum_left, sum_other = writing("sum_left", ("left",)), writing("sum_other", ("right",))
    both = ["${left.output.workspace}", "${right.output.workspace}"]
    steps = [
        {
            "name": "fork",
            "taskReferenceName": "fork",
            "type": "FORK_JOIN",
            "forkTasks": [
                [step("left", left)],
                [step("right", right)],
            ],
        },
        {"name": "join", "taskReferenceName": "join", "type": "JOIN", "joinOn": ["left", "right"]},
        step("sum_left", sum_left, both),
        step("sum_other", sum_other, "sum_left"),
    ]
    flow = PlanWorld(world, (left, right, sum_left, sum_other), steps)

    flow.agrees()
    assert kinds(flow.agrees()) == [SKIPS] * 4
    world.commit({"raw/a": "2"})
    assert kinds(flow.agrees()) == ["run: 1 file changed: raw/a", SKIPS, "run: step left runs", SKIPS]
    world.commit({"raw/a": "3", "other/x": "2"})
    assert kinds(flow.agrees())[2:] == ["run: step left runs", "run: step right runs"]


def test_a_step_that_rebases_gives_on_what_others_have_published(world: World) -> None:
    world.commit(BASE)
    left = writing("left", ("raw",), **BESIDE)
    tasks = (left, REPORT)
    PlanWorld(world, tasks, [step("left", left), step("report", REPORT, "left")]).run()
    old = world.head().id
    world.commit({"other/x": "2"})

    steps = [step("left", left, text="another"), step("report", REPORT, "left")]
    planned = PlanWorld(world, tasks, steps, ref=old).agrees()

    assert kinds(planned) == ["run: params changed", "run: 1 file changed: other/x"]


def test_a_run_that_is_published_whole_is_planned_from_the_head_of_its_branch(world: World) -> None:
    world.commit(BASE)
    given = {"workspace": "${workflow.input.workspace}", "params": {}}
    publish = {
        "workspace": "${report.output.workspace}",
        "params": {"origin": "${open.output.origin}"},
    }
    steps = [
        {**step("open", "perago_open"), "inputParameters": given},
        step("clean", CLEAN, "open"),
        step("count", COUNT, "clean"),
        step("report", REPORT, "count"),
        {**step("publish", "perago_publish"), "inputParameters": publish},
        step("after", writing("after", ("clean",)), "publish"),
    ]
    flow = PlanWorld(world, (*THREE, writing("after", ("clean",))), steps)

    flow.agrees()
    again = flow.agrees()
    assert kinds(again) == [
        "run: opens the run",
        SKIPS,
        SKIPS,
        SKIPS,
        "run: publishes nothing: no step of the run changes anything",
        SKIPS,
    ]
    world.commit({"other/x": "2"})
    assert kinds(flow.agrees()) == [
        "run: opens the run",
        SKIPS,
        SKIPS,
        "run: 1 file changed: other/x",
        "run: publishes the run",
        SKIPS,
    ]
    world.commit({"raw/a": "2"})
    assert kinds(flow.agrees()) == [
        "run: opens the run",
        "run: 1 file changed: raw/a",
        RUNS,
        SKIPS,
        "run: publishes the run",
        RUNS,
    ]


def test_a_step_with_a_wrong_input_is_said_to_run_and_to_fail(world: World) -> None:
    world.commit(BASE)
    steps = [step("clean", CLEAN, text="${workflow.input.missing}"), step("count", COUNT, "clean")]
    flow = PlanWorld(world, THREE, steps)

    planned = flow.plan()
    assert planned["clean"].startswith(
        "run: its input is wrong: params does not fit Params: params.text: got null"
    )
    assert planned["count"] == RUNS


def test_a_loop_that_never_ends_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perago.runtime.plan.planner.MOST_STEPS", 20)
    world.commit(BASE)
    flow = PlanWorld(world, (CLEAN,), [looping("true", step("clean", CLEAN))])

    with pytest.raises(RuntimeConfigError, match="does not end"):
        flow.plan()


def test_a_start_delay_is_not_waited_for(world: World) -> None:
    world.commit(BASE)
    flow = PlanWorld(world, (CLEAN,), [{**step("clean", CLEAN), "startDelay": 86_400}])

    assert list(flow.plan()) == ["clean"]


class Part(BaseModel):
    source: str
    text: str = "made"


def part(workspace: Path, params: Part) -> Made:
    out = workspace / "out" / params.source
    out.mkdir(parents=True, exist_ok=True)
    out.joinpath("made").write_text((workspace / "raw" / params.source).read_text() + params.text)
    return Made(said=params.source)


def test_partitions_are_planned_by_themselves(world: World) -> None:
    world.commit(BASE)
    spec = WorkspaceSpec(prefix="/", reads=("raw/{source}",), writes=("out/{source}",))
    declare = task(name="part", version="1", skip_unchanged=True, owner_email="a@example.com", workspace=spec)
    parts = declare(part).__perago_task__  # type: ignore[attr-defined]
    total = writing("total", ("out/a",))
    flow = PlanWorld(
        world,
        (parts, total, CLEAN),
        [
            step("a", parts, source="a"),
            step("b", parts, "a", source="b"),
            step("total", total, "b"),
        ],
    )

    flow.agrees()
    assert kinds(flow.agrees()) == [SKIPS] * 3
    world.commit({"raw/b": "2"})
    assert kinds(flow.agrees()) == [SKIPS, "run: 1 file changed: raw/b", SKIPS]
    world.commit({"raw/a": "2"})
    assert kinds(flow.agrees()) == ["run: 1 file changed: raw/a", SKIPS, "run: step a runs"]


def test_a_partition_that_depends_on_an_unknown_result_may_be_any(world: World) -> None:
    world.commit({**BASE, "raw/2": "1"})
    spec = WorkspaceSpec(prefix="/", reads=("raw/{source}",), writes=("out/{source}",))
    declare = task(name="part", version="1", skip_unchanged=True, owner_email="a@example.com", workspace=spec)
    parts = declare(part).__perago_task__  # type: ignore[attr-defined]
    first, total = writing("first", ("other", "raw")), writing("total", ("out/a",))
    flow = PlanWorld(
        world,
        (first, parts, total, CLEAN),
        [
            step("first", first),
            step("b", parts, "first", source="${first.output.result.said}"),
            step("total", total, "b"),
        ],
    )
    world.commit({"raw/4": "1"})

    assert kinds(flow.plan()) == ["run: nothing published yet", "run: step first runs", "run: step b runs"]
