"""The pytest plugin in a separate project: pytest runs there in a new process, as its author runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

import perago.testing

# Each of them starts processes.
pytestmark = pytest.mark.slow

HIDDEN = ("CONDUCTOR_", "LAKECTL_", "PERAGO_", "PYTEST_", "COV_")
TASKS = """
    from pathlib import Path

    from pydantic import BaseModel

    from perago import SparkWorkspace, WorkspaceSpec, task


    class Nothing(BaseModel):
        pass


    class Rows(BaseModel):
        rows: int


    @task(name="clean", owner_email="a@example.com", workspace=WorkspaceSpec(prefix="/"))
    def clean(workspace: Path, params: Nothing) -> Rows:
        rows = (workspace / "raw.csv").read_text().splitlines()
        (workspace / "clean.csv").write_text("\\n".join(sorted(rows)))
        print(len(rows), "rows")
        return Rows(rows=len(rows))


    @task(name="count", owner_email="a@example.com", workspace=WorkspaceSpec(prefix="/"))
    def count(workspace: SparkWorkspace, params: Nothing) -> Rows:
        table = workspace.spark.createDataFrame([("So What",), ("Blue",)], "song string")
        workspace.write(table, "songs", "parquet")
        return Rows(rows=workspace.read("songs", "parquet").count())
"""
TESTS = """
    import sys

    from perago.testing import crash, lose_lease, advance_head
    from tasks import clean

    FLOW = {
        "name": "flow",
        "version": 1,
        "schemaVersion": 2,
        "tasks": [
            {
                "name": "clean",
                "taskReferenceName": "clean",
                "type": "SIMPLE",
                "inputParameters": {"workspace": "${workflow.input.workspace}", "params": {}},
            }
        ],
    }


    def test_the_worker_works_on_the_lake(perago_lake, perago_worker):
        perago_lake.commit({"raw.csv": "b\\na"})
        trial = perago_worker.try_task(clean)
        assert trial.log == ("2 rows",)
        assert perago_lake.files()["clean.csv"] == b"a\\nb"
        perago_lake.commit({"raw.csv": "c"}, delete=["clean.csv"])
        assert perago_worker.try_workflow(FLOW, clean).steps["clean"].result == {"rows": 1}
        assert [commit.by for commit in perago_lake.history()] == ["clean", "", "trial", "", ""]


    def test_each_test_has_its_own_lake(perago_lake):
        assert perago_lake.files() == {}


    def test_a_branch_other_than_main(perago_lake, perago_worker):
        perago_lake.commit({"raw.csv": "b"})
        perago_lake.create_branch("dev")
        assert perago_worker.try_task(clean, branch="dev").published
        assert sorted(perago_lake.files("dev")) == ["clean.csv", "raw.csv"]
        assert sorted(perago_lake.files()) == ["raw.csv"]


    def test_faults(perago_lake, perago_worker):
        perago_lake.commit({"raw.csv": "b"})
        assert perago_worker.try_task(clean, faults={"publish": lose_lease()}).status == "TIMED_OUT"
        assert perago_worker.try_task(clean, faults={"publish": advance_head("x", by="other")}).status == "FAILED"
        assert perago_worker.try_task(clean, faults={"publish": crash()}, retries=1).status == "COMPLETED"
        assert perago_lake.history()[0].by == "trial"


    def test_spark_is_not_imported_for_any_of_this():
        assert "pyspark" not in sys.modules
"""
SPARK = """
    from perago.testing import crash, try_task
    from tasks import count


    def test_the_session_is_one_for_all(perago_spark, perago_worker):
        assert perago_worker.try_task(count).result == {"rows": 2}
        assert perago_spark.sql("select 1 as one").collect()[0].one == 1


    def test_a_trial_in_a_folder_of_its_own_uses_it_too(perago_spark, perago_worker):
        before = perago_spark.sparkContext.applicationId
        trial = try_task(count, faults={"publish": crash()}, retries=1)
        assert [attempt.status for attempt in trial.attempts] == ["TIMED_OUT", "COMPLETED"]
        assert any(path.startswith("songs/") for path in trial.files)
        assert perago_spark.sparkContext.applicationId == before
        assert perago_spark.range(1000).repartition(7).distinct().count() == 1000
"""
NOT_A_USER = """
    import sys


    def test_nothing_of_perago_is_there():
        loaded = [name for name in sys.modules if name.partition(".")[0] in {"perago", "pydantic", "pyspark"}]
        assert loaded == []
"""

WITHOUT_OTHERS = ("-p", "no:hypothesispytest", "-p", "no:conductor-agents-testing")
"""For tests to which the plugins of other packages are nothing: they load for longer than the rest takes."""


def run_pytest(folder: Path, *options: str, **files: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on a new project that has these files."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(dedent(text))
    environ = {key: value for key, value in os.environ.items() if not key.startswith(HIDDEN)}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )


def test_a_project_uses_the_fixtures_without_setting_anything_up(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, tasks=TASKS, test_tasks=TESTS)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


def test_all_spark_tasks_of_a_test_run_share_one_session(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, *WITHOUT_OTHERS, tasks=TASKS, test_spark=SPARK)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_a_test_run_that_does_not_use_the_plugin_loads_nothing_of_perago(tmp_path: Path) -> None:
    # Hypothesis is a plugin of this environment, and not of that project.
    done = run_pytest(tmp_path, "-p", "no:hypothesispytest", test_other=NOT_A_USER)

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_fixtures_tell_what_they_are(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, *WITHOUT_OTHERS, "--fixtures", test_other=NOT_A_USER)

    for name in ("perago_lake", "perago_worker", "perago_spark"):
        assert name in done.stdout
    assert "The one Spark session of this test process" in done.stdout


def test_the_plugin_can_be_disabled(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, *WITHOUT_OTHERS, "-p", "no:perago", tasks=TASKS, test_tasks=TESTS)

    assert "fixture 'perago_lake' not found" in done.stdout


EXPORTS = {
    "try_task",
    "try_workflow",
    # what they return
    "Trial",
    "TrialAttempt",
    "TrialCommit",
    "TrialStep",
    "WorkflowTrial",
    "Changes",
    # what may happen at a step
    "STEPS",
    "crash",
    "lose_lease",
    "goes_stale",
    "head_moves",
    "advance_head",
    "Crashed",
    # what fixtures give
    "TrialLake",
    "TrialWorker",
    # the rest
    "Clock",
    "TrialError",
}


def test_perago_testing_exports_exactly_this_and_tells_what_each_is() -> None:
    assert sorted(perago.testing.__all__) == sorted(EXPORTS)
    for name in EXPORTS - {"STEPS"}:
        found = getattr(perago.testing, name)
        assert found.__doc__, name
        methods = [one for key, one in vars(found).items() if callable(one) and not key.startswith("_")]
        assert [one.__name__ for one in methods if isinstance(found, type) and not one.__doc__] == []
