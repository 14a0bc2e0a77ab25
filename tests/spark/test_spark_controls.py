"""Settings per task: a JVM for those that need one, the attempt's session for SQL, and files as in spark-submit."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from perago import RuntimeConfigError, SparkControls, require
from perago.declare.spark_controls import STATIC_SQL
from perago.declare.task import TaskDefinition
from perago.settings import SparkFiles, load_settings
from perago.spark.config import session_conf
from perago.spark.placement import check_placement
from perago.spark.session import Sessions
from perago.spark.session_spec import difference, session_spec
from tests.spark.conftest import FEW_ROWS, as_setting
from tests.spark.test_code_on_executors import embedded, run_tasks, write_flow
from tests.support.processes.commands import Shell
from tests.support.worlds.spark_world import SparkWorld, failed, make_spark_task
from tests.support.worlds.world import Made, Params, published_ref

TASKS = """
    import os

    from pydantic import BaseModel
    from pyspark import SparkFiles
    from pyspark.sql import functions as F

    from perago import RetryPolicy, SparkControls, SparkWorkspace, TaskControls, WorkspaceSpec, task

    __owner_email__ = "a@example.com"
    READS = WorkspaceSpec(prefix="/", read_only=True)
    ONCE = TaskControls(retry=RetryPolicy(count=0))


    class Params(BaseModel):
        pass


    class Found(BaseModel):
        jvm: int
        memory: int
        partitions: str
        jar: bool
        deps: int


    def found(workspace, deps=0):
        spark = workspace.spark
        jvm = spark._jvm
        return Found(
            jvm=jvm.java.lang.ProcessHandle.current().pid(),
            memory=jvm.java.lang.Runtime.getRuntime().maxMemory() // 2**20,
            partitions=spark.conf.get("spark.sql.shuffle.partitions"),
            jar=jvm.Thread.currentThread().getContextClassLoader().getResource("mine.txt") is not None,
            deps=deps,
        )


    @task(workspace=READS, controls=ONCE)
    def plain_one(workspace: SparkWorkspace, params: Params) -> Found:
        return found(workspace)


    @task(workspace=READS, controls=ONCE, spark=SparkControls(shuffle_partitions=3))
    def sql(workspace: SparkWorkspace, params: Params) -> Found:
        return found(workspace)


    BIG = SparkControls(driver_memory="1500m", jars=("mine.jar",), py_files=("deps.zip",))


    @task(workspace=READS, controls=ONCE, spark=BIG)
    def big(workspace: SparkWorkspace, params: Params) -> Found:
        import deps

        def of_worker(number):
            return deps.NUMBER + number

        return found(workspace, workspace.spark.range(1).select(F.udf(of_worker, "int")("id")).first()[0])


    @task(workspace=READS, controls=ONCE, spark=BIG)
    def big_too(workspace: SparkWorkspace, params: Params) -> Found:
        return found(workspace)


    @task(workspace=READS, controls=ONCE)
    def plain_two(workspace: SparkWorkspace, params: Params) -> Found:
        try:
            import deps
        except ImportError:
            return found(workspace)
        raise AssertionError("the Python files of another task")
"""
STEPS = ("plain_one", "sql", "big", "big_too", "plain_two")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    (tmp_path / "elsewhere").mkdir()
    made = Shell(tmp_path / "elsewhere")
    made.environ |= {
        "PERAGO_SPARK_SESSION": "quick",
        "PERAGO_ROOT": str(tmp_path / "root"),
        "PERAGO_SPARK_MASTER": "local[2]",
        "PERAGO_SPARK_CONF": as_setting({**FEW_ROWS, "spark.driver.memory": "700m"}),
    }
    return made


def write_files(folder: Path) -> None:
    """Write the files that the tasks name, beside the task file."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, member, text in (("mine.jar", "mine.txt", "mine"), ("deps.zip", "deps.py", "NUMBER = 7")):
        with zipfile.ZipFile(folder / name, "w") as archive:
            archive.writestr(member, text)


def test_tasks_of_one_worker_have_jvms_and_sessions_with_their_own_settings(
    shell: Shell, tmp_path: Path
) -> None:
    write_files(tmp_path / "code")
    (tmp_path / "code" / "tasks.py").write_text(dedent(TASKS))
    write_flow(tmp_path, *STEPS)

    done = run_tasks(shell, ["../code/tasks.py"], embedded(tmp_path))

    assert done.code == 0, done.out + done.err
    out = json.loads(done.out)
    one, sql, big, big_too, two = (out["output"][step] for step in STEPS)
    assert [step["memory"] > 1000 for step in (one, sql, big, big_too, two)] == [
        False,
        False,
        True,
        True,
        False,
    ]
    assert one["jvm"] == sql["jvm"], "settings of SQL need no JVM of their own"
    assert big["jvm"] == big_too["jvm"], "the same settings, the same JVM"
    assert len({step["jvm"] for step in (one, big, two)}) == 3
    assert sql["partitions"] == "3"
    assert {step["partitions"] for step in (one, big, big_too, two)} == {one["partitions"]} != {"3"}
    assert [step["jar"] for step in (one, big, two)] == [False, True, False]
    assert big["deps"] == 7
    log = Path(out["log"]).read_text()
    assert (
        "task big needs a Spark with other settings, starting another: spark.driver.memory=1500m (was not set)"
        in log
    )
    assert log.count("needs a Spark with other settings") == 2


