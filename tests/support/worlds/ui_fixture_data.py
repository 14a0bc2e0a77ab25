"""A root with data for every page of `perago ui`, made by real attempts on real ports."""

from __future__ import annotations

import csv
import io
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from perago.declare.task import TaskDefinition
from perago.declare.taskdef import build_taskdef
from perago.errors import TaskFailed
from perago.protocol.attempt_record import AttemptRecord, CheckRecord, SparkFigures, StageTime, record_line
from perago.runtime.runs.map_runs import MapFailure, MapProgress, recorded
from perago.runtime.runs.record import MapRun, map_log
from perago.testing.lake import put_objects
from tests.support.worlds.map_world import MapWorld
from tests.support.worlds.world import Made, Params, World, abandon, make_task

HOSTILE_NAME = "<img src=x onerror=alert(1)>\"'&amp;/</script><script>alert(2)</script>.txt"
HOSTILE_LINE = (
    "</pre><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"> "
    "\x1b[31mred\u202egnihton"
)
HOSTILE_PAGE = (
    "<!doctype html><title>report</title><h1 id=told>A report</h1>"
    "<script>document.getElementById('told').textContent='owned';parent.document.title='owned'</script>"
    "<img src='/static/mark.svg' onerror=\"document.getElementById('told').textContent='owned'\">"
    "<a href='/runs' target=_top>out</a><form action='/runs'><button>go</button></form>"
)
SVG = (
    "<svg xmlns='http://www.w3.org/2000/svg' width='120' height='60' onload=\"document.title='owned'\">"
    "<script>document.title='owned'</script><rect width='120' height='60' rx='8' fill='#12a150'/></svg>"
)
RECORD = AttemptRecord(
    "0" * 16,
    "COMPLETED",
    step="cleanup",
    seconds={"input": 0.02, "download": 0.3, "pre checks": 0.05, "body": 1.4, "stage": 0.2, "publish": 0.1},
    checks=(
        CheckRecord("pre", "require_glob('*.csv')", "3 files"),
        CheckRecord("post", "require_rows('clean', min_count=1)", "1204 rows"),
        CheckRecord("post", "<script>alert('check')</script>", "<b>bold</b>", passed=False),
        CheckRecord(
            "post", "require('clean', 'ms > 0')", "3 of 1204 rows violate it", passed=False, level="warn"
        ),
    ),
    downloaded=48_000,
    uploaded=12_345,
    changed=1,
    fence="hard",
    code="<script>alert('code')</script>",
    runtime="perago 1, python 3",
    packages="0123456789ab",
    image="registry/<b>image</b>",
    spark=SparkFigures(
        jobs=2,
        stages=3,
        tasks=8,
        rows_read=5000,
        bytes_read=100_000,
        longest=(StageTime("<script>alert('stage')</script>", 1.5), StageTime("3 Scan csv", 1.0)),
    ),
)


