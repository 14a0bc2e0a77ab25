"""`perago doctor` on the real servers: what is wrong is named with its remedy, and no scratch branch stays."""

from __future__ import annotations

import json
import signal
import time
import uuid
from pathlib import Path

import pytest

from perago.errors import LakeForbidden
from tests.cli.conftest import HEAD
from tests.conftest import ConductorServer, LakefsServer, fresh_repository
from tests.support.faults.proxy import Fault, fault_proxy
from tests.support.processes.command_errors import KEYS, examine_by_doctor
from tests.support.processes.commands import Shell
from tests.support.servers.lakefs import lakefs_lake

FORBIDDEN = '{"message": "insufficient permissions"}'
STEPS = {
    "make a branch": ("POST .*/branches$", "fs:CreateBranch"),
    "write objects": ("PUT /test-.*scratch.txt", "fs:WriteObject"),
    "read objects": ("GET /test-.*scratch.txt", "fs:ReadObject"),
    "commit": ("POST .*/commits", "fs:CreateCommit"),
    "merge": ("POST .*/merge/", "fs:CreateCommit on the target branch"),
    "reset a branch": ("PUT .*/hard_reset", "fs:RevertBranch"),
    "delete objects": ("POST .*/objects/delete", "fs:DeleteObject"),
}
"""What a worker does, the request for it, and the permission that it takes."""
TASKS = """
@task(name="{name}", owner_email="a@b.c")
def count(params: Params) -> Result:
    return Result(rows=1)
"""


def shell_on(folder: Path, server: LakefsServer, url: str | None = None) -> Shell:
    shell = Shell(folder)
    shell.environ |= {
        "HOME": str(folder),
        "PERAGO_SERVERS": "remote",
        "LAKECTL_SERVER_ENDPOINT_URL": url or server.url,
        "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": server.access_key_id,
        "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": server.secret_access_key,
    }
    return shell


@pytest.fixture
def shell(tmp_path: Path, lakefs_server: LakefsServer) -> Shell:
    return shell_on(tmp_path, lakefs_server)


def branches(server: LakefsServer, repository: str) -> list[str]:
    """All branches, hidden ones too, by the server's own word."""
    page = server.call("GET", f"/repositories/{repository}/branches?show_hidden=true&amount=1000")
    return [branch["id"] for branch in page["results"]]


def commits(server: LakefsServer, repository: str) -> int:
    return len(server.call("GET", f"/repositories/{repository}/refs/main/commits?amount=1000")["results"])


