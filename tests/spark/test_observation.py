"""Spark's own views of attempts: the event log in Spark's history server, and the UI while it lives."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perago import SparkWorkspace
from perago.errors import RuntimeConfigError
from perago.runtime.root.spark_uis import spark_uis
from perago.settings import load_settings
from perago.spark.config import session_conf
from perago.spark.s3a import hadoop_version, s3a_packages
from perago.spark.session import Sessions
from tests.support.worlds.clock import eventually
from tests.support.worlds.spark_world import Made, Params, SparkWorld
from tests.support.worlds.world import published_ref


@pytest.fixture
def history(sessions: Sessions) -> Iterator[Any]:
    """Spark's own provider of its history server, on the event log of these tests' session."""
    session = sessions.get()
    jvm: Any = session._jvm
    conf = jvm.org.apache.spark.SparkConf(False)
    conf.set("spark.history.fs.logDirectory", session.sparkContext.getConf().get("spark.eventLog.dir"))
    provider = jvm.org.apache.spark.deploy.history.FsHistoryProvider(conf)
    yield provider
    provider.stop()


def test_sparks_history_server_lists_the_application_and_its_jobs_name_the_attempt(
    local_world: SparkWorld, sessions: Sessions, history: Any
) -> None:
    published_ref(local_world.run(local_world.task()))
    context: Any = sessions.get().sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty()

    def listed() -> Any:
        history.checkForLogs()
        found = history.getListing()
        while found.hasNext():
            # There are others if an earlier test has stopped Spark.
            if (one := found.next()).id() == context.applicationId:
                return one
        return None

    application = eventually(listed, "the history server lists the application")
    attempt = application.attempts().apply(0).attemptId()
    loaded = eventually(
        lambda: (ui := history.getAppUI(application.id(), attempt)).isDefined() and ui.get(),
        "the history server rebuilds the UI",
    )

    assert application.name() == "perago of the tests"
    jobs = loaded.ui().store().jobsList(None)
    described = {
        str(jobs.apply(n).description().get())
        for n in range(jobs.size())
        if jobs.apply(n).description().isDefined()
    }
    assert [text for text in described if text.startswith("perago make: ")]


def test_the_ui_of_an_attempt_is_known_while_it_lives(local_world: SparkWorld, sessions: Sessions) -> None:
    seen: list[str] = []

    def body(workspace: SparkWorkspace, params: Params) -> Made:
        # On a machine with much else to do, a connection to the UI may take longer than a reader waits for it.
        seen.append(
            eventually(lambda: spark_uis(sessions.root).get(assignment.attempt.task_id), "the UI is known")
        )
        return Made(said="seen")

    definition = local_world.task(body, read_only=True)
    local_world.start(definition)
    assignment = local_world.poll(definition)
    published_ref(local_world.execute(definition, assignment))

    [address] = seen
    assert address == sessions.get().sparkContext.uiWebUrl
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{address}/jobs/", timeout=60) as answer:
        assert "perago of the tests" in answer.read().decode()


def conf(tmp_path: Path, **environ: str) -> dict[str, str]:
    return session_conf(load_settings(environ, root=tmp_path), tmp_path, environ)


def test_without_settings_there_is_neither_a_ui_nor_an_event_log(tmp_path: Path) -> None:
    found = conf(tmp_path)
    assert found["spark.ui.enabled"] == "false"
    assert not [key for key in found if key.startswith("spark.eventLog")]


def test_the_settings_win_over_spark_defaults_and_lose_to_the_explicit_pairs(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.ui.enabled false\nspark.eventLog.dir /else\n")
    logs = tmp_path / "with space" / "logs"
    given = {"SPARK_CONF_DIR": str(tmp_path), "PERAGO_SPARK_UI": "1", "PERAGO_SPARK_EVENT_LOG": str(logs)}

    found = conf(tmp_path, **given)
    again = conf(
        tmp_path, **given, PERAGO_SPARK_CONF="spark.ui.enabled=false;spark.eventLog.dir=s3a://b/logs"
    )

    assert (found["spark.ui.enabled"], found["spark.eventLog.enabled"]) == ("true", "true")
    assert found["spark.eventLog.dir"] == logs.as_uri()
    assert logs.is_dir()
    assert (again["spark.ui.enabled"], again["spark.eventLog.dir"]) == ("false", "s3a://b/logs")
    assert conf(tmp_path, PERAGO_SPARK_EVENT_LOG="hdfs://h/logs")["spark.eventLog.dir"] == "hdfs://h/logs"


def test_an_event_log_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RuntimeConfigError, match="correct PERAGO_SPARK_EVENT_LOG"):
        conf(tmp_path, PERAGO_SPARK_EVENT_LOG=str(tmp_path / "file" / "logs"))


def spark_home(folder: Path, *jars: str) -> dict[str, str]:
    (folder / "jars").mkdir(parents=True)
    for jar in jars:
        (folder / "jars" / jar).touch()
    return {"SPARK_HOME": str(folder)}


def test_the_s3_packages_are_those_of_the_hadoop_inside_the_running_spark() -> None:
    version = hadoop_version({})
    assert f"org.apache.hadoop:hadoop-aws:{version}" in s3a_packages({}).names


def test_an_unknown_hadoop_is_refused_unless_the_operator_names_the_packages(tmp_path: Path) -> None:
    old = spark_home(tmp_path / "old", "hadoop-client-api-3.3.4.jar", "hadoop-client-runtime-3.3.4.jar")
    own = "spark.jars.packages=a:b:1,org.apache.hadoop:hadoop-aws:3.3.4"

    with pytest.raises(RuntimeConfigError, match=r"bundles Hadoop 3\.3\.4, .*hadoop-aws:3\.3\.4"):
        s3a_packages(old)
    with pytest.raises(RuntimeConfigError, match="of an unknown version"):
        s3a_packages(spark_home(tmp_path / "none"))
    assert s3a_packages(old, own).names == ()
