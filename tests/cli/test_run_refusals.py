"""Refused publications as an author meets them: commits made by hand, two runs on one branch, and retries on a laptop."""

from __future__ import annotations

import json
import re
import shlex
import uuid
from pathlib import Path
from typing import Any

import pytest

from perago.lake.local.lake import LocalLake
from perago.settings import LAKEFS_NAMES
from tests.conftest import ConductorServer, LakefsServer
from tests.support.processes.commands import CommandResult, Shell
from tests.support.servers.served_page import served_page

pytestmark = pytest.mark.slow

TASKS = """
import hashlib
from pathlib import Path
from pydantic import BaseModel
from perago import RetryPolicy, TaskControls, WorkspaceSpec, task
from perago.lake.base import Upload
from perago.lake.local.lake import LocalLake


class Params(BaseModel):
    by_hand: str = ""
    fail: bool = False


class Result(BaseModel):
    rows: int


def commit_by_hand(name: str) -> None:
    lake, source = LocalLake(Path(".perago/lake")), Path(name)
    source.write_text("fix")
    digest = hashlib.sha256(b"fix").hexdigest()
    lake.upload("songs", "main", [Upload(source, f"data/{name}", 3, digest)])
    lake.commit("songs", "main", "correct a typo", {})
    lake.close()


def declare(name, **spec):
    @task(
        name=name,
        owner_email="a@example.com",
        workspace=WorkspaceSpec(prefix="/data", **spec),
        controls=TaskControls(retry=RetryPolicy(count=2, delay_seconds=3600)),
    )
    def body(workspace: Path, params: Params) -> Result:
        with open("bodies", "a") as file:
            file.write(name)
        if params.by_hand and not Path(params.by_hand).exists():
            commit_by_hand(params.by_hand)
        if params.fail:
            raise ValueError("no such column")
        (workspace / f"{name}.txt").write_text("made")
        return Result(rows=1)

    return body


cover = declare("cover")
keep = declare("keep", unsigned="refuse")
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Two workflows of one step, and a repository with one file."""
    (tmp_path / "in" / "data").mkdir(parents=True)
    (tmp_path / "in" / "data" / "raw.txt").write_text("raw")
    (tmp_path / "tasks.py").write_text(TASKS)
    for name in ("cover", "keep"):
        inputs = {"workspace": "${workflow.input.workspace}", "params": "${workflow.input.params}"}
        step = {"name": name, "taskReferenceName": f"{name}_it", "type": "SIMPLE", "inputParameters": inputs}
        flow = {"name": f"{name}_songs", "version": 1, "schemaVersion": 2, "tasks": [step]}
        (tmp_path / f"{name}.json").write_text(json.dumps(flow))
    return Shell(tmp_path)


def run(shell: Shell, name: str, *options: str, **params: Any) -> CommandResult:
    start = ("--workspace", "songs") if (shell.folder / ".perago" / "lake").exists() else ()
    given = start or ("--import", "songs=in", "--workspace", "songs")
    words = ("run", f"{name}.json", "--tasks", "tasks.py", *given, "--input", json.dumps({"params": params}))
    return shell.run(*words, *options)


def bodies(shell: Shell) -> str:
    return (shell.folder / "bodies").read_text()


