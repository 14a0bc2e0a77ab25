"""A standalone cluster of two workers with real lakeFS: a map, and a Spark task with direct placement."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from uuid import uuid4
from zipfile import ZipFile

import pytest

from perago.runtime.maps.table import read_table
from tests.conftest import ConductorServer, LakefsServer, fresh_repository
from tests.spark.conftest import CLUSTER, on_cluster
from tests.support.processes.commands import WAIT_SECONDS, Shell
from tests.support.servers.lakefs import lakefs_lake
from tests.support.tasks import killed_task, map_tasks

SONGS = 6
ONE_EXECUTOR = {"spark.cores.max": "1"}
"""For what every executor of a cluster has, or lacks: each is a JVM more."""
SOURCES = Path(__file__).parents[2] / "src"


@pytest.fixture
def shell(
    master: str, lakefs_server: LakefsServer, conductor_server: ConductorServer, tmp_path: Path
) -> Shell:
    made = Shell(tmp_path)
    made.environ |= {
        "LAKECTL_SERVER_ENDPOINT_URL": lakefs_server.url,
        "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": lakefs_server.access_key_id,
        "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": lakefs_server.secret_access_key,
        "CONDUCTOR_SERVER_URL": conductor_server.url,
        "PERAGO_SPARK_MASTER": master,
        "PERAGO_SPARK_CONF": on_cluster({}),
        "PYSPARK_PYTHON": sys.executable,
    }
    return made


def test_the_address_is_printed_and_nothing_is_left_of_a_cluster_that_is_down(master: str) -> None:
    environ = {**os.environ, "PERAGO_DEV_SET": "tests"}
    again = subprocess.run([CLUSTER, "status"], env=environ, check=True, stdout=subprocess.PIPE, text=True)
    other = {**os.environ, "PERAGO_DEV_SET": "never"}
    none = subprocess.run([CLUSTER, "status"], env=other, check=False, capture_output=True, text=True)

    assert again.stdout.strip() == master
    assert master.startswith("spark://127.0.0.1:")
    assert (none.returncode, none.stdout, "dev/spark-cluster up" in none.stderr) == (1, "", True)


def test_a_module_that_no_import_names_is_told_before_a_row_begins_and_may_be_sent(
    shell: Shell, lakefs_server: LakefsServer, tmp_path: Path
) -> None:
    (tmp_path / "here").mkdir()
    shutil.copy(map_tasks.__file__, tmp_path / "here" / "only_here.py")
    shell.folder = tmp_path / "here"
    shell.environ["PERAGO_SPARK_CONF"] = on_cluster(ONE_EXECUTOR)
    with ExitStack() as stack:
        names = [stack.enter_context(fresh_repository(lakefs_server)) for _ in range(SONGS)]
        lake = stack.enter_context(closing(lakefs_lake(lakefs_server, tmp_path / "cache")))
        rows = "\n".join(json.dumps({"repository": name, "title": name}) for name in names)
        (tmp_path / "here" / "rows.jsonl").write_text(rows)
        arguments = ["map", "only_here:tag_song", "rows.jsonl", "-o", "out.jsonl", "--remote", "--yes"]
        # Executors of this machine would find the module in the driver's folder: so it is not there any more.
        sent = tmp_path / "sent"
        sent.mkdir()
        write_with_plugin(sent / "only_here.py")
        shell.environ["PYTHONPATH"] = str(sent)
        (tmp_path / "here" / "only_here.py").unlink()

        missing = shell.run(*arguments)
        ended = shell.run(*arguments, "--resume", "--py-files", str(sent / "plugin.py"))

        assert missing.code == 1
        assert "the Spark executors cannot load only_here" in missing.err
        assert "No module named 'plugin'" in missing.err
        assert "--py-files" in missing.err
        assert ended.code == 0, ended.err
        found = read_table(tmp_path / "here" / "out.jsonl")
        assert [row["published"] for row in found] == [lake.head(name, "main").id for name in names]
        assert {row["attempts"] for row in found} == {1}


def write_with_plugin(file: Path) -> None:
    """Write a task module that loads a neighbour by a name that is only known while it runs."""
    loads = "__import__('importlib').import_module('plug' + 'in')"
    file.write_text(f"{Path(map_tasks.__file__).read_text()}\n\n{loads}\n")
    (file.parent / "plugin.py").touch()


def test_a_worker_whose_module_executors_do_not_have_says_so_before_it_polls(
    shell: Shell, conductor_server: ConductorServer, tmp_path: Path
) -> None:
    name = f"only_here_{uuid4().hex[:8]}"
    write_with_plugin(tmp_path / f"{name}.py")
    shell.folder = tmp_path / "elsewhere"
    shell.folder.mkdir()
    shell.environ["PERAGO_SPARK_CONF"] = on_cluster(ONE_EXECUTOR)
    start = ["start", f"../{name}.py", "--engine", "spark", "--register", "--root", str(tmp_path / "root")]

    missing = shell.run(*start)
    worker = shell.start(*start, "--py-files", str(tmp_path / "plugin.py"))
    try:
        assert worker.stderr is not None
        told = []
        while "worker " not in (told[-1] if told else ""):
            told.append(worker.stderr.readline())
            assert told[-1], "".join(told)
        worker.send_signal(signal.SIGTERM)
        _, rest = worker.communicate(timeout=WAIT_SECONDS)
    finally:
        worker.kill()

    assert missing.code == 1
    assert "cannot run these tasks: " in missing.err
    assert "No module named 'plugin'" in missing.err
    assert "--py-files" in missing.err
    assert "worker " not in missing.err
    assert worker.returncode == 0, rest
    # Spark has a configured pool for these jobs, and need not create one.
    assert "FairSchedulableBuilder" not in missing.err + "".join(told)


def test_a_spark_task_reads_and_writes_its_staging_branch_from_the_cluster(
    shell: Shell, lakefs_server: LakefsServer, tmp_path: Path
) -> None:
    from tests.spark.test_killed import workflow

    flow = workflow(("write_squares", {"flag": "${workflow.input.flag}"}))
    (tmp_path / "flow.json").write_text(json.dumps(flow))
    # A jar of the user's must not displace those of s3a.
    with ZipFile(tmp_path / "mine.jar", "w") as jar:
        jar.writestr("mine.txt", "mine")
    shell.environ |= {"SQUARES_PLACEMENT": "direct", "PERAGO_SPARK_CONF": on_cluster(ONE_EXECUTOR)}
    with (
        fresh_repository(lakefs_server) as repository,
        closing(lakefs_lake(lakefs_server, tmp_path / "cache")) as lake,
    ):
        given = json.dumps({"flag": str(tmp_path / "flag")})
        tasks = ["--tasks", killed_task.__file__, "--workspace", repository, "--input", given]
        ended = shell.run("run", "flow.json", *tasks, "--jars", "mine.jar", "--remote", "--yes", "--json")

        assert ended.code == 0, ended.err
        head = lake.head(repository, "main")
        assert json.loads(ended.out)["output"]["workspace"]["ref"] == head.id
        assert any(entry.path.endswith(".parquet") for entry in lake.list(repository, head.id, ""))
