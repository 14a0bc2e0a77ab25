"""Going on with a run: `--resume`, `--from` and Ctrl-C, as a user at a terminal has them."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shlex
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes.commands import WAIT_SECONDS, run_perago
from tests.support.worlds.clock import eventually

TASKS = """
import multiprocessing, os, time
from pathlib import Path
from pydantic import BaseModel
from perago import RetryPolicy, TaskControls, TaskFailed, TaskTerminalError, TimeoutPolicy, WorkspaceSpec, task

HERE = Path(os.environ["FLAGS"])
if multiprocessing.parent_process() is not None:
    with (HERE / "executors").open("a") as file:
        file.write(f"{os.getpid()}\\n")


class Params(BaseModel):
    name: str


class Result(BaseModel):
    done: str


@task(
    name="make",
    owner_email="a@example.com",
    workspace=WorkspaceSpec(prefix="/data"),
    controls=TaskControls(
        retry=RetryPolicy(count=RETRIES, delay_seconds=DELAY), timeout=TimeoutPolicy(response_seconds=600)
    ),
)
def make(workspace: Path, params: Params) -> Result:
    with (HERE / "tries").open("a") as file:
        file.write(f"{params.name}\\n")
    if (HERE / f"fail-{params.name}").exists():
        raise TaskFailed("told to fail")
    if (HERE / f"refuse-{params.name}").exists():
        raise TaskTerminalError("told to refuse")
    (HERE / f"at-{params.name}").touch()
    while (HERE / f"hold-{params.name}").exists():
        time.sleep(0.02)
    (workspace / f"{params.name}.txt").write_text("TEXT")
    return Result(done=params.name)
"""
HINT = re.compile(r"`(perago run --resume .*?)`")
AT_A_TERMINAL = "import os, runpy; os.login_tty(0); runpy.run_module('perago', run_name='__main__')"
FIRST = ("run", "flow.json", "--tasks", "tasks.py", "--workspace", "songs", "--import", "songs=in")


class Desk:
    """A user's folder, with a space in its name, and their shell in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.repository = "songs"
        self.remote: tuple[str, ...] = ()
        (folder / "in" / "data").mkdir(parents=True)
        (folder / "in" / "data" / "input.txt").write_text("input")
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PERAGO_", "LAKECTL_", "CONDUCTOR_"))
        } | {"FLAGS": str(folder)}
        self.write_tasks()
        self.write_workflow(
            step("one", "${workflow.input.workspace}"),
            step("two", "${one.output.workspace}"),
            step("three", "${two.output.workspace}"),
        )

    def write_tasks(self, *, retries: int = 0, delay: int = 0, text: str = "made") -> None:
        source = TASKS.replace("RETRIES", str(retries)).replace("DELAY", str(delay)).replace("TEXT", text)
        (self.folder / "tasks.py").write_text(source)

    def write_workflow(self, *steps: dict[str, Any]) -> None:
        flow = {"name": "flow", "version": 1, "schemaVersion": 2, "tasks": list(steps)}
        (self.folder / "flow.json").write_text(json.dumps(flow))

    def first(self) -> list[str]:
        return [*(word.replace("songs", self.repository) for word in FIRST), *self.remote]

    def flag(self, name: str) -> Path:
        return self.folder / name

    def run(self, *arguments: str, cwd: Path | None = None) -> tuple[int, str, str]:
        said = run_perago(arguments, folder=cwd or self.folder, environ=self.environment)
        return said.code, said.out, said.err

    def data(self, *arguments: str) -> Any:
        code, out, err = self.run(*arguments, "--json")
        assert code == 0, err
        return json.loads(out)

    def paste(self, text: str) -> tuple[int, str, str]:
        """Do what a hint says, in another folder."""
        found = HINT.search(text)
        assert found is not None, text
        return self.run(*shlex.split(found[1])[1:], cwd=Path("/"))

    def head(self, branch: str = "main") -> str:
        return str(self.data("history", "songs", branch)[0]["id"])

    def tries(self) -> list[str]:
        return self.flag("tries").read_text().split()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "my desk")


def step(reference: str, workspace: Any) -> dict[str, Any]:
    return {
        "name": "make",
        "taskReferenceName": reference,
        "type": "SIMPLE",
        "inputParameters": {"workspace": workspace, "params": {"name": reference}},
    }


def brief(ended: dict[str, Any]) -> list[tuple[str, str, int]]:
    return [(task["reference"], task["status"], task["retry_count"]) for task in ended["tasks"]]


