"""Runs as users see them: while they run, and afterwards with `runs`, `show` and `logs`."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perago.lake.local.lake import LocalLake
from perago.runtime.root.spark_uis import note_ui
from perago.runtime.root.state_dir import own_folder
from tests.support.docs.sources import OUR_FILES
from tests.support.faults.disks import read_only, writable_again
from tests.support.processes.commands import Shell
from tests.support.servers.served_page import served_page
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
        assert re.search(
            r"\x1b\[2K(\x1b\[\?25l)?[\d-]+ \d\d:\d\d:\d\d[.]\d+ ERROR   executor     an error", said
        )

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

    def test_show_names_the_spark_ui_of_an_attempt_while_it_lives(
        self, two_runs: tuple[Shell, Any, Any]
    ) -> None:
        shell, good, bad = two_runs
        folder = own_folder(shell.folder / ".perago" / "spark", "session")
        task_id = good["tasks"][0]["task_id"]
        with socket.create_server(("127.0.0.1", 0)) as listening:
            address = f"http://127.0.0.1:{listening.getsockname()[1]}"
            note_ui(folder, address)
            note_ui(folder, address, task_id)
            alive, other = shell.run_here("show", good["run"]).out, shell.run_here("show", bad["run"]).out
            as_json = shell.data("show", good["run"])
        gone = shell.run_here("show", good["run"]).out
        shutil.rmtree(folder)

        assert f"\n    spark UI: {address}\n" in alive
        assert as_json["spark_uis"] == {task_id: address}
        assert "spark UI" not in other + gone

    def test_a_list_and_show_tell_runs_apart_by_their_input(self, two_runs: tuple[Shell, Any, Any]) -> None:
        shell, good, bad = two_runs
        read = good["tasks"][0]["input"]["workspace"]["ref"]
        assert good["input"]["workspace"] == {**good["tasks"][0]["input"]["workspace"]}
        first, second = shell.run_here("runs").out.splitlines()
        assert f"  songs@main {read[:8]}" in second
        assert "  fail=true | load (retry 1): " in first
        newest, oldest = shell.data("runs")
        assert newest["input"]["params"] == {"fail": True}
        assert oldest["workspaces"] == [{"repository": "songs", "branch": "main", "ref": read}]
        said = shell.run_here("show", bad["run"][:-1]).out
        assert f"\nworkspace songs@main {bad['input']['workspace']['ref']}\ninput fail=true\n" in said
        assert '\n    params: {"fail": true}\n' in said
        assert f"\n    input: songs@main {bad['tasks'][1]['input']['workspace']['ref']}\n" in said

    def test_a_run_from_a_step_names_its_origin_and_its_own_branch(
        self, two_runs: tuple[Shell, Any, Any]
    ) -> None:
        shell, good, _ = two_runs
        again = shell.data("run", "--from", "load", good["run"])
        row = next(one for one in shell.data("runs") if one["id"] == again["run"])
        assert (row["from_run"], row["from_step"], row["resumed"]) == (good["run"], "load", [])
        assert row["workspaces"][0]["branch"].startswith("main-from-load-")
        assert f"  from load of {good['run']}\n" in shell.run_here("runs").out
        said = shell.run_here("show", again["run"]).out
        assert f"\nfrom step load of run {good['run']}\n" in said
        assert "\nworkspace songs@main-from-load-" in said
        root = shell.folder / ".perago"
        with served_page(root, lambda: LocalLake(root / "lake")) as http:
            page = " ".join(http.get("/run", params={"id": again["run"]}).text.split())
            assert "songs</bdi> @ <bdi>main-from-load-" in page.partition("<details")[0]
        assert shell.run_here("runs", "rm", "--yes", again["run"]).code == 0

    def test_a_run_whose_state_is_gone_is_told_with_what_removes_the_rest(self, shell: Shell) -> None:
        run = shell.data(*RUN, "--import", "songs=in", *given())["run"]
        for file in (shell.folder / ".perago" / "runs" / run).glob("orchestrator.db*"):
            file.unlink()
        for command in (("run", "--resume"), ("run", "--from", "load"), ("logs",), ("show",), ("retry",)):
            said = shell.run_here(*command, run)
            assert said.code == 1
            assert f"the state of {run} is gone from {shell.folder}" in said.err
            assert f"`perago runs rm {run}` removes the rest" in said.err

    def test_a_step_that_changed_nothing_is_shown_as_such(self, shell: Shell) -> None:
        (shell.folder / "tasks.py").write_text(TASKS.replace("str(time.time_ns())", '"same"'))
        shell.run(*RUN, "--import", "songs=in", *given())
        said = shell.run(*RUN, *given())
        assert re.search(r"^clean  COMPLETED .* \(nothing changed\)$", said.out, re.MULTILINE)
        assert re.search(r"^clean: COMPLETED after .* \(nothing changed\)$", said.err, re.MULTILINE)
        assert re.search(r"^clean: COMPLETED .* \(nothing changed\)  \[", shell.run_here("show").out, re.M)
        older = shell.data("runs")[1]["id"]
        assert "nothing changed" not in shell.run_here("show", older).out

    def test_secrets_are_masked_in_what_a_run_was_given(self, shell: Shell) -> None:
        shell.environ |= {
            "LAKECTL_SERVER_ENDPOINT_URL": "http://127.0.0.1:9",
            "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": "key",
            "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": "very-secret",
        }
        shell.run(*RUN, "--import", "songs=in", "--input", '{"params": {}, "note": "very-secret"}')
        for command in (("runs",), ("runs", "--json"), ("show",), ("show", "--json")):
            said = shell.run_here(*command).out
            assert "note" in said
            assert "very-secret" not in said

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
        assert "; did you mean '20" in shell.run_here("logs", f"{good['run'][:-1]}_").err
        assert shell.run_here("logs", "load").out == shell.run_here("logs", bad["run"], "load").out
        assert shell.run_here("logs", good["run"], "--follow").out == shell.run_here("logs", good["run"]).out
        assert {line["retry_count"] for line in shell.data("logs", bad["run"], "load")} == {0, 1}

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            (("show", "2026"), "several ids begin with '2026': "),
            (("show", ""), "no run '' below "),
            (("run", "--resume", "nobody"), "no run 'nobody' below "),
            (("logs", "nobody", "clean"), "no run 'nobody' below "),
            (
                ("logs", "nobody"),
                "'nobody' is neither a run nor a step of the newest one, which has clean, load",
            ),
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
        said = shell.run_here("runs", "rm", "--yes", row["id"])
        assert (said.code, said.err) == (
            1,
            f"error: run {row['id']} is running: stop it first; nothing was removed\n",
        )

        process.send_signal(signal.SIGKILL)
        process.communicate()
        resume = f"perago run --resume {row['id']} --root {shell.folder / '.perago'}"
        assert re.search(rf"  STOPPED  .* \| {re.escape(resume)}$", shell.run_here("runs").out.rstrip())
        assert f"status STOPPED; {resume}" in shell.run_here("show").out
        (stopped,) = shell.data("runs")
        assert (stopped["status"], stopped["resume"]) == ("STOPPED", resume)
        shown = shell.data("show")
        assert (shown["status"], shown["resume"], shown["resumed"]) == ("STOPPED", resume, [])
        # A look changes nothing: the attempt is still as the dead process left it.
        assert shell.data("show")["tasks"][-1]["status"] == "IN_PROGRESS"
        assert shell.run("logs", "--follow").out.endswith("load | loading \n")

        (shell.folder / "go").touch()
        resumed = shell.start("run", "--resume", row["id"][:-2])
        eventually(
            lambda: "RUNNING" in shell.run_here("show").out or resumed.poll() is not None, "it goes on"
        )
        follower = shell.start("logs", row["id"], "--follow")
        assert follower.communicate(timeout=120)[0].endswith("load (retry 1) | loading \n")
        assert resumed.wait(120) == 0
        resumed.communicate()
        (row,) = json.loads(shell.run_here("runs", "--json").out)
        assert (row["status"], len(row["resumed"])) == ("COMPLETED", 1)
        assert "  COMPLETED  " in shell.run_here("runs").out
        assert " | resumed" in shell.run_here("runs").out
        assert "\nresumed 2" in shell.run_here("show").out

        said = shell.run_here("runs", "prune", "--yes", "--older-than", "0s")
        assert re.fullmatch(r"1 removed \([0-9.]+ [KM]B\), 0 kept", said.out.splitlines()[-1])
        assert json.loads(shell.run_here("runs", "--json").out) == []
        assert list((shell.folder / ".perago" / "runs").iterdir()) == []

    def test_a_run_whose_process_was_killed_is_terminated_as_a_stopped_one(self, shell: Shell) -> None:
        process = shell.start(*RUN, "--import", "songs=in", *given(wait_for=str(shell.folder / "go")))
        eventually(lambda: "load | loading" in shell.run_here("logs").out, "the second step prints")
        process.send_signal(signal.SIGKILL)
        process.communicate()
        (row,) = shell.data("runs")

        said = shell.run_here("terminate", row["id"])

        assert said.out.endswith(" is TERMINATED, was STOPPED\n")
        assert "RUNNING" not in said.out + said.err
        assert shell.data("runs")[0]["status"] == "TERMINATED"


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv takes root's right to write anywhere")
def test_writing_below_a_root_that_one_may_not_write_to_says_what_to_do(shell: Shell) -> None:
    run = shell.data(*RUN, "--import", "songs=in", *given())["run"]
    root = shell.folder / ".perago"
    before = read_only(root)
    try:
        for command in (
            ("put", "songs", "in/data/raw.txt"),
            ("branch", "songs", "dev"),
            ("runs", "rm", run, "--yes"),
            ("run", "--resume", run),
            ("gc", "--dry-run"),
        ):
            said = subprocess.run(
                [*before, sys.executable, "-m", "perago", *command],
                cwd=shell.folder, env=shell.environ, check=False, capture_output=True, text=True,
            )  # fmt: skip
            assert said.returncode == 1, command
            assert "; let this user write there, run the command as the user who owns it" in (
                said.stdout + said.stderr
            ), command
            assert "Errno" not in said.stdout + said.stderr
    finally:
        writable_again(root)


class TestRemoving:
    def test_rm_shows_what_goes_asks_and_removes_that_run_alone(self, shell: Shell) -> None:
        first = shell.data(*RUN, "--import", "songs=in", *given())
        second = shell.data(*RUN, *given())
        refused = shell.run_here("runs", "rm", first["run"])
        assert refused.code == 2
        assert "add --yes to go ahead" in refused.err
        asked = shell.on_a_terminal("runs", "rm", first["run"], typed="n\n")
        assert f"would remove: {first['run']}  flow  " in asked.out
        assert "Remove 1 run, " in asked.out
        assert "nothing was changed" in asked.out
        (gone,) = shell.data("runs", "rm", "--yes", first["run"][:-1])
        assert (gone["run"], gone["workflow"], gone["action"]) == (first["run"], "flow", "removed")
        assert gone["bytes"] > 0
        assert [row["id"] for row in shell.data("runs")] == [second["run"]]
        assert shell.run_here("runs", "rm", "--yes", "2026", "nobody").code == 1
        assert [row["id"] for row in shell.data("runs")] == [second["run"]]