def test_files_given_to_a_run_reach_its_tasks(shell: Shell, tmp_path: Path) -> None:
    code = tmp_path / "code"
    write_files(tmp_path)
    write_files(code)  # `deps` is imported at the top of the file: a Python file of the command line
    text = dedent(TASKS).replace("from pydantic", "import deps\nfrom pydantic", 1)
    body = "return found(workspace, deps.NUMBER + len(os.listdir(SparkFiles.get('unpacked'))))"
    text = text.replace("    return found(workspace)\n", f"    {body}\n", 1)
    code.joinpath("tasks.py").write_text(text)
    write_flow(tmp_path, "plain_one")
    (tmp_path / "single.py").touch()
    files = [
        "--py-files",
        "../single.py,../deps.zip",
        "--jars",
        "../mine.jar",
        "--archives",
        "../deps.zip#unpacked",
    ]

    missing = run_tasks(shell, ["../code/tasks.py"], embedded(tmp_path), "--jars", "nowhere.jar")
    done = run_tasks(shell, ["../code/tasks.py"], embedded(tmp_path), *files)

    assert (missing.code, "--jars: there is no file 'nowhere.jar'" in missing.err) == (2, True)
    assert done.code == 0, done.out + done.err
    found = json.loads(done.out)["output"]["plain_one"]
    assert (found["jar"], found["deps"]) == (True, 8)


def test_settings_of_sql_end_with_their_attempt(local_world: SparkWorld) -> None:
    def look(workspace: Any, params: Params) -> Made:
        names = ("spark.sql.ansi.enabled", "spark.sql.shuffle.partitions", "spark.sql.session.timeZone")
        return Made(said=json.dumps([workspace.spark.conf.get(name) for name in names]))

    controls = SparkControls(
        shuffle_partitions=5,
        conf={"spark.sql.ansi.enabled": False, "spark.sql.session.timeZone": "Asia/Tokyo"},
    )
    jvm = local_world.sessions.get()

    own = local_world.run(replace(local_world.task(look), spark=controls))
    other = local_world.run(local_world.task(look, name="other"))

    assert json.loads(said(own)) == ["false", "5", "Asia/Tokyo"]
    assert json.loads(said(other)) == ["true", jvm.conf.get("spark.sql.shuffle.partitions"), "UTC"]
    assert local_world.sessions.get() is jvm


def test_settings_of_sql_apply_to_the_checks_of_the_task_too(local_world: SparkWorld) -> None:
    def body(workspace: Any, params: Params) -> Made:
        workspace.write(workspace.spark.sql("SELECT 'x' AS word"), "words")
        return Made(said="")

    # With ANSI rules the cast fails; without, it is null.
    task = local_world.task(body, post=[require("words", "CAST(word AS INT) IS NULL")])
    lenient = SparkControls(conf={"spark.sql.ansi.enabled": False})

    published_ref(local_world.run(replace(task, spark=lenient)))
    assert "CAST_INVALID_INPUT" in failed(local_world.run(task))


def test_a_setting_with_a_wrong_value_fails_the_attempt_by_name(local_world: SparkWorld) -> None:
    controls = SparkControls(conf={"spark.sql.ansi.enabled": "perhaps"})

    ended = local_world.run(replace(local_world.task(), spark=controls))

    assert "spark.sql.ansi.enabled" in failed(ended)


def test_a_python_file_that_is_damaged_fails_the_attempt_by_name(
    local_world: SparkWorld, tmp_path: Path
) -> None:
    (tmp_path / "deps.zip").write_bytes(b"not a zip")
    task = task_in(tmp_path, SparkControls(py_files=("deps.zip",)))

    assert "the Python files of the task cannot be read: " in failed(local_world.run(task))


def said(settled: Any) -> str:
    text: str = settled.outcome.output["result"]["said"]
    return text


def test_lists_of_files_are_added_to_those_of_the_operator_and_everything_else_wins(tmp_path: Path) -> None:
    given = {"PERAGO_SPARK_CONF": "spark.jars.packages=a:b:1;spark.executor.memory=1g;spark.x=y"}
    settings = replace(load_settings(given, root=tmp_path), spark_files=SparkFiles(jars=("file:/given.jar",)))
    write_files(tmp_path)
    controls = SparkControls(packages=("c:d:2",), jars=("mine.jar",), executor_memory="2g", executor_cores=3)
    task = task_in(tmp_path, controls)

    conf = session_conf(settings, tmp_path, {}, session_spec(task).jvm)

    assert conf["spark.jars.packages"] == "a:b:1,c:d:2"
    assert conf["spark.jars"] == f"file:/given.jar,{(tmp_path / 'mine.jar').as_uri()}"
    assert (conf["spark.executor.memory"], conf["spark.executor.cores"], conf["spark.x"]) == ("2g", "3", "y")