class TestResume:
    @pytest.mark.slow
    def test_a_failed_run_resumes_at_the_failed_step_with_the_current_tasks(self, desk: Desk) -> None:
        desk.flag("fail-two").touch()
        code, _, err = desk.run(*FIRST)
        assert code == 1
        desk.write_tasks(retries=3, text="mended")
        # It still fails, and the retries that it has by now are made.
        code, _, second = desk.paste(err)
        assert code == 1
        desk.flag("fail-two").unlink()
        assert desk.paste(second)[0] == 0
        assert desk.tries() == ["one", *["two"] * 5, "three"]
        assert desk.run("cat", "songs", "main", "data/one.txt")[1] == "made"
        assert desk.run("cat", "songs", "main", "data/two.txt")[1] == "mended"

    @pytest.mark.slow
    def test_a_terminal_failure_can_be_gone_on_with_and_a_completed_run_says_that_it_is(
        self, desk: Desk
    ) -> None:
        desk.flag("refuse-three").touch()
        assert desk.run(*FIRST)[0] == 1
        desk.flag("refuse-three").unlink()
        ended = desk.data("run", "--resume")
        assert brief(ended)[2:] == [("three", "FAILED_WITH_TERMINAL_ERROR", 0), ("three", "COMPLETED", 1)]

        # Not even the modules are needed for that.
        desk.flag("tasks.py").unlink()
        code, out, err = desk.run("run", "--resume", ended["run"])
        assert (code, err) == (0, "")
        assert out == f"run {ended['run']} is COMPLETED: there is nothing to resume\n"
        assert desk.data("run", "--resume") == ended

    @pytest.mark.slow
    def test_a_changed_workflow_file_is_not_taken_and_that_is_said(self, desk: Desk) -> None:
        desk.flag("fail-three").touch()
        assert "has changed" not in desk.run(*FIRST)[2]
        assert "has changed" not in desk.run("run", "--resume")[2]
        desk.flag("fail-three").unlink()
        desk.write_workflow(step("other", "${workflow.input.workspace}"))
        code, out, err = desk.run("run", "--resume")
        assert code == 0
        assert (
            "flow.json has changed since: the run continues with the workflow that it was started with" in err
        )
        assert "three" in out

    @pytest.mark.slow
    def test_a_folder_that_is_gone_is_named(self, desk: Desk) -> None:
        desk.flag("fail-one").touch()
        root = desk.folder.parent / "root"
        assert desk.run(*FIRST, "--root", str(root))[0] == 1
        desk.folder.rename(desk.folder.parent / "moved")
        code, _, err = desk.run("run", "--resume", "--root", str(root), cwd=desk.folder.parent)
        lake, line = err.splitlines()
        assert (code, lake) == (1, f"lake: embedded, {root / 'lake'}")
        assert f"was started in {desk.folder}" in line


