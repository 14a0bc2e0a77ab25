"""`perago run --ui`: the page beside a run, for as long as it runs; and the pictures in the docs, which are taken of it.

With PERAGO_DOCS_PICTURES=1 the pictures go to docs/images.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from perago.backend import Embedded
from perago.cli.ui import serving_page
from tests.support.processes.commands import Shell
from tests.support.tasks.workflows import fork, join, noop, simple
from tests.ui.conftest import LONGEST_MS, settings_of

pytestmark = pytest.mark.slow

IMAGES = Path(__file__).parents[2] / "docs" / "images"
TASKS = """
import time
from pathlib import Path
import pyarrow.compute as pa, pyarrow.csv as pc, pyarrow.parquet as pq
from pydantic import BaseModel
from perago import RetryPolicy, TaskControls, TaskFailed, WorkspaceSpec, require_file, require_glob, task

AGAIN = TaskControls(retry=RetryPolicy(count=2, delay_seconds=0))


class Params(BaseModel):
    once: str = ""
    wait_for: str = ""


class Result(BaseModel):
    rows: int



@task(name="clean", owner_email="data@example.com", controls=AGAIN,
      workspace=WorkspaceSpec(prefix="/", pre=[require_glob("raw/*.csv")], post=[require_glob("plays/*.parquet")]))
def clean(workspace: Path, params: Params) -> Result:
    plays = pc.read_csv(workspace / "raw" / "plays.csv")
    print(f"read {plays.num_rows} plays", flush=True)
    marker = Path(params.once)
    if not marker.exists():
        marker.touch()
        raise TaskFailed("row 17 of raw/plays.csv has no listener: the export was cut short, and is being sent again")
    kept = plays.filter(pa.greater(plays["seconds"], 30))
    print(f"kept {kept.num_rows} of them", flush=True)
    (workspace / "plays").mkdir()
    pq.write_table(kept, workspace / "plays" / "plays.parquet")
    return Result(rows=kept.num_rows)


SIDE = dict(on_advanced="rebase", on_abandoned="supersede")


@task(name="by_listener", owner_email="data@example.com", controls=AGAIN,
      workspace=WorkspaceSpec(prefix="/listeners", post=[require_file("top.csv")], **SIDE))
def by_listener(workspace: Path, params: Params) -> Result:
    (workspace / "top.csv").write_text("listener,plays\\nada,412\\ngrace,397\\n")
    return Result(rows=2)


@task(name="by_day", owner_email="data@example.com", controls=AGAIN,
      workspace=WorkspaceSpec(prefix="/days", post=[require_file("days.csv")], **SIDE))
def by_day(workspace: Path, params: Params) -> Result:
    (workspace / "days.csv").write_text("day,plays\\nmonday,80\\n")
    return Result(rows=1)


@task(name="report", owner_email="data@example.com", controls=AGAIN, workspace=WorkspaceSpec(prefix="/report", **SIDE))
def report(workspace: Path, params: Params) -> Result:
    print("drawing the charts", flush=True)
    while params.wait_for and not Path(params.wait_for).exists():
        time.sleep(0.05)
    (workspace / "index.html").write_text("<h1>Listening</h1>")
    return Result(rows=1)
