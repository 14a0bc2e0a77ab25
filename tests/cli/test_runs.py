"""Runs as users see them: while they run, and afterwards with `runs`, `show` and `logs`."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.docs.sources import OUR_FILES
from tests.support.processes.commands import Shell
from tests.support.worlds.clock import eventually

pytestmark = pytest.mark.slow

TASKS = """
import logging, os, sys, time
from pathlib import Path
from pydantic import BaseModel
from perago import RetryPolicy, TaskControls, WorkspaceSpec, require_glob, task


class Params(BaseModel):
    fail: bool = False
    die: bool = False
    wait_for: str = ""


class Result(BaseModel):
    rows: int


ONCE = TaskControls(retry=RetryPolicy(count=1, delay_seconds=0))
TEXTS = WorkspaceSpec(prefix="/data", pre=[require_glob("*.txt")])


@task(name="clean", owner_email="a@example.com", workspace=TEXTS, controls=ONCE)
def clean(workspace: Path, params: Params) -> Result:
    print("cleaning [red]everything[/red]")
    logging.getLogger("perago.executor").error("an error of the executor's own")
    sys.stderr.write("to stderr\\n")
    (workspace / "clean.txt").write_text(str(time.time_ns()))
    (workspace / "raw.txt").unlink(missing_ok=True)
    return Result(rows=3)


@task(name="load", owner_email="a@example.com", workspace=WorkspaceSpec(prefix="/data"), controls=ONCE)
def load(workspace: Path, params: Params) -> Result:
    print("loading", os.environ.get("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", ""), flush=True)
    while params.wait_for and not Path(params.wait_for).exists():
        time.sleep(0.02)
    if params.die:
        os.kill(os.getpid(), 9)
    if params.fail:
        raise ValueError("the first [red]line\\nand the second")
    (workspace / "load.txt").write_text(str(time.time_ns()))
    return Result(rows=5)
