"""Spark masters that are wrong, by their form or because nothing answers there. No JVM is started."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from perago.errors import RuntimeConfigError
from perago.settings import load_settings
from perago.spark.master import check_master, check_reachable, connection_problem
from perago.spark.session import Sessions

NOWHERE = "spark://nowhere.invalid:7077"


@pytest.mark.parametrize(
    "master",
    [
        *("local", "local[*]", "local[2]", "local[*,4]", "local[2, 4]", "local-cluster[2,1,1024]"),
        *("spark://head:7077", "spark://a:7077,b:7077", "spark://[::1]:7077", "k8s://https://api:6443"),
        "armada://queue:50051",
    ],
)
def test_what_may_be_a_master_is_left_to_spark(master: str) -> None:
    check_master(master, {})


@pytest.mark.parametrize(
    ("master", "says"),
    [
        ("local[x]", "is not known (masters are local, "),
        ("local[0]", "is not known"),
        ("local[2", "did you mean 'local[2]'?"),
        ("locla", "did you mean 'local'?"),
        ("locla[2]", "did you mean 'local[2]'?"),
        ("Local[*]", "did you mean 'local[*]'?"),
        ("spark:/head:7077", "is not known"),
        ("head:7077", "is not known"),
        ("spark://", "is not spark://HOST:PORT"),
        ("spark://head", "is not spark://HOST:PORT"),
        ("spark://head:port", "is not spark://HOST:PORT"),
        ("spark://head:7077,:7077", "is not spark://HOST:PORT"),
        ("spark://head:99999", "is not spark://HOST:PORT"),
        ("yarm", "did you mean 'yarn'?"),
        ("yarn", "needs Hadoop's configuration: set HADOOP_CONF_DIR or YARN_CONF_DIR"),
        ("", "is not known"),
        ("local[*]\x1b[2J", "is not known"),
    ],
)
def test_a_wrong_master_is_named_with_the_setting_that_has_it(master: str, says: str) -> None:
    with pytest.raises(RuntimeConfigError, match=re.escape(says)) as raised:
        check_master(master, {"PERAGO_SPARK_MASTER": master})

    assert str(raised.value).startswith(f"the Spark master {master!r} ")
    assert "; correct PERAGO_SPARK_MASTER, or set PERAGO_SPARK_MASTER=local[*]" in str(raised.value)


def test_the_advice_names_where_the_master_comes_from() -> None:
    with pytest.raises(RuntimeConfigError, match="correct PERAGO_SPARK_CONF, or set"):
        check_master("locla", {"PERAGO_SPARK_CONF": "spark.master=locla"})
    check_master("yarn", {"YARN_CONF_DIR": "/etc/hadoop"})


def test_a_cluster_of_which_one_master_answers_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
        check_reachable(f"spark://127.0.0.1:9,127.0.0.1:{port}", {})
        assert connection_problem(f"k8s://http://127.0.0.1:{port}") == ""
    assert connection_problem("local[*]") == connection_problem("yarn") == ""


@pytest.mark.parametrize(
    ("master", "says"),
    [("spark://127.0.0.1:9", "127.0.0.1:9: Connection refused"), (NOWHERE, "host 'nowhere.invalid'")],
)
def test_a_session_with_a_master_that_does_not_answer_ends_before_a_jvm_starts(
    tmp_path: Path, master: str, says: str
) -> None:
    sessions = Sessions(load_settings({"PERAGO_SPARK_MASTER": master}, root=tmp_path))

    with pytest.raises(RuntimeConfigError, match=re.escape(says)) as raised:
        sessions.get()

    assert str(raised.value).startswith(f"the Spark master {master} does not answer (")
    assert not (tmp_path / "spark").exists()


def test_a_master_that_hears_and_says_nothing_is_given_up_in_time() -> None:
    # Nobody accepts, and the queue of one connection is full: a further one waits.
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(full.getsockname())

        problem = connection_problem(f"spark://127.0.0.1:{full.getsockname()[1]}", 0.01)

        for one in waiting:
            one.close()
    assert "within 0.01 s" in problem
