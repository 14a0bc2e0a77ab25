"""The table of step types: every row behaves as its words say, each in a new run."""

from __future__ import annotations

import ast
import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from perago.orchestrator import local
from perago.orchestrator.local import step_handlers
from perago.orchestrator.local.decider import decide, tasks_for
from perago.orchestrator.local.parse import read_workflow
from perago.orchestrator.local.state import Env, Run, Task
from perago.orchestrator.local.step_handlers import HANDLERS, evaluated_tasks, is_loop, is_system
from perago.workflow.model.step_types import STEP_TYPES

ROWS = re.findall(
    r"^    ([A-Z_]+) {2,}(\S+(?: \S+)*) {2,}(\S+(?: \S+)*) {2,}(\S+(?: \S+)*) {2,}(never|in each round|between rounds)$",
    step_handlers.__doc__ or "",
    re.MULTILINE,
)
STATUS = {"ready to poll": "SCHEDULED", "in progress": "IN_PROGRESS", "completed": "COMPLETED"}


def simple(reference: str) -> dict[str, Any]:
    return {"name": "work", "taskReferenceName": reference, "type": "SIMPLE"}


JOIN = {"name": "join", "taskReferenceName": "join", "type": "JOIN", "joinOn": ["b"]}
FIRST = {
    "SIMPLE": [simple("a")],
    "SWITCH": [
        {
            "name": "choose",
            "taskReferenceName": "a",
            "type": "SWITCH",
            "evaluatorType": "value-param",
            "expression": "which",
            "inputParameters": {"which": "x"},
            "decisionCases": {"x": [simple("b"), simple("c")]},
        }
    ],
    "FORK_JOIN": [
        {
            "name": "fork",
            "taskReferenceName": "a",
            "type": "FORK_JOIN",
            "forkTasks": [[simple("b")], [simple("c")]],
        },
        JOIN,
    ],
    "JOIN": [{**JOIN, "taskReferenceName": "a"}, simple("b")],
    "DO_WHILE": [
        {
            "name": "again",
            "taskReferenceName": "a",
            "type": "DO_WHILE",
            "loopCondition": "false",
            "loopOver": [simple("b")],
        }
    ],
    "NOOP": [{"name": "nothing", "taskReferenceName": "a", "type": "NOOP"}],
}
BEGIN_WITH_IT = {
    "-": [],
    "the first step of its case": ["b"],
    "every arm and the JOIN that follows": ["b", "c", "join"],
    "- (evaluation starts its body)": [],
}


def env() -> Env:
    ids = itertools.count()
    return Env(now=100.0, new_id=lambda: f"t{next(ids)}", random=lambda: 0.0)


def run_of(kind: str) -> Run:
    definition = read_workflow({"name": "flow", "version": 1, "tasks": FIRST[kind]})
    return Run("w1", definition, {}, {}, created=100.0)


def begun(kind: str) -> list[Task]:
    run = run_of(kind)
    return tasks_for(run, run.definition.top.steps[0], env())


def test_the_words_at_the_top_have_a_row_for_every_type() -> None:
    assert [row[0] for row in ROWS] == list(HANDLERS) == list(FIRST)


@pytest.mark.parametrize(("kind", "its_task", "begins", "with_it", "looked"), ROWS)
def test_a_type_begins_as_its_row_says(
    kind: str, its_task: str, begins: str, with_it: str, looked: str
) -> None:
    own, *others = begun(kind)

    assert own.status == STATUS[begins]
    assert [task.reference for task in others] == BEGIN_WITH_IT[with_it]
    assert is_system(own) == (its_task != "a worker's")
    assert own.type == (its_task if is_system(own) else own.name)
    own.status = "IN_PROGRESS"
    assert bool(evaluated_tasks([own], between_rounds=False)) == (looked == "in each round")
    assert bool(evaluated_tasks([own], between_rounds=True)) == (looked == "between rounds")


@pytest.mark.parametrize("kind", HANDLERS)
def test_only_a_system_task_is_evaluated(kind: str) -> None:
    assert HANDLERS[kind].evaluate is None or STEP_TYPES[kind].done_by == "orchestrator"


def test_a_finished_step_is_not_evaluated() -> None:
    [own] = begun("JOIN")
    own.end("CANCELED", 101.0)

    assert evaluated_tasks([own], between_rounds=True) == []


def test_deciding_a_loop_starts_its_body_and_the_loop_is_no_iteration_of_itself() -> None:
    run = run_of("DO_WHILE")

    decide(run, env())

    assert [(task.reference, task.iteration, is_loop(task)) for task in run.tasks] == [
        ("a", 1, True),
        ("b__1", 1, False),
    ]


def test_a_task_of_a_system_step_is_called_as_conductor_calls_it() -> None:
    assert {kind: begun(kind)[0].name for kind in HANDLERS} == {
        "SIMPLE": "work",
        "SWITCH": "SWITCH",
        "FORK_JOIN": "FORK",
        "JOIN": "JOIN",
        "DO_WHILE": "again",
        "NOOP": "nothing",
    }


def test_types_are_compared_only_where_the_structure_needs_it() -> None:
    compared = []
    for path in sorted(Path(local.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare) and any(
                isinstance(one, ast.Name) and one.id in HANDLERS for one in ast.walk(node)
            ):
                compared.append(path.name)

    # A SWITCH that chose a case is followed by the case; a fork needs its JOIN.
    assert compared == ["decider.py", "parse.py"]
