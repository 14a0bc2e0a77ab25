"""The pipeline of the demonstration: equal tables on both kinds of servers, and an audit that holds things back."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from examples.listening import tasks as listening
from perago.backend import open_lakefs, open_local_lake
from perago.declare.task import TaskDefinition
from perago.lake.base import Lake
from perago.settings import load_settings
from tests.conftest import ConductorServer, LakefsServer
from tests.spark.conftest import FEW_ROWS, as_setting
from tests.support.worlds.spark_world import SparkWorld, failed, published_table
from tests.support.worlds.world import published_ref

PROJECT = Path(__file__).parents[2]
PUBLISHED = "listening/published"
TABLES = ("plays", "rejected", "songs", "sessions", "daily", "quality")
ROWS = 3000


def run_demo(root: Path, *, real: bool) -> str:
    """The demonstration as `make demo` runs it, but on few rows; what it printed."""
    few = {"ROWS": str(ROWS), "PERAGO_SPARK_CONF": as_setting(FEW_ROWS)}
    environ = {**os.environ, **few, "PERAGO_ROOT": str(root), "REAL": "1" if real else "0"}
    command = [sys.executable, str(PROJECT / "examples" / "listening" / "demo.py")]
    done = subprocess.run(command, env=environ, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tables_of(lake: Lake, repository: str, folder: Path) -> dict[str, list[str]]:
    """Every published table, row by row."""
    found = {}
    for table in TABLES:
        rows = published_table(lake, repository, f"{PUBLISHED}/{table}", folder / table)
        found[table] = sorted(map(str, rows))
    page = b"".join(lake.read(repository, "main", f"{PUBLISHED}/report/index.html"))
    return {**found, "page": [page.decode()]}


@dataclass(frozen=True, slots=True)
class Demos:
    """The output of the demonstration on each kind of servers, and its repository on the real ones."""

    embedded: str
    real: str
    repository: str


@pytest.fixture
def demos(lakefs_server: LakefsServer, conductor_server: ConductorServer, tmp_path: Path) -> Iterator[Demos]:
    """Both at once; the real repository is gone afterwards."""
    with ThreadPoolExecutor() as pool:
        real = pool.submit(run_demo, tmp_path / "real", real=True)
        embedded = pool.submit(run_demo, tmp_path / "embedded", real=False)
    found = re.search(r"--import (listening-\w+)=", real.result())
    assert found is not None
    yield Demos(embedded.result(), real.result(), found[1])
    lakefs_server.call("DELETE", f"/repositories/{found[1]}?force=true")


@pytest.mark.slow
def test_the_demonstration_ends_with_equal_tables_on_embedded_and_real_servers(
    demos: Demos, tmp_path: Path
) -> None:
    settings = load_settings(os.environ, root=tmp_path / "embedded" / "demo")
    with closing(open_local_lake(settings)) as lake:
        embedded = tables_of(lake, "listening", tmp_path / "from-embedded")
    with closing(open_lakefs(settings)) as lake:
        real = tables_of(lake, demos.repository, tmp_path / "from-real")

    assert {name: len(rows) for name, rows in embedded.items() if not rows} == {}
    assert embedded == real
    for said in (demos.embedded, demos.real):
        assert "clean      FAILED: the executor died with signal SIGKILL at step 'publish'" in said
        assert "clean      COMPLETED, retry 1" in said
        assert re.search(r"\$ perago ls listening\S* [0-9a-f]{64} listening/published", said)
        assert "published/plays/part-" in said
        [first, second, base] = re.findall(r"(\w+) and (\w+) both worked from ([0-9a-f]{12})", said)[0]
        assert {first, second} == {"sessions", "daily"}
        # Newest first: the audit worked from the later one, that one lies on the earlier one, and that on their base.
        shown, run = said.split("What the run's steps have published")
        published = re.findall(r"^  ([0-9a-f]{12})  ([\w-]+)", run, flags=re.MULTILINE)
        assert [who for _, who in published][:4] == ["report", "audit", second, first]
        assert published[4] == (base, "clean")
        # Readers of main see one commit.
        on_main = re.findall(
            r"^  [0-9a-f]{12}  (\w+)", shown.partition("What readers of main see")[2], re.MULTILINE
        )
        assert on_main[:2] == ["publish", "not"]
        assert "report/chart.png" in said


class Pipeline:
    """The pipeline's tasks one after the other, in this process and on one session."""

    def __init__(self, world: SparkWorld) -> None:
        self._world = world

    def run(self, function: Any, *, ref: str | None = None, **params: Any) -> Any:
        definition: TaskDefinition = function.__perago_task__
        world = self._world
        workspace = {
            "repository": world.repository,
            "branch": "main",
            "ref_type": "commit",
            "ref": ref or world.head().id,
        }
        world.start_with(definition, {"workspace": workspace, "params": params})
        return world.execute(definition, world.poll(definition))

    def up_to_the_plays(self) -> None:
        published_ref(self.run(listening.generate_plays, rows=ROWS))
        published_ref(self.run(listening.clean_plays, accident={"file": None, "ref": ""}))

    def up_to_the_audit(self) -> None:
        self.up_to_the_plays()
        published_ref(self.run(listening.make_sessions))
        published_ref(self.run(listening.count_days))


def test_a_failing_audit_publishes_nothing_and_says_which_rule(local_world: SparkWorld) -> None:
    pipeline = Pipeline(local_world)
    pipeline.up_to_the_audit()
    head, paths = local_world.head().id, local_world.paths()

    reason = failed(pipeline.run(listening.audit, most_rejected_percent=0.5))

    assert re.fullmatch(
        r"audit: rule 'percent of plays rejected' does not hold: \d\.\d+, allowed is 0\.5", reason
    )
    assert (local_world.head().id, local_world.paths()) == (head, paths)
    published_ref(pipeline.run(listening.audit))
    assert len(local_world.rows(f"{PUBLISHED}/quality")) == 3


def test_sessions_and_days_see_only_what_they_say_and_need_not_know_of_each_other(
    local_world: SparkWorld,
) -> None:
    """Both from one commit, the days published first: what the sessions' attempt saw is as it was."""
    pipeline = Pipeline(local_world)
    pipeline.up_to_the_plays()
    base = local_world.head().id

    days = published_ref(pipeline.run(listening.count_days, ref=base))
    sessions = published_ref(pipeline.run(listening.make_sessions, ref=base))

    assert local_world.lake.commit_at(local_world.repository, sessions).parents == (days,)
    assert local_world.lake.commit_at(local_world.repository, days).parents == (base,)
    published_ref(pipeline.run(listening.audit))


def test_planted_faults_are_found_and_counted(local_world: SparkWorld) -> None:
    pipeline = Pipeline(local_world)
    pipeline.up_to_the_audit()

    plays = pipeline.run(listening.profile_plays).outcome.output["result"]
    rejects = pipeline.run(listening.profile_rejects).outcome.output["result"]["by_fault"]

    assert set(rejects) == {"null", "bad type", "late"}
    assert all(count > 0 for count in rejects.values())
    assert plays["plays"] + sum(rejects.values()) == ROWS
