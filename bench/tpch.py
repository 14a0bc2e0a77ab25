"""The TPC-H pipeline of examples/tpch compared with the same functions on plain folders, in the same session.

Both sides load the raw files into typed tables and answer the 22 queries, one step after the other.  Perago does it as
24 attempts, with the checks that the tasks declare; the plain side calls the tasks' functions, without checks.  Local
placement runs beside local folders, and direct placement beside a branch that plain PySpark writes by s3a.  Each side takes
one turn, after the session has answered all queries once on a hundredth of the data.
"""

from __future__ import annotations

import os
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from bench import Row
from bench.harness import Context, timed
from bench.spark_bench import SparkBench
from examples.tpch.tasks import Load, Query, load_orders, load_others, query
from perago import SparkWorkspace
from perago.backend import open_lakefs
from perago.declare.task import TaskDefinition
from perago.lake.base import Lake, Upload
from perago.lake.local.lake import LocalLake
from perago.runtime.folder_upload import folder_uploads
from perago.spark.s3a import open_bucket

NAME = "TPC-H beside plain PySpark"
SERVERS = True
STEPS: tuple[tuple[Callable[..., BaseModel], BaseModel], ...] = (
    (load_orders, Load()),
    (load_others, Load()),
    *((query, Query(number=number)) for number in range(1, 23)),
)


def run() -> list[Row]:
    """Run the pipeline with both placements."""
    with tempfile.TemporaryDirectory() as name, SparkBench.open(Context(Path(name))) as bench:
        scale = "0.01" if bench.context.quick else "1"
        _generate("0.01", bench.context.folder / "small" / "raw")
        bench.context.say("warming up")
        _plain(bench, bench.context.folder / "small")
        bench.context.say(f"generating TPC-H data at scale {scale}")
        _generate(scale, bench.context.folder / "given" / "raw")
        return [*local(bench, scale), *direct(bench, scale)]


def local(bench: SparkBench, scale: str) -> list[Row]:
    """Measure local placement beside plain folders."""
    folder = bench.context.folder
    with closing(LocalLake(folder / "lake")) as lake:
        lake.create_repository("bench", _raw_files(bench, lake))
        plain = folder / "plain"
        plain.mkdir()
        (plain / "raw").symlink_to(folder / "given" / "raw")
        took = bench.turns(
            {
                "plain": lambda: timed(lambda: _plain(bench, plain)),
                "perago": lambda: timed(lambda: _pipeline(bench, lake, "bench", "local")),
            },
            rounds=1,
        )
    return [
        Row(f"TPC-H at scale {scale}, plain PySpark on local folders", took["plain"], "s"),
        Row(
            "the same as Perago tasks, local placement, against plain",
            took["perago"] / took["plain"],
            "times",
            1.10,
        ),
    ]


def direct(bench: SparkBench, scale: str) -> list[Row]:
    """Measure direct placement beside plain PySpark that reads and writes a branch by s3a."""
    name = f"bench-tpch-{os.getpid()}"
    with closing(open_lakefs(bench.settings)) as lake:
        lake.create_repository(name, _raw_files(bench, lake))
        assert bench.settings.lakefs is not None  # noqa: S101 - SERVERS is set
        open_bucket(bench.sessions.get(), name, bench.settings.lakefs)

        def plain() -> None:
            _plain(bench, f"s3a://{name}/{bench.new_branch(lake, name)}")

        took = bench.turns(
            {
                "plain s3a": lambda: timed(plain),
                "perago direct": lambda: timed(lambda: _pipeline(bench, lake, name, "direct")),
            },
            rounds=1,
        )
    return [
        Row("the same, plain PySpark by s3a", took["plain s3a"], "s"),
        Row(
            "the same as Perago tasks, direct placement, against that",
            took["perago direct"] / took["plain s3a"],
            "times",
            1.10,
        ),
    ]


def _generate(scale: str, folder: Path) -> None:
    generator = Path(sysconfig.get_path("scripts")) / "tpchgen-cli"
    subprocess.run([generator, "csv", "-s", scale, "--output-dir", folder], check=True, capture_output=True)


def _raw_files(bench: SparkBench, lake: Lake) -> list[Upload]:
    given = bench.context.folder / "given"
    return folder_uploads(given, lake.checksum_algorithm, leave_out=bench.context.folder / "lake")


def _plain(bench: SparkBench, base: str | Path) -> None:
    """Call the functions of all steps on one workspace."""
    workspace = SparkWorkspace(base, bench.sessions.get)
    for function, params in STEPS:
        function(workspace, params)


def _pipeline(bench: SparkBench, lake: Lake, repository: str, placement: Literal["local", "direct"]) -> None:
    """Run all steps as attempts, each from the head that the one before it made."""
    branch = bench.new_branch(lake, repository)
    for function, params in STEPS:
        definition: TaskDefinition = function.__perago_task__  # type: ignore[attr-defined]
        assert definition.workspace is not None  # noqa: S101 - all of them have one
        placed = definition.workspace.model_copy(update={"placement": placement})
        bench.attempt(lake, repository, branch, replace(definition, workspace=placed), params.model_dump())