"""
RUN = ("run", "flow.json", "--tasks", "tasks.py", "--workspace", "songs")


def write_project(folder: Path) -> Shell:
    """Two steps, the second of which fails if the input says so."""
    (folder / "in" / "data").mkdir(parents=True)
    (folder / "in" / "data" / "raw.txt").write_text("raw")
    (folder / "tasks.py").write_text(TASKS)
    steps = [
        {
            "name": name,
            "taskReferenceName": name,
            "type": "SIMPLE",
            "inputParameters": {
                "workspace": f"${{{source}.workspace}}",
                "params": "${workflow.input.params}",
            },
        }
        for name, source in (("clean", "workflow.input"), ("load", "clean.output"))
    ]
    flow: dict[str, Any] = {"name": "flow", "version": 1, "schemaVersion": 2, "tasks": steps}
    flow["outputParameters"] = {"rows": "${load.output.result.rows}"}
    (folder / "flow.json").write_text(json.dumps(flow))
    return Shell(folder)


def given(**params: Any) -> tuple[str, str]:
    return "--input", json.dumps({"params": params})


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return write_project(tmp_path)


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Shell, Any, Any]:
    """A run that completed and one that failed after it, and what they said of themselves."""
    shell = write_project(tmp_path_factory.mktemp("runs"))
    good = shell.data(*RUN, "--import", "songs=in", *given())
    bad = shell.data(*RUN, *given(fail=True))
    return shell, good, bad


class TestRun:
    def test_bodies_are_heard_and_the_reason_of_a_failure_is_said_once(self, shell: Shell) -> None:
        said = shell.run(*RUN, "--import", "songs=in", *given(fail=True))
        assert said.code == 1
        both = said.err + said.out
        assert "clean | cleaning [red]everything[/red]\n" in said.err
        assert "clean | to stderr\n" in said.err
        assert "load (retry 1) | loading" in said.err
        assert "perago.attempt" not in both
        assert both.count("ERROR   executor     an error of the executor's own") == 1
        # The traceback of each attempt, and a reason: of the first one as it goes, of the last one in the summary.
        assert both.count("ValueError: the first [red]line\nand the second (tasks.py:") == 1
        assert both.count("  ValueError: the first [red]line\n       and the second (tasks.py:") == 1
        assert both.count("| Traceback (most recent call last):") == 2
        assert said.out.splitlines()[0].startswith("clean  COMPLETED     1 attempt")
        assert "(1 put, 1 removed)" in said.out
        assert "workflow flow: FAILED in " in said.out
        assert "output:" not in said.out
        log = shell.folder / ".perago" / "runs"
        assert f"log: {log}" in said.err

    def test_the_output_of_a_workflow_is_shown_and_quiet_keeps_out_what_bodies_print(
        self, shell: Shell
    ) -> None:
        said = shell.run(*RUN, "--import", "songs=in", "--quiet", *given())
        assert said.code == 0
        assert 'output: {\n  "rows": 5\n}' in said.out
        assert "cleaning" not in said.out + said.err
        assert "clean: COMPLETED after " in said.err
        assert "cleaning" in shell.run("logs").out

    def test_a_killed_body_is_visible_in_every_view(self, shell: Shell) -> None:
        said = shell.run(*RUN, "--import", "songs=in", *given(die=True))
        assert said.code == 1
        assert "load | loading" in said.err
        assert "the executor of load at step 'body' died: signal SIGKILL" in said.err
        assert said.err.count("died: ") == 2
        assert "signal SIGKILL" in said.out
        assert "load (retry 1) | loading" in shell.run_here("logs").out
        assert "signal SIGKILL" in shell.run_here("logs", "load").err
        assert "signal SIGKILL" in shell.run_here("show").out
        assert "load (retry 1): " in shell.run_here("runs").out

    def test_on_a_terminal_lines_stand_above_a_table_as_they_were_printed(self, shell: Shell) -> None:
        shown = shell.on_a_terminal(*RUN, "--import", "songs=in", *given(fail=True))
        assert shown.code == 1
        lines = shown.out.replace("\r", "").split("\n")
        assert any(line.endswith("clean | cleaning [red]everything[/red]") for line in lines)
        assert any("now, or why" in line for line in lines)
        at = next(
            number for number, line in enumerate(lines) if line.endswith(": ValueError: the first [red]line")
        )
        assert lines[at + 1].startswith("and the second (tasks.py:")
        assert any(
            line.endswith('load |     raise ValueError("the first [red]line\\nand the second")')
            for line in lines
        )
        assert "workflow flow: FAILED in" in shown.out
        # Where the table was taken away for it: an executor that wrote to the terminal itself would not do that.
        (said,) = (line for line in lines if "an error of the executor's own" in line)
        assert re.search(r"\x1b\[2K(\x1b\[\?25l)?\d\d:\d\d:\d\d[.]\d+ ERROR   executor     an error", said)

    def test_json_has_seconds_and_records_and_nothing_else_is_on_stdout(
        self, two_runs: tuple[Shell, Any, Any]
    ) -> None:
        _, good, bad = two_runs
        assert (good["status"], bad["status"]) == ("COMPLETED", "FAILED")
        clean, load = good["tasks"]
        (record,) = clean["records"]
        assert record["seconds"].keys() >= {"download", "body", "publish"}
        assert (record["changed"], record["deleted"], record["downloaded"]) == (1, 1, 3)
        assert [one["records"][0]["status"] for one in (load, bad["tasks"][1])] == ["COMPLETED", "FAILED"]
        assert 0 <= clean["seconds"] <= good["seconds"]
        assert good["output"] == {"rows": 5}

    def test_the_log_of_a_run_has_steps_statuses_prints_and_reasons_and_no_secret(self, shell: Shell) -> None:
        shell.environ |= {
            "LAKECTL_SERVER_ENDPOINT_URL": "http://127.0.0.1:9",
            "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": "key",
            "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": "very-secret",
        }
        ended = shell.data(*RUN, "--root", "here", "--import", "songs=in", *given(fail=True))
        text = Path(ended["log"]).read_text()
        for part in (
            "clean | cleaning [red]everything[/red]",
            "clean: download",
            "clean: times: input 0.",
            "load |     raise ValueError(",
            "load | loading ***",
            "load: FAILED after",
            "the first [red]line\n    and the second",
            "INFO supervisor: worker",
            "ERROR executor: an error of the executor's own  [clean, execution ",
            "): FAILED: ",
        ):
            assert part in text
        assert "very-secret" not in text
        assert (shell.folder / "here" / ".gitignore").read_text() == "*\n"


class TestInspect:
    def test_runs_are_listed_newest_first_with_what_failed(self, two_runs: tuple[Shell, Any, Any]) -> None:
        shell, good, bad = two_runs
        first, second = shell.run("runs").out.splitlines()
        assert first.startswith(bad["run"])
        assert "flow  FAILED" in first
        assert first.endswith("load (retry 1): ValueError: the first [red]line")
        assert second.startswith(good["run"])
        assert "COMPLETED" in second
        rows = shell.data("runs")
        assert [(row["id"], row["status"], row["resume"]) for row in rows] == [
            (bad["run"], "FAILED", ""),
            (good["run"], "COMPLETED", ""),
        ]
        assert bad["run"] in shell.run_here("runs", "--limit", "1").out

    def test_show_has_attempts_times_checks_bytes_and_output(self, two_runs: tuple[Shell, Any, Any]) -> None:
        shell, good, _ = two_runs
        said = shell.run("show", good["run"])
        for part in (
            f"run {good['run']}\nworkflow flow ({good['workflow_id']})\nstatus COMPLETED in ",
            "    times: input 0.",
            "    check pre require_glob('*.txt', min_count=1): 1 path\n",
            "    bytes: 3 B downloaded, 19 B uploaded",
            "    published: 1 put, 1 removed, hard fence\n",
            '"rows": 5',
        ):
            assert part in said.out
        assert f"log: {good['log']}" in said.err
        assert shell.run_here("show", good["workflow_id"]).out == said.out

    def test_show_without_a_name_shows_the_newest_run_with_its_reasons(
        self, two_runs: tuple[Shell, Any, Any]
    ) -> None:
        shell, _, bad = two_runs
        said = shell.run("show")
        assert said.out.startswith(f"run {bad['run']}\n")
        assert "    ValueError: the first [red]line\n    and the second (tasks.py:" in said.out
        assert "failed with status" not in said.out
        shown = shell.data("show")
        assert {name: shown[name] for name in bad} == bad
        assert shown["resume"] == ""

    def test_logs_are_the_lines_of_all_steps_or_of_one(self, two_runs: tuple[Shell, Any, Any]) -> None:
        shell, good, bad = two_runs
        said = shell.run("logs")
        lines = said.out.splitlines()
        assert sorted(lines[:2]) == ["clean | cleaning [red]everything[/red]", "clean | to stderr"]
        traceback = (
            "Traceback (most recent call last):",
            '    raise ValueError("the first [red]line\\nand the second")',
        )
        for who in ("load", "load (retry 1)"):
            for line in ("loading ", *traceback, "ValueError: the first [red]line", "and the second"):
                assert lines.count(f"{who} | {line}") == 1
        assert OUR_FILES not in said.out
        assert "load (retry 1): FAILED" in said.err
        assert shell.run_here("logs", good["run"], "load").out == "load | loading \n"
        assert shell.run_here("logs", "load").out == shell.run_here("logs", bad["run"], "load").out
        assert shell.run_here("logs", good["run"], "--follow").out == shell.run_here("logs", good["run"]).out
        assert {line["retry_count"] for line in shell.data("logs", bad["run"], "load")} == {0, 1}

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            (("show", "2026"), "no run '2026' below "),
            (("logs", "nobody", "clean"), "no run 'nobody' below "),
            (("show", "--root", "elsewhere"), "there is no run below "),
            (("runs", "prune"), "--older-than"),
            (("runs", "prune", "--older-than", "soon"), "is not a duration"),
            (("runs", "--root", "x", "prune", "--older-than", "1s"), "give options after"),
            (("show", "--remote", "x"), "Conductor is not configured: set CONDUCTOR_SERVER_URL"),
        ],
    )
    def test_a_missing_run_is_reported_in_words(
        self, two_runs: tuple[Shell, Any, Any], arguments: tuple[str, ...], told: str
    ) -> None:
        shell, _, _ = two_runs
        said = shell.run_here(*arguments)
        assert said.code != 0
        assert told in " ".join(said.err.replace("│", " ").split())
        assert "Traceback" not in said.err

    def test_a_step_that_is_not_there_is_told_with_those_that_are(
        self, two_runs: tuple[Shell, Any, Any]
    ) -> None:
        shell, good, _ = two_runs
        said = shell.run_here("logs", good["run"], "laod")
        assert said.code == 1
        assert (
            "this run has not reached a step 'laod'; its steps so far: clean, load; did you mean 'load'?"
            in said.err
        )

    def test_inspecting_creates_nothing(self, tmp_path: Path) -> None:
        shell = Shell(tmp_path)
        for arguments in (("runs",), ("show",), ("logs",), ("runs", "prune", "--yes", "--older-than", "0s")):
            shell.run_here(*arguments)
        assert list(tmp_path.iterdir()) == []


class TestARunningRun:
    def test_a_running_run_is_followed_never_pruned_and_shown_as_stopped_when_its_process_is_killed(
        self, shell: Shell
    ) -> None:
        process = shell.start(*RUN, "--import", "songs=in", *given(wait_for=str(shell.folder / "go")))
        eventually(lambda: "load | loading" in shell.run_here("logs").out, "the second step prints")
        (row,) = shell.data("runs")
        assert (row["status"], row["resume"]) == ("RUNNING", "")
        assert "status RUNNING" in shell.run_here("show").out
        assert "keep: it is running" in shell.run_here("runs", "prune", "--yes", "--older-than", "0s").out

        process.send_signal(signal.SIGKILL)
        process.communicate()
        resume = f"perago run --resume {row['id']} --root {shell.folder / '.perago'}"
        assert shell.run_here("runs").out.rstrip().endswith(f"stopped; {resume}")
        assert f"status stopped; {resume}" in shell.run_here("show").out
        # A look changes nothing: the attempt is still as the dead process left it.
        assert shell.data("show")["tasks"][-1]["status"] == "IN_PROGRESS"
        assert shell.run("logs", "--follow").out.endswith("load | loading \n")

        (shell.folder / "go").touch()
        resumed = shell.start("run", "--resume", row["id"])
        eventually(
            lambda: "RUNNING" in shell.run_here("show").out or resumed.poll() is not None, "it goes on"
        )
        follower = shell.start("logs", row["id"], "--follow")
        assert follower.communicate(timeout=120)[0].endswith("load (retry 1) | loading \n")
        assert resumed.wait(120) == 0
        resumed.communicate()
        assert json.loads(shell.run_here("runs", "--json").out)[0]["status"] == "COMPLETED"

        said = shell.run_here("runs", "prune", "--yes", "--older-than", "0s")
        assert said.out.splitlines()[-1] == "1 removed, 0 kept"
        assert json.loads(shell.run_here("runs", "--json").out) == []
        assert list((shell.folder / ".perago" / "runs").iterdir()) == []
