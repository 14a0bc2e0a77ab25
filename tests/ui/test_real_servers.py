"""The same page over real lakeFS and Conductor: a running workflow, its publication, its data and its checks."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from perago.backend import Real
from perago.cli.ui import serving_page
from perago.declare.taskdef import build_taskdef
from perago.orchestrator.conductor.orchestrator import ConductorOrchestrator
from perago.protocol.attempt_record import record_line
from perago.settings import load_settings
from tests.conftest import ConductorServer, LakefsServer
from tests.support.worlds.clock import eventually
from tests.support.worlds.lakefs_world import opened
from tests.support.worlds.ui_fixture_data import FILES, HOSTILE_NAME, RECORD, put_files
from tests.support.worlds.world import World, make_task
from tests.ui.conftest import watch

pytestmark = pytest.mark.slow


@pytest.fixture
def world(
    lakefs_server: LakefsServer, conductor_server: ConductorServer, lakefs_repository: str, tmp_path: Path
) -> Iterator[World]:
    """A repository of real lakeFS with files of all kinds, and real Conductor."""
    with (
        opened(lakefs_server, tmp_path) as lake,
        closing(ConductorOrchestrator(conductor_server.url)) as real,
    ):
        world = World(lake, lakefs_repository, tmp_path)
        world.orchestrator.close()
        world.orchestrator = real  # type: ignore[assignment]
        put_files(world, FILES)
        lake.commit(lakefs_repository, "main", "import", {})
        yield world


def test_a_run_its_publication_and_its_data_are_shown_as_on_the_embedded_servers(
    browser: Browser, world: World, tmp_path: Path
) -> None:
    mark = uuid.uuid4().hex[:10]
    definition = make_task(name=f"ui_task_{mark}")
    workflow_id = start(world, f"ui_flow_{mark}", definition)
    servers = Real(load_settings(os.environ, root=tmp_path / "state", remote=True))
    with serving_page(servers, port=0) as served, browser.new_context() as context:
        watched = watch(context, served)
        page = watched.open("/run", id=workflow_id)
        page.evaluate("window.marked = true")
        expect(page.locator("#box-step")).to_contain_text("scheduled")
        polled = eventually(
            lambda: world.orchestrator.poll(definition.name, worker_id="tests", count=1, wait_seconds=1),
            "the attempt is polled",
        )[0]
        world.orchestrator.log(polled.attempt, ["<script>alert(1)</script>"])
        world.execute(definition, polled)
        expect(page.locator("#box-step")).to_contain_text("completed")
        assert page.evaluate("window.marked") is True
        execution = world.head().metadata["perago.execution_id"]
        world.orchestrator.log(polled.attempt, [record_line(RECORD).replace("0" * 16, execution)])

        page = watched.open("/run", id=workflow_id)
        expect(page.locator("pre.lines")).to_contain_text("<script>alert(1)</script>")
        page.locator(".flow a.id").last.click()
        expect(page.locator("table.checks")).to_contain_text("1204 rows")
        expect(page.locator("main")).to_contain_text("data/result.txt")
        page = watched.open("/history", repo=world.repository, ref="main")
        expect(page.locator("li.commit.publication")).to_have_count(1)
        page.locator("li.commit.publication strong a").click()
        expect(page.locator("#box-step")).to_be_visible()

        here = {"repo": world.repository, "ref": "main"}
        oldest = world.history()[-1]
        page = watched.open(
            "/rows", repo=world.repository, ref=oldest, to="main", path="data/plays.csv", key="id"
        )
        expect(page.locator("#rows-title")).to_have_text("2 added, 0 removed, 0 changed")
        page = watched.open("/folder", **here)
        expect(page.get_by_role("link", name=HOSTILE_NAME.partition("/")[0] + "/")).to_be_visible()
        page = watched.open("/object", **here, path=HOSTILE_NAME)
        expect(page.locator("pre.text")).to_have_text("named to hurt")
        page = watched.open("/object", **here, path="data/plays.parquet")
        expect(page.locator(".look > .scroll tbody tr")).to_have_count(50)
        page = watched.open("/runs")
        shown = page.locator("table.runs")
        # Conductor's index is written a little later than the workflow.
        expect(shown).to_contain_text(f"ui_flow_{mark}")
        assert watched.dialogs == []


def start(world: World, name: str, definition: object) -> str:
    """Return a workflow of one step with a unique name."""
    world.orchestrator.register_taskdefs([build_taskdef(definition)])  # type: ignore[arg-type]
    step = {
        "name": definition.name,  # type: ignore[attr-defined]
        "taskReferenceName": "step",
        "type": "SIMPLE",
        "inputParameters": {"workspace": "${workflow.input.workspace}", "params": {"text": "made"}},
    }
    world.orchestrator.register_workflow(
        {
            "name": name,
            "version": 1,
            "schemaVersion": 2,
            "ownerEmail": "tests@example.com",
            "timeoutSeconds": 0,
            "timeoutPolicy": "ALERT_ONLY",
            "tasks": [step],
        }
    )
    head = {
        "repository": world.repository,
        "branch": "main",
        "ref_type": "commit",
        "ref": world.head().id,
    }
    return world.orchestrator.start_workflow(name, input={"workspace": head})