class TestLakefs:
    """lakeFS, a repository and what the keys allow in it."""

    def test_a_healthy_repository_without_a_fence_has_one_warning(
        self, shell: Shell, lakefs_server: LakefsServer, lakefs_repository: str
    ) -> None:
        told = examine_by_doctor(shell, lakefs_repository)

        assert (told.said.code, told.broken()) == (0, [])
        assert f"at {lakefs_server.url}" in told.at("lakeFS")[0]["says"]
        assert told.at("presign")[0]["says"].startswith("not supported (local store)")
        assert told.at("actions")[0]["level"] == "ok"
        allowed = told.at(f"permissions on {lakefs_repository}")[0]["says"]
        assert [step for step in STEPS if step not in allowed] == []
        install = f"perago fence install {lakefs_repository} main"
        told.has(f"fence of {lakefs_repository}/main", "warn", "does not carry the fence", install)
        assert lakefs_server.secret_access_key not in told.said.out
        assert branches(lakefs_server, lakefs_repository) == ["main"]
        assert commits(lakefs_server, lakefs_repository) == 1, "main was not written"

    def test_a_soft_fence_is_broken_where_a_hard_one_is_asked_for_until_it_is_installed(
        self, shell: Shell, lakefs_repository: str
    ) -> None:
        shell.environ["PERAGO_FENCE"] = "hard"
        part = f"fence of {lakefs_repository}/main"

        told = examine_by_doctor(shell, lakefs_repository)
        told.has(part, "fail", "PERAGO_FENCE=hard", f"perago fence install {lakefs_repository} main")
        assert shell.run_here("fence", "install", lakefs_repository, "--yes").code == 0

        assert examine_by_doctor(shell, lakefs_repository).at(part)[0]["level"] == "ok"

    def test_wrong_keys(self, shell: Shell, lakefs_server: LakefsServer) -> None:
        shell.environ |= KEYS

        told = examine_by_doctor(shell)

        told.has("lakeFS", "fail", "does not know the keys", "check LAKECTL_CREDENTIALS_ACCESS_KEY_ID")
        assert lakefs_server.url in told.at("lakeFS")[0]["says"]

    def test_an_unknown_repository_and_an_unknown_branch(self, shell: Shell, lakefs_repository: str) -> None:
        unknown = f"no-{uuid.uuid4().hex[:12]}"
        made_by = f"perago put {unknown} FOLDER --create --remote"
        examine_by_doctor(shell, unknown).has(
            f"repository {unknown}", "fail", f"there is no repository '{unknown}'", made_by
        )

        told = examine_by_doctor(shell, f"{lakefs_repository}@mian")

        told.has(f"repository {lakefs_repository}", "fail", "'mian'", "did you mean 'main'?")

    def test_actions_that_are_switched_off(
        self, lakefs_without_actions: LakefsServer, tmp_path: Path
    ) -> None:
        shell = shell_on(tmp_path, lakefs_without_actions)
        with fresh_repository(lakefs_without_actions) as repository:
            assert shell.run_here("fence", "install", repository, "--yes").code == 0
            told = examine_by_doctor(shell, repository)
            left = branches(lakefs_without_actions, repository)

        told.has("actions", "warn", "it does not run actions", "set `actions.enabled: true`")
        told.has(f"fence of {repository}/main", "warn", "soft", "set `actions.enabled: true`")
        assert left == ["main"]

    @pytest.mark.parametrize("step", STEPS)
    def test_a_permission_that_is_missing(
        self, step: str, lakefs_server: LakefsServer, lakefs_repository: str, tmp_path: Path
    ) -> None:
        request, permission = STEPS[step]
        forbidden = Fault("answer", request, times=100, status=403, text=FORBIDDEN)
        with fault_proxy(lakefs_server.url, forbidden) as proxy:
            told = examine_by_doctor(shell_on(tmp_path, lakefs_server, proxy.url), lakefs_repository)

        level = "warn" if step == "reset a branch" else "fail"
        part = f"permissions on {lakefs_repository}"
        told.has(part, level, f"the keys cannot {step}: ", f"give the keys {permission}")
        assert branches(lakefs_server, lakefs_repository) == ["main"]

    @pytest.mark.parametrize("step", STEPS)
    def test_no_scratch_branch_is_left_after_a_failure_in_the_middle(
        self, step: str, lakefs_server: LakefsServer, lakefs_repository: str, tmp_path: Path
    ) -> None:
        lost = Fault("cut after", STEPS[step][0], times=100)
        with fault_proxy(lakefs_server.url, lost) as proxy:
            told = examine_by_doctor(shell_on(tmp_path, lakefs_server, proxy.url), lakefs_repository)
            assert lost.times < 100, "the fault was met"

        assert branches(lakefs_server, lakefs_repository) == ["main"]
        assert commits(lakefs_server, lakefs_repository) == 1
        # A commit that landed without an answer is found by reading the branch.
        assert (step == "commit") == (told.at(f"permissions on {lakefs_repository}")[0]["level"] == "ok")

    def test_a_scratch_branch_that_cannot_be_dropped_is_named(
        self, lakefs_server: LakefsServer, lakefs_repository: str, tmp_path: Path
    ) -> None:
        # One branch is the proof's own; those of the examination come last.
        kept = Fault("answer", "DELETE .*/branches/perago-", times=100, status=403, text=FORBIDDEN)
        with fault_proxy(lakefs_server.url, kept) as proxy:
            told = examine_by_doctor(shell_on(tmp_path, lakefs_server, proxy.url), lakefs_repository)

        left = [name for name in branches(lakefs_server, lakefs_repository) if name != "main"]
        lines = [one for one in told.at(f"permissions on {lakefs_repository}") if one["level"] == "fail"]
        assert (told.said.code, len(lines)) == (1, 2)
        for line in lines:
            [name] = [name for name in left if name in line["says"]]
            assert f"lakectl branch delete lakefs://{lakefs_repository}/{name}" in line["remedy"]
            assert "fs:DeleteBranch" in line["remedy"]

    def test_an_interrupt_drops_the_scratch_branches(
        self, lakefs_server: LakefsServer, lakefs_repository: str, tmp_path: Path
    ) -> None:
        with fault_proxy(lakefs_server.url, Fault("stall", "POST .*/commits", times=100)) as proxy:
            process = shell_on(tmp_path, lakefs_server, proxy.url).start("doctor", lakefs_repository)
            until = time.monotonic() + 120
            while not proxy.count("POST .*/commits"):
                assert time.monotonic() < until, "no commit was asked for"
                time.sleep(0.05)
            assert len(branches(lakefs_server, lakefs_repository)) == 3
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=120)

        assert "Traceback" not in err
        assert process.returncode == 130
        assert branches(lakefs_server, lakefs_repository) == ["main"]

    @pytest.mark.slow
    def test_a_protection_rule_that_covers_scratch_branches(
        self, shell: Shell, lakefs_server: LakefsServer, lakefs_repository: str, tmp_path: Path
    ) -> None:
        path = f"/repositories/{lakefs_repository}/settings/branch_protection"
        lakefs_server.call("PUT", path, [{"pattern": "perago-*"}])
        with lakefs_lake(lakefs_server, tmp_path / "cache") as lake:
            lake.create_branch(lakefs_repository, "perago-seen", "main")
            until = time.monotonic() + 60
            while time.monotonic() < until:
                try:
                    lake.delete(lakefs_repository, "perago-seen", ["no-such-object"])
                except LakeForbidden:
                    break
                time.sleep(0.2)

        told = examine_by_doctor(shell, lakefs_repository)

        part, rule = f"permissions on {lakefs_repository}", "let no branch protection rule"
        told.has(part, "fail", "the keys cannot write objects", rule)


