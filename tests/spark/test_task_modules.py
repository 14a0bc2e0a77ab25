"""Functions of task modules in Spark's Python workers: helpers in UDFs, neighbours, packages, and UDFs of a module's own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from perago.declare.discovery import load_tasks
from perago.testing import try_task

TASKS = """
    import helpers
    from pydantic import BaseModel
    from pyspark.sql import functions as F

    from perago import RetryPolicy, SparkWorkspace, TaskControls, WorkspaceSpec, task


    class Params(BaseModel):
        pass


    class Found(BaseModel):
        numbers: dict[str, int]


    def twice(number):
        return NUMBER * number


    NUMBER = 2


    @F.udf("int")
    def declared_here(number):
        return twice(number)


    @F.pandas_udf("long")
    def pandas_here(numbers):
        return numbers.map(twice)


    def frames(parts):
        for frame in parts:
            yield frame.assign(id=frame["id"].map(twice))


    def row_of(value):
        return value if isinstance(value, int) else value[0]


    @task(
        name=NAME,
        owner_email="a@example.com",
        workspace=WorkspaceSpec(prefix="/", read_only=True),
        controls=TaskControls(retry=RetryPolicy(count=0)),
    )
    def use_helpers(workspace: SparkWorkspace, params: Params) -> Found:
        two = workspace.spark.range(2, 3, 1, 1)
        context = workspace.spark.sparkContext
        found = {
            "in a udf": two.select(F.udf(lambda number: twice(number), "int")("id")),
            "a udf of the module": two.select(declared_here("id")),
            "a pandas udf of the module": two.select(pandas_here("id")),
            "a udf of a neighbour": two.select(helpers.declared_there("id")),
            "mapInPandas": two.mapInPandas(frames, "id long"),
            "rdd.map": context.parallelize([2], 1).map(twice),
            "rdd.map of a neighbour": context.parallelize([2], 1).map(helpers.three_times),
        }
        return Found(numbers={name: row_of(one.first()) for name, one in found.items()})
"""
HELPERS = """
    from pyspark.sql import functions as F


    def three_times(number):
        return 3 * number


    @F.udf("int")
    def declared_there(number):
        return three_times(number)
"""
FOUND = {
    "in a udf": 4,
    "a udf of the module": 4,
    "a pandas udf of the module": 4,
    "a udf of a neighbour": 6,
    "mapInPandas": 4,
    "rdd.map": 4,
    "rdd.map of a neighbour": 6,
}


def write_project(folder: Path, *, name: str = "use", helpers: str = "helpers") -> Path:
    """A task file with its neighbour; two projects of one process need another name for the neighbour."""
    folder.mkdir(parents=True)
    (folder / f"{helpers}.py").write_text(dedent(HELPERS))
    file = folder / "tasks.py"
    file.write_text(dedent(TASKS).replace("NAME,", f"{name!r},").replace("helpers", helpers))
    return file


def test_helpers_of_task_files_work_from_another_folder(tmp_path: Path) -> None:
    write_project(tmp_path / "code", name="of_a_file")
    package = write_project(tmp_path / "app" / "jobs", name="of_a_package")
    (package.parent / "__init__.py").touch()
    package.write_text(package.read_text().replace("import helpers", "from jobs import helpers"))
    steps = [
        {
            "name": name,
            "taskReferenceName": name,
            "type": "SIMPLE",
            "inputParameters": {"workspace": "${workflow.input.workspace}", "params": {}},
        }
        for name in ("of_a_file", "of_a_package")
    ]
    output = {name: f"${{{name}.output.result.numbers}}" for name in ("of_a_file", "of_a_package")}
    flow = {"name": "w", "version": 1, "schemaVersion": 2, "tasks": steps, "outputParameters": output}
    (tmp_path / "w.json").write_text(json.dumps(flow))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").touch()
    (tmp_path / "elsewhere").mkdir()

    done = subprocess.run(
        [
            *(sys.executable, "-m", "perago", "run", "../w.json", "--json"),
            *("--tasks", "../code/tasks.py", "--tasks", "../app/jobs/tasks.py"),
            *("--import", "music=../data", "--workspace", "music"),
        ],
        check=False,
        cwd=tmp_path / "elsewhere",
        stdout=subprocess.PIPE,
        text=True,
    )

    assert done.returncode == 0
    assert json.loads(done.stdout)["output"] == {"of_a_file": FOUND, "of_a_package": FOUND}


@pytest.mark.usefixtures("sessions")
def test_files_of_one_name_stay_apart_and_one_that_changes_is_loaded_again(tmp_path: Path) -> None:
    # Both are called like a module of Python's own.
    first, second = (
        write_project(tmp_path / name, name=name, helpers=f"helpers_of_{name}").rename(
            tmp_path / name / "statistics.py"
        )
        for name in ("first", "second")
    )
    second.write_text(second.read_text().replace("NUMBER = 2", "NUMBER = 5"))

    numbers = [numbers_of(file) for file in (first, second)]
    first.write_text(first.read_text().replace("NUMBER = 2", "NUMBER = 7"))
    numbers.append(numbers_of(first))

    assert numbers == [found_with(2), found_with(5), found_with(7)]


def numbers_of(file: Path) -> object:
    """Return what the task of a file finds, or the reason of its failure."""
    [task] = load_tasks([str(file)])
    trial = try_task(task.fn, {"x": "x"})
    return trial.result["numbers"] if trial.result else trial.reason


def found_with(number: int) -> dict[str, int]:
    return {name: 2 * number if found == 4 else found for name, found in FOUND.items()}