class TestACommitMadeByHand:
    def test_is_replaced_by_default_and_every_command_says_so_with_its_tag(self, shell: Shell) -> None:
        ran = run(shell, "cover", by_hand="fix.txt")
        assert ran.code == 0
        [tag] = set(re.findall(r"the tag (perago-replaced-\S+) keeps it", ran.out))
        assert f"warning: replaced a commit that no Perago task made; the tag {tag} keeps it" in ran.out

        assert f"warning: replaced a commit that no Perago task made; the tag {tag}" in shell.run("show").out
        assert shell.run("runs").out.rstrip().endswith(" | replaced a commit that no task made")
        [row] = shell.data("runs")
        assert row["replaced_unsigned"] == 1
        [task] = shell.data("show")["tasks"]
        assert task["records"][0]["replaced_unsigned"] == tag
        [log] = (shell.folder / ".perago" / "runs").glob("*/run.log")
        assert re.search(rf"WARNING publisher: replacing commit .*'correct a typo'.*{tag}", log.read_text())

        made, replaced, first = shell.run("history", "songs").out.splitlines()
        assert made.split()[0] == json.loads(ran.out.partition("output: ")[2])["workspace"]["ref"]
        assert replaced.endswith(
            f"correct a typo  [replaced, although no Perago task made it; the tag {tag} keeps it]"
        )
        assert first.endswith("import of in")
        told = shell.data("history", "songs")
        assert [one["tag"] for one in told[1]["replaced"]] == [tag]
        assert (told[0]["replaced"], told[1]["replaced"][0]["signed"]) == ([], False)
        assert shell.run("ls", "songs", tag, "data/fix.txt").code == 0

    def test_is_marked_on_the_page(self, shell: Shell) -> None:
        run(shell, "cover", by_hand="fix.txt")
        root = shell.folder / ".perago"
        [found] = shell.data("runs")
        tag = shell.data("show")["tasks"][0]["records"][0]["replaced_unsigned"]
        with served_page(root, lambda: LocalLake(root / "lake")) as http:
            assert "replaced a commit that no task made" in http.get("/runs").text
            attempt = " ".join(http.get("/run", params={"id": found["id"]}).text.split())
            assert f"a commit that no Perago task made; the tag <code>{tag}</code> keeps it" in attempt
            history = " ".join(http.get("/history", params={"repo": "songs"}).text.split())
            assert '<span class="badge warn">made by someone else</span>' in history
            assert f"taken for an abandoned publication, and kept under the tag <code>{tag}</code>" in history

    def test_stays_with_unsigned_refuse_and_the_run_ends_with_the_command_that_works(
        self, shell: Shell
    ) -> None:
        ran = run(shell, "keep", by_hand="fix.txt")
        assert ran.code == 1
        assert "somebody, not a Perago task, moved branch 'main' of 'songs'" in ran.out
        assert "'correct a typo'" in ran.out
        assert "1 attempt " in ran.out
        assert "--resume" not in ran.err
        [command] = re.findall(r"start a new run from the current head with `perago (.+)`", ran.err)
        assert f"next: perago {command}" in shell.run("show").err
        assert shell.run("ls", "songs", "main", "data/fix.txt").code == 0

        again = shell.run(*shlex.split(command))
        assert (again.code, bodies(shell)) == (0, "keepkeep")
        assert "data/fix.txt" in shell.run("ls", "songs").out


class TestTwoRunsOnOneBranch:
    @pytest.mark.parametrize("name", ["cover", "keep"])
    def test_the_second_is_told_who_was_first_and_runs_no_body(self, shell: Shell, name: str) -> None:
        first = shell.data(
            "run", "cover.json", "--tasks", "tasks.py", "--import", "songs=in", "--workspace", "songs",
            "--input", '{"params": {}}',
        )  # fmt: skip
        old = {"workspace": first["input"]["workspace"], "params": {}}
        ran = shell.run("run", f"{name}.json", "--tasks", "tasks.py", "--input", json.dumps(old))
        assert (ran.code, bodies(shell)) == (1, "cover")
        reason = next(line.strip() for line in ran.out.splitlines() if "moved branch" in line)
        who = f"step 'cover_it' of workflow {first['workflow_id']} moved branch 'main' of 'songs' at 20"
        assert reason.startswith(who)
        assert "retrying is useless" in reason
        assert "start a new run from the current head with `perago run " in ran.err


class TestOnTheRealServers:
    def test_conductor_keeps_who_was_first_and_what_to_do_and_only_details_are_cut(
        self,
        shell: Shell,
        lakefs_server: LakefsServer,
        lakefs_repository: str,
        conductor_server: ConductorServer,
    ) -> None:
        name = f"cover_{uuid.uuid4().hex[:10]}"
        for file in ("tasks.py", "cover.json"):
            text = (shell.folder / file).read_text().replace("count=2", "count=0")
            (shell.folder / file).write_text(
                text.replace('"cover"', f'"{name}"').replace('"cover_songs"', f'"{name}"')
            )
        keys = (lakefs_server.url, lakefs_server.access_key_id, lakefs_server.secret_access_key)
        shell.environ |= dict(zip(LAKEFS_NAMES, keys, strict=True))
        shell.environ["CONDUCTOR_SERVER_URL"] = conductor_server.url
        words = ("run", "cover.json", "--tasks", "tasks.py", "--remote", "--yes")

        first = shell.data(*words, "--workspace", lakefs_repository, "--input", '{"params": {}}')
        assert first["status"] == "COMPLETED", first
        old = {"workspace": first["input"]["workspace"], "params": {}}
        second = shell.data(*words, "--input", json.dumps(old))

        task = conductor_server.call("GET", f"/tasks/{second['tasks'][0]['task_id']}")
        reason = task["reasonForIncompletion"]
        assert (task["status"], bodies(shell)) == ("FAILED", name)
        assert reason.startswith(
            f"step 'cover_it' of workflow {first['workflow_id']} moved branch 'main' of "
        )
        assert (
            "from the current head. The body was not run, since no later head could let it publish" in reason
        )
        assert "retrying is useless" in reason
        assert len(reason) <= 500
        conductor_server.call("DELETE", f"/metadata/workflow/{name}/1")
        conductor_server.call("DELETE", f"/metadata/taskdefs/{name}")