def table_bytes(rows: int = 1000) -> bytes:
    """Return a Parquet file with several row groups."""
    out = io.BytesIO()
    names = [f"<b>play {number}</b>" for number in range(rows)]
    table = pa.table(
        {"id": list(range(rows)), "title <i>x</i>": names, "seconds": [n / 7 for n in range(rows)]}
    )
    pq.write_table(table, out, row_group_size=max(1, rows // 4))
    return out.getvalue()


def csv_text() -> str:
    """Return a CSV with a hostile cell."""
    out = io.StringIO()
    csv.writer(out).writerows([["id", "name"], [1, "<script>alert(3)</script>"], [2, "=cmd|' /C calc'!A0"]])
    return out.getvalue()


FILES: dict[str, str | bytes] = {
    "data/plays.parquet": table_bytes(),
    "data/plays.csv": csv_text(),
    "data/summary.json": json.dumps({"rows": 1000, "by_day": {"monday": 7, "tuesday": [1, 2, 3]}}),
    "data/notes.txt": "Plain words.\nOn two lines.\n",
    "data/binary.bin": b"\x00\x01\x02" * 100,
    "report/index.html": HOSTILE_PAGE,
    "report/chart.svg": SVG,
    HOSTILE_NAME: "named to hurt",
}


@dataclass(frozen=True, slots=True)
class UiFixtureData:
    """A world with data for the pages: workflow ids by what happened to them."""

    world: World
    replaced: str
    superseded: str
    failed: str
    forked: str
    hostile: str
    mapped: str


def fill_for_ui(world: World) -> UiFixtureData:
    """Run the workflows that the pages show."""
    put_files(world, FILES)
    world.lake.commit(world.repository, "main", "import from <b>the archive</b>", {})
    return UiFixtureData(
        world,
        replaced=_publish_twice(world, make_task(_another_each_time, name="clean")),
        superseded=_publish_twice(
            world, make_task(_another_each_time, name="enrich", on_abandoned="supersede")
        ),
        failed=fail(world),
        forked=fork(world),
        hostile=hostile(world),
        mapped=map_run(world),
    )


def put_files(world: World, files: Mapping[str, str | bytes]) -> None:
    """Upload objects to main without committing them."""
    put_objects(world.lake, world.repository, "main", files, folder=world.folder / "uploads")


def _another_each_time(workspace: Path, params: Params) -> Made:
    (workspace / "result.txt").write_text(secrets.token_hex(8))
    return Made(said=params.text)


def _publish_twice(world: World, definition: TaskDefinition) -> str:
    """Run a workflow whose first attempt published and was lost, and whose second attempt published again."""
    workflow_id = world.start(definition, text="first")
    abandon(world, definition)
    assignment = world.retry(definition)
    ended = world.execute(definition, assignment)
    assert ended.outcome.status == "COMPLETED", ended
    world.commit({"by-hand.txt": workflow_id}, message="corrected by hand")
    return workflow_id


def fail(world: World) -> str:
    """Run a workflow whose only attempt fails with a reason of several lines."""

    def body(workspace: Path, params: Params) -> Made:
        raise TaskFailed("the <b>third</b> row has no date\n  at line 3\n  at line 7")

    definition = make_task(body, name="refuse", retries=0)
    workflow_id = world.start(definition)
    world.execute(definition, world.poll(definition))
    return workflow_id


def fork(world: World) -> str:
    """Run a workflow of two arms that publish concurrently; the second arm waits for its second step."""
    left, right, rank = arm("left"), arm("right"), arm("rank")
    world.orchestrator.register_taskdefs([build_taskdef(one) for one in (left, right, rank)])

    def step(definition: TaskDefinition, reference: str) -> dict[str, Any]:
        inputs = {"workspace": "${workflow.input.workspace}", "params": {"text": reference}}
        return {
            "name": definition.name,
            "taskReferenceName": reference,
            "type": "SIMPLE",
            "inputParameters": inputs,
        }

    arms = [[step(left, "count_plays")], [step(right, "count_people"), step(rank, "rank_people")]]
    join = {
        "name": "join",
        "taskReferenceName": "join",
        "type": "JOIN",
        "joinOn": ["count_plays", "rank_people"],
    }
    fork_step = {"name": "fork", "taskReferenceName": "fork", "type": "FORK_JOIN", "forkTasks": arms}
    definition = {
        "name": "listening",
        "version": 1,
        "schemaVersion": 2,
        "tasks": [fork_step, join, step(left, "report")],
    }
    world.orchestrator.register_workflow(definition)
    workspace = {
        "repository": world.repository,
        "branch": "main",
        "ref_type": "commit",
        "ref": world.head().id,
    }
    workflow_id = world.orchestrator.start_workflow("listening", input={"workspace": workspace})
    for definition in (left, right):
        ended = world.execute(definition, world.poll(definition))
        assert ended.outcome.status == "COMPLETED", ended
    return workflow_id


def arm(name: str) -> TaskDefinition:
    """Return the task of an arm, which may publish concurrently with the other one."""
    return make_task(name=name, prefix=f"/{name}", on_abandoned="supersede", on_advanced="rebase")


def hostile(world: World) -> str:
    """Run a workflow whose attempt prints hostile lines and leaves an attempt record."""
    definition = make_task(name="hostile", prefix="/hostile")
    workflow_id = world.start(definition, text="</script><script>alert('params')</script>")
    assignment = world.poll(definition)
    world.orchestrator.log(assignment.attempt, ["a plain line", HOSTILE_LINE])
    world.execute(definition, assignment)
    execution = world.head().metadata["perago.execution_id"]
    world.orchestrator.log(assignment.attempt, [record_line(RECORD).replace("0" * 16, execution)])
    return workflow_id


def map_run(world: World) -> str:
    """Run a map of one good row, whose record says that others failed."""
    mapped = MapWorld(world.lake, world.repository, world.folder, make_task(name="tag", prefix="/tags"))
    run = MapRun(
        mapped.run, "tag", "<b>rows</b>.csv", "out.csv", 9, 1e9, str(world.folder), command=["perago", "map"]
    )
    reason = "no <script>alert('tune')</script>\nat line 3"
    with recorded(world.folder, run) as recorder:
        assert mapped.runner().run(mapped.row).done
        failures = [MapFailure("FAILED", reason, 7, (1, 2, 3)), MapFailure("UNSETTLED", "?", 1, (4,))]
        recorder.save(MapProgress(1, 8, failures, 3))
        map_log(world.folder, run.id).write_text(f"tagging\n{HOSTILE_LINE}\n")
    return run.id