class TestFromAStep:
    @pytest.mark.slow
    def test_a_new_run_does_the_step_and_what_follows_again_on_a_new_branch(self, desk: Desk) -> None:
        old = desk.data(*FIRST)
        before = desk.head()
        desk.write_tasks(text="again")
        code, out, err = desk.run("run", "--from", "two", old["run"], "--json")
        assert code == 0, err
        new = json.loads(out)

        branch = f"main-from-two-{new['run'].rpartition('-')[2]}"
        assert f"it works on branch {branch} of songs" in err
        assert new["run"] != old["run"]
        assert brief(new) == [(name, "COMPLETED", 0) for name in ("one", "two", "three")]
        assert new["tasks"][0]["output"] == old["tasks"][0]["output"]
        assert {task["output"]["workspace"]["branch"] for task in new["tasks"][1:]} == {branch}
        assert desk.tries() == ["one", "two", "three", "two", "three"]
        assert desk.head() == before
        commits = [commit["id"] for commit in desk.data("history", "songs", branch)]
        assert commits[0] == new["tasks"][2]["output"]["workspace"]["ref"]
        assert commits[2] == old["tasks"][0]["output"]["workspace"]["ref"]
        assert desk.run("cat", "songs", branch, "data/one.txt")[1] == "made"
        assert desk.run("cat", "songs", branch, "data/three.txt")[1] == "again"
        record = json.loads(desk.flag(f".perago/runs/{new['run']}/run.json").read_text())
        assert (record["from_run"], record["from_step"]) == (old["run"], "two")

        merging = re.search(r"`(perago merge .*?)`", err)
        assert merging is not None, err
        assert merging[1] == f"perago merge songs {branch} main"
        code, _, conflict = desk.run(*shlex.split(merging[1])[1:])
        assert (code, "both have changed 'data/three.txt', 'data/two.txt'" in conflict) == (1, True)
        taking = conflict.split("`")[1]
        assert desk.run(*shlex.split(taking)[1:])[0] == 0
        code, merged, _ = desk.run(*shlex.split(merging[1])[1:])
        assert (code, f"{branch} was merged" in merged) == (0, True)
        assert desk.run("cat", "songs", "data/three.txt")[1] == "again"

        # The newest run is that one now; from a step of it the names do not pile up.
        third = desk.data("run", "--from", "three")
        assert (
            third["tasks"][2]["output"]["workspace"]["branch"]
            == f"main-from-three-{third['run'].rpartition('-')[2]}"
        )
        assert desk.head(branch) == commits[0]
        desk.flag("fail-two").touch()
        code, _, err = desk.run("run", "--from", "two")
        assert code == 1
        assert "perago merge" not in err, "there is nothing to merge yet"

    @pytest.mark.slow
    def test_a_step_that_spells_out_its_branch_works_on_the_new_one_too(self, desk: Desk) -> None:
        spelled = {
            "repository": "songs",
            "branch": "main",
            "ref_type": "commit",
            "ref": "${two.output.workspace.ref}",
        }
        desk.write_workflow(
            step("one", "${workflow.input.workspace}"),
            step("two", "${one.output.workspace}"),
            step("three", spelled),
        )
        desk.flag("fail-two").touch()
        assert desk.run(*FIRST)[0] == 1
        before = desk.head()
        desk.flag("fail-two").unlink()
        new = desk.data("run", "--from", "two")
        assert (
            new["tasks"][2]["output"]["workspace"]["branch"]
            == f"main-from-two-{new['run'].rpartition('-')[2]}"
        )
        assert desk.head() == before

    @pytest.mark.slow
    def test_a_step_where_no_run_can_start_is_reported_in_one_line(self, desk: Desk) -> None:
        fork = {
            "name": "fork",
            "taskReferenceName": "fork",
            "type": "FORK_JOIN",
            "forkTasks": [[step("one", "${workflow.input.workspace}")]],
        }
        join = {"name": "join", "taskReferenceName": "join", "type": "JOIN", "joinOn": ["one"]}
        desk.write_workflow(
            fork, join, step("two", "${one.output.workspace}"), step("three", "${two.output.workspace}")
        )
        desk.flag("fail-two").touch()
        assert desk.run(*FIRST)[0] == 1
        branches = desk.flag(".perago/runs")
        for given, text in [
            ("tow", "has no step 'tow'; did you mean 'two'?"),
            ("one", "is inside the FORK_JOIN 'fork'"),
            ("three", "the run has not reached step 'three'"),
        ]:
            code, _, err = desk.run("run", "--from", given)
            lake, line = err.splitlines()
            assert (code, lake) == (1, f"lake: embedded, {desk.flag('.perago') / 'lake'}")
            assert text in line
        assert len(list(branches.glob("*/run.json"))) == 1
        assert desk.run("run", "--from", "two", "--resume")[0] == 2