class TestDataThatACheckRefuses:
    def test_the_command_for_other_data_is_told_beside_the_one_for_another_task(self, shell: Shell) -> None:
        imports = "from perago import require_file\n"
        tasks = TASKS.replace('declare("cover")', 'declare("cover", pre=[require_file("late.csv")])')
        (shell.folder / "tasks.py").write_text(imports + tasks)
        ran = run(shell, "cover")
        assert ran.code == 1
        [new_start] = re.findall(r"once the data is there, start a new run with `perago (.+)`", ran.err)
        [again] = re.findall(
            r"once you have changed the task or its check, continue with `perago (.+)`", ran.err
        )
        assert [line for line in shell.run("show").err.splitlines() if line.startswith("next: ")] == [
            f"next: perago {new_start}",
            f"next: perago {again}",
        ]

        (shell.folder / "late.csv").write_text("x")
        assert shell.run("put", "songs", "late.csv", "--to", "data").code == 0
        assert shell.run(*shlex.split(new_start)).code == 0


class TestAFailingBody:
    def test_is_retried_within_seconds_however_long_the_task_would_wait(self, shell: Shell) -> None:
        ran = run(shell, "cover", fail=True)
        assert "retry 1 of 2 in 1 s" in ran.err
        assert "retry 2 of 2 in 1 s" in ran.err
        assert (ran.code, bodies(shell)) == (1, "cover" * 3)
        assert "once you have fixed the cause, continue with `perago run --resume" in ran.err

    def test_that_kills_its_executor_is_retried_as_soon(self, shell: Shell) -> None:
        kills = TASKS.replace("count=2", "count=4").replace(
            'raise ValueError("no such column")', "os._exit(3)"
        )
        (shell.folder / "tasks.py").write_text(f"import os\n{kills}")
        ran = run(shell, "cover", "--json", fail=True)
        assert (ran.code, bodies(shell)) == (1, "cover" * 5)
        # A worker on a server would wait for 1, 2, 4 and 8 seconds before it replaced the executor.
        assert json.loads(ran.out)["seconds"] < 11

    def test_whose_module_cannot_be_imported_by_executors_ends_the_run(self, shell: Shell) -> None:
        once = 'if Path("imported").exists():\n    raise RuntimeError("imported twice")\nPath("imported").touch()\n'
        (shell.folder / "tasks.py").write_text(f"from pathlib import Path\n{once}{TASKS}")
        ran = run(shell, "cover")
        assert ran.code == 1
        assert "imported twice" in ran.err
        assert re.search(r"error: no executor of run \S+ can start, \S+run\.log says why", ran.err)
        [command] = re.findall(r"continue with `perago (run --resume .+)`", ran.err)
        (shell.folder / "tasks.py").write_text(TASKS)
        assert shell.run(*shlex.split(command)).code == 0

    def test_ends_its_step_at_once_with_no_retries_also_when_resumed(self, shell: Shell) -> None:
        assert run(shell, "cover", "--no-retries", fail=True).code == 1
        assert bodies(shell) == "cover"
        assert shell.run("run", "--resume", "--no-retries").code == 1
        assert bodies(shell) == "cover" * 2
        assert shell.run("run", "--from", "cover_it", "--no-retries").code == 1
        assert bodies(shell) == "cover" * 3

    def test_waits_as_declared_with_keep_delays(self, shell: Shell) -> None:
        shell.environ["PERAGO_SHUTDOWN_FORCE_KILL_AFTER"] = "1"
        words = ("--import", "songs=in", "--workspace", "songs", "--input", '{"params": {"fail": true}}')
        process = shell.start("run", "cover.json", "--tasks", "tasks.py", "--keep-delays", *words)
        assert process.stderr is not None
        told = next(line for line in process.stderr if "retry 1 of 2" in line)
        assert "retry 1 of 2 in 3600 s" in told
        process.terminate()
        process.communicate()
        assert bodies(shell) == "cover"

    @pytest.mark.parametrize("option", ["--no-retries", "--keep-delays"])
    def test_is_conductors_business_on_real_servers(self, shell: Shell, option: str) -> None:
        shell.environ |= {
            "CONDUCTOR_SERVER_URL": "http://127.0.0.1:9/api",
            "LAKECTL_SERVER_ENDPOINT_URL": "http://127.0.0.1:9",
            "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": "key",
            "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": "secret",
        }
        ran = shell.run("run", "cover.json", "--tasks", "tasks.py", "--remote", "--yes", option)
        assert ran.code == 2
        assert f"{option} needs the embedded servers" in " ".join(ran.err.split())
        assert "RetryPolicy(count=0)" in ran.err