"""
WORKSPACE = "${clean.output.workspace}"


def step(name: str, workspace: Any, **params: str) -> dict[str, Any]:
    return simple(name, name=name, inputParameters={"workspace": workspace, "params": params})


def written(folder: Path) -> Shell:
    """A folder with the tasks, the workflow and its data."""
    (folder / "tasks.py").write_text(TASKS)
    arms = [[step(name, WORKSPACE), noop(f"{name}_done")] for name in ("by_listener", "by_day")]
    both = ["${by_listener.output.workspace}", "${by_day.output.workspace}"]
    tasks = [
        step("clean", "${workflow.input.workspace}", once=str(folder / "once")),
        fork("fork", *arms),
        join("join", "by_listener_done", "by_day_done"),
        step("report", both, wait_for=str(folder / "go")),
    ]
    workflow = {"name": "listening", "version": 1, "schemaVersion": 2, "tasks": tasks}
    (folder / "workflow.json").write_text(json.dumps(workflow))
    rows = [f"{'ada' if n % 2 else 'grace'},{n % 7},{20 + n % 300}" for n in range(2000)]
    (folder / "seed" / "raw").mkdir(parents=True)
    (folder / "seed" / "raw" / "plays.csv").write_text("\n".join(["listener,day,seconds", *rows]))
    return Shell(folder)


def test_the_page_is_served_while_the_run_is_running_and_ends_with_it(
    browser: Browser, tmp_path: Path
) -> None:
    shell = written(tmp_path)
    where = ("--import", "music=seed", "--workspace", "music")
    with ended(shell.start("run", "workflow.json", "--tasks", "tasks.py", *where, "--ui")) as process:
        address = page_address(process)
        with browser.new_context(viewport={"width": 1280, "height": 860}) as context:
            context.set_default_timeout(LONGEST_MS)
            page = context.new_page()
            page.goto(address)
            page.evaluate("window.marked = true")
            expect(page.locator("#box-report")).to_contain_text("in progress")
            expect(page.locator("#part-step")).to_contain_text("drawing the charts")
            expect(page.locator("#box-clean")).to_contain_text("2 attempts")
            assert page.evaluate("window.marked") is True
            picture(page, "ui-live.png", tmp_path)
            (tmp_path / "go").touch()
            _, said = process.communicate(timeout=LONGEST_MS / 1000)
            assert process.returncode == 0, said
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address)
    look_afterwards(browser, tmp_path)


def look_afterwards(browser: Browser, folder: Path) -> None:
    """Return what `perago ui` shows of the finished run."""
    with serving_page(Embedded(settings_of(folder / ".perago")), port=0) as served:
        for scheme, name in (("light", "ui-history.png"), ("dark", "ui-history-dark.png")):
            with browser.new_context(color_scheme=scheme, viewport={"width": 1280, "height": 640}) as context:
                page = context.new_page()
                page.goto(served.address("/history", repo="music", ref="main"))
                expect(page.locator("li.commit.publication")).to_have_count(4)
                expect(page.locator("li.commit", has_text="beside 1 other")).to_have_count(1)
                picture(page, name, folder)
                if scheme == "light":
                    page.goto(served.address("/publications", repo="music", ref="main"))
                    expect(page.locator("main")).to_contain_text("plays/*.parquet")
                    page.get_by_role("link", name="clean").click()
                    expect(page.locator(".attempt").last).to_contain_text("row 17 of raw/plays.csv")
                    expect(page.locator(".attempt").first.locator(".legend")).to_contain_text("body")
                    page.set_viewport_size({"width": 1280, "height": 860})
                    page.goto(page.url.partition("#")[0])
                    picture(page, "ui-run.png", folder)


def picture(page: Page, name: str, folder: Path) -> None:
    """A picture for the docs; written there only when asked for."""
    wanted = IMAGES if os.environ.get("PERAGO_DOCS_PICTURES") else folder
    # The folder of this run must not be shown.
    page.evaluate("document.querySelector('.where').textContent = 'embedded, ~/music/.perago'")
    page.screenshot(path=wanted / name, animations="disabled")
    assert (wanted / name).stat().st_size > 10_000


@contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that is over when the block is."""
    with process:
        try:
            yield process
        finally:
            process.kill()


def page_address(process: Any) -> str:
    """The address that the command says."""
    for line in process.stderr:
        if found := re.fullmatch(r"page: (http://127\.0\.0\.1:\d+/run\?id=\S+)\n", line):
            return found[1]
    raise AssertionError("the command told no address")


def test_perago_ui_prints_its_address_and_ends_with_a_signal(tmp_path: Path) -> None:
    with ended(Shell(tmp_path).start("ui", "--port", "0")) as process:
        address = process.stdout.readline().strip() if process.stdout else ""
        with urllib.request.urlopen(address) as answer:
            assert b"There are no runs yet" in answer.read()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=LONGEST_MS / 1000) == 0
    assert not (tmp_path / ".perago").exists()