class TestClocks:
    """A server whose clock is not ours, by a proxy that moves the date of its answers."""

    @pytest.mark.parametrize(
        ("shift", "level", "says"),
        [
            (-60.0, "warn", "s behind this machine's"),
            (60.0, "warn", "s ahead of this machine's"),
            (3600.0, "fail", "its gateway refuses requests beyond 900 s"),
        ],
    )
    def test_lakefs(
        self, shift: float, level: str, says: str, lakefs_server: LakefsServer, tmp_path: Path
    ) -> None:
        with fault_proxy(lakefs_server.url) as proxy:
            proxy.date_shift = shift
            told = examine_by_doctor(shell_on(tmp_path, lakefs_server, proxy.url))

        told.has("clock: lakeFS", level, says, "set this machine's clock, or the server's")

    def test_conductor(self, conductor_server: ConductorServer, tmp_path: Path) -> None:
        shell = Shell(tmp_path)
        with fault_proxy(conductor_server.url.removesuffix("/api")) as proxy:
            proxy.date_shift = 3600.0
            shell.environ |= {"HOME": str(tmp_path), "CONDUCTOR_SERVER_URL": f"{proxy.url}/api"}
            told = examine_by_doctor(shell)

        told.has("clock: Conductor", "warn", "Conductor's clock is 3", "follow NTP")


class TestConductor:
    """Conductor and the TaskDefs on it."""

    @pytest.fixture
    def shell(self, conductor_server: ConductorServer, tmp_path: Path) -> Shell:
        shell = Shell(tmp_path)
        shell.environ |= {"HOME": str(tmp_path), "CONDUCTOR_SERVER_URL": conductor_server.url}
        return shell

    def test_a_taskdef_that_is_missing_then_right_then_another(self, shell: Shell) -> None:
        name = f"doctor_{uuid.uuid4().hex[:12]}"
        file = shell.folder / "tasks.py"
        file.write_text(HEAD + TASKS.format(name=name))

        told = examine_by_doctor(shell, "--tasks", "tasks.py")
        told.has("TaskDefs", "fail", f"{name} is not registered", "run `perago register tasks.py`")

        assert shell.run_here("register", "tasks.py", "--yes").code == 0
        told = examine_by_doctor(shell, "--tasks", "tasks.py")
        assert (told.said.code, told.at("TaskDefs")[0]["says"]) == (0, f"registered as declared: {name}")

        file.write_text(HEAD + TASKS.format(name=name).replace("a@b.c", "other@b.c"))
        told = examine_by_doctor(shell, "--tasks", "tasks.py")
        told.has("TaskDefs", "fail", f"{name} is registered differently", "run `perago register tasks.py`")

    def test_the_address_of_lakefs(self, shell: Shell, lakefs_server: LakefsServer) -> None:
        shell.environ["CONDUCTOR_SERVER_URL"] = f"{lakefs_server.url}/api"

        examine_by_doctor(shell).has(
            "Conductor", "fail", "there is no Conductor", "check CONDUCTOR_SERVER_URL"
        )


def test_many_things_broken_at_once_are_all_named_by_one_command(
    lakefs_server: LakefsServer, conductor_server: ConductorServer, tmp_path: Path
) -> None:
    """The command itself, in a new process, with eight errors that do not hide each other."""
    (tmp_path / "workspaces").write_text("a file where a folder should be")
    (tmp_path / "tasks.py").write_text(HEAD + TASKS.format(name=f"doctor_{uuid.uuid4().hex[:12]}"))
    with (
        fresh_repository(lakefs_server) as repository,
        fault_proxy(
            lakefs_server.url, Fault("answer", "POST .*/merge/", times=100, status=403, text=FORBIDDEN)
        ) as proxy,
    ):
        proxy.date_shift = 3600.0
        shell = shell_on(tmp_path, lakefs_server, proxy.url)
        shell.environ |= {
            "PATH": "",
            "PERAGO_FENCE": "hard",
            "PERAGO_WORKSPACE_ROT": "misspelt",
            "PERAGO_CACHE_BYTES": "lots",
            "PERAGO_WORKSPACE_ROOT": str(tmp_path / "workspaces"),
            "CONDUCTOR_SERVER_URL": conductor_server.url,
        }
        shell.environ.pop("JAVA_HOME", None)
        said = shell.run("doctor", repository, "--tasks", "tasks.py", "--json")
        left = branches(lakefs_server, repository)

    findings = json.loads(said.out)["findings"]
    wrong = {one["part"] for one in findings if one["level"] in ("warn", "fail")}
    assert said.code == 1, said.err
    assert wrong == {
        "setting",
        "Java",
        "disk: workspaces",
        "clock: lakeFS",
        f"permissions on {repository}",
        "actions",
        f"fence of {repository}/main",
        "TaskDefs",
    }
    assert [one for one in findings if one["level"] in ("warn", "fail") and not one["remedy"]] == []
    assert left == ["main"]
