"""A history of six steps with everything that can happen to a publication, to ask where its result comes from.

raw/      imported by hand
clean     replaced: the first attempt's worker dies, the retry takes its place
left      in a fork; superseded: the retry publishes on top of the first attempt's publication, with one equal file
right     in the same fork
join      reused: the retry repeats the first attempt's publication
report    from `join`
total     from `report` and `raw/`, in a run that is published as one commit
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perago.declare.task import TaskDefinition
from tests.support.tasks.workflows import fork, join, simple
from tests.support.worlds.run_world import RunWorld, opening, publishing, running
from tests.support.worlds.world import Made, Params, World, make_task

DYING = ("clean", "left", "join")
"""The steps whose first attempt publishes, and is never heard of again."""


def step(name: str, reads: Sequence[str], **spec: Any) -> TaskDefinition:
    """Return a task that writes the names of all files that it reads, and how often it ran, into its own folder."""
    ran: list[None] = []

    def body(workspace: Path, params: Params) -> Made:
        ran.append(None)
        found = [
            str(file.relative_to(workspace))
            for folder in reads
            for file in sorted((workspace / folder).rglob("*"))
            if file.is_file()
        ]
        (workspace / name).mkdir(exist_ok=True)
        (workspace / name / "files.txt").write_text("\n".join(found))
        if name == "left":
            (workspace / name / "count.txt").write_text(str(len(ran)))
        return Made(said=name)

    return make_task(body, name=name, **{"prefix": "/", "reads": tuple(reads), "writes": (name,), **spec})


def tasks() -> list[TaskDefinition]:
    """Return the tasks of the history."""
    beside = {"on_abandoned": "supersede", "on_advanced": "rebase"}
    return [
        step("clean", ["raw"], on_abandoned="replace"),
        step("left", ["clean"], **beside),
        step("right", ["clean"], **beside),
        step("join", ["left", "right"], on_abandoned="reuse"),
        step("report", ["join"]),
        step("total", ["report", "raw"]),
    ]


@dataclass(frozen=True)
class TracedHistory:
    """The commits of the history, by step.  `imported` is the one that has `raw/`, `run` that of the whole run."""

    world: World
    runs: RunWorld
    imported: str
    made: dict[str, str]
    superseded: str
    run: str


def make_history(world: World) -> TracedHistory:
    """Make the history on the main branch."""
    [clean, left, right, joined, report, total] = everything = tasks()
    runs = RunWorld.of(world, everything)
    imported = world.commit({"raw/a.csv": "1", "raw/b.csv": "2", "other/x": "0"})
    world.commit({"other/x": "1"})
    begin = {"workspace": "${workflow.input.workspace}", "params": {"text": "made"}}
    runs.start(
        [
            simple("clean", name=clean.name, inputParameters=begin),
            fork("both", [running(left, "clean")], [running(right, "clean")]),
            join("joined", "left", "right"),
            running(joined, ("left", "right")),
            running(report, "join"),
        ],
        ref_type="commit",
        ref=world.head().id,
    )
    made, abandoned = _drive(runs)
    runs.start([opening(), running(total), publishing("total")])
    in_run, _ = _drive(runs)
    world.commit({"other/x": "2"})
    return TracedHistory(
        world, runs, imported, {**made, "total": in_run["total"]}, abandoned["left"], in_run["publish"]
    )


def _drive(runs: RunWorld) -> tuple[dict[str, str], dict[str, str]]:
    """Run every attempt.  Returns the commits of each step, and those of the attempts that were never heard of again."""
    made, abandoned = dict[str, str](), dict[str, str]()
    while (assignment := runs.next()) is not None:
        reference = assignment.attempt.reference_task_name
        if reference in DYING and reference not in abandoned:
            runs.die_before_completing(assignment)
            abandoned[reference] = runs.world.head().id
            runs.world.orchestrator.time_out_in_progress("the worker is dead")
            continue
        ended = runs.execute(assignment).outcome
        assert ended.status == "COMPLETED", ended
        made[reference] = (ended.output or {})["workspace"]["ref"]
    return made, abandoned
