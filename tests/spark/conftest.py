"""Spark for tests: one session for the whole run, and a world for Spark tasks on either placement."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from perago.settings import load_settings
from perago.spark.appcds import archive_file, quick_options, use_options
from perago.spark.s3a import s3a_packages
from perago.spark.session import Sessions
from tests.conftest import LakefsServer
from tests.contract.lakes import LAKES
from tests.support.worlds.spark_world import SparkWorld

LAKEFS = "LAKECTL_SERVER_ENDPOINT_URL"
CLUSTER = Path(__file__).parents[2] / "dev" / "spark-cluster"
SOURCES = Path(__file__).parents[2] / "src"
FEW_ROWS = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""For small tables: generating and compiling code for them takes longer than going without."""

# Workers of `perago start` would take full sessions, which pay only in a long life.
os.environ.setdefault("PERAGO_SPARK_SESSION", "quick")


@pytest.fixture(scope="session")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Sessions:
    """The process's one session; it can reach lakeFS where the servers are up."""
    root = tmp_path_factory.mktemp("spark-root")
    environ = {
        "PERAGO_SPARK_MASTER": "local[2]",
        "PERAGO_SPARK_EVENT_LOG": str(root / "events"),
        "PERAGO_SPARK_UI": "1",
        "PERAGO_SPARK_SESSION": "quick",
        "PERAGO_SPARK_CONF": as_setting(FEW_ROWS),
    }
    settings = load_settings(environ, root=root)
    packages = s3a_packages(os.environ) if os.environ.get(LAKEFS) else None
    made = Sessions(settings, packages, app="perago of the tests")
    made.get()
    return made


@pytest.fixture(scope="session")
def master() -> Iterator[str]:
    """The address of a cluster of these tests' own, beside one that a developer may have."""
    environ = {**os.environ, "PERAGO_DEV_SET": "tests"}
    try:
        up = subprocess.run([CLUSTER, "up"], env=environ, check=True, stdout=subprocess.PIPE, text=True)
        yield up.stdout.strip()
    finally:
        subprocess.run([CLUSTER, "down"], env=environ, check=True)


def on_cluster(conf: Mapping[str, str]) -> str:
    """PERAGO_SPARK_CONF for a cluster of this machine: executors run these very sources."""
    known = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executorEnv.PYTHONPATH": str(SOURCES),
        "spark.driver.extraJavaOptions": short_lived(),
        "spark.executor.extraJavaOptions": short_lived(),
    }
    return as_setting({**known, **conf})


def as_setting(conf: Mapping[str, str]) -> str:
    """Spark's configuration as PERAGO_SPARK_CONF has it."""
    return ";".join(f"{key}={value}" for key, value in conf.items())


def short_lived() -> str:
    """JVM options for drivers and executors that live for a minute."""
    archive = archive_file(os.environ)
    return " ".join([*quick_options(), *(use_options(archive) if archive is not None else ())])


PLACEMENTS = {
    "local": ("local", "local", ()),
    "direct": ("direct", "lakefs", (pytest.mark.servers,)),
    "direct on production": ("direct", "production", (pytest.mark.servers,)),
}


# What database and store may change: writing, listing, publishing.  The rest stays on one lakeFS, as the session is one.
ON_PRODUCTION = (
    "test_a_table_is_published_whole_and_nothing_else_with_it",
    "test_partitions_are_folders_and_come_back_as_columns",
    "test_overwriting_a_table_replaces_all_of_it",
    "test_a_body_that_fails_leaves_nothing_on_the_target",
    "test_a_stale_attempt_leaves_nothing_on_the_target",
    "test_a_body_that_changes_nothing_commits_nothing",
    "test_a_following_plain_task_with_the_same_prefix_reads_the_table",
    "test_an_abandoned_publication_ends_as_the_policy_says",
    "test_a_written_table_is_published_and_all_else_stays",
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes the `world` of this file takes it on each placement."""
    if "world" in metafunc.fixturenames and not hasattr(metafunc.module, "world"):
        on_production = metafunc.function.__name__ in ON_PRODUCTION
        worlds = [
            pytest.param(name, marks=marks)
            for name, (_, lake, marks) in PLACEMENTS.items()
            if lake != "production" or on_production
        ]
        metafunc.parametrize("world", worlds, indirect=True)


@pytest.fixture
def world(request: pytest.FixtureRequest, sessions: Sessions, tmp_path: Path) -> Iterator[SparkWorld]:
    """A world on each placement: the workdir on the embedded lake, and s3a on real lakeFS."""
    yield from _world(request, sessions, tmp_path, request.param)


@pytest.fixture
def local_world(request: pytest.FixtureRequest, sessions: Sessions, tmp_path: Path) -> Iterator[SparkWorld]:
    """A world whose Spark tasks work in the workdir."""
    yield from _world(request, sessions, tmp_path, "local")


@pytest.fixture
def direct_world(
    request: pytest.FixtureRequest, lakefs_server: object, sessions: Sessions, tmp_path: Path
) -> Iterator[SparkWorld]:
    """A world whose Spark tasks work on the staging branch."""
    yield from _world(request, sessions, tmp_path, "direct")


def _world(
    request: pytest.FixtureRequest, sessions: Sessions, tmp_path: Path, where: str
) -> Iterator[SparkWorld]:
    placement, lake, _ = PLACEMENTS[where]
    with LAKES[lake].open(request) as opened:
        made = SparkWorld(opened.lake, opened.repository, tmp_path, sessions=sessions, placement=placement)
        if lake == "production":
            server: LakefsServer = request.getfixturevalue("production_servers").lakefs
            made.environ = {
                LAKEFS: server.url,
                "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": server.access_key_id,
                "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": server.secret_access_key,
            }
        made.commit(
            {"data/raw/events.csv": RAW, "data/notes.txt": "kept", "database.txt": "not in the prefix"}
        )
        yield made
        made.orchestrator.close()


RAW = "user,ms\nann,10\nbob,20\nann,30\n"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Starting Spark takes longer than all of `make check` may: everything here is slow."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.slow)
