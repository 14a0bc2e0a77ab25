"""Random workflows on random histories: what a plan calls *skip* is skipped, and what it runs for a reason of its own runs.

A step that a plan runs only because another step runs may be skipped after all: the other one may have made the same again.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from perago.declare.task import TaskDefinition
from perago.protocol.ledger import Recompute
from perago.runtime.plan.planner import Plan
from tests.support.tasks.workflows import loop
from tests.support.worlds.plan_world import PlanWorld, step
from tests.support.worlds.world import Made, Params, World, make_task

HISTORIES = {"local": 40, "lakefs": 4}
TASKS, RAW, RUNS = 5, 3, 6


def random_task(rng: random.Random, number: int) -> TaskDefinition:
    """Return a task that reads some raw folders and some outputs, and writes its own."""
    folders = [*(f"raw{one}" for one in range(RAW)), *(f"out{one}" for one in range(TASKS) if one != number)]
    reads = tuple(rng.sample(folders, rng.randint(1, 2)))
    digits, own = rng.choice([0, 1, 8]), f"out{number}"

    def body(workspace: Path, params: Params) -> Made:
        digest = hashlib.sha256(params.text.encode())
        for root in reads:
            for file in sorted((workspace / root).glob("*")):
                digest.update(file.read_bytes())
        (workspace / own).mkdir(exist_ok=True)
        # With few digits, other inputs often make the same output.
        (workspace / own / "made").write_text(digest.hexdigest()[:digits])
        return Made(said=digest.hexdigest()[:1])

    spec = {"prefix": "/", "reads": reads, "writes": (own,)}
    return make_task(body, name=f"task{number}", skip_unchanged=rng.random() < 0.85, **spec)


def random_steps(rng: random.Random, tasks: list[TaskDefinition]) -> list[dict[str, Any]]:
    """Return a chain of steps, some of them in a SWITCH or a loop, with params that may come from results."""
    steps: list[dict[str, Any]] = []
    before, results = "", []
    for number in range(rng.randint(3, 6)):
        name, one = f"step{number}", rng.choice(tasks)
        given = before or "${workflow.input.workspace}"
        text = rng.choice(["made", "other", *(f"${{{one}.output.result.said}}" for one in results)])
        made = step(name, one, given, text=text)
        shape = rng.random()
        if results and shape < 0.15:
            other = step(f"{name}b", rng.choice(tasks), given)
            steps.append(
                {
                    "name": f"choose{number}",
                    "taskReferenceName": f"choose{number}",
                    "type": "SWITCH",
                    "evaluatorType": "javascript",
                    "expression": "$.case < '8' ? 'low' : 'high'",
                    "inputParameters": {"case": f"${{{rng.choice(results)}.output.result.said}}"},
                    "decisionCases": {"low": [made]},
                    "defaultCase": [other],
                }
            )
            break  # the steps after a SWITCH would have to know which case was taken
        if shape > 0.85:
            again = f"$.loop{number}['iteration'] < 2 && $.{name}.result.said < '8'"
            steps.append(loop(f"loop{number}", made, loopCondition=again))
            break  # its second iteration starts from the commit before the first
        steps.append(made)
        before, results = name, [*results, name]
    return steps


def change_something(rng: random.Random, world: World) -> None:
    """Change raw files or outputs by hand, bring back an old output, or do nothing."""
    files = world.files()
    raw, made = f"raw{rng.randrange(RAW)}/f{rng.randrange(3)}", f"out{rng.randrange(TASKS)}/made"
    kind = rng.choice(["nothing", "raw", "raw", "raw", "remove", "edit", "restore"])
    if kind == "raw":
        world.commit({raw: str(rng.randrange(3)), "unrelated": str(rng.random())})
    elif kind == "remove" and raw in files:
        world.commit({raw: None})
    elif kind == "edit":
        world.commit({made: str(rng.random())})
    elif kind == "restore" and made in files:
        old = world.files(rng.choice(world.history()))
        if old.get(made) != files[made]:
            world.commit({made: old.get(made)})


def disagreements(plan: Plan, done: Mapping[str, str]) -> list[str]:
    """Return where a plan and the run after it differ, although the plan was sure."""
    planned = {one.reference: one for one in plan.steps}
    found = [
        f"{name}: {planned[name].reason!r}, but it was {did}"
        for name, did in done.items()
        if name in planned
        and planned[name].kind != "step"
        and did != ("skip" if planned[name].skips else "run")
    ]
    # Whether a loop goes on after a step that runs is unknown, so later iterations may be in only one of them.
    once = {name for name in planned.keys() ^ done.keys() if "__" not in name}
    if all(one.kind != "step" for one in plan.steps):
        found += [f"{name} is only in one of them" for name in once]
    return found + [f"{name} was not planned" for name in once - planned.keys()]


@pytest.mark.slow
def test_plans_agree_with_runs(world: World, request: pytest.FixtureRequest) -> None:
    lake = "lakefs" if "lakefs" in request.node.name else "local"
    skipped = 0
    for seed in range(HISTORIES[lake]):
        rng = random.Random(seed)
        tasks = [random_task(rng, number) for number in range(TASKS)]
        flow = PlanWorld(world, tasks, random_steps(rng, tasks))
        world.commit({f"raw{one}/f0": f"{seed} {one}" for one in range(RAW)})
        for _ in range(RUNS):
            forced = Recompute(rng.random() < 0.05, frozenset({"step1"} if rng.random() < 0.1 else ()))
            plan = flow.planned(forced)
            # A second iteration of a loop may find that the first has moved the branch.
            done = flow.run(forced, status=None)
            assert disagreements(plan, done) == [], (
                seed,
                [(one.reference, one.reason) for one in plan.steps],
            )
            skipped += sum(one.skips for one in plan.steps)
            change_something(rng, world)
    assert skipped > HISTORIES[lake], "the histories must have something to skip"