def test_a_file_that_is_missing_is_told_before_a_worker_polls(tmp_path: Path) -> None:
    task = task_in(tmp_path, SparkControls(archives=("envs/env.tar.gz#env",)))

    with pytest.raises(
        RuntimeConfigError, match=r"SparkControls.archives = 'envs/env.tar.gz#env': there is no file"
    ):
        check_placement([task], load_settings({}, root=tmp_path), embedded=True)


def test_a_master_of_a_task_decides_its_placement(tmp_path: Path) -> None:
    task = task_in(tmp_path, SparkControls(conf={"spark.master": "spark://head:7077"}))

    with pytest.raises(RuntimeConfigError, match="which the executors of spark://head:7077 do not share"):
        check_placement([task], load_settings({}, root=tmp_path), embedded=True)


def test_a_trial_leaves_out_sizes_and_keeps_the_rest(tmp_path: Path) -> None:
    controls = SparkControls(driver_memory="4g", executor_cores=2, packages=("a:b:1",), shuffle_partitions=3)

    spec = session_spec(task_in(tmp_path, controls)).without_sizes()

    assert spec.jvm == {"spark.jars.packages": "a:b:1"}
    assert spec.sql == {"spark.sql.shuffle.partitions": "3"}


def test_the_log_says_which_settings_differ_and_no_secret() -> None:
    told = difference(
        {"spark.a": "1", "spark.b.password": "old"}, {"spark.b.password": "new", "spark.c": "2"}
    )

    assert told == "spark.a=not set (was 1), spark.b.password=*** (was ***), spark.c=2 (was not set)"


def task_in(folder: Path, controls: SparkControls) -> TaskDefinition:
    task = make_spark_task()
    return replace(task, spark=controls, place=replace(task.place, file=str(folder / "tasks.py")))


def test_the_static_settings_of_sql_are_those_of_spark(sessions: Sessions) -> None:
    session = sessions.get()
    jvm: Any = session._jvm
    module = getattr(getattr(jvm.org.apache.spark.sql.internal, "SQLConf$"), "MODULE$")
    jvm.org.apache.spark.sql.internal.StaticSQLConf.WAREHOUSE_PATH()  # registers them
    known = {str(entry.key()) for entry in jvm.java.util.ArrayList(module.getConfigEntries())}

    static = {key for key in known if key.startswith("spark.sql.") and not session.conf.isModifiable(key)}

    assert static <= STATIC_SQL
    assert not {key for key in STATIC_SQL & known if session.conf.isModifiable(key)}


WAITS = """
    import os
    import sys
    import threading
    from pathlib import Path

    from perago.settings import load_settings
    from perago.spark.session import Sessions
    from perago.spark.session_spec import SessionSpec

    sessions = Sessions(load_settings(os.environ, root=Path(sys.argv[1])))
    events = []


    def use_other() -> None:
        with sessions.in_use(SessionSpec("other", {"spark.executor.memory": "600m"})) as spark:
            events.append(f"other has {spark.range(3).count()} rows")


    other = threading.Thread(target=use_other)
    with sessions.in_use(SessionSpec("first")) as spark:
        sessions.warm_up(SessionSpec("other", {"spark.executor.memory": "600m"}))
        other.start()
        for _ in range(20):
            spark.range(2).count()
        events.append("first ended")
    other.join()
    print(events)
"""


def test_a_jvm_is_not_replaced_while_another_attempt_uses_it(shell: Shell, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", dedent(WAITS), str(tmp_path)],
        check=False,
        env=shell.environ,
        capture_output=True,
        text=True,
    )

    assert done.stdout.strip() == "['first ended', 'other has 3 rows']", done.stderr


IDLE = """
    import os
    import sys
    from pathlib import Path

    from pyspark import SparkContext

    from perago.settings import load_settings
    from perago.spark.session import Sessions
    from perago.spark.session_spec import SessionSpec

    sessions = Sessions(load_settings(os.environ, root=Path(sys.argv[1])))


    def memory(size):
        with sessions.in_use(SessionSpec(size, {"spark.driver.memory": size})) as spark:
            return round(spark._jvm.java.lang.Runtime.getRuntime().maxMemory() / 2**20, -2)


    first, process = memory("600m"), SparkContext._gateway.proc
    sessions._stop_if_idle()
    print(process.poll() is not None, memory("1200m") > first)
"""


def test_an_idle_session_leaves_no_jvm_with_its_settings_to_the_next_task(
    shell: Shell, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", dedent(IDLE), str(tmp_path)],
        check=False,
        env=shell.environ,
        capture_output=True,
        text=True,
    )

    assert done.stdout.strip() == "True True", done.stderr