class TestCtrlC:
    @pytest.mark.slow
    def test_interrupting_once_finishes_the_step_and_the_hint_resumes_with_the_next(self, desk: Desk) -> None:
        hold = desk.flag("hold-two")
        hold.touch()
        code, shown = self._at_a_terminal(desk, told=hold.unlink)
        assert code == 1
        assert "finishing step two; Ctrl-C again to stop now" in shown
        assert desk.paste(shown)[0] == 0
        assert desk.tries() == ["one", "two", "three"]

    @pytest.mark.slow
    def test_twice_stops_now_and_the_hint_is_true_for_a_task_without_retries(self, desk: Desk) -> None:
        hold = desk.flag("hold-two")
        hold.touch()
        code, shown = self._at_a_terminal(desk, told=None)
        assert code == 1
        assert "stopping now" in shown
        hold.unlink()
        code, out, _ = desk.paste(shown)
        assert (code, "COMPLETED     2 attempts" in out) == (0, True)
        assert desk.tries() == ["one", "two", "two", "three"]

    def _at_a_terminal(self, desk: Desk, *, told: Callable[[], None] | None) -> tuple[int, str]:
        """Run on a terminal and press Ctrl-C at step two; once the run confirms, call `told`, or press it again."""
        master, slave = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-c", AT_A_TERMINAL, *FIRST],
            cwd=desk.folder,
            env=desk.environment | {"COLUMNS": "400", "TERM": "xterm"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        shown, pressed = "", 0
        until = time.monotonic() + WAIT_SECONDS
        try:
            while time.monotonic() < until:
                ready, _, _ = select.select([master], [], [], 0.05)
                try:
                    read = os.read(master, 65536).decode(errors="replace") if ready else None
                except OSError:
                    read = ""
                if read == "":
                    break
                shown += read or ""
                if pressed == 0 and desk.flag("at-two").exists():
                    os.write(master, b"\x03")
                    pressed = 1
                if pressed == 1 and "again to stop now" in shown:
                    pressed = 2
                    if told is not None:
                        told()
                    else:
                        os.write(master, b"\x03")
            return process.wait(timeout=60), shown
        finally:
            process.kill()
            process.wait()
            os.close(master)


@pytest.fixture
def real_desk(desk: Desk, lakefs_server: Any, conductor_server: Any) -> Desk:
    """The same on the real servers, with unique names."""
    mark = uuid.uuid4().hex[:12]
    desk.environment |= {
        "LAKECTL_SERVER_ENDPOINT_URL": lakefs_server.url,
        "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": lakefs_server.access_key_id,
        "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": lakefs_server.secret_access_key,
        "CONDUCTOR_SERVER_URL": conductor_server.url,
    }
    for file, names in {"tasks.py": ['"make"'], "flow.json": ['"make"', '"flow"']}.items():
        text = desk.flag(file).read_text()
        for name in names:
            text = text.replace(name, f'{name[:-1]}_{mark}"')
        desk.flag(file).write_text(text.replace("response_seconds=600", "response_seconds=5"))
    desk.repository = f"songs-{mark}"
    desk.remote = ("--remote", "--yes")
    return desk


class TestOnTheRealServers:
    @pytest.mark.slow
    def test_a_failed_run_resumes_but_cannot_start_at_a_step(self, real_desk: Desk) -> None:
        real_desk.flag("fail-two").touch()
        assert real_desk.run(*real_desk.first())[0] == 1
        real_desk.flag("fail-two").unlink()
        code, _, err = real_desk.run("run", "--from", "two")
        where, lake, line = err.splitlines()
        assert lake.startswith("lake: lakeFS at ")
        assert (code, where.endswith(" is on lakeFS and Conductor")) == (1, True)
        assert "--from needs the embedded servers" in line
        ended = real_desk.data("run", "--resume")
        assert brief(ended) == [
            ("one", "COMPLETED", 0),
            ("two", "FAILED", 0),
            ("two", "COMPLETED", 1),
            ("three", "COMPLETED", 0),
        ]

    @pytest.mark.slow
    def test_a_killed_run_of_a_task_without_retries_resumes_once_its_dead_attempt_is_reported(
        self, real_desk: Desk
    ) -> None:
        hold = real_desk.flag("hold-two")
        hold.touch()
        command = [sys.executable, "-m", "perago", *real_desk.first()]
        with subprocess.Popen(
            command, cwd=real_desk.folder, env=real_desk.environment, stderr=subprocess.DEVNULL
        ) as process:
            try:
                eventually(real_desk.flag("at-two").exists, "the second step runs")
            finally:
                process.kill()
        hold.unlink()
        ended = real_desk.data("run", "--resume")
        assert brief(ended)[1:3] == [("two", "FAILED", 0), ("two", "COMPLETED", 1)]
        assert "died" in ended["tasks"][1]["reason"]


@pytest.mark.slow
def test_a_retry_says_when_it_comes_and_of_how_many(desk: Desk) -> None:
    desk.write_tasks(retries=2, delay=2)
    desk.flag("fail-one").touch()
    _, out, err = desk.run(*FIRST)
    assert re.search(
        r"^one: FAILED after [0-9.]+ s: told to fail; retry 1 of 2 in [12] s$", err, re.MULTILINE
    )
    assert re.search(r"^one [(]retry 2[)]: FAILED after [0-9.]+ s$", err, re.MULTILINE)
    assert re.search(r"^one  FAILED        3 attempts  .*\n     told to fail$", out, re.MULTILINE)


@pytest.mark.slow
def test_a_linear_workflow_has_one_executor_however_many_are_allowed(desk: Desk) -> None:
    assert desk.run(*FIRST, "-j", "3")[0] == 0
    assert len(desk.flag("executors").read_text().split()) == 1
